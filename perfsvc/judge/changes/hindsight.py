"""The levels of a finished history, found with all of its runs known: what the pages draw.

The detector cannot take this over. It judges each run by the past alone, needs 20 runs before it raises anything, and
draws an edge that hindsight would not in 18 % of series with one step of three standard deviations (0 % here).
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from perfsvc.judge.changes.level import MIN_SCALE, center_and_scale
from perfsvc.judge.changes.scores import Floats

CLIP = 3.5
"""Runs are clipped at this many standard deviations from the median of the runs around them."""

NEIGHBOURS = 5
"""How many runs are the runs around a run, itself included."""

PRICE = 6.0
"""What a further level must explain, in logarithms of the number of runs."""

MIN_RUNS = 2
"""The fewest runs of a level: one run is a spike."""


@dataclass(frozen=True, slots=True)
class HistoryLevel:
    """Consecutive runs on one level: the first and the last run, counted from 0, and their median."""

    first: int
    last: int
    median: float


def split_into_levels(values: ArrayLike) -> list[HistoryLevel]:
    """Return the levels of a series, oldest first; runs that did not measure it are skipped.

    The division of the runs into levels that costs least is chosen. The cost is the sum of squares
    around the levels' means, plus a price for each further level. All levels are chosen at once, so no level is an
    artefact of another. The noise is estimated from the differences of neighbouring runs, few of which span a change.
    Spikes of one run are clipped first.

    Args:
        values: one value a run, in any unit, oldest first, shape (runs,); NaN if the series was not measured.

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
        raise ValueError("a value is infinite: a run without a measurement is NaN")
    runs = np.flatnonzero(~np.isnan(series))
    if not runs.size:
        return []
    # Dividing by a power of two changes no digit, and below 1 no sum or square overflows.
    _, exponent = np.frexp(np.abs(series[runs]).max())
    measured = np.ldexp(series[runs], -exponent)
    starts = _cheapest_division(_in_units(measured)) if runs.size >= 2 * MIN_RUNS else []
    return [
        HistoryLevel(int(runs[begin]), int(runs[end - 1]), float(np.ldexp(np.median(measured[begin:end]), exponent)))
        for begin, end in pairwise([0, *starts, runs.size])
    ]


def _in_units(measured: Floats) -> Floats:
    """Return the runs in standard deviations of their noise, with spikes clipped."""
    center = float(np.median(measured))
    differences = np.diff(measured)[None, :]
    _, noise = center_and_scale(differences, np.ones(differences.shape, bool))
    # The scale is never 0: so a constant series can be divided too, and a level of zeros differs from any other level.
    scale = max(float(noise[0]) / np.sqrt(2), MIN_SCALE * abs(center), np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        units = np.clip((measured - center) / scale, -1e6, 1e6)
    half = NEIGHBOURS // 2
    around = np.lib.stride_tricks.sliding_window_view(np.pad(units, half, mode="reflect"), NEIGHBOURS)
    medians = np.median(around, axis=1)
    clipped: Floats = np.clip(units, medians - CLIP, medians + CLIP)
    return clipped


def _cheapest_division(units: Floats) -> list[int]:
    """Return the positions at which the second and later levels begin, in the division of least cost.

    The cost of a level is the sum of squares around its mean. Each further level costs ``PRICE`` times the logarithm of
    the number of runs.
    """
    count = units.size
    price = PRICE * np.log(count)
    sums, squares = (np.concatenate([[0.0], np.cumsum(terms)]) for terms in (units, units * units))
    least = np.full(count + 1, np.inf)
    least[0] = -price
    begin_of_last = np.zeros(count + 1, np.intp)
    for end in range(MIN_RUNS, count + 1):
        begins = np.arange(end - MIN_RUNS + 1)
        around_mean = squares[end] - squares[begins] - (sums[end] - sums[begins]) ** 2 / (end - begins)
        costs = least[begins] + around_mean + price
        begin_of_last[end] = costs.argmin()
        least[end] = costs[begin_of_last[end]]
    starts = []
    start = int(begin_of_last[count])
    while start:
        starts.append(start)
        start = int(begin_of_last[start])
    return starts[::-1]
