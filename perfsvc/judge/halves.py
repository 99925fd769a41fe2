"""Whether something in between two levels is like the one or like the other."""

import math


def boundary(ratio: float, threshold: float) -> float:
    """The ratio to the good level that parts what is like it from what moved.

    A level that lies beyond the threshold has moved. Where the bad level itself lies hardly farther than that, half the
    way to it (of the logarithms) is the boundary, so that either is as far from it as can be.

    Args:
        ratio: of the bad level to the good one; above 1 it is slower.
        threshold: the smallest relevant change, as a fraction.
    """
    limit = min(math.log1p(threshold), abs(math.log(ratio)) / 2)
    return math.exp(math.copysign(limit, math.log(ratio)))


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
