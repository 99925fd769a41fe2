"""The levels of a finished history, found with all of its runs known: what the pages draw.

The detector cannot take this over. It judges each run by the past alone, learns from the first runs, and
draws an edge that hindsight would not in 18 % of series with one step of three standard deviations (0 % here).
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from perfsvc.judge.changes.level import MIN_SCALE, center_and_scale
from perfsvc.judge.changes.scores import Floats, Ints
from perfsvc.judge.levels import median

CLIP = 3.5
"""Runs are clipped at this many standard deviations from the median of the runs around them."""

NEIGHBOURS = 5
"""How many runs are the runs around a run, itself included."""

PRICE = 6.0
"""What a further level must explain, in logarithms of the number of runs."""

MIN_RUNS = 2
"""The fewest runs of a level: one run is a spike."""

AT_ONCE = 64
"""How many series are divided together: the arrays of more would not fit into a cache of the processor."""


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
    (levels,) = split_all_into_levels([values])
    return levels


def split_all_into_levels(histories: Iterable[ArrayLike]) -> list[list[HistoryLevel]]:
    """Return the levels of each of many series, as ``split_into_levels`` does, in a tenth of the time.

    Args:
        histories: the values of each series, as ``split_into_levels`` takes them.

    Raises:
        ValueError: an infinite value, or more than one axis.
    """
    measured: list[tuple[Ints, Floats, int]] = []
    by_size: dict[int, list[int]] = defaultdict(list)
    for index, values in enumerate(histories):
        series = np.asarray(values, dtype=np.float64)
        if series.ndim != 1:
            raise ValueError(f"the values of one series have one axis, not {series.ndim}")
        if np.isinf(series).any():
            raise ValueError("a value is infinite: a run without a measurement is NaN")
        runs = np.flatnonzero(~np.isnan(series))
        # Dividing by a power of two changes no digit, and below 1 no sum or square overflows.
        exponent = int(np.frexp(np.abs(series[runs]).max())[1]) if runs.size else 0
        measured.append((runs, np.ldexp(series[runs], -exponent), exponent))
        if runs.size >= 2 * MIN_RUNS:
            by_size[runs.size].append(index)
    starts: dict[int, list[int]] = {}
    for indices in by_size.values():
        for some in (indices[begin : begin + AT_ONCE] for begin in range(0, len(indices), AT_ONCE)):
            units = _in_units(np.stack([measured[index][1] for index in some]))
            starts |= zip(some, _cheapest_divisions(units), strict=True)
    return [
        [
            HistoryLevel(int(runs[begin]), int(runs[end - 1]), float(np.ldexp(median(values[begin:end]), exponent)))
            for begin, end in pairwise([0, *starts.get(index, ()), runs.size])
        ]
        if runs.size
        else []
        for index, (runs, values, exponent) in enumerate(measured)
    ]


def _in_units(measured: Floats) -> Floats:
    """Return the runs in standard deviations of the noise of their series, with spikes clipped.

    Args:
        measured: shape (series, runs).
    """
    center = np.median(measured, axis=1)
    differences = np.diff(measured)
    _, noise = center_and_scale(differences, np.ones(differences.shape, bool))
    # The scale is never 0: so a constant series can be divided too, and a level of zeros differs from any other level.
    scale = np.maximum(np.maximum(noise / np.sqrt(2), MIN_SCALE * np.abs(center)), np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        units = np.clip((measured - center[:, None]) / scale[:, None], -1e6, 1e6)
    half = NEIGHBOURS // 2
    padded = np.pad(units, ((0, 0), (half, half)), mode="reflect")
    medians = np.median(np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS, axis=1), axis=2)
    clipped: Floats = np.clip(units, medians - CLIP, medians + CLIP)
    return clipped


def _cheapest_divisions(units: Floats) -> list[list[int]]:
    """Return the positions at which the second and later levels of each series begin, in the division of least cost.

    The cost of a level is the sum of squares around its mean. Each further level costs ``PRICE`` times the logarithm of
    the number of runs. All divisions have the sum of all squares in common, so costs are computed without it: a level
    of n runs with the sum s costs -s² / n.

    Args:
        units: shape (series, runs).
    """
    series, count = units.shape
    price = PRICE * np.log(count)
    # The series are the last axis: all runs before one run are then contiguous.
    sums = np.concatenate([np.zeros((1, series)), np.cumsum(units.T, axis=0)])
    shares = 1.0 / np.arange(count, 0, -1)[:, None]  # of one run in a level from each position to the end
    least = np.full((count + 1, series), np.inf)
    least[0] = -price
    costs = np.empty((count, series))
    for end in range(MIN_RUNS, count + 1):
        ends = end - MIN_RUNS + 1
        some = costs[:ends]
        np.subtract(sums[:ends], sums[end], out=some)
        np.multiply(some, some, out=some)
        np.multiply(some, shares[count - end : count - end + ends], out=some)
        np.subtract(least[:ends], some, out=some)
        least[end] = some.min(axis=0) + price
    of_series = zip(least.T.copy(), sums.T.copy(), strict=True)
    return [_starts(of_one, sums_of_one, shares[:, 0]) for of_one, sums_of_one in of_series]


def _starts(least: Floats, sums: Floats, shares: Floats) -> list[int]:
    """Return where the second and later levels of one series begin.

    Args:
        least: the least cost of the runs before each position, shape (runs + 1,).
        sums: their sums, shape (runs + 1,).
        shares: the share of one run in a level from each position to the end, shape (runs,).
    """
    starts = []
    end = count = shares.size
    while end:
        ends = end - MIN_RUNS + 1
        costs = least[:ends] - (sums[:ends] - sums[end]) ** 2 * shares[count - end : count - end + ends]
        end = int(costs.argmin())
        starts.append(end)
    return starts[-2::-1]
