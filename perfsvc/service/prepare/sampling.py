"""How cases are sampled by default."""

from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import DeviceInfo

GPU_SAMPLING = Sampling(least_s=0.06, places=8)
"""The median of a long kernel reaches the default precision after a few milliseconds. Sampling for 60 ms halves the
remaining noise; for a replica of ten cases that takes no longer than starting its worker."""
CPU_SAMPLING = Sampling(samples=20, seconds=0.15, least=20, recovery_s=0.0)
"""The CPU device's times are rough, so sampling is short and does not aim for a precision."""


def default_sampling(device: DeviceInfo) -> Sampling:
    """Return how cases are sampled on a device by default."""
    return {"cpu": CPU_SAMPLING, "cuda": GPU_SAMPLING}.get(device.kind, Sampling())
