"""The level of a series and its noise, from the samples of a replica or from the replicas of a run.

A level is one number with an interval. Noise has two parts: from sample to sample, and from process to process.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfsvc.distributions import coin_probabilities, normal_quantile, student_quantiles
from perfsvc.model import Estimate, Level, Noise, Status

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
"""The coverage of the intervals of levels."""

TAIL = (1 - CONFIDENCE) / 2

NORMAL_MAD = 1.482602218505602
"""The standard deviation of a normal distribution over its median absolute deviation."""

SHARE_OF_WITHIN = 0.3
"""The spread between processes is at least this share of the spread within one process. For six kernels on an H200 the
share is 0.32 to 0.57 (``tests/benchmarks/judge_pairs.py``); three replicas that agree more closely do so by chance."""

RESOLUTION = 2.0**-23
"""Levels closer than this are equal: samples are stored as float32, so that a ratio of two is rounded by up to this."""

Samples = NDArray[np.floating[Any]]
"""The values of one replica, shape (values,)."""


def estimate(samples: ArrayLike) -> Estimate:
    """Return the median of one replica's samples with its distribution-free confidence interval.

    The interval runs from the k-th smallest to the k-th largest sample. For any distribution, the number of samples
    below the true median is binomial with p = 1/2. So k is the largest rank for which P(Bin(n, 1/2) < k) is no more
    than (1 - ``CONFIDENCE``) / 2. If even the smallest and the largest sample do not reach the confidence (fewer than 6
    samples), the interval is [min, max].

    The interval holds for this replica alone: the next process has another median (see ``level_of``).

    Args:
        samples: times in seconds, shape (n,), in any order.

    Raises:
        ValueError: there are no samples, or a sample is not finite or not above zero.

    Source:
        H. A. David and H. N. Nagaraja, Order Statistics, 3rd ed. (Wiley 2003), section 7.1.
    """
    times = sorted_samples(samples)
    rank = median_rank(times.size)
    return Estimate(
        median_s=median_of_sorted(times),
        low_s=float(times[rank - 1]),
        high_s=float(times[times.size - rank]),
        samples=int(times.size),
    )


@cache
def median_rank(count: int) -> int:
    """Return the rank k, from 1, of the sample at which the interval of ``estimate`` begins, for ``count`` samples."""
    return max(int(np.searchsorted(coin_probabilities(count), TAIL, side="right")), 1)


def center_of(values: ArrayLike) -> float:
    """Return the level of some replicas' values, shape (replicas,), without its interval."""
    centers, _, _ = levels_of(np.asarray(values, np.float64)[None, :])
    return float(centers[0])


