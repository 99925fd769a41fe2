"""Baselines: the runs that each series is compared with, and the series that a run should have."""
