"""perfsvc: a performance-regression service for CUDA kernels.

Importing this package is free: every room is imported where it is used.
"""

__version__ = "0.1.0"
