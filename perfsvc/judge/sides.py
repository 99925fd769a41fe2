"""What a comparison needs to know of samples: the median of each replica, their spread and the step of their clock."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.judge.levels import NORMAL_MAD, Floats
from perfsvc.model import Level, Status
from perfsvc.model.levels import SideColumns

SHARE_OF_WITHIN = 0.3
"""The spread between processes is at least this share of the spread within one process. For six kernels on an H200 the
share is 0.32 to 0.57 (``tests/benchmarks/judge_pairs.py``); three replicas that agree more closely do so by chance."""

RESOLUTION = 2.0**-23
"""Levels closer than this are equal: samples are stored as float32, so that a ratio of two is rounded by up to this."""

Samples = NDArray[np.floating[Any]]
"""The values of one replica, shape (values,)."""

VALUES_AT_ONCE = 1 << 17
"""How many values are computed together: they stay in the processor's cache."""


def sides_of_samples(many: Sequence[Sequence[Sequence[float] | Samples]]) -> SideColumns:
    """Return what comparisons need to know of many sides, each given by the samples of its replicas.

    The step of the clock is the smallest difference between samples that is more than the rounding of float32. If the
    clock is too fine to show its step, this difference is too small to matter. The median of a replica is NaN if the
    replica has no samples, or a sample is not finite.
    """
    replicas = [values for side in many for values in side]
    sizes = np.array(list(map(len, many)), np.int64)
    lengths = np.array(list(map(len, replicas)), np.int64)
    values = np.concatenate(replicas, dtype=np.float64) if replicas else np.empty(0)
    medians = np.full((sizes.size, int(sizes.max(initial=0))), np.nan)
    spreads, steps = np.zeros(sizes.size), np.full(sizes.size, math.inf)
    first_replica, first_value = np.cumsum(sizes) - sizes, np.cumsum(lengths) - lengths
    for size in np.unique(sizes[sizes > 0]).tolist():
        places = np.flatnonzero(sizes == size)
        replicas_of = first_replica[places][:, None] + np.arange(size)
        has_values = lengths[replicas_of].all(axis=1)
        places, replicas_of = places[has_values], replicas_of[has_values]
        of_size = lengths[replicas_of]
        longest = of_size.max(axis=1)
        # Sides with equally long replicas are read together, the longest first: their rows need little padding.
        remaining = np.argsort(-longest, kind="stable")
        while remaining.size:
            width = size * int(longest[remaining[0]])
            part, remaining = np.split(remaining, [max(VALUES_AT_ONCE // width, 1)])
            rows = _rows(values, first_value[replicas_of[part]], of_size[part])
            ordered, own, at = np.sort(rows, axis=2), of_size[part], places[part]  # NaN is sorted last
            is_sound = (np.isfinite(ordered[:, :, 0]) & np.isfinite(_at(ordered, own - 1))).all(axis=1)
            ordered, own, at = ordered[is_sound], own[is_sound], at[is_sound]
            of_replicas = medians_of_sorted(ordered, own)
            medians[at, :size] = of_replicas
            spreads[at], steps[at] = _spreads(ordered, own, of_replicas)
    return SideColumns(sizes, medians, spreads, steps)


def level_of_samples(
    replicas: Sequence[Sequence[float] | Samples], run: int = 0, further: Sequence[Sequence[float]] = ()
) -> Level:
    """Return the level of a correct run from the samples of each replica; see ``Level`` for ``run`` and ``further``."""
    sides = sides_of_samples([replicas])
    more = tuple(map(tuple, further))
    return Level(run, Status.OK, "", sides.medians[0], float(sides.spreads[0]), float(sides.steps[0]), more)


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


def _rows(values: Floats, begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> Floats:
    """Return the values of replicas, shape (sides, replicas, most values); NaN beyond the values of a replica.

    Args:
        values: the values of all replicas.
        begins: where the values of each replica begin, shape (sides, replicas).
        lengths: how many there are, likewise.
    """
    within = np.arange(lengths.max()) < lengths[:, :, None]
    begin, end = int(begins[0, 0]), int(begins[-1, -1] + lengths[-1, -1])
    if within.all() and end - begin == within.size and (np.diff(begins.ravel()) > 0).all():  # without a gap
        return values[begin:end].reshape(within.shape)
    at = begins[:, :, None] + np.arange(within.shape[2])
    return np.where(within, values[at.clip(max=values.size - 1)], np.nan)


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


def _spreads(ordered: Floats, lengths: NDArray[np.int64], medians: Floats) -> tuple[Floats, Floats]:
    """Return ``Level.spread`` and ``Level.step`` of each side.

    Args:
        ordered: the values of each replica in ascending order, shape (sides, replicas, most values), then NaN.
        lengths: the number of values of each replica, shape (sides, replicas).
        medians: the median of each replica, likewise.
    """
    has_spread = lengths > 1
    if not has_spread.any():
        return np.zeros(len(medians)), np.full(len(medians), math.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        deviations = np.log(ordered)
        deviations -= np.log(medians)[:, :, None]
    np.abs(deviations, out=deviations)
    deviations[~has_spread] = np.nan
    counts = (lengths * has_spread).sum(axis=1)
    middles = medians_of_sorted(np.sort(deviations.reshape(len(medians), -1)), counts)
    differences = np.diff(ordered)
    is_step = differences > RESOLUTION * _at(ordered, lengths - 1)[:, :, None]
    steps = np.where(is_step, differences, math.inf).min(axis=(1, 2), initial=math.inf)
    return np.where(counts > 0, NORMAL_MAD * middles, 0.0), steps
