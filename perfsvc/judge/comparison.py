"""Compare levels by their replicas, many at once: slower, faster, unchanged, or inconclusive."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfsvc.distributions import student_quantile
from perfsvc.judge.levels import RESOLUTION, Floats, Samples, least_variances, level_of_samples, sorted_samples
from perfsvc.judge.nights import MIN_ERRORS, MOST_REPLICAS, NightsLevel, PooledNoise
from perfsvc.model import Level, Verdict
from perfsvc.model.levels import SideColumns

Ints = NDArray[np.int64]

_VERDICTS = (Verdict.INCONCLUSIVE, Verdict.UNCHANGED, Verdict.IMPROVEMENT, Verdict.REGRESSION)

ALPHA = 0.01
"""The probability of an interval that misses the true ratio, unless a caller asks for another."""

MIN_DEVICES = 2
"""The fewest devices whose spread can be estimated."""

LOPSIDED = 0.1
"""Above this threshold, the reason of an improvement also states the lower limit: 50 % more is undone by 33 % less."""

MORE_REPLICAS = "import three files of each side, or measure both with --replicas 3"
NO_SPREAD = f"one replica on each side shows no spread to judge by: {MORE_REPLICAS}"
SINGLE_REPLICA = f"one replica alone decides nothing, because it may be an outlier: {MORE_REPLICAS}"
NO_CURE = f"not even {MOST_REPLICAS} replicas would settle it"
NO_RATIO = "a ratio needs values above 0 on both sides"
BOTH_ZERO = "both are 0"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate compared with its baseline.

    Attributes:
        ratio: the candidate's level over the baseline's; above 1 the candidate is slower. Never NaN; infinite if only
            the baseline is 0.
        low: the low end of the ratio's confidence interval; None if the replicas allow no interval.
        high: the high end of the interval; infinite if the replicas set no bound.
        verdict: regression, improvement, unchanged or inconclusive.
        reason: why the verdict is as it is, in words for a person.
        smallest: the smallest change that these replicas could have shown, as a fraction; None if they show none.
        between_nights: the noise between the baseline's nights, as a relative standard deviation; None for one night.
    """

    ratio: float
    low: float | None
    high: float | None
    verdict: Verdict
    reason: str
    smallest: float | None = None
    between_nights: float | None = None


def compare(
    baseline: Sequence[ArrayLike],
    candidate: Sequence[ArrayLike],
    *,
    further: Sequence[ArrayLike] = (),
    threshold: float = 0.01,
    alpha: float = ALPHA,
) -> Comparison:
    """Compare the times of a baseline and a candidate, each measured in several processes (replicas).

    Samples of one process share its memory layout, clocks and temperature; only replicas are independent. So each
    replica counts once, by the logarithm of its median. The interval of the ratio is Student's, with the variance
    between replicas.

    Unlike in Welch's test, the variance is pooled over both sides: they share the case, the device and so the noise.
    Pooling doubles the few degrees of freedom. The deviation of few replicas may be far too small by chance, most of
    all if a process is in one of two states. So the deviation of a side has two lower limits: the step of the clock,
    and a share of the spread of the side's own samples.

    A level counts as changed if the change is significant (the interval excludes 1) and relevant (the ratio lies beyond
    the threshold). The limits are 1 + threshold and 1 / (1 + threshold), so that swapping the sides turns a regression
    into an improvement. A case is unchanged if the whole interval lies between the limits, and inconclusive otherwise.

    A baseline may have several nights: further runs of the same code. Then nights are the unit: replicas of one night
    share the state of the GPU in that night. The baseline's level is the mean of its nights, the variance between
    nights widens the interval, and a noisy or lucky night has little influence (``NightsLevel.of``). The candidate has
    one night, so the interval covers the variance between nights once for the candidate too. A baseline of one night
    shows no such variance, and the interval does not include it.

    A single wild replica decides nothing. Among other replicas it widens the interval by more than it moves the ratio.
    If a side has only one replica, the verdict is inconclusive.

    Args:
        baseline: the times of each replica in seconds, shape (n,).
        candidate: the same for the candidate; the number of replicas and samples may differ.
        further: for each further night of the baseline the median of each replica in seconds, shape (replicas,).
        threshold: the smallest relative change that matters.
        alpha: the probability of an interval that misses the true ratio.

    Raises:
        ValueError: a side without replicas or with times that are not finite or below 0, or a parameter out of range.

    Source:
        Student (1908), The probable error of a mean, Biometrika 6(1); pooled against Welch: G. E. P. Box (1954), Some
        theorems on quadratic forms applied in the study of analysis of variance problems, Ann. Math. Statist. 25(2); a
        lower bound for deviations of few values: V. G. Tusher, R. Tibshirani and G. Chu (2001), Significance analysis
        of microarrays applied to the ionizing radiation response, PNAS 98(9); replicas as the unit: T. Kalibera and R.
        Jones (2013), Rigorous benchmarking in reasonable time, ISMM; a sum of variances: F. E. Satterthwaite (1946), An
        approximate distribution of estimates of variance components, Biometrics Bulletin 2(6).
    """
    if not 0 <= threshold < math.inf:
        raise ValueError(f"a threshold is a fraction from 0 up, unlike {threshold:g}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha lies between 0 and 1, unlike {alpha:g}")
    if not (len(baseline) and len(candidate)):
        raise ValueError("no replicas: a level needs the samples of at least one")
    old, new, nights = (
        [sorted_samples(values, allow_zero=True) for values in side] for side in (baseline, candidate, further)
    )
    before = level_of_samples(old, further=[tuple(night.tolist()) for night in nights])
    return compare_levels(before, level_of_samples(new), threshold=threshold, alpha=alpha)


