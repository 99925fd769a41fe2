"""What a change looks like: a step, a trend, or another mix of two states."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perfsvc.judge.shifts import Floats, Ints

Kind = Literal["step", "trend", "cache"]
Direction = Literal["slower", "faster"]

LEAST_RAMP = 8
"""A change that took fewer nights than this is a step, whatever its shape."""

APART = 3.0
"""Two states are told apart where their means differ by so many standard deviations within them, on each side."""

LEAST_SHARE = 0.15
"""The smallest share of the nights that makes a state of its own; and two nights at least."""

LIKELY = 0.5
"""By how much better a trend must explain a change than a step before it is called one, as a log-likelihood."""

SURELY = 1.0
"""The same before a step that was raised is called a trend after all, or a change within a trend a step."""

LEAST_AROUND = 2.0**-300
"""What is divided by where a change leaves nothing unexplained."""


@dataclass(frozen=True, slots=True)
class Change:
    """The likeliest change in some nights.

    Attributes:
        place: of its first night, counted from the first of them.
        kind: what it looks like.
        direction: ``slower`` (the values grew) or ``faster``.
        around: the sum of squares that it leaves unexplained.
        lead: by how much better a trend explains the nights than a step, as a log-likelihood; below 0 a step does.
    """

    place: int
    kind: Kind
    direction: Direction
    around: float
    lead: float


def changes_in(values: Floats, units: Floats, *, surely: bool = False) -> list[Change]:
    """The likeliest change in the nights of each of some levels that are equally long.

    Args:
        values: as measured, shape (levels, nights), four nights or more.
        units: the same, in units of each level's scale, with spikes cut off.
        surely: a trend is called one only where it explains far more than a step.

    Source:
        A step against a hinge by what each explains, both having one place, one height and one level: D. V. Hinkley
        (1971), Inference in two-phase regression, J. Am. Stat. Assoc. 66.
    """
    place, around, by_step, rise = split(units)
    begin, by_ramp = ramp(units)
    lead = (by_ramp - by_step) * units.shape[1] / 2 / np.maximum(around, LEAST_AROUND)
    mixed = are_mixes(values, place)
    drifts = ~mixed & (lead > (SURELY if surely else LIKELY))
    columns = (
        np.where(drifts, begin, place),
        np.where(mixed, "cache", np.where(drifts, "trend", "step")),
        np.where(rise > 0, "slower", "faster"),
        np.where(drifts, around + by_step - by_ramp, around),
        np.where(mixed, 0.0, lead),
    )
    return [Change(*one) for one in zip(*(column.tolist() for column in columns), strict=True)]


def split(units: Floats) -> tuple[Ints, Floats, Floats, Floats]:
    """Where a step in each level is likeliest, the variance around it, what it explains, and how high it is.

    Two nights on either side at least.

    Args:
        units: the values of the levels, shape (levels, nights), four nights or more.

    Returns:
        The place of its first night; the sum of squares around the two means; by how much that is less than around one;
        the second mean less the first. Each of shape (levels,).
    """
    nights = units.shape[1]
    before, after = _sides(nights)
    head = units.cumsum(axis=1)[:, 1:-2]
    total = np.add.reduce(units, axis=1, keepdims=True)
    difference = (total - head) / after - head / before
    explained = difference * difference * before * after / nights
    best, each = explained.argmax(axis=1), np.arange(len(units))
    offsets = units - total / nights
    around = np.add.reduce(offsets * offsets, axis=1) - explained[each, best]
    return best + 2, np.maximum(around, 0.0), explained[each, best], difference[each, best]


@cache
def _sides(count: int) -> tuple[Floats, Floats]:
    """How many of some nights are before each step that ``split`` looks at, and how many after."""
    before = np.arange(2.0, count - 1)
    return before, count - before


def ramp(units: Floats) -> tuple[Ints, Floats]:
    """Where a trend that lasts until the latest night most likely began, and what it explains of the squares.

    Args:
        units: the values of some levels, shape (levels, nights).

    Returns:
        The place of the first night that lies beyond each level; the sum of squares that the trend explains, 0 where
        the levels are too short for one. Both of shape (levels,).
    """
    levels, nights = units.shape
    if nights <= LEAST_RAMP:
        return np.zeros(levels, np.intp), np.zeros(levels)
    offsets = units - np.add.reduce(units, axis=1, keepdims=True) / nights
    along = offsets[:, ::-1].cumsum(axis=1).cumsum(axis=1)[:, : LEAST_RAMP - 2 : -1]
    explained = along * along / _squares_of_ramps(nights)
    return explained.argmax(axis=1), explained.max(axis=1)


@cache
def _squares_of_ramps(count: int) -> Floats:
    """The squares of a trend around its mean, by the place of its first night: it rises by one each, 1, 2, ..."""
    nights = count - np.arange(count - LEAST_RAMP + 1)
    risen = nights * (nights + 1) / 2
    squares: Floats = risen * (2 * nights + 1) / 3 - risen * risen / count
    return squares


def are_mixes(values: Floats, places: Ints) -> NDArray[np.bool_]:
    """In which levels the nights before and after a change are of the same two states, only mixed otherwise.

    So it is where all nights together fall into two groups that lie well apart, and at least one side has nights of
    both. A step has each state on a side of its own.

    Args:
        values: as measured, shape (levels, nights), four nights or more.
        places: of the first night after each level's change, shape (levels,).

    Source:
        The two groups are those of the largest variance between them: N. Otsu (1979), A threshold selection method from
        gray-level histograms, IEEE Trans. Syst. Man Cybern. 9(1).
    """
    nights, high = values.shape[1], values > _between_groups(values)[:, None]
    highs = np.add.reduce(high, axis=1)
    before = np.add.reduce(high & (np.arange(nights) < places[:, None]), axis=1)
    return _have_both(before, places) | _have_both(highs - before, nights - places)


def _between_groups(values: Floats) -> Floats:
    """A value between the two groups that the values of each level fall into; infinite where they are one."""
    ordered = np.sort(values, axis=1)
    place, around, _, apart = split(ordered)
    each = np.arange(len(values))
    limit = ordered[each, place - 1] / 2 + ordered[each, place] / 2
    return np.where(apart > 2 * APART * np.sqrt(around / values.shape[1]), limit, np.inf)


def _have_both(highs: Ints, nights: Ints) -> NDArray[np.bool_]:
    """Which levels have enough nights of both states among those on a side of their change."""
    found: NDArray[np.bool_] = np.minimum(highs, nights - highs) >= np.maximum(2, LEAST_SHARE * nights)
    return found
