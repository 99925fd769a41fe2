"""What a comparison needs to know of the replicas of a side, for one side or for many sides at once."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfsvc.judge.levels import NORMAL_MAD, Floats, levels_of, median, median_of_sorted, sorted_samples

RESOLUTION = 2.0**-23
"""Levels closer than this are equal: samples are stored as float32, so that a ratio of two is rounded by up to this."""

SHARE_OF_WITHIN = 0.3
"""Processes differ by at least this share of what the samples of one process differ by. For six kernels on an H200 the
share is 0.32 to 0.57 (``tests/benchmarks/judge_pairs.py``); three replicas that agree more closely do so by chance."""


Samples = NDArray[np.floating[Any]]
"""The values of one replica, shape (values,)."""

SIDES_AT_ONCE = 256
"""How many sides are computed together: their samples stay in the processor's cache."""


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
        lowest: the lowest value of each side. It is NaN if a value is not a finite number; then nothing but ``sizes``
            is defined. If it is below 0, ``min_deviations`` and ``steps`` are undefined.
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
        """Read sides.

        Args:
            many: for each side its replicas, at least one; each has at least one value.
        """
        by_shape: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for at, replicas in enumerate(many):
            by_shape[tuple(map(len, replicas))].append(at)
        sizes = np.array([len(replicas) for replicas in many], np.int64)
        medians = np.zeros((len(many), int(sizes.max(initial=0))))
        columns = np.full((5, len(many)), np.nan)
        parts = [
            (shape, of_shape[begin : begin + SIDES_AT_ONCE])
            for shape, of_shape in by_shape.items()
            for begin in range(0, len(of_shape), SIDES_AT_ONCE)
        ]
        for shape, of_shape in parts:
            if max(shape) == 1:  # mostly tuples, which take longer to become arrays than arrays to be joined
                values = np.array([[replica[0] for replica in many[at]] for at in of_shape], np.float64)
            else:
                joined = np.concatenate([each for at in of_shape for each in many[at]], dtype=np.float64)
                values = joined.reshape(len(of_shape), -1)
            is_finite = np.isfinite(values).all(axis=1)
            places = np.array(of_shape)[is_finite]
            if not places.size:
                continue
            # The values of each replica in ascending order, as a matrix of (sides, values).
            finite = values if is_finite.all() else values[is_finite]
            ordered: list[Floats] = [np.sort(each, axis=1) for each in np.split(finite, np.cumsum(shape)[:-1], axis=1)]
            of_replicas = np.stack([_medians(replica) for replica in ordered], axis=1)
            medians[places, : len(shape)] = of_replicas
            columns[:2, places] = _spreads(ordered, of_replicas)
            columns[2, places] = levels_of(of_replicas)[0]
            columns[3, places] = np.minimum.reduce([replica[:, 0] for replica in ordered])
            columns[4, places] = np.maximum.reduce([replica[:, -1] for replica in ordered])
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
        middles = _medians(np.sort(self.medians_of(at, int(self.sizes[at[0]])), axis=1))
        with np.errstate(over="ignore"):  # a step that is huge beside its side's values
            relative_steps = np.where(np.isinf(steps), 0.0, steps / middles)
            largest: Floats = np.maximum(relative_steps, self.min_deviations[at])
            return largest * largest


def _medians(ordered: Floats) -> Floats:
    """Return the median of each row of values in ascending order, as ``median_of_sorted`` computes it."""
    low, high = ordered[:, (ordered.shape[1] - 1) // 2], ordered[:, ordered.shape[1] // 2]
    with np.errstate(over="ignore"):
        middle = (low + high) / 2
    return np.where(np.isfinite(middle), middle, low / 2 + high / 2)


def _spreads(replicas: Sequence[Floats], medians: Floats) -> tuple[Floats, Floats]:
    """Return ``min_deviation`` and ``step`` of each side, from its sorted replicas and their medians."""
    with_spread = [(ordered, medians[:, at]) for at, ordered in enumerate(replicas) if ordered.shape[1] > 1]
    if not with_spread:
        return np.zeros(len(medians)), np.full(len(medians), math.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        deviations = [np.abs(np.log(ordered) - np.log(center)[:, None]) for ordered, center in with_spread]
    steps = []
    for ordered, _ in with_spread:
        differences = np.diff(ordered)
        steps.append(np.where(differences > RESOLUTION * ordered[:, -1:], differences, math.inf).min(axis=1))
    spread = SHARE_OF_WITHIN * NORMAL_MAD * _medians(np.sort(np.concatenate(deviations, axis=1)))
    return spread, np.minimum.reduce(steps)
