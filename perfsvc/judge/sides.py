"""What a comparison needs to know of the replicas of a side, for one side or for many sides at once."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from perfsvc.judge.levels import NORMAL_MAD, Floats, levels_of, median, median_of_sorted, sorted_samples

RESOLUTION = 2.0**-23
"""Levels closer than this are equal: samples are stored as float32, so that a ratio of two is rounded by up to this."""

SHARE_OF_WITHIN = 0.3
"""Processes differ by at least this share of what the samples of one process differ by. For six kernels on an H200 the
share is 0.32 to 0.57 (``tests/benchmarks/judge_pairs.py``); three replicas that agree more closely do so by chance."""


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


def least_variances(sides: Sequence[Side], steps: Floats) -> Floats:
    """Return ``least_variance`` of some sides with equally many replicas, each with the step of its clock."""
    middles = _medians(np.sort(np.array([side.medians for side in sides]), axis=1))
    deviations = np.array([side.min_deviation for side in sides])
    with np.errstate(over="ignore"):  # a step that is huge beside its side's values
        largest: Floats = np.maximum(np.where(np.isinf(steps), 0.0, steps / middles), deviations)
        return largest * largest


def sides_of(
    many: Sequence[Sequence[Sequence[float]]],
) -> tuple[list[Side | None], list[float], list[tuple[float, float]]]:
    """Return ``Side.of``, the level (``center_of`` its medians) and the range of many sides, computed together.

    A side is None if a sample is below 0: it has a level, and no comparison reads it. A range is the lowest and the
    highest sample.

    Args:
        many: for each side its replicas; each has samples, and these are finite numbers.
    """
    by_shape: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for at, replicas in enumerate(many):
        by_shape[tuple(map(len, replicas))].append(at)
    sides: list[Side | None] = [None] * len(many)
    centers = [0.0] * len(many)
    ranges = [(0.0, 0.0)] * len(many)
    for shape, places in by_shape.items():
        # The replicas of sides of one shape, each replica as a matrix of (sides, samples).
        sorted_by_replica = [
            np.sort(np.array([many[at][index] for at in places], np.float64)) for index in range(len(shape))
        ]
        medians = np.stack([_medians(ordered) for ordered in sorted_by_replica], axis=1)
        deviations, steps = _spreads(sorted_by_replica, medians)
        (levels, _, _) = levels_of(medians)
        lowest = np.minimum.reduce([ordered[:, 0] for ordered in sorted_by_replica]).tolist()
        highest = np.maximum.reduce([ordered[:, -1] for ordered in sorted_by_replica]).tolist()
        columns = (deviations.tolist(), steps.tolist(), levels.tolist(), lowest, highest)
        for at, of_side, deviation, step, level, low, high in zip(places, medians, *columns, strict=True):
            sides[at] = None if low < 0 else Side(of_side, deviation, step)
            centers[at] = level
            ranges[at] = low, high
    return sides, centers, ranges


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
