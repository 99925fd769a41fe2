"""What a comparison needs to know of the replicas of a side, for one side or for many sides at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfsvc.judge.levels import NORMAL_MAD, Floats, levels_of, median, median_of_sorted, sorted_samples

RESOLUTION = 2.0**-23
"""Levels closer than this are equal: samples are stored as float32, so that a ratio of two is rounded by up to this."""

SHARE_OF_WITHIN = 0.3
"""The spread between processes is at least this share of the spread within one process. For six kernels on an H200 the
share is 0.32 to 0.57 (``tests/benchmarks/judge_pairs.py``); three replicas that agree more closely do so by chance."""


Samples = NDArray[np.floating[Any]]
"""The values of one replica, shape (values,)."""

VALUES_AT_ONCE = 1 << 17
"""How many values are computed together: they stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Side:
    """What a comparison needs to know of the baseline's or of the candidate's replicas.

    Attributes:
        medians: the medians of the replicas, shape (replicas,).
        min_deviation: the least deviation between processes (of logarithms), estimated from the spread of the samples
            around their own replica's median; 0 if no replica shows a spread. Undefined if a median is 0.
        step: the smallest difference between two samples of one replica that is not rounding; infinite if no replica
            shows a difference.
    """

    medians: Floats
    min_deviation: float
    step: float

    @classmethod
    def of(cls, replicas: Sequence[ArrayLike]) -> "Side":
        """Read the replicas of one side.

        The step of the clock is the smallest difference between samples that is more than the rounding of float32. If
        the clock is too fine to show its step, this difference is too small to matter.
        """
        if not len(replicas):
            raise ValueError("no replicas: a level needs the samples of at least one")
        ordered = [sorted_samples(replica, allow_zero=True) for replica in replicas]
        medians = np.array([median_of_sorted(times) for times in ordered])
        with_spread = [(times, center) for times, center in zip(ordered, medians, strict=True) if times.size > 1]
        if not with_spread:
            return cls(medians, 0.0, math.inf)
        with np.errstate(divide="ignore", invalid="ignore"):  # a sample of 0 is infinitely far away
            deviations = np.concatenate([np.abs(np.log(times) - np.log(center)) for times, center in with_spread])
        gaps = [(np.diff(times), RESOLUTION * times[-1]) for times, _ in with_spread]
        step = min(float(differences[differences > rounding].min(initial=math.inf)) for differences, rounding in gaps)
        return cls(medians, SHARE_OF_WITHIN * NORMAL_MAD * median(deviations), step)

    def least_variance(self, step: float) -> float:
        """Return the least variance of the logarithms of the replicas; ``step`` is that of the clock."""
        relative_step = 0.0 if math.isinf(step) else step / median(self.medians)
        deviation = max(relative_step, self.min_deviation)
        return deviation * deviation


