"""The geometric mean of several ratios, such as those of all cases of a benchmark, with its interval."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from perfsvc.model import Judgement


@dataclass(frozen=True, slots=True)
class MeanRatio:
    """The geometric mean of ratios.

    Attributes:
        ratio: the mean; above 1 the candidate is slower.
        low: the low end of its interval; None if a ratio has no interval.
        high: the high end.
        count: the number of ratios.
    """

    ratio: float
    low: float | None
    high: float | None
    count: int


def mean_ratio(judgements: Iterable[Judgement]) -> MeanRatio | None:
    """Return the geometric mean of the judgements' ratios; None if no judgement has a finite ratio above 0.

    The interval runs from the geometric mean of the low ends to the geometric mean of the high ends: on a logarithmic
    scale, half its width is the mean of the half widths. It is not narrower for many ratios than for one, on purpose.
    All cases of a run are measured by the same few processes, and a process that is slow is slow for all of them. The
    error of a mean is never larger than the mean of the errors, however they depend on each other. If they are
    independent, the interval is wider than it had to be.

    The interval of each ratio misses its true value with the probability ``ALPHA``, 1 %. The interval of the mean
    covers the true mean with at least 95 %: ``tests/unit/judge/test_mean_ratio.py`` simulates shared, independent and
    mixed noise.
    """
    known = [row for row in judgements if row.ratio is not None and 0 < row.ratio < math.inf]
    if not known:
        return None
    ends = [_mean([row.low for row in known]), _mean([row.high for row in known])]
    low, high = (None, None) if None in ends else ends
    return MeanRatio(_mean([row.ratio for row in known]) or 1.0, low, high, len(known))


def _mean(values: list[float | None]) -> float | None:
    """Return the geometric mean of values; None if a value is unknown, 0 or infinite."""
    logs = [math.log(value) for value in values if value is not None and 0 < value < math.inf]
    return math.exp(math.fsum(logs) / len(logs)) if len(logs) == len(values) else None
