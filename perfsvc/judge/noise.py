"""The two levels of a case's noise: from sample to sample, and from process to process."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, ndtri

from perfsvc.judge.estimates import Floats, checked, estimate, median, rank_of_median
from perfsvc.model import Noise

NORMAL_MAD = 1.482602218505602
"""The standard deviation of a normal distribution over its median absolute deviation."""
LEAST = 2
"""Samples of a replica, and replicas of a case, below which there is no spread to see."""


def noise(replicas: Sequence[ArrayLike]) -> Noise:
    """The noise of a case's times in one run, as relative standard deviations.

    ``within`` is that of the samples around the median of their own replica: the median absolute deviation of all of
    them, scaled to what it is of normal samples, so that a few launches that something disturbed do not count.

    ``between`` is what the replicas' medians differ by beyond it. Even equal processes have different medians, for each
    is taken from so many samples; the error of each median is read off the samples themselves (the width of its
    distribution-free interval), whatever their distribution. What the medians vary by, less the mean square of those
    errors, is the variance between processes; where nothing is left, it is 0. Samples that follow each other closely
    are more alike than others, so that a little of ``within`` may show as ``between``, and never the other way round.

    Args:
        replicas: for each replica its times in seconds, shape (n,). Those of fewer than two samples tell nothing.

    Returns:
        ``within`` is None without a replica of two samples, ``between`` without two such replicas.

    Raises:
        ValueError: a time that is not finite or not above zero.

    Source:
        F. R. Hampel (1974), The influence curve and its role in robust estimation, J. Am. Stat. Assoc. 69 (the median
        absolute deviation); J. W. McKean and R. M. Schrader (1984), A comparison of methods for studentizing the sample
        median, Commun. Stat. Simul. Comput. 13(6) (the error of a median); variance components by subtraction: S. R.
        Searle, G. Casella and C. E. McCulloch (1992), Variance Components, Wiley, chapter 3.
    """
    told = [times for times in map(checked, filter(_has_any, replicas)) if times.size >= LEAST]
    if not told:
        return Noise(None, None)
    medians = np.array([median(times) for times in told])
    deviations = np.concatenate([times / middle - 1 for times, middle in zip(told, medians, strict=True)])
    within = NORMAL_MAD * median(np.abs(deviations))
    if len(told) < LEAST:
        return Noise(within, None)
    spread = float(np.var(medians / medians.mean(), ddof=1))
    explained = float(np.mean([_error_of_median(times) ** 2 for times in told]))
    return Noise(within, math.sqrt(max(spread - explained, 0.0)))


def _has_any(times: ArrayLike) -> bool:
    return np.size(times) > 0


def _error_of_median(times: Floats) -> float:
    """The relative standard error of a replica's median, by the interval of ``estimate`` and what it truly covers."""
    found = estimate(times)
    return (found.high_s - found.low_s) / (_widths(times.size) * found.median_s)


@cache
def _widths(count: int) -> float:
    """How many standard errors of a median the interval of ``estimate`` spans, for so many samples."""
    beyond = float(bdtr(rank_of_median(count) - 1, count, 0.5))
    return -2 * float(ndtri(beyond))
