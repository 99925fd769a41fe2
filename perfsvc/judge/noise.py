"""The two levels of a case's noise: from sample to sample, and from process to process."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, ndtri

from perfsvc.judge.levels import Floats, median, median_of_sorted, median_rank, sorted_samples
from perfsvc.model import Noise

NORMAL_MAD = 1.482602218505602
"""The standard deviation of a normal distribution over its median absolute deviation."""


def noise_of(replicas: Sequence[ArrayLike]) -> Noise:
    """Return the noise of a case's times in one run, as relative standard deviations.

    ``within`` is the noise of the samples around the median of their own replica: the median absolute deviation of all
    of them, scaled to the standard deviation of normal samples. A few disturbed launches do not change it.

    ``between`` is what the replicas' medians differ by beyond their own errors. Even equal processes have different
    medians, because each median comes from a few samples. The error of each median is taken from the samples (the width
    of its distribution-free interval), whatever their distribution. ``between`` squared is the variance of the medians
    minus the mean square of those errors, or 0 if nothing is left. Samples that follow each other closely are more
    alike than others, so that a little of ``within`` may show as ``between``, and never the other way round.

    Args:
        replicas: for each replica its times in seconds, shape (n,). Replicas of fewer than two samples are ignored.

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
    ordered = [times for times in map(sorted_samples, filter(np.size, replicas)) if times.size > 1]
    if not ordered:
        return Noise(None, None)
    medians = np.array([median_of_sorted(times) for times in ordered])
    deviations = np.concatenate([times / center - 1 for times, center in zip(ordered, medians, strict=True)])
    within = NORMAL_MAD * median(np.abs(deviations))
    if len(ordered) == 1:
        return Noise(within, None)
    errors = np.array([_error_of_median(times) for times in ordered]) / medians
    variance = float(np.var(medians / medians.mean(), ddof=1) - np.mean(errors**2))
    return Noise(within, max(variance, 0.0) ** 0.5)


def _error_of_median(times: Floats) -> float:
    """Return the standard error of the median of sorted times, from the width and true coverage of its interval."""
    rank = median_rank(times.size)
    return float(times[-rank] - times[rank - 1]) / _interval_width(times.size)


@cache
def _interval_width(count: int) -> float:
    """Return how many standard errors wide the interval that ``estimate`` gives for ``count`` samples is."""
    return -2 * float(ndtri(float(bdtr(median_rank(count) - 1, count, 0.5))))
