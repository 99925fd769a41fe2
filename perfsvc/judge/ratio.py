"""The ratio of two levels and how far it can be trusted, from the replicas of both sides."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from perfsvc.judge.estimates import Floats, checked, of_one_replica, variance
from perfsvc.judge.noise import NORMAL_MAD
from perfsvc.judge.shifts import Ints

RESOLUTION = 2.0**-23
"""Levels closer than this are equal: samples are kept as float32, so that a ratio of two is rounded by up to this."""

PRIOR_REPLICAS = 8
"""How many degrees of freedom a ``between_cv`` known from elsewhere weighs."""

SHARE_OF_WITHIN = 0.3
"""Processes differ by at least this share of what the samples of one process differ by. Of six kernels on an H200 it is
0.32 to 0.57 (``benchmarks/judge_pairs.py``); three replicas that agree more closely than this do so by chance."""

ALONE = 2.0
"""How many standard errors, by the replicas alone, a change must be away whatever else is known. One wild replica in
its side is never more than one such error away from the other side, however wild."""


@dataclass(frozen=True, slots=True)
class Side:
    """What a comparison needs of one side.

    Attributes:
        medians: of the replicas, shape (replicas,).
        level: about where they lie.
        floor: what processes differ by at least, read off the spread of samples around their own replica's median; 0
            where no replica shows any. Where a median is 0, it means nothing.
        step: the smallest difference between two samples of one replica that is none of rounding; infinite where no
            replica shows any.
    """

    medians: Floats
    level: float
    floor: float
    step: float

    @property
    def logs(self) -> Floats:
        """The logarithms of the medians, all of which are above 0."""
        return np.log(self.medians)


def sides_of(many: Sequence[Sequence[ArrayLike]]) -> list[Side]:
    """Reads many sides of comparisons at once, one side at least: of few samples each, one alone takes as long as ten.

    Args:
        many: for each side its replicas, for each of those its times, shape (n,).

    Raises:
        ValueError: a side without replicas, or one without samples or with times that are not finite or below 0.
    """
    if not all(map(len, many)):
        raise ValueError("no replicas: a level needs the samples of at least one")
    replicas = [of_one_replica(times) for samples in many for times in samples]
    times = np.concatenate(replicas)
    if not np.isfinite(times).all() or times.min() < 0:
        for replica in replicas:
            checked(replica, zero=True)  # says what is wrong with the first one
    sizes = np.array([replica.size for replica in replicas])
    counts = np.array([len(samples) for samples in many])
    firsts = np.cumsum(counts) - counts
    medians = _medians(times, sizes)  # which leaves the times of each replica in order
    levels = _medians(medians.copy(), counts)
    floors = _floors(times, sizes, medians, firsts)
    steps = _steps(times, sizes, firsts)
    bounds = zip(firsts.tolist(), counts.tolist(), strict=True)
    told = zip(bounds, levels.tolist(), floors.tolist(), steps.tolist(), strict=True)
    return [Side(medians[first : first + count], level, floor, step) for (first, count), level, floor, step in told]


def half_width(before: Side, after: Side, alpha: float, between_cv: float | None) -> float | None:
    """Half the interval of the difference of mean logarithms; None where nothing tells the variance.

    It is Student's with the pooled variance of the replicas, in which no side's deviation counts as less than its
    floor: the clock's step and, where ``between_cv`` is not known, a share of the spread of its samples.

    Where a side has few replicas and the other many, a pooled variance lets the many speak for the few. So the half is
    never below ``ALONE`` times the error in which each side speaks for itself.
    """
    sides = [before, after]
    finest = min(before.step, after.step)
    step = 0.0 if math.isinf(finest) else finest
    floors = [max(step / side.level, side.floor if between_cv is None else 0.0) for side in sides]
    told = [
        (side.medians.size, max(variance(side.logs), floor * floor))
        for side, floor in zip(sides, floors, strict=True)
        if side.medians.size > 1
    ]
    freedom = sum(count - 1 for count, _ in told)
    squares = sum((count - 1) * apart for count, apart in told)
    if between_cv is not None:
        freedom += PRIOR_REPLICAS
        # The variance of the logarithm of a lognormal.
        squares += PRIOR_REPLICAS * max(math.log1p(between_cv * between_cv), *(floor * floor for floor in floors))
    if not freedom:
        return None
    error = math.sqrt(squares / freedom * sum(1 / side.medians.size for side in sides))
    alone = math.sqrt(sum(apart / count for count, apart in told))
    return max(float(stdtrit(freedom, 1 - alpha / 2)) * error, ALONE * alone)


def _medians(values: Floats, sizes: Ints) -> Floats:
    """The median of each of some stretches of values, one after the other; puts the values of each in order."""
    ends = np.cumsum(sizes)
    begins = ends - sizes
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        values[begin:end].sort()
    low, high = values[begins + (sizes - 1) // 2], values[begins + sizes // 2]
    with np.errstate(over="ignore"):
        found = (low + high) / 2
    middles: Floats = np.where(np.isfinite(found), found, low / 2 + high / 2)
    return middles


def _floors(times: Floats, sizes: Ints, medians: Floats, firsts: Ints) -> Floats:
    """The ``floor`` of each side, by its first replica."""
    spread = sizes > 1
    centers = np.array([math.log(center) if center else -math.inf for center in medians.tolist()])
    with np.errstate(divide="ignore", invalid="ignore"):  # a sample of 0 is infinitely far away, and that is no error
        apart = np.abs(np.log(times) - np.repeat(centers, sizes))[np.repeat(spread, sizes)]
    told = np.add.reduceat(np.where(spread, sizes, 0), firsts)
    floors = np.zeros(firsts.size)
    floors[told > 0] = SHARE_OF_WITHIN * NORMAL_MAD * _medians(apart, told[told > 0])
    return floors


def _steps(times: Floats, sizes: Ints, firsts: Ints) -> Floats:
    """The ``step`` of each side, by its first replica, of times in order.

    Differences that may be the rounding of the numbers that samples are kept in are none. A clock that is too fine to
    show its step shows a difference that is too small to matter.
    """
    lasts = np.cumsum(sizes) - 1
    apart = np.append(np.diff(times), np.inf)
    seen = apart > np.repeat(RESOLUTION * times[lasts], sizes)
    seen[lasts] = False  # what follows is another replica's
    smallest: Floats = np.minimum.reduceat(np.where(seen, apart, np.inf), (lasts - sizes + 1)[firsts])
    return smallest
