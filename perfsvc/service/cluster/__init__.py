"""Measure a run's cases on GPUs that a cluster lends: one agent for each GPU, on the host of this GPU."""
