"""Levels compared by their ratios."""

from math import log


def is_nearer(level: float | None, one: float | None, other: float | None) -> bool:
    """Whether a level is nearer to one than to another, by ratios; no where any of them is unknown, or zero."""
    if not level or not one or not other:
        return False
    return abs(log(level / one)) < abs(log(level / other))
