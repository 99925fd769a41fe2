"""The words of measured peaks, and of shares of them."""

from perfsvc import units
from perfsvc.model import L2, LINK, MEMORY, PEAK_NAMES

RIDGE = 10
"""Operations a byte from which FLOP/s say more about a case than its bandwidth."""


def is_arithmetic(flops_per_s: float | None, bytes_per_s: float | None) -> bool:
    """Return whether FLOP/s say more about a case than its bandwidth: it does more than ``RIDGE`` operations a byte."""
    return (flops_per_s or 0.0) > RIDGE * (bytes_per_s or 0.0)


def share(peak: str, of_peak: float | None) -> str:
    """Return a share of a measured peak: ``93 %`` of the memory's, ``79 % BF16``; empty for None."""
    if of_peak is None:
        return ""
    return units.share(of_peak) if peak == MEMORY else f"{units.share(of_peak)} {PEAK_NAMES[peak]}"


def rate(peak: str, measured: float) -> str:
    """Return a measured peak with its name: ``L2 7.95 TB/s``, ``BF16 915 TFLOP/s``."""
    return f"{PEAK_NAMES[peak]} {units.rate(measured) if peak in {MEMORY, L2, LINK} else units.flop_rate(measured)}"
