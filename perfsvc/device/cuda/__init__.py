"""NVIDIA GPUs through PyCUDA; no other package imports it."""
