"""A history in one line of text."""

from collections.abc import Sequence
from math import isfinite

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "


def sparkline(values: Sequence[float | None]) -> str:
    """One block a value, the lowest the shortest and the highest the tallest; a space where there is no finite value.

    Equal values all get the shortest block.
    """
    known = [value for value in values if value is not None and isfinite(value)]
    if not known:
        return GAP * len(values)
    low, span = min(known), max(known) - min(known)
    return "".join(_block(value, low, span) for value in values)


def _block(value: float | None, low: float, span: float) -> str:
    if value is None or not isfinite(value):
        return GAP
    return BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))] if span else BLOCKS[0]