def compare_levels(before: Level, after: Level, *, threshold: float = 0.01, alpha: float = ALPHA) -> Comparison:
    """Return what ``compare`` returns of two levels with replicas; those of ``before.further`` are its nights."""
    sides = SideColumns.of_levels([before, after])
    further = {0: before.further} if before.further else {}
    (compared,) = compare_columns(sides, np.array([0]), sides, np.array([1]), [threshold], further=further, alpha=alpha)
    return compared


def compare_with_each(
    candidates: Sequence[tuple[Sequence[Sequence[Samples]], Sequence[Samples], float]],
) -> list[list[Comparison]]:
    """Return what ``compare`` returns for each candidate and each of its baselines, all computed together.

    Args:
        candidates: for each candidate its baselines, its own replicas, and the smallest relative change that matters. A
            baseline and a candidate have the times of each replica in seconds.

    Raises:
        ValueError: times that are not finite or below 0.
    """
    every = (side for baselines, candidate, _ in candidates for side in (*baselines, candidate))
    sides = SideColumns.of_levels(list(map(level_of_samples, every)))
    if not (sides.lowest >= 0).all():
        raise ValueError("times are finite numbers from 0 up")
    counts = np.array([len(baselines) for baselines, _, _ in candidates], np.intp)
    ends = np.cumsum(counts + 1) - 1  # the place of each candidate, after its baselines
    after = np.repeat(ends, counts)
    before = np.delete(np.arange(counts.sum() + counts.size), ends)
    thresholds = [threshold for baselines, _, threshold in candidates for _ in baselines]
    comparisons = iter(compare_columns(sides, before, sides, after, thresholds))
    return [list(islice(comparisons, count)) for count in counts.tolist()]


def compare_columns(
    baselines: SideColumns,
    before: Ints,
    candidates: SideColumns,
    after: Ints,
    thresholds: Sequence[float],
    *,
    further: Mapping[int, tuple[tuple[float, ...], ...]] = MappingProxyType({}),
    alpha: float = ALPHA,
) -> list[Comparison]:
    """Return what ``compare`` returns for each baseline and its candidate; those of equal shapes are computed together.

    Args:
        baselines: holds the baseline of each comparison, with finite values from 0 up.
        before: which of them is the baseline of each comparison, shape (comparisons,).
        candidates: holds the candidates, likewise.
        after: which of them is the candidate, shape (comparisons,).
        thresholds: the smallest relative change that matters in each comparison.
        further: the further nights of the baselines that have any, by their places among the baselines.
        alpha: the probability of an interval that misses the true ratio.
    """
    limits = np.array(thresholds, np.float64)
    comparisons: dict[int, Comparison] = {}
    by_shape: dict[tuple[int, ...], list[int]] = defaultdict(list)
    lowest, highest = (
        (old[before].tolist(), new[after].tolist())
        for old, new in ((baselines.lowest, candidates.lowest), (baselines.highest, candidates.highest))
    )
    sizes = baselines.sizes[before].tolist(), candidates.sizes[after].tolist()
    for at, place in enumerate(before.tolist()):
        later = further.get(place, ())
        more = [value for night in later for value in night]
        least = min(lowest[0][at], lowest[1][at], *more)
        if least > 0:
            by_shape[sizes[1][at], sizes[0][at], *map(len, later)].append(at)
        else:
            comparisons[at] = compare_zeros(least, max(highest[0][at], *more, 0.0), highest[1][at])
    for (new_size, old_size, *more_sizes), places in by_shape.items():
        old, new = before[places], after[places]
        nights_of = [further[place] for place in old.tolist()] if more_sizes else []
        nights = [
            baselines.medians[old, :old_size],
            *(np.array([of_one[night] for of_one in nights_of]) for night in range(len(more_sizes))),
        ]
        steps = np.minimum(baselines.steps[old], candidates.steps[new])
        least = least_variances(nights[0], baselines.spreads[old], steps)
        medians = candidates.medians[new, :new_size]
        least_of_new = least_variances(medians, candidates.spreads[new], steps)
        compared = _of_shape(nights, medians, (least, least_of_new), limits[places], alpha)
        comparisons.update(zip(places, compared, strict=True))
    return [comparisons[at] for at in range(before.size)]


