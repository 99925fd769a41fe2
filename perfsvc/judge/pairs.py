"""Compare many series at once, each with one run: the comparisons of ``compare_levels``, computed as columns."""

import math
from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from perfsvc.distributions import student_quantile
from perfsvc.judge.comparison import (
    ALPHA,
    MIN_ERRORS,
    MOST_REPLICAS,
    NO_SPREAD,
    SINGLE_REPLICA,
    Comparison,
    compare_levels,
    cure_of_pair,
    exp,
    reason,
)
from perfsvc.judge.levels import Floats
from perfsvc.judge.sides import RESOLUTION, Samples, least_variances, sides_of_samples
from perfsvc.model import Level, Status, Verdict
from perfsvc.model.levels import SideColumns

Ints = NDArray[np.int64]

_VERDICTS = (Verdict.INCONCLUSIVE, Verdict.UNCHANGED, Verdict.IMPROVEMENT, Verdict.REGRESSION)


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
    sides = sides_of_samples([side for baselines, candidate, _ in candidates for side in (*baselines, candidate)])
    if not (sides.lowest >= 0).all():
        raise ValueError("times are finite numbers from 0 up")
    counts = np.array([len(baselines) for baselines, _, _ in candidates], np.intp)
    ends = np.cumsum(counts + 1) - 1  # the place of each candidate, after its baselines
    after = np.repeat(ends, counts)
    before = np.delete(np.arange(counts.sum() + counts.size), ends)
    thresholds = [threshold for baselines, _, threshold in candidates for _ in baselines]
    comparisons = iter(compare_pairs(sides, before, sides, after, thresholds))
    return [list(islice(comparisons, count)) for count in counts.tolist()]


def compare_pairs(
    baselines: SideColumns, before: Ints, candidates: SideColumns, after: Ints, thresholds: Sequence[float]
) -> list[Comparison]:
    """Return what ``compare_levels`` returns for each baseline of one run and its candidate, computed together.

    Args:
        baselines: holds the baseline of each comparison, with finite values from 0 up.
        before: which of them is the baseline of each comparison, shape (comparisons,).
        candidates: holds the candidates, likewise.
        after: which of them is the candidate, shape (comparisons,).
        thresholds: the smallest relative change that matters in each comparison.
    """
    limits = np.array(thresholds, np.float64)
    is_positive = np.minimum(baselines.lowest[before], candidates.lowest[after]) > 0
    comparisons: dict[int, Comparison] = {
        at: compare_levels(_level(baselines, before[at]), _level(candidates, after[at]), threshold=thresholds[at])
        for at in np.flatnonzero(~is_positive).tolist()
    }
    shapes = np.stack([baselines.sizes[before], candidates.sizes[after]], axis=1)
    for old_size, new_size in np.unique(shapes, axis=0).tolist():
        at = np.flatnonzero(is_positive & (shapes == (old_size, new_size)).all(axis=1))
        if at.size:
            of_shape = _of_shape(baselines, before[at], candidates, after[at], limits[at])
            comparisons.update(zip(at.tolist(), of_shape, strict=True))
    return [comparisons[at] for at in range(before.size)]


def _level(sides: SideColumns, at: int) -> Level:
    return Level(
        0, Status.OK, "", sides.medians[at, : sides.sizes[at]], float(sides.spreads[at]), float(sides.steps[at])
    )


