"""The ratio of two levels and how far it can be trusted, from the replicas of both sides."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from perfsvc.judge.estimates import Floats, in_order, median, middle, variance
from perfsvc.judge.noise import NORMAL_MAD

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
        replicas: for each its times, which are finite and not below 0, the smallest first, shape (n,).
        medians: of the replicas, shape (replicas,).
    """

    replicas: Sequence[Floats]
    medians: Floats

    @property
    def logs(self) -> Floats:
        """The logarithms of the medians, all of which are above 0."""
        return np.log(self.medians)

    @property
    def level(self) -> float:
        """About where the medians lie."""
        return median(self.medians)


def side_of(samples: Sequence[ArrayLike]) -> Side:
    """Reads a side of a comparison.

    Raises:
        ValueError: no replicas, or one without samples or with times that are not finite or below 0.
    """
    if not len(samples):
        raise ValueError("no replicas: a level needs the samples of at least one")
    replicas = [in_order(replica, zero=True) for replica in samples]
    return Side(replicas, np.array([middle(times) for times in replicas]))


def half_width(before: Side, after: Side, alpha: float, between_cv: float | None) -> float | None:
    """Half the interval of the difference of mean logarithms; None where nothing tells the variance.

    It is Student's with the pooled variance of the replicas, in which no side's deviation counts as less than its
    floor: the clock's step and, where ``between_cv`` is not known, a share of the spread of its samples.

    Where a side has few replicas and the other many, a pooled variance lets the many speak for the few. So the half is
    never below ``ALONE`` times the error in which each side speaks for itself.
    """
    sides = [before, after]
    step = _clock_step([*before.replicas, *after.replicas])
    floors = [max(step / side.level, _floor(side) if between_cv is None else 0.0) for side in sides]
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


def _floor(side: Side) -> float:
    """What processes differ by at least, read off the spread of samples around their own replica's median."""
    pairs = [(times, center) for times, center in zip(side.replicas, side.medians, strict=True) if times.size > 1]
    if not pairs:
        return 0.0
    with np.errstate(divide="ignore"):  # a sample of 0 is infinitely far away, and that is no error
        apart = [np.log(times) - math.log(center) for times, center in pairs]
    return SHARE_OF_WITHIN * NORMAL_MAD * median(np.abs(np.concatenate(apart)))


def _clock_step(replicas: Sequence[Floats]) -> float:
    """The step of the clock as its times show it: the smallest difference between two samples of one replica.

    Differences that may be the rounding of the numbers that samples are kept in are none. A clock that is too fine to
    show its step shows a difference that is too small to matter. 0 where all replicas are constant.
    """
    smallest = math.inf
    for times in replicas:
        apart = times[1:] - times[:-1]
        seen = apart > RESOLUTION * times[-1]
        smallest = min(smallest, float(np.minimum.reduce(apart, where=seen, initial=math.inf)))
    return 0.0 if math.isinf(smallest) else smallest
