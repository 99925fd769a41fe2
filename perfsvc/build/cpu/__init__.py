"""Compile CUDA C++ for the CPU device with a C++ compiler of the host."""
