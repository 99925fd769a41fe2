"""Doubt the declared work of a case that is more than the measured peaks of the GPU allow."""

from perfsvc.device.memory import array_bytes
from perfsvc.model import MEMORY, DeviceInfo, Rates, peak_of
from perfsvc.report.rows import Doubt
from perfsvc.service.peaks.kernels import FULL_RATE
from perfsvc.service.peaks.memory import BEYOND_L2
from perfsvc.suite import CaseSpec

BYTES_TOLERATED = 1.05
"""No case can exceed the peak of the memory by more than this factor. It covers the noise of both measurements, and
the last per cent of the bandwidth, which our kernels do not reach."""
FLOPS_TOLERATED = 1.25
"""The peak of arithmetic is what the GPU sustains. A short kernel may end before the GPU lowers its clock for the load:
an H100 then computes 1.2 times as fast."""


ONE_RATE = ("fp32", "fp64")
"""The precisions whose measured peak is the limit on every GPU."""


def doubt(spec: CaseSpec, device: DeviceInfo, median_s: float, rates: Rates) -> Doubt | None:
    """Return a doubt if a case declares more bytes or operations than the GPU can do in its time, else None.

    Buffers that are not much larger than the L2 cache may be read from the cache, so the bytes of such a case are never
    doubted.

    Args:
        spec: the case.
        device: the GPU.
        median_s: the time of a launch.
        rates: the measured peaks of the GPU.
    """
    work, memory, arithmetic = spec.work, rates.get(MEMORY), peak_of(spec.work.precision, rates)
    footprint = sum(array_bytes(buffer.array) for buffer in spec.buffers)
    beyond_l2 = 0 < BEYOND_L2 * device.l2_bytes <= footprint
    if memory and beyond_l2 and work.bytes > BYTES_TOLERATED * memory * median_s:
        return Doubt(spec.case, device.uuid, spec.cache, MEMORY, work.bytes, work.bytes / median_s, memory)
    is_limit = work.precision in ONE_RATE or device.target in FULL_RATE
    if arithmetic and is_limit and work.flops > FLOPS_TOLERATED * arithmetic * median_s:
        return Doubt(spec.case, device.uuid, spec.cache, work.precision, work.flops, work.flops / median_s, arithmetic)
    return None


def note(doubted: Doubt) -> str:
    """Return a doubt as the note of a measurement."""
    what = "bytes than the GPU's memory can move" if doubted.peak == MEMORY else "operations than the GPU can do"
    return f"its work is declared as more {what} in that time"
