"""The level of a series: one number with an interval, from the samples of a replica or from the replicas of a run."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, stdtrit

from perfsvc.model import Estimate

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
"""The coverage of intervals unless a caller asks for another."""


def estimate(samples: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """Return the median of one replica's samples with its distribution-free confidence interval.

    The interval runs from the k-th smallest to the k-th largest sample. The number of samples below the true median is
    binomial with p = 1/2 whatever the distribution, so k is the largest rank for which P(Bin(n, 1/2) < k) is at most
    (1 - confidence) / 2. If even the smallest and the largest sample do not reach the confidence (fewer than 6 samples
    at 95 %), the interval is [min, max].

    The interval holds for this replica alone: the next process has another median (see ``level_of``).

    Args:
        samples: times in seconds, shape (n,), in any order.
        confidence: the coverage of the interval, between 0 and 1.

    Raises:
        ValueError: no samples, or one that is not finite or not above zero.

    Source:
        H. A. David and H. N. Nagaraja, Order Statistics, 3rd ed. (Wiley 2003), section 7.1.
    """
    times = sorted_samples(samples)
    rank = median_rank(times.size, confidence)
    return Estimate(
        median_s=median_of_sorted(times),
        low_s=float(times[rank - 1]),
        high_s=float(times[times.size - rank]),
        samples=int(times.size),
    )


@cache
def median_rank(count: int, confidence: float = CONFIDENCE) -> int:
    """Return the rank k, from 1, of the sample at which the interval of ``estimate`` begins, for ``count`` samples."""
    below = bdtr(np.arange((count + 1) // 2), count, 0.5)
    return max(int(np.searchsorted(below, _tail(confidence), side="right")), 1)


def level_of(replicas: Sequence[Estimate], confidence: float = CONFIDENCE) -> Estimate:
    """Return the level of a case in one run: the geometric mean of its replicas' medians.

    The interval comes from the spread of the replicas. The ratio of two levels is the ratio that ``compare`` gives.
    One replica shows no spread between replicas; its level has the interval of its own median.

    Args:
        replicas: the ``estimate`` of each replica, with the same confidence.
        confidence: the coverage of the interval, between 0 and 1.

    Raises:
        ValueError: no replica, or a median that is not above zero.
    """
    medians = replica_medians([[replica.median_s] for replica in replicas])
    if len(replicas) == 1:
        return replicas[0]
    samples = sum(replica.samples for replica in replicas)
    return _estimate_of_replicas(medians, confidence, samples)


def level_of_metric(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return the level of a named metric in one run, from one value a replica, in the metric's own unit.

    One value alone is its own interval.

    Args:
        values: shape (replicas,).
        confidence: the coverage of the interval, between 0 and 1.

    Raises:
        ValueError: no value, or one that is not finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if not array.size or not np.isfinite(array).all():
        raise ValueError("a level needs the finite value of at least one replica")
    if array.size == 1:
        return Estimate(float(array[0]), float(array[0]), float(array[0]), 1)
    return _estimate_of_replicas(array, confidence, array.size)


def center_of(values: Floats) -> float:
    """Return the level of some replicas' values, shape (replicas,), without its interval."""
    centers, _, _ = levels_of(values[None, :])
    return float(centers[0])


def levels_of(values: Floats, confidence: float = CONFIDENCE) -> tuple[Floats, Floats, Floats]:
    """Return the level of each of many runs, and the low and high ends of its interval, each of shape (runs,).

    A level is the geometric mean of the replicas' values, with Student's interval of the mean of their logarithms. A
    run with a value of zero or below has no geometric mean: its level is the arithmetic mean with Student's interval.

    Args:
        values: one value a run and replica, shape (runs, replicas); NaN if there is no such replica. The ends of a run
            with one replica are NaN; so is everything of a run without any.
        confidence: the coverage of the intervals, between 0 and 1.

    Source:
        Student (1908), The probable error of a mean, Biometrika 6(1).
    """
    replicas = (~np.isnan(values)).sum(axis=1)
    positive = np.logical_not(np.any(values <= 0, axis=1))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Relative to the largest value, equal values have logarithms of exactly 0 and an exact mean.
        unit = np.fmax.reduce(values, axis=1)
        terms = np.where(positive[:, None], np.log(values / unit[:, None]), values)
        mean = np.nansum(terms, axis=1) / replicas
        squares = np.nansum((terms - mean[:, None]) ** 2, axis=1)
        half = stdtrit(replicas - 1.0, 1 - _tail(confidence)) * np.sqrt(squares / (replicas - 1) / replicas)
        center = np.where(positive, unit * np.exp(mean), mean)
        low = np.where(positive, center * np.exp(-half), mean - half)
        high = np.where(positive, center * np.exp(half), mean + half)
    return center, low, high


def replica_medians(replicas: Sequence[ArrayLike]) -> Floats:
    """Return the median of each replica's times, shape (replicas,).

    Raises:
        ValueError: no replicas, or times that ``sorted_samples`` refuses.
    """
    if not len(replicas):
        raise ValueError("no replicas: a level needs the samples of at least one")
    return np.array([median_of_sorted(sorted_samples(replica)) for replica in replicas])


def median(values: Floats) -> float:
    """Return the median; it is finite if the values are, even if the sum of the middle two overflows."""
    return median_of_sorted(np.sort(values))


def median_of_sorted(ordered: Floats) -> float:
    """Return the median of values in ascending order."""
    low, high = float(ordered[(ordered.size - 1) // 2]), float(ordered[ordered.size // 2])
    middle = (low + high) / 2
    return middle if math.isfinite(middle) else low / 2 + high / 2


def sorted_samples(samples: ArrayLike, *, allow_zero: bool = False) -> Floats:
    """Return the samples of one replica in ascending order, shape (n,).

    Raises:
        ValueError: no samples, more than one axis, or a sample that is not finite, below zero, or zero unless
            ``allow_zero``.
    """
    times = np.asarray(samples, dtype=np.float64)
    if times.ndim != 1:
        raise ValueError(f"samples of one replica have one axis, not {times.ndim}")
    if not times.size:
        raise ValueError("no samples: a median needs at least one")
    times = np.sort(times)
    if not np.isfinite(times[[0, -1]]).all():  # NaN is sorted last
        raise ValueError("a sample is not a finite number")
    if times[0] < 0 or (times[0] == 0 and not allow_zero):
        raise ValueError(f"a sample is {times[0]:g}, and times are {'not below' if allow_zero else 'above'} zero")
    return times


def _estimate_of_replicas(values: Floats, confidence: float, samples: int) -> Estimate:
    (center,), (low,), (high,) = levels_of(values[None, :], confidence)
    return Estimate(float(center), float(low), float(high), samples)


def _tail(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, unlike {confidence:g}")
    return (1 - confidence) / 2
