"""NVIDIA GPUs through PyCUDA: the only room of the house that imports it."""