def levels_of(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return three arrays of shape (runs,): the level of each run, and the low and the high end of its interval.

    A level is the geometric mean of the replicas' values, with Student's interval of the mean of their logarithms. A
    run with a value of zero or below has no geometric mean: its level is the arithmetic mean with Student's interval.

    Args:
        values: the value of each replica, shape (runs, replicas); NaN if the run has fewer replicas. A run with one
            replica has an interval of NaN; a run without replicas also has a level of NaN.

    Source:
        Student (1908), The probable error of a mean, Biometrika 6(1).
    """
    replicas = (~np.isnan(values)).sum(axis=1)
    positive = np.logical_not(np.any(values <= 0, axis=1))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Relative to the largest value, equal values have logarithms of exactly 0 and an exact mean.
        unit = np.fmax.reduce(values, axis=1, initial=np.nan)
        terms = np.where(positive[:, None], np.log(values / unit[:, None]), values)
        mean = np.nansum(terms, axis=1) / replicas
        squares = np.nansum((terms - mean[:, None]) ** 2, axis=1)
        half = student_quantiles(replicas - 1.0, 1 - TAIL) * np.sqrt(squares / (replicas - 1) / replicas)
        center = np.where(positive, unit * np.exp(mean), mean)
        low = np.where(positive, center * np.exp(-half), mean - half)
        high = np.where(positive, center * np.exp(half), mean + half)
    return center, low, high


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


# --- what a comparison needs to know of samples -----------------------------------------------------------------------


def level_of_samples(
    replicas: Sequence[Sequence[float] | Samples], run: int = 0, further: Sequence[Sequence[float]] = ()
) -> Level:
    """Return the level of a correct run from the samples of each replica; see ``Level`` for ``run`` and ``further``.

    The step of the clock is the smallest difference between samples that is more than the rounding of float32. If the
    clock is too fine to show its step, this difference is too small to matter. The medians are NaN if a replica has no
    samples, or a sample is not finite.
    """
    ordered = [np.sort(np.asarray(values, np.float64)) for values in replicas]  # NaN is sorted last
    more = tuple(map(tuple, further))
    if not all(values.size and np.isfinite(values[[0, -1]]).all() for values in ordered):
        return Level(run, Status.OK, "", (math.nan,) * len(ordered), further=more)
    medians = np.array([median_of_sorted(values) for values in ordered])
    spread, step, deviations = 0.0, math.inf, []
    for values, middle in zip(ordered, medians, strict=True):
        if values.size > 1:
            with np.errstate(divide="ignore", invalid="ignore"):
                deviations.append(np.abs(np.log(values) - np.log(middle)))
            differences = np.diff(values)
            step = differences.min(where=differences > RESOLUTION * values[-1], initial=step)
    if deviations:
        spread = NORMAL_MAD * median_of_sorted(np.sort(np.concatenate(deviations)))
    return Level(run, Status.OK, "", medians, spread, float(step), more)


def least_variances(medians: Floats, spreads: Floats, steps: Floats) -> Floats:
    """Return the least variance of the logarithms of each side's replicas, shape (sides,).

    Args:
        medians: the median of each replica, above 0, shape (sides, replicas).
        spreads: ``Level.spread`` of each side.
        steps: the step of each side's clock.
    """
    middles = medians_of_sorted(np.sort(medians, axis=1), np.full(len(medians), medians.shape[1]))
    with np.errstate(over="ignore"):  # a step that is huge beside its side's values
        relative_steps = np.where(np.isinf(steps), 0.0, steps / middles)
        largest: Floats = np.maximum(relative_steps, SHARE_OF_WITHIN * spreads)
        return largest * largest


def _at(ordered: Floats, places: NDArray[np.int64]) -> Floats:
    """Return the value at a place of each row; the rows are along the last axis."""
    values: Floats = np.take_along_axis(ordered, places[..., None], axis=-1)[..., 0]
    return values


def medians_of_sorted(ordered: Floats, counts: NDArray[np.int64]) -> Floats:
    """Return the median of each row of values in ascending order, as ``median_of_sorted`` computes it.

    Args:
        ordered: the rows are along the last axis.
        counts: the number of values of each row; what follows them is left out.
    """
    low, high = _at(ordered, (counts - 1) // 2), _at(ordered, counts // 2)
    with np.errstate(over="ignore"):
        middle = (low + high) / 2
    return np.where(np.isfinite(middle), middle, low / 2 + high / 2)


# --- noise -----------------------------------------------------------------------------------------------------------


def noise_of(replicas: Sequence[ArrayLike], places: Sequence[ArrayLike] = ()) -> Noise:
    """Return the noise of a case's times in one run, as relative standard deviations.

    ``within`` is the noise of samples within a replica: the median absolute deviation of all samples from the median of
    their replica, scaled to the standard deviation of normal samples. A few disturbed launches do not change it.

    ``between`` is the deviation of the replicas' medians beyond the errors of the medians. Even equal processes have
    different medians, because each median comes from a few samples. The error of a median is computed from the width of
    its distribution-free interval. ``between`` squared is the variance of the medians minus the mean square of these
    errors, or 0 if the difference is negative. Samples that follow each other closely are alike, so a small part of
    ``within`` may appear in ``between``, but never the reverse.

    ``places`` is the deviation of the medians at several places of the arrays, in the same way beyond the errors of
    these medians. The error of a median of n normal samples is ``within`` times the square root of π / 2n.

    Args:
        replicas: for each replica its times in seconds, shape (n,). Replicas of fewer than two samples are ignored.
        places: for each replica the medians at the places of the arrays in seconds, shape (places,). Replicas with one
            place are ignored.

    Returns:
        ``within`` is None without a replica of two samples, ``between`` without two such replicas, and ``places``
        without a replica of two places.

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
    samples = sum(times.size for times in ordered) / len(ordered)
    medians = np.array([median_of_sorted(times) for times in ordered])
    deviations = np.concatenate([times / center - 1 for times, center in zip(ordered, medians, strict=True)])
    within = NORMAL_MAD * median(np.abs(deviations))
    of_places = _noise_of_places([np.asarray(medians, float) for medians in places], within, samples)
    if len(ordered) == 1:
        return Noise(within, None, *of_places)
    errors = np.array([_error_of_median(times) for times in ordered]) / medians
    variance = float(np.var(medians / medians.mean(), ddof=1) - np.mean(errors**2))
    return Noise(within, max(variance, 0.0) ** 0.5, *of_places)


def _noise_of_places(
    replicas: Sequence[Floats], within: float, samples: float
) -> tuple[float | None, float | None, float | None]:
    """Return the noise between places, and the lowest and the highest median of a place, as means over the replicas.

    Args:
        replicas: the medians at the places, for each replica.
        within: the noise of the samples of a replica.
        samples: how many samples a replica has.
    """
    several = [medians for medians in replicas if medians.size > 1]
    if not several:
        return None, None, None
    error = np.mean([math.pi / 2 * within**2 * medians.size / samples for medians in several])
    variance = float(np.mean([np.var(medians / medians.mean(), ddof=1) for medians in several]) - error)
    lowest, highest = (float(np.mean([end(medians) for medians in several])) for end in (np.min, np.max))
    return max(variance, 0.0) ** 0.5, lowest, highest


def _error_of_median(times: Floats) -> float:
    """Return the standard error of the median of sorted times, from the width and true coverage of its interval."""
    rank = median_rank(times.size)
    return float(times[-rank] - times[rank - 1]) / _interval_width(times.size)


@cache
def _interval_width(count: int) -> float:
    """Return the width, in standard errors, of the interval that ``estimate`` gives for ``count`` samples."""
    return -2 * normal_quantile(float(coin_probabilities(count)[median_rank(count) - 1]))
