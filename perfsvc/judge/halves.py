"""Whether something in between two levels is like the one or like the other."""

import math


def boundary(ratio: float) -> float:
    """The ratio to the good level that parts what is like it from what is like the bad one: half the way between them.

    Of the logarithms, that is, so that either level is as far from it as can be.

    Args:
        ratio: of the bad level to the good one; above 1 it is slower.
    """
    return math.sqrt(ratio)


def beyond(low: float | None, high: float | None, limit: float) -> bool | None:
    """Whether a level lies beyond a boundary, as the whole interval of its ratio to the good level says.

    None where the interval holds the boundary, or there is none. So a level is put on the wrong side at most as often
    as an interval misses the true ratio: with probability ``alpha`` over all looks together.

    Args:
        low: where the interval begins.
        high: where it ends.
        limit: the boundary; above 1 where slower is bad, below 1 where faster is looked for.
    """
    if low is None or high is None or low <= limit <= high:
        return None
    return (low > limit) is (limit > 1)
