"""Where the level of a series changed, with all of its nights known."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from perfsvc.judge.histories import LEAST_SCALE, center_and_scale
from perfsvc.judge.shifts import Floats

CUT = 3.5
"""Nights count for no more than so many standard deviations from the nights around them."""

AROUND = 5
"""How many nights are the nights around one, itself included."""

PRICE = 6.0
"""What a change point must explain, in logarithms of the number of nights."""

SHORTEST = 2
"""The fewest nights of a level: one night is a spike."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of level.

    Attributes:
        index: the first night of the new level, counted from 0.
        before: the median of the level that ended there.
        after: the median of the level that began.
    """

    index: int
    before: float
    after: float


def change_points(values: ArrayLike) -> list[ChangePoint]:
    """The nights on which the level of a series most likely changed, first to last.

    Of all ways to divide the nights into levels the one is taken that leaves least unexplained, each change having a
    price; so a change is never an artefact of an earlier choice. The noise is read off the differences of neighbours,
    of which few span a change: those are cut off as spikes are. Spikes of one night are cut off first.

    Args:
        values: one value a night, in any unit, shape (nights,); NaN where the series was not measured.

    Raises:
        ValueError: an infinite value, or more than one axis.

    Source:
        B. Jackson et al. (2005), An algorithm for optimal partitioning of data on an interval, IEEE Signal Process.
        Lett. 12(2); the price, a multiple of log n: Y.-C. Yao (1988), Estimating the number of change-points via
        Schwarz' criterion, Stat. Probab. Lett. 6(3); the noise: J. von Neumann et al. (1941), The mean square
        successive difference, Ann. Math. Statist. 12(2).
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1:
        raise ValueError(f"the values of one series have one axis, not {series.ndim}")
    if np.isinf(series).any():
        raise ValueError("a value is infinite: a night without a measurement is NaN")
    nights = np.flatnonzero(~np.isnan(series))
    measured = series[nights]
    if measured.size < 2 * SHORTEST:
        return []
    # A power of two changes no digit, and within 1 no sum or square is beyond what a float can be.
    _, exponent = np.frexp(np.abs(measured).max())
    small = np.ldexp(measured, -exponent)
    edges = [0, *_divided(_in_units(small)), measured.size]
    levels = [float(np.ldexp(np.median(small[begin:end]), exponent)) for begin, end in pairwise(edges)]
    return [
        ChangePoint(int(nights[edge]), before, after)
        for edge, (before, after) in zip(edges[1:], pairwise(levels), strict=False)
    ]


def _in_units(measured: Floats) -> Floats:
    """The nights in standard deviations of their noise, with spikes cut off."""
    center = float(np.median(measured))
    steps = np.diff(measured)[None, :]
    _, noise = center_and_scale(steps, np.ones(steps.shape, bool))
    # Constants have some noise as well, and zeros are told from whatever is not zero.
    scale = max(float(noise[0]) / np.sqrt(2), LEAST_SCALE * abs(center), np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        units = np.clip((measured - center) / scale, -1e6, 1e6)
    half = AROUND // 2
    around = np.lib.stride_tricks.sliding_window_view(np.pad(units, half, mode="reflect"), AROUND)
    neighbours = np.median(around, axis=1)
    cut: Floats = np.clip(units, neighbours - CUT, neighbours + CUT)
    return cut


def _divided(units: Floats) -> list[int]:
    """The places where levels begin, other than the first: of all divisions the one that costs least.

    The cost of a level is the sum of squares around its mean; each further level costs ``PRICE`` logarithms.
    """
    count = units.size
    price = PRICE * np.log(count)
    sums, squares = (np.concatenate([[0.0], np.cumsum(terms)]) for terms in (units, units * units))
    least = np.full(count + 1, np.inf)
    least[0] = -price
    begun = np.zeros(count + 1, np.intp)
    for end in range(SHORTEST, count + 1):
        begins = np.arange(end - SHORTEST + 1)
        around = squares[end] - squares[begins] - (sums[end] - sums[begins]) ** 2 / (end - begins)
        costs = least[begins] + around + price
        begun[end] = costs.argmin()
        least[end] = costs[begun[end]]
    places = []
    place = int(begun[count])
    while place:
        places.append(place)
        place = int(begun[place])
    return places[::-1]
