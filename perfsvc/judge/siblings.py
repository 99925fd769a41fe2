"""Whether a GPU is slower than the other GPUs of its model, and the mean ratio of many series."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from perfsvc.judge.levels import Floats
from perfsvc.model import Judgement


@dataclass(frozen=True, slots=True)
class MeanRatio:
    """The geometric mean of ratios.

    Attributes:
        ratio: the mean; above 1 the candidate is slower. None without ratios.
        low: the low end of its interval; None if a ratio has no interval.
        high: the high end.
        count: the number of ratios.
    """

    ratio: float | None
    low: float | None
    high: float | None
    count: int


def mean_ratio(judgements: Iterable[Judgement]) -> MeanRatio:
    """Return the geometric mean of those of the judgements' ratios that are finite and above 0.

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
    ends = [_mean([row.low for row in known]), _mean([row.high for row in known])]
    low, high = (None, None) if None in ends else ends
    return MeanRatio(_mean([row.ratio for row in known]), low, high, len(known))


def _mean(values: list[float | None]) -> float | None:
    """Return the geometric mean of values; None if there is no value, or if one is unknown, 0 or infinite."""
    logs = [math.log(value) for value in values if value is not None and 0 < value < math.inf]
    return math.exp(math.fsum(logs) / len(logs)) if logs and len(logs) == len(values) else None


SIBLING_SPREAD = 0.01
"""The standard deviation of the speeds of GPUs of one model without a fault: they differ by 1 to 3 %, because their
chips, coolers and places in a rack differ."""

SIBLING_DEVIATIONS = 3.0
"""How many standard deviations slower than its siblings a GPU must be."""

SIBLING_NIGHTS = 5
"""How many of a GPU's newest nights are compared."""

AGREEING_NIGHTS = 3
"""In how many of these nights, the newest included, a GPU must be slower: a warm night alone says nothing."""

RECOVERED_NIGHTS = 2
"""In how many of the newest nights a GPU must be as fast as its siblings, to be so again."""

RECOVERED_SHARE = 2 / 3
"""The share of the threshold within which a GPU is as fast as its siblings again. Between both it stays what it was."""

_Z95 = 1.96


@dataclass(frozen=True, slots=True)
class RatioToSiblings:
    """A GPU against the other GPUs of its model.

    Attributes:
        ratio: the median over the cases; above 1 the GPU is slower.
        low: the lower quartile over the cases.
        high: the upper quartile.
        cases: the number of cases that the GPU and any sibling measured.
        siblings: the number of siblings that measured any of these cases.
        interval: the 95 % confidence interval of ``ratio``, from the order of the cases.
    """

    ratio: float
    low: float
    high: float
    cases: int
    siblings: int
    interval: tuple[float, float]


def ratio_to_siblings(own: Floats, siblings: Floats) -> RatioToSiblings | None:
    """Return the ratio of a GPU's times to the median times of its siblings; None if they share no case.

    Args:
        own: the time of each case in seconds, shape (cases,); NaN if the GPU did not measure it.
        siblings: the times of the other GPUs with the same binaries, shape (siblings, cases); NaN likewise.
    """
    if not siblings.size:
        return None
    measured = siblings > 0
    shared = (own > 0) & measured.any(axis=0)
    if not shared.any():
        return None
    ratios = np.sort(own[shared] / np.nanmedian(np.where(measured, siblings, np.nan)[:, shared], axis=0))
    low, middle, high = (float(value) for value in np.quantile(ratios, [0.25, 0.5, 0.75]))
    # The number of cases below the true median is binomial (Hahn and Meeker, Statistical Intervals, 1991, 5.2).
    rank = max(int((len(ratios) - _Z95 * sqrt(len(ratios))) / 2), 0)
    interval = float(ratios[rank]), float(ratios[len(ratios) - 1 - rank])
    return RatioToSiblings(middle, low, high, len(ratios), int(measured[:, shared].any(axis=1).sum()), interval)


def sibling_threshold(siblings: int) -> float:
    """Return by which fraction a GPU must be slower than the median of some siblings, to count as slower.

    The fewer siblings there are, the more their median deviates from the speed of the model.
    """
    return SIBLING_DEVIATIONS * SIBLING_SPREAD * sqrt(1 + 1 / siblings)


def is_slower_than_siblings(nights: Sequence[tuple[float, int]]) -> bool:
    """Return True if a GPU is slower than its siblings in its newest night, and in ``AGREEING_NIGHTS`` nights in all.

    Args:
        nights: the ratio and the number of siblings in each of the newest nights, the newest first; only
            ``SIBLING_NIGHTS`` of them count.
    """
    slower = [ratio > 1 + sibling_threshold(siblings) for ratio, siblings in nights[:SIBLING_NIGHTS]]
    return sum(slower) >= AGREEING_NIGHTS and slower[0]


def is_as_fast_as_siblings(nights: Sequence[tuple[float, int]]) -> bool:
    """Return True if a GPU that was slower than its siblings is as fast as they are again.

    Args:
        nights: as for ``is_slower_than_siblings``; the ``RECOVERED_NIGHTS`` newest must be well within the threshold.
    """
    newest = nights[:RECOVERED_NIGHTS]
    return len(newest) == RECOVERED_NIGHTS and all(
        ratio <= 1 + RECOVERED_SHARE * sibling_threshold(siblings) for ratio, siblings in newest
    )
