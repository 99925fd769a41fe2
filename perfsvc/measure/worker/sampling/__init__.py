"""Samples of one case: warm-up, batches, stopping rules, auxiliary metrics."""
