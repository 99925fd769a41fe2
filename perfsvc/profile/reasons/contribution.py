"""What one reason contributes to a slowdown, and how its numbers are written."""

from dataclasses import dataclass

from perfsvc.model import Profile

SECTOR_BYTES = 32
WARP = 32
MIN_GROWTH = 0.02
"""The smallest growth, as a logarithm: two launches of one kernel may differ by this much."""
ACCESSES = ("load", "store")
CACHES = ("dram_throughput", "l2_throughput")


@dataclass(frozen=True, slots=True)
class Contribution:
    """How much of the time difference one reason can explain.

    Attributes:
        share: the share of the time difference that the reason can explain, from 0 to 1.
        detail: how the two profiles differ, as text: ``tensor pipe busy 60 % → 0 %``.
        evidence: the names of the metrics that show the reason.
    """

    share: float
    detail: str
    evidence: tuple[str, ...]


def grew(values: tuple[float, float] | None) -> bool:
    """Return True if the value of the slow launch is larger than that of the fast launch; False if unknown."""
    return values is not None and values[1] > 0 and values[1] - values[0] >= MIN_GROWTH * values[1]


def loads_and_stores(profile: Profile, name: str) -> float | None:
    """Return a metric's sum over loads and stores (``{}`` in its name); None if one of them was not counted."""
    load, store = (profile.metrics.get(name.format(access)) for access in ACCESSES)
    return None if load is None or store is None else load + store


def rounded(value: float, further: int = 0) -> str:
    """Return a number without decimals, or with some further digits."""
    return f"{value:.{further}f}"


def waves_text(number: float, further: int = 0) -> str:
    """Return a number of waves with four digits, or some further digits."""
    return f"{number:.{4 + further}g}"


def percent(share: float, further: int = 0) -> str:
    """Return a share as per cent, with some further digits: ``12 %``."""
    return f"{100 * share:.{further}f} %"


def count(number: float, further: int = 0) -> str:
    """Return a number with an SI prefix and three digits, or some further digits: ``6.82 M``."""
    for power, prefix in ((9, "G"), (6, "M"), (3, "k")):
        if abs(number) >= 10**power:
            return f"{number / 10**power:.{3 + further}g} {prefix}"
    return f"{number:.0f}"


def bytes_text(number: float, further: int = 0) -> str:
    """Return a number of bytes with an SI prefix: ``6.82 MB``."""
    return f"{count(number, further)}B" if number >= 1000 else f"{number:.0f} B"  # noqa: PLR2004 - the first prefix
