"""A run, from a folder of benchmarks to verdicts: the targets, the plan, the record, the measured peak."""