@dataclass(frozen=True, slots=True)
class SideColumns:
    """Many sides as columns, computed together: a run has ten thousand series.

    Attributes:
        sizes: the number of replicas of each side, shape (sides,).
        medians: the medians of the replicas, shape (sides, most replicas); 0 beyond a side's replicas.
        min_deviations: ``Side.min_deviation`` of each side.
        steps: ``Side.step`` of each side.
        centers: the level of each side (``center_of`` its medians).
        lowest: the lowest value of each side. It is NaN if the side has no replicas, a replica has no values, or a
            value is not a finite number; then nothing but ``sizes`` is defined. If it is below 0, ``min_deviations``
            and ``steps`` are undefined.
        highest: the highest value of each side.
    """

    sizes: NDArray[np.int64]
    medians: Floats
    min_deviations: Floats
    steps: Floats
    centers: Floats
    lowest: Floats
    highest: Floats

    @classmethod
    def of(cls, many: Sequence[Sequence[Sequence[float] | Samples]]) -> "SideColumns":
        """Read sides: for each side its replicas."""
        replicas = [values for side in many for values in side]
        return cls.of_columns(
            np.array(list(map(len, many)), np.int64),
            np.array(list(map(len, replicas)), np.int64),
            np.concatenate(replicas, dtype=np.float64) if replicas else np.empty(0),
        )

    @classmethod
    def of_columns(cls, sizes: NDArray[np.int64], lengths: NDArray[np.int64], values: Floats) -> "SideColumns":
        """Read sides from columns.

        Args:
            sizes: the number of replicas of each side, shape (sides,).
            lengths: the number of values of each replica, side after side, shape (replicas,).
            values: the values of each replica, one after the other, shape (values,).
        """
        most = int(sizes.max(initial=0))
        medians, columns = np.zeros((sizes.size, most)), np.full((5, sizes.size), np.nan)
        first_replica, first_value = np.cumsum(sizes) - sizes, np.cumsum(lengths) - lengths
        for size in np.unique(sizes[sizes > 0]).tolist():
            places = np.flatnonzero(sizes == size)
            replicas = first_replica[places][:, None] + np.arange(size)
            has_values = lengths[replicas].all(axis=1)
            places, replicas = places[has_values], replicas[has_values]
            of_size = lengths[replicas]
            longest = of_size.max(axis=1)
            # Sides with equally long replicas are read together, the longest first: their rows need little padding.
            remaining = np.argsort(-longest, kind="stable")
            while remaining.size:
                width = size * int(longest[remaining[0]])
                part, remaining = np.split(remaining, [max(VALUES_AT_ONCE // width, 1)])
                rows = _rows(values, first_value[replicas[part]], of_size[part])
                ordered, own, at = np.sort(rows, axis=2), of_size[part], places[part]  # NaN is sorted last
                ends = np.stack([ordered[:, :, 0], _at(ordered, own - 1)])
                is_sound = np.isfinite(ends).all(axis=(0, 2))
                if not is_sound.all():
                    ordered, own, at, ends = ordered[is_sound], own[is_sound], at[is_sound], ends[:, is_sound]
                of_replicas = _medians(ordered, own)
                medians[at, :size] = of_replicas
                columns[:2, at] = _spreads(ordered, own, of_replicas)
                columns[2, at] = levels_of(of_replicas)[0]
                columns[3, at] = ends[0].min(axis=1)
                columns[4, at] = ends[1].max(axis=1)
        return cls(sizes, medians, *columns)

    @property
    def least_medians(self) -> Floats:
        """The lowest median of each side."""
        beyond = np.arange(self.medians.shape[1]) >= self.sizes[:, None]
        least: Floats = np.where(beyond, math.inf, self.medians).min(axis=1, initial=math.inf)
        return least

    def side(self, at: int | np.int64) -> Side:
        """Return one side, whose values are finite and not below 0."""
        return Side(self.medians[at, : self.sizes[at]], float(self.min_deviations[at]), float(self.steps[at]))

    def medians_of(self, at: NDArray[np.int64], size: int) -> Floats:
        """Return the medians of some sides with ``size`` replicas, shape (at, size)."""
        return self.medians[at, :size]

    def least_variances(self, at: NDArray[np.int64], steps: Floats) -> Floats:
        """Return ``Side.least_variance`` of some sides with equally many replicas, each with the step of its clock."""
        middles = _medians(np.sort(self.medians_of(at, int(self.sizes[at[0]])), axis=1), self.sizes[at])
        with np.errstate(over="ignore"):  # a step that is huge beside its side's values
            relative_steps = np.where(np.isinf(steps), 0.0, steps / middles)
            largest: Floats = np.maximum(relative_steps, self.min_deviations[at])
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


def _medians(ordered: Floats, counts: NDArray[np.int64]) -> Floats:
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
    """Return ``min_deviation`` and ``step`` of each side.

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
    middles = _medians(np.sort(deviations.reshape(len(medians), -1)), counts)
    differences = np.diff(ordered)
    is_step = differences > RESOLUTION * _at(ordered, lengths - 1)[:, :, None]
    steps = np.where(is_step, differences, math.inf).min(axis=(1, 2), initial=math.inf)
    return np.where(counts > 0, SHARE_OF_WITHIN * NORMAL_MAD * middles, 0.0), steps