def _of_shape(
    baselines: SideColumns, old: Ints, candidates: SideColumns, new: Ints, thresholds: Floats
) -> list[Comparison]:
    """Compare pairs whose baselines have equally many replicas, and whose candidates do; all medians are above 0."""
    old_size, new_size = int(baselines.sizes[old[0]]), int(candidates.sizes[new[0]])
    old_medians, new_medians = baselines.medians[old, :old_size], candidates.medians[new, :new_size]
    old_logs, new_logs = np.log(old_medians), np.log(new_medians)
    unit = old_logs[:, :1]
    log_ratios = np.mean(new_logs - unit, axis=1) - np.mean(old_logs - unit, axis=1)
    steps = np.minimum(baselines.steps[old], candidates.steps[new])
    old_freedom, new_freedom = old_size - 1, new_size - 1
    freedom = old_freedom + new_freedom
    if not freedom:
        return [Comparison(exp(ratio), None, None, Verdict.INCONCLUSIVE, NO_SPREAD) for ratio in log_ratios.tolist()]
    old_variances, new_variances = np.zeros(old.size), np.zeros(new.size)
    if old_freedom:
        variances = old_freedom * np.var(old_logs - unit, axis=1, ddof=1) / old_freedom  # as ``NightsLevel.of`` rounds
        old_variances = np.maximum(variances, least_variances(old_medians, baselines.spreads[old], steps))
    if new_freedom:
        new_variances = np.maximum(
            np.var(new_logs, axis=1, ddof=1), least_variances(new_medians, candidates.spreads[new], steps)
        )
    # The noise of both sides together, and half the width of the interval, as ``_Noise`` computes them.
    variances = (old_freedom * old_variances + new_freedom * new_variances) / freedom
    own = old_variances * (1 / old_size) + new_variances / new_size
    halves = np.maximum(
        student_quantile(freedom, 1 - ALPHA / 2) * np.sqrt(variances * (1 / old_size + 1 / new_size)),
        MIN_ERRORS * np.sqrt(own),
    )
    return _concluded(log_ratios, halves, variances, thresholds, (old_size, new_size))


def _concluded(
    log_ratios: Floats, halves: Floats, variances: Floats, thresholds: Floats, sizes: tuple[int, int]
) -> list[Comparison]:
    """Return the comparisons that follow from the logarithms of ratios and half the widths of their intervals.

    Args:
        log_ratios: the logarithm of each ratio.
        halves: half the width of the interval of each logarithm.
        variances: the variance between replicas, pooled over both sides.
        thresholds: the smallest relative change that matters.
        sizes: the number of replicas of each baseline, and that of each candidate.
    """
    # math.exp, as for a single comparison: np.exp may round otherwise.
    ratios, lows, highs = (
        np.array(list(map(exp, logs.tolist()))) for logs in (log_ratios, log_ratios - halves, log_ratios + halves)
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
    is_single = (codes != 1) & (min(sizes) == 1)
    codes[is_single] = 0
    smallest = np.maximum(np.array(list(map(exp, halves.tolist()))) - 1, thresholds)
    unsettled = np.flatnonzero((codes == 0) & ~is_single & np.isfinite(smallest))
    cures = dict(
        zip(
            unsettled.tolist(),
            map(cure_of_pair, _settling(log_ratios[unsettled], variances[unsettled], thresholds[unsettled], sizes[1])),
            strict=True,
        )
    )
    columns = (column.tolist() for column in (ratios, lows, highs, codes, is_single, smallest, thresholds))
    comparisons = []
    within: dict[float, str] = {}  # almost all series are unchanged, with few thresholds
    for at, (ratio, low, high, code, single, least, threshold) in enumerate(zip(*columns, strict=True)):
        verdict = _VERDICTS[code]
        if single:
            comparisons.append(Comparison(ratio, low, high, verdict, SINGLE_REPLICA))
            continue
        if verdict is Verdict.UNCHANGED and threshold in within:
            why = within[threshold]
        else:
            why = reason(verdict, low, high, least, threshold)
            if verdict is Verdict.UNCHANGED:
                within[threshold] = why
        if at in cures:
            why = f"{why}; {cures[at]}"
        comparisons.append(Comparison(ratio, low, high, verdict, why, least if math.isfinite(least) else None))
    return comparisons


def _settling(log_ratios: Floats, variances: Floats, thresholds: Floats, new_size: int) -> list[int | None]:
    """Return with how many replicas on each side each inconclusive pair would be settled; None if with too many.

    A ratio beyond the threshold has to become significant; the interval of any other has to fit within the threshold.
    """
    limits = np.array(list(map(math.log1p, thresholds.tolist())))
    distances = np.abs(log_ratios)
    halves = np.where(distances > limits, distances, limits - distances)
    replicas = np.arange(new_size + 1, MOST_REPLICAS + 1)
    if not replicas.size:
        return [None] * log_ratios.size
    quantiles = np.array([student_quantile(2 * count - 2, 1 - ALPHA / 2) for count in replicas.tolist()])
    widths = quantiles * np.sqrt((variances * 2)[:, None] / replicas)
    fits = widths <= halves[:, None]
    first = np.where(fits.any(axis=1), fits.argmax(axis=1), -1).tolist()
    return [None if at < 0 else new_size + 1 + at for at in first]
