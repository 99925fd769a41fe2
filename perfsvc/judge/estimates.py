"""One number for many times, with its interval: of one replica's samples, and of a run's replicas."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, stdtrit

from perfsvc.model import Estimate

Floats = NDArray[np.float64]


def estimate(samples: Sequence[float] | Floats, confidence: float = 0.95) -> Estimate:
    """The median of one replica's samples and its distribution-free confidence interval.

    The interval runs from the k-th smallest to the k-th largest sample. The number of samples below the true median is
    binomial with p = 1/2 whatever the distribution, so k is the largest rank for which P(Bin(n, 1/2) < k) is at most
    (1 - confidence) / 2. Where even the smallest and the largest sample do not reach the confidence (fewer than 6
    samples at 95 %), the interval is [min, max], which is all that can be said.

    The interval speaks of this replica alone: the next process has another median (see ``estimate_level``).

    Args:
        samples: times in seconds, shape (n,), in any order.
        confidence: the coverage of the interval, between 0 and 1.

    Raises:
        ValueError: no samples, or one that is not finite or not above zero.

    Source:
        H. A. David and H. N. Nagaraja, Order Statistics, 3rd ed. (Wiley 2003), section 7.1.
    """
    times = in_order(samples)
    rank = rank_of_median(times.size, confidence)
    return Estimate(
        median_s=_middle(times),
        low_s=float(times[rank - 1]),
        high_s=float(times[times.size - rank]),
        samples=int(times.size),
    )


@cache
def rank_of_median(count: int, confidence: float = 0.95) -> int:
    """The k of ``estimate``: its interval begins with the k-th smallest of ``count`` samples."""
    below = bdtr(np.arange((count + 1) // 2), count, 0.5)
    return max(int(np.searchsorted(below, _tail(confidence), side="right")), 1)


def estimate_level(replicas: Sequence[ArrayLike], confidence: float = 0.95) -> Estimate:
    """The level of a case in one run, from the times of its replicas; see ``level_of``.

    Args:
        replicas: for each replica its times in seconds, shape (n,).
        confidence: the coverage of the interval, between 0 and 1.

    Raises:
        ValueError: no replica, or one that ``estimate`` refuses.
    """
    return level_of([estimate(checked(replica), confidence) for replica in replicas], confidence)


def level_of(replicas: Sequence[Estimate], confidence: float = 0.95) -> Estimate:
    """The level of a case in one run: the geometric mean of its replicas' medians, with an interval from their spread.

    The ratio of two levels is the ratio that ``compare`` gives. With one replica there is no spread between replicas
    to see, and the interval is that of the replica's own median.

    Args:
        replicas: what ``estimate`` says of each, with the same confidence.
        confidence: the coverage of the interval, between 0 and 1.

    Raises:
        ValueError: no replica, or a median that is not above zero.

    Source:
        Student (1908), The probable error of a mean, Biometrika 6(1), on the logarithms of the replicas' medians.
    """
    medians = replica_medians([[replica.median_s] for replica in replicas])
    if len(replicas) == 1:
        return replicas[0]
    offsets, center = _offsets_and_center(medians)
    half = _half_width(offsets, confidence)
    samples = sum(replica.samples for replica in replicas)
    return Estimate(float(center), float(center * exp(-half)), float(center * exp(half)), samples)


def estimate_metric(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """The level of a named metric in one run, from one value a replica, in the metric's own unit.

    Like any level it is a geometric mean. Where a value is zero or below there is none (nor a ratio to judge): the
    level is then the arithmetic mean, with Student's interval. One value alone is its own interval.

    Args:
        values: shape (replicas,).
        confidence: the coverage of the interval, between 0 and 1.

    Raises:
        ValueError: no value, or one that is not finite.
    """
    found = np.asarray(values, dtype=np.float64)
    if not found.size or not np.isfinite(found).all():
        raise ValueError("a level needs the finite value of at least one replica")
    if found.min() > 0:
        return estimate_level([[value] for value in found], confidence)
    half = _half_width(found, confidence) if found.size > 1 else 0.0
    return Estimate(float(found.mean()), float(found.mean() - half), float(found.mean() + half), found.size)


def center_of(values: Floats) -> float:
    """The ``median_s`` of ``estimate_metric`` alone: what a level is, for whoever needs no interval of it.

    Args:
        values: finite, shape (replicas,), one at least.
    """
    if np.minimum.reduce(values) > 0:
        return float(values[0]) if values.size == 1 else float(_offsets_and_center(values)[1])
    return mean(values)


def _offsets_and_center(medians: Floats) -> tuple[Floats, float]:
    """The logarithms of some medians relative to the first, and their geometric mean."""
    offsets: Floats = np.log(medians / medians[0])
    return offsets, float(medians[0]) * math.exp(mean(offsets))


def mean(values: Floats) -> float:
    """The mean, as ``numpy.mean`` computes it, without all that it has to ask of other arrays first.

    Args:
        values: one at least, shape (n,).
    """
    return float(np.add.reduce(values)) / values.size


def variance(values: Floats) -> float:
    """The variance of a sample, likewise as ``numpy.var`` computes it.

    Args:
        values: two at least, shape (n,).
    """
    apart = values - mean(values)
    return float(np.add.reduce(apart * apart)) / (values.size - 1)


def _half_width(values: Floats, confidence: float) -> float:
    """Half of Student's interval of a mean."""
    error = values.std(ddof=1) / math.sqrt(values.size)
    return float(stdtrit(values.size - 1, 1 - _tail(confidence)) * error)


