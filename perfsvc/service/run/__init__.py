"""Measure a suite: perfsvc run, and the run of a night."""
