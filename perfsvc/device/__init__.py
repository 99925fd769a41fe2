"""Devices: where binaries run. One protocol, three implementations (CUDA, CPU, fake)."""

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable by which CUDA's driver, when it starts, learns which GPUs a process may see."""

NVTX_DOMAIN = "perfsvc"
"""The NVTX domain of all ranges of ours."""
NVTX_PROFILED = "measure"
"""The NVTX range around the one launch that a profiler is to look at."""