def _of_shape(
    nights: Sequence[Floats], medians: Floats, least: tuple[Floats, Floats], thresholds: Floats, alpha: float
) -> list[Comparison]:
    """Compare baselines whose nights have the same sizes with candidates that have equally many replicas.

    Args:
        nights: for each night of the baselines the median of each replica, above 0, shape (comparisons, replicas).
        medians: the medians of the candidates, likewise.
        least: the least variance of the replicas of each baseline, and of each candidate, shape (comparisons,).
        thresholds: the smallest relative change that matters in each comparison.
        alpha: the probability of an interval that misses the true ratio.
    """
    # Relative to the logarithm of one median, equal times differ by exactly 0, and have a ratio of exactly 1.
    unit = np.log(nights[0][:, :1])
    level = NightsLevel.of([np.log(night) - unit for night in nights], least[0])
    logs, count = np.log(medians) - unit, medians.shape[1]
    variances = np.maximum(np.var(logs, axis=1, ddof=1), least[1]) if count > 1 else np.zeros(len(logs))
    log_ratios = np.mean(logs, axis=1) - level.center
    noise = PooledNoise.of(level, count, variances, alpha)
    fewest = min(sum(night.shape[1] for night in nights), count)
    if noise is None:
        comparisons = [
            Comparison(exp(ratio), None, None, Verdict.INCONCLUSIVE, NO_SPREAD) for ratio in log_ratios.tolist()
        ]
    else:
        comparisons = _conclude(log_ratios, noise.half_widths, thresholds, fewest, noise)
    if len(nights) == 1:
        return comparisons
    between = np.sqrt(level.between_nights).tolist()
    return [replace(of_one, between_nights=own) for of_one, own in zip(comparisons, between, strict=True)]


def compare_with_devices(devices: Sequence[ArrayLike], candidate: ArrayLike, *, threshold: float) -> Comparison:
    """Compare a level with the levels of other devices of its model; each device counts once.

    Devices of one model differ by more than replicas of one device do, so the interval is Student's with the variance
    between the devices. A single wild replica decides nothing: half the width of the interval is at least
    ``MIN_ERRORS`` times the standard error of the candidate's own replicas. If the candidate has one
    replica, the verdict is neither a regression nor an improvement.

    Args:
        devices: for each of two or more devices the median of each replica, above 0, shape (replicas,).
        candidate: the same of the candidate.
        threshold: the smallest relative change that matters.

    Raises:
        ValueError: fewer than two devices.

    Source:
        Student (1908), The probable error of a mean, Biometrika 6(1): the interval of one further value of a sample.
    """
    if len(devices) < MIN_DEVICES:
        raise ValueError(f"a spread of devices needs at least two devices, not {len(devices)}")
    logs = [np.log(np.asarray(medians, np.float64)) for medians in devices]
    unit = logs[0][0]
    before = np.array([(replicas - unit).mean() for replicas in logs])
    after = np.log(np.asarray(candidate, np.float64)) - unit
    spread, count = float(before.std(ddof=1)), before.size
    half = student_quantile(count - 1, 1 - ALPHA / 2) * spread * math.sqrt(1 + 1 / count)
    error = float(after.std(ddof=1)) / math.sqrt(after.size) if after.size > 1 else 0.0
    own = math.hypot(spread / math.sqrt(count), error)
    log_ratio, half = after.mean() - before.mean(), max(half, MIN_ERRORS * own)
    (compared,) = _conclude(np.array([log_ratio]), np.array([half]), np.array([threshold]), after.size)
    return compared


def compare_zeros(least: float, old: float, new: float) -> Comparison:
    """Compare two sides if ``least``, their smallest median, has no logarithm; ``old`` and ``new`` are the largest."""
    if least == old == new == 0:
        return Comparison(1.0, 1.0, 1.0, Verdict.UNCHANGED, BOTH_ZERO)
    return Comparison(new / old if old else math.inf, None, None, Verdict.INCONCLUSIVE, NO_RATIO)