def replica_medians(replicas: Sequence[ArrayLike]) -> Floats:
    """The median of each replica, shape (replicas,); raises ``ValueError`` without replicas and as ``checked`` does."""
    if not len(replicas):
        raise ValueError("no replicas: a level needs the samples of at least one")
    return np.array([middle(in_order(replica)) for replica in replicas])


def median(times: Floats) -> float:
    """The median, and a finite one of finite times: where the sum of the middle two overflows, that of their halves."""
    return middle(np.sort(times))


def middle(ordered: Floats) -> float:
    """The ``median`` of times in their order."""
    found = _middle(ordered)
    return found if math.isfinite(found) else 2 * _middle(ordered / 2)


def _middle(ordered: Floats) -> float:
    """What ``numpy.median`` says of times in their order, without all that it has to ask of other arrays first."""
    half = ordered.size // 2
    if ordered.size % 2:
        return float(ordered[half])
    return (float(ordered[half - 1]) + float(ordered[half])) / 2


def checked(samples: ArrayLike, *, zero: bool = False) -> Floats:
    """The samples as a float64 array of shape (n,).

    Args:
        samples: in any order.
        zero: whether a sample may be 0.

    Raises:
        ValueError: they cannot be times.
    """
    times = of_one_replica(samples)
    _check_ends(float(np.minimum.reduce(times)), float(np.maximum.reduce(times)), zero=zero)  # NaN where any is
    return times


def in_order(samples: ArrayLike, *, zero: bool = False) -> Floats:
    """What ``checked`` says of the samples, the smallest first."""
    times = np.sort(of_one_replica(samples))
    _check_ends(float(times[0]), float(times[-1]), zero=zero)  # NaN comes last
    return times


def of_one_replica(samples: ArrayLike) -> Floats:
    """The samples as an array of shape (n,), n at least 1; raises ``ValueError`` where they are none."""
    times = np.asarray(samples, dtype=np.float64)
    if times.ndim != 1:
        raise ValueError(f"samples of one replica have one axis, not {times.ndim}")
    if not times.size:
        raise ValueError("no samples: a median needs at least one")
    return times


def _check_ends(least: float, most: float, *, zero: bool) -> None:
    if not (math.isfinite(least) and math.isfinite(most)):
        raise ValueError("a sample is not a finite number")
    if least < 0 or (least == 0 and not zero):
        raise ValueError(f"a sample is {least:g}, and times are {'not below' if zero else 'above'} zero")


def exp(exponent: float) -> float:
    """The exponential, infinite where a float ends: the end of an interval that knows no bound."""
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf


def _tail(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, unlike {confidence:g}")
    return (1 - confidence) / 2
