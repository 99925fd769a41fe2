"""The two levels of a case's noise: from sample to sample, and from process to process."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, ndtri

from perfsvc.judge.estimates import Floats, in_order, mean, median, middle, rank_of_median, variance
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
    taken = (np.asarray(times, dtype=np.float64) for times in replicas)
    told = [times for times in map(in_order, filter(np.size, taken)) if times.size >= LEAST]
    if not told:
        return Noise(None, None)
    medians = np.array([middle(times) for times in told])
    deviations = np.concatenate([times / center - 1 for times, center in zip(told, medians, strict=True)])
    within = NORMAL_MAD * median(np.abs(deviations))
    if len(told) < LEAST:
        return Noise(within, None)
    spread = variance(medians / mean(medians))
    errors = [_error_of_median(times, center) for times, center in zip(told, medians.tolist(), strict=True)]
    explained = mean(np.array([error**2 for error in errors]))
    return Noise(within, math.sqrt(max(spread - explained, 0.0)))


def _error_of_median(ordered: Floats, median_s: float) -> float:
    """The relative standard error of a replica's median, by the interval of ``estimate`` and what it truly covers."""
    rank = rank_of_median(ordered.size)
    return float(ordered[-rank] - ordered[rank - 1]) / (_widths(ordered.size) * median_s)


@cache
def _widths(count: int) -> float:
    """How many standard errors of a median the interval of ``estimate`` spans, for so many samples."""
    beyond = float(bdtr(rank_of_median(count) - 1, count, 0.5))
    return -2 * float(ndtri(beyond))
