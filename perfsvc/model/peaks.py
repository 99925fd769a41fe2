"""The measured peaks of a GPU: the highest measured rates of its memory, its L2 cache and its arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

MEMORY = "memory"
L2 = "l2"
LINK = "link"
PRECISIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "fp64": ("fp64", "fp64_tensor"),
        "fp32": ("fp32",),
        "tf32": ("tf32",),
        "bf16": ("bf16",),
        "fp16": ("fp16",),
        "fp8": ("fp8",),
    }
)
"""The peaks that limit operations in a precision, the slowest precision first. The GPU may use any unit that computes
in the precision, so the highest of its peaks is the limit."""

PEAK_NAMES: Mapping[str, str] = MappingProxyType(
    {
        MEMORY: "memory",
        L2: "L2",
        LINK: "link",
        "fp64": "FP64",
        "fp64_tensor": "FP64 tensor",
        "fp32": "FP32",
        "tf32": "TF32",
        "bf16": "BF16",
        "fp16": "FP16",
        "fp8": "FP8",
    }
)
"""How reports write a peak, by its name."""

LEAST_RATE = 1e-3
MOST_RATE = 1e20
"""A stored rate outside of this range is not taken for a measured peak."""

IN_L2, BEYOND_L2 = 0.5, 2.0
"""The arrays of a warm case are in the L2 cache if they fill at most half of it: the caches of recent GPUs have two
halves, and what both need is in both. Of arrays up to twice as large as the cache, an unknown part is in it, so their
bandwidth has no peak."""

Rates = Mapping[str, float]
"""The measured peaks of a GPU by name: bytes a second for ``memory``, ``l2`` and ``link``, else operations a second."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The measured peak bandwidth of a device's memory, for a copy (reading and writing) and for reading alone."""

    copy_bytes_per_s: float
    read_bytes_per_s: float

    @property
    def best_bytes_per_s(self) -> float:
        """The higher of both: the limit of the device."""
        return max(self.copy_bytes_per_s, self.read_bytes_per_s)


@dataclass(frozen=True, slots=True)
class PeakShare:
    """How near a case comes to a measured peak: the name of the peak, and the case's rate over the peak."""

    peak: str
    share: float


def plausible(rate: object) -> bool:
    """Return whether a stored rate is possible for a GPU: another program may have changed the database."""
    return isinstance(rate, int | float) and LEAST_RATE < rate < MOST_RATE


def peak_of(precision: str, rates: Rates) -> float | None:
    """Return the highest measured rate in a precision, in operations a second; None if it is not known.

    Every GPU that computes in TF32 also has tensor cores for FP64, which are faster than its other units. Without the
    rate of these tensor cores, the limit in FP64 is not known.
    """
    if precision == "fp64" and "tf32" in rates and "fp64_tensor" not in rates:
        return None
    return max((rates[name] for name in PRECISIONS.get(precision, ()) if name in rates), default=None)


def peak_of_case(
    time_s: float | None,
    moved_bytes: int,
    flops: int,
    precision: str,
    rates: Rates,
    *,
    warm: bool,
    l2_bytes: int,
    link_bytes: int = 0,
) -> PeakShare | None:
    """Return the share of the measured peak that a case comes nearest to; None if the time or the peak is unknown.

    Args:
        time_s: the time of a launch in seconds; None if unknown.
        moved_bytes: the bytes that a launch reads and writes; 0 if unknown, like ``flops`` and ``link_bytes``.
        flops: the operations of a launch.
        precision: of the operations, a key of ``PRECISIONS``; empty if unknown.
        rates: the measured peaks of the GPU.
        warm: whether the case finds its arrays in the L2 cache, as far as they fit in.
        l2_bytes: the size of the L2 cache.
        link_bytes: the bytes of a launch over the busiest link between two GPUs.
    """
    if not time_s:
        return None
    partly_in_l2 = warm and IN_L2 * l2_bytes < moved_bytes < BEYOND_L2 * l2_bytes
    bandwidth = L2 if warm and moved_bytes <= IN_L2 * l2_bytes else MEMORY
    limits = (
        (bandwidth, moved_bytes, None if partly_in_l2 else rates.get(bandwidth)),
        (precision, flops, peak_of(precision, rates)),
        (LINK, link_bytes, rates.get(LINK)),
    )
    shares = [PeakShare(name, count / time_s / peak) for name, count, peak in limits if count and peak]
    return max(shares, key=lambda near: near.share, default=None)
