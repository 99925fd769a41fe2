"""What a change looks like: a step, a trend, or another mix of two states."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perfsvc.judge.estimates import mean
from perfsvc.judge.shifts import Floats

Kind = Literal["step", "trend", "mode"]
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


def change_in(values: Floats, units: Floats, *, surely: bool = False) -> Change:
    """The likeliest change in the nights of a level.

    Args:
        values: as measured, shape (nights,), four or more.
        units: the same, in units of the level's scale, with spikes cut off.
        surely: a trend is called one only where it explains far more than a step.

    Source:
        A step against a hinge by what each explains, both having one place, one height and one level: D. V. Hinkley
        (1971), Inference in two-phase regression, J. Am. Stat. Assoc. 66.
    """
    place, around, by_step = split(units)
    begin, by_ramp = ramp(units)
    direction: Direction = "slower" if mean(units[place:]) > mean(units[:place]) else "faster"
    lead = (by_ramp - by_step) * units.size / 2 / max(around, LEAST_AROUND)
    if is_mix(values, place):
        return Change(place, "mode", direction, around, lead=0.0)
    if lead > (SURELY if surely else LIKELY):
        return Change(begin, "trend", direction, around + by_step - by_ramp, lead)
    return Change(place, "step", direction, around, lead)


def split(units: Floats) -> tuple[int, float, float]:
    """Where a step in a level is likeliest: the place of its first night, the variance around it and what it explains.

    Two nights on either side at least.

    Args:
        units: the values of the level, shape (nights,), four or more.

    Returns:
        The place; the sum of squares around the two means; by how much that is less than around one.
    """
    before, after = _sides(units.size)
    head = units.cumsum()[1:-2]
    difference = (np.add.reduce(units) - head) / after - head / before
    explained = difference * difference * before * after / units.size
    best = int(explained.argmax())
    offsets = units - mean(units)
    around = float(np.add.reduce(offsets * offsets) - explained[best])
    return best + 2, max(around, 0.0), float(explained[best])


@cache
def _sides(count: int) -> tuple[Floats, Floats]:
    """How many of some nights are before each step that ``split`` looks at, and how many after."""
    before = np.arange(2.0, count - 1)
    return before, count - before


def ramp(units: Floats) -> tuple[int, float]:
    """Where a trend that lasts until the latest night most likely began, and what it explains of the squares.

    Args:
        units: the values of the level, shape (nights,).

    Returns:
        The place of the first night that lies beyond the level; the sum of squares that the trend explains, 0 where
        the level is too short for one.
    """
    if units.size <= LEAST_RAMP:
        return 0, 0.0
    squares = _squares_of_ramps(units.size)
    offsets = units - mean(units)
    along = offsets[::-1].cumsum().cumsum()[: LEAST_RAMP - 2 : -1]
    explained = along * along / squares
    best = int(explained.argmax())
    return best, float(explained[best])


@cache
def _squares_of_ramps(count: int) -> Floats:
    """The squares of a trend around its mean, by the place of its first night: it rises by one each, 1, 2, ..."""
    nights = count - np.arange(count - LEAST_RAMP + 1)
    risen = nights * (nights + 1) / 2
    squares: Floats = risen * (2 * nights + 1) / 3 - risen * risen / count
    return squares


def is_mix(values: Floats, place: int) -> bool:
    """Whether the nights before and after a change are of the same two states, only mixed otherwise.

    So it is where all nights together fall into two groups that lie well apart, and at least one side has nights of
    both. A step has each state on a side of its own.

    Args:
        values: as measured, shape (nights,), four or more.
        place: of the first night after the change.

    Source:
        The two groups are those of the largest variance between them: N. Otsu (1979), A threshold selection method from
        gray-level histograms, IEEE Trans. Syst. Man Cybern. 9(1).
    """
    limit = _between_groups(values)
    if limit is None:
        return False
    high = values > limit
    return _has_both(high[:place]) or _has_both(high[place:])


def _between_groups(values: Floats) -> float | None:
    """A value between the two groups that some values fall into; None where they are one."""
    ordered = np.sort(values)
    place, around, _ = split(ordered)
    low, high = ordered[:place], ordered[place:]
    if mean(high) - mean(low) <= 2 * APART * math.sqrt(around / ordered.size):
        return None
    return float(low[-1] / 2 + high[0] / 2)


def _has_both(states: NDArray[np.bool_]) -> bool:
    highs = int(np.count_nonzero(states))
    return min(highs, states.size - highs) >= max(2, LEAST_SHARE * states.size)