def _conclude(
    log_ratios: Floats, halves: Floats, thresholds: Floats, fewest_replicas: int, noise: PooledNoise | None = None
) -> list[Comparison]:
    """Return the comparisons that follow from the logarithms of ratios and half the widths of their intervals.

    The verdict is regression or improvement if the ratio lies beyond the threshold and the interval excludes 1, and
    unchanged if the interval lies within the threshold. Differences up to ``RESOLUTION`` are rounding.

    Args:
        log_ratios: each candidate's mean logarithm minus the baseline's.
        halves: half the width of the interval of each logarithm.
        thresholds: the smallest relative change that matters.
        fewest_replicas: the number of replicas of the side that has fewer; with only one, no change is certain.
        noise: with it, the reason of an inconclusive comparison says what would settle it.
    """
    # math.exp, because np.exp may round a number otherwise if others are beside it.
    ratios, lows, highs, least = (
        np.array(list(map(exp, logs.tolist())))
        for logs in (log_ratios, log_ratios - halves, log_ratios + halves, halves)
    )
    limits = (1 + thresholds) * (1 + RESOLUTION)
    codes = np.select(
        [
            (ratios > limits) & (lows > 1 + RESOLUTION),
            (ratios < 1 / limits) & (highs < 1 / (1 + RESOLUTION)),
            (lows >= 1 / limits) & (highs <= limits),
        ],
        [3, 2, 1],
    )
    smallest = np.maximum(least - 1, thresholds)
    is_single = (codes != 1) & (fewest_replicas == 1)
    unsettled = np.flatnonzero((codes == 0) & ~is_single & np.isfinite(smallest))
    cures = _cures(noise.where(unsettled), log_ratios[unsettled], thresholds[unsettled]) if noise else ()
    cure_of = dict(zip(unsettled.tolist(), cures, strict=True)) if noise else {}
    comparisons = []
    columns = (column.tolist() for column in (ratios, lows, highs, codes, is_single, smallest, thresholds))
    for at, (ratio, low, high, code, single, of_one, threshold) in enumerate(zip(*columns, strict=True)):
        if single:
            comparisons.append(Comparison(ratio, low, high, Verdict.INCONCLUSIVE, SINGLE_REPLICA))
            continue
        verdict = _VERDICTS[code]
        why = _reason(verdict, low, high, of_one, threshold)
        if at in cure_of:
            why = f"{why}; {cure_of[at]}"
        comparisons.append(Comparison(ratio, low, high, verdict, why, of_one if math.isfinite(of_one) else None))
    return comparisons


def _reason(verdict: Verdict, low: float, high: float, smallest: float, threshold: float) -> str:
    """Return the reason of a verdict in words; ``smallest`` is the smallest change that the replicas could show."""
    limit = f"the threshold of {percent_of(threshold)}"
    if verdict is Verdict.UNCHANGED:
        return f"within {limit}"
    if verdict is Verdict.IMPROVEMENT and threshold > LOPSIDED:  # its limit is 1 / (1 + threshold)
        return f"beyond {limit}: for an improvement, {percent_of(threshold / (1 + threshold))} less"
    if verdict is not Verdict.INCONCLUSIVE:
        return f"beyond {limit}"
    doubt = "noise hides a change" if low <= 1 <= high else f"a change that may lie on either side of {limit}"
    return f"{doubt}: the smallest that these replicas could have shown is {percent_of(smallest)}"


def _cures(noise: PooledNoise, log_ratios: Floats, thresholds: Floats) -> list[str]:
    """Return what would settle each of some inconclusive comparisons, if its ratio stays as it is.

    A ratio beyond the threshold has to become significant; the interval of any other has to fit within the threshold.
    """
    limits, distances = np.log1p(thresholds), np.abs(log_ratios)
    replicas = noise.replicas_to_settle(np.where(distances > limits, distances, limits - distances))
    if noise.level.nights == 1:
        return [NO_CURE if count is None else f"{count} replicas on each side would settle it" for count in replicas]
    between = np.sqrt(noise.level.between_nights).tolist()
    return [_cure_of_nights(count, nights) for count, nights in zip(replicas, between, strict=True)]


def _cure_of_nights(replicas: int | None, between_nights: float) -> str:
    if replicas is not None:
        return f"{replicas} replicas would settle it"
    if between_nights > 0:
        differ = f"nights differ by {percent_of(between_nights)}, which more replicas do not change"
        return f"{differ}: measure both sides in one night (perfsvc confirm)"
    return NO_CURE


def percent_of(fraction: float) -> str:
    """Return a share of at most three digits: ``1 %``, ``0.25 %``."""
    return f"{100 * fraction:.3g} %"


def exp(exponent: float) -> float:
    """Return the exponential, or infinity beyond the range of a float."""
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf
