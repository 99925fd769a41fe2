"""The words of measured peaks, and of shares of them."""

from perfsvc import units
from perfsvc.model import L2, LINK, MEMORY, PEAK_NAMES


def share(peak: str, of_peak: float | None) -> str:
    """Return a share of a measured peak: ``93 %`` of the memory's, ``79 % BF16``; empty for None."""
    if of_peak is None:
        return ""
    return units.share(of_peak) if peak == MEMORY else f"{units.share(of_peak)} {PEAK_NAMES[peak]}"


def rate(peak: str, measured: float) -> str:
    """Return a measured peak with its name: ``L2 7.95 TB/s``, ``BF16 915 TFLOP/s``."""
    return f"{PEAK_NAMES[peak]} {units.rate(measured) if peak in {MEMORY, L2, LINK} else units.flop_rate(measured)}"
