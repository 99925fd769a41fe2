"""The two levels of a case's noise: from sample to sample, and from process to process."""

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, ndtri

from perfsvc.judge.estimates import Floats, in_order, middle, rank_of_median
from perfsvc.model import Noise

NORMAL_MAD = 1.482602218505602
"""The standard deviation of a normal distribution over its median absolute deviation."""
LEAST = 2
"""Samples of a replica, and replicas of a case, below which there is no spread to see."""


def noises(cases: Iterable[Sequence[ArrayLike]]) -> list[Noise]:
    """The noise of each case's times in one run, as relative standard deviations.

    ``within`` is that of the samples around the median of their own replica: the median absolute deviation of all of
    them, scaled to what it is of normal samples, so that a few launches that something disturbed do not count.

    ``between`` is what the replicas' medians differ by beyond it. Even equal processes have different medians, for each
    is taken from so many samples; the error of each median is read off the samples themselves (the width of its
    distribution-free interval), whatever their distribution. What the medians vary by, less the mean square of those
    errors, is the variance between processes; where nothing is left, it is 0. Samples that follow each other closely
    are more alike than others, so that a little of ``within`` may show as ``between``, and never the other way round.

    Cases with as many samples are worked out together.

    Args:
        cases: for each case and each of its replicas the times in seconds, shape (n,). Replicas of fewer than two
            samples tell nothing.

    Returns:
        In the order of the cases. ``within`` is None without a replica of two samples, ``between`` without two such
        replicas.

    Raises:
        ValueError: a time that is not finite or not above zero.

    Source:
        F. R. Hampel (1974), The influence curve and its role in robust estimation, J. Am. Stat. Assoc. 69 (the median
        absolute deviation); J. W. McKean and R. M. Schrader (1984), A comparison of methods for studentizing the sample
        median, Commun. Stat. Simul. Comput. 13(6) (the error of a median); variance components by subtraction: S. R.
        Searle, G. Casella and C. E. McCulloch (1992), Variance Components, Wiley, chapter 3.
    """
    told = [_told(replicas) for replicas in cases]
    alike: dict[tuple[int, ...], list[int]] = {}
    for place, replicas in enumerate(told):
        alike.setdefault(tuple(times.size for times in replicas), []).append(place)
    found = {
        place: one
        for sizes, places in alike.items()
        for place, one in zip(places, _of_alike(sizes, [told[place] for place in places]), strict=True)
    }
    return [found[place] for place in range(len(told))]


def _told(replicas: Sequence[ArrayLike]) -> list[Floats]:
    """The replicas that tell anything, each in its order."""
    taken = (np.asarray(times, dtype=np.float64) for times in replicas)
    return [times for times in map(in_order, filter(np.size, taken)) if times.size >= LEAST]


def _of_alike(sizes: tuple[int, ...], cases: Sequence[Sequence[Floats]]) -> list[Noise]:
    """The noise of cases whose replicas have so many samples, which are in their order."""
    if not sizes:
        return [Noise(None, None) for _ in cases]
    replicas = [np.array(same) for same in zip(*cases, strict=True)]  # each of the shape (cases, samples)
    medians = np.array([[middle(times) for times in case] for case in cases])
    centers = medians.T[:, :, np.newaxis]
    deviations = [times / center - 1 for times, center in zip(replicas, centers, strict=True)]
    apart = np.sort(np.abs(np.concatenate(deviations, axis=1)), axis=1)
    within = [NORMAL_MAD * middle(ordered) for ordered in apart]
    if len(sizes) < LEAST:
        return [Noise(one, None) for one in within]
    relative = medians / (np.add.reduce(medians, axis=1) / len(sizes))[:, np.newaxis]
    aside = relative - (np.add.reduce(relative, axis=1) / len(sizes))[:, np.newaxis]
    spreads = np.add.reduce(aside * aside, axis=1) / (len(sizes) - 1)
    explained = np.add.reduce(_squared_errors(sizes, replicas, medians), axis=1) / len(sizes)
    between = np.sqrt(np.maximum(spreads - explained, 0.0)).tolist()
    return [Noise(*both) for both in zip(within, between, strict=True)]


def _squared_errors(sizes: tuple[int, ...], replicas: Sequence[Floats], medians: Floats) -> Floats:
    """The squares of the relative standard errors of the replicas' medians, shape (cases, replicas).

    Each is by the interval of ``estimate`` and what it truly covers.
    """
    ranks = map(rank_of_median, sizes)
    widths = [times[:, -rank] - times[:, rank - 1] for times, rank in zip(replicas, ranks, strict=True)]
    errors = np.array(widths).T / (np.array([_widths(size) for size in sizes]) * medians)
    return np.float_power(errors, 2)  # as ** of a float: errors * errors is another one in its last bit at times


@cache
def _widths(count: int) -> float:
    """How many standard errors of a median the interval of ``estimate`` spans, for so many samples."""
    beyond = float(bdtr(rank_of_median(count) - 1, count, 0.5))
    return -2 * float(ndtri(beyond))
