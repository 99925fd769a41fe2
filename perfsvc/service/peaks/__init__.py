"""The measured peaks of a GPU: how fast it computes, and how fast its memory and its L2 cache deliver.

A run measures them like cases, before its own cases: the memory in every run, since its rate shows the health of a GPU;
the others once for each driver and power limit. On a group of GPUs, it measures the link between them. Results are
shown as shares of the nearest peak, and a case that declares more work than a peak allows is doubted.
"""

from dataclasses import replace

from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import LINK, DeviceInfo
from perfsvc.service.peaks import kernels, links, memory
from perfsvc.suite import CaseSpec


def specs(device: DeviceInfo) -> tuple[CaseSpec, ...]:
    """Return the cases that measure the peaks of a device; none for the CPU device."""
    if device.gpus > 1:
        return links.specs(device)
    return (*memory.specs(device), *kernels.specs(device))


def sampling(spec: CaseSpec, most_s: float) -> Sampling:
    """Return how a case of ``specs`` is sampled; sampling, and waiting for the GPU, take at most ``most_s`` seconds."""
    own = {LINK: links.SAMPLING, **dict.fromkeys(memory.VARIANTS, memory.SAMPLING)}
    how = own.get(spec.case.variant, kernels.SAMPLING)
    return replace(how, seconds=min(how.seconds, most_s), recovery_s=min(how.recovery_s, most_s))
