"""Devices, which run binaries: one protocol, three implementations (CUDA, CPU, fake)."""

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable that limits which GPUs a process sees. CUDA's driver reads it when it starts."""

NVTX_DOMAIN = "perfsvc"
"""The NVTX domain of all of perfsvc's ranges."""
NVTX_PROFILED = "measure"
"""The NVTX range around the one launch that a profiler examines."""
