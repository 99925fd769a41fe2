"""The levels of many runs at once, for whoever draws a year of them."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from perfsvc.judge.change_points import change_points

Floats = NDArray[np.float64]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Stretch:
    """Nights in a row on one level: the first and the last one's place, counted from 0, and their median."""

    first: int
    last: int
    level: float


def levels_of(values: Floats) -> tuple[Floats, Floats, Floats]:
    """What ``level_of`` says of the medians of each run's replicas, for many runs at once: centers, lows and highs.

    A run of one replica has no spread to see: its ends are NaN. As in ``estimate_metric``, a run with a value of zero
    or below has the arithmetic mean.

    Args:
        values: one row a run and one column a replica, shape (runs, replicas); NaN where there is no replica. A row
            without any is NaN throughout.
    """
    positive: NDArray[np.bool_] = np.logical_not(np.any(values <= 0, axis=1))
    counted = (~np.isnan(values)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        scaled = np.where(positive[:, None], np.log(values), values)
        center = np.nansum(scaled, axis=1) / counted
        squares = np.nansum((scaled - center[:, None]) ** 2, axis=1)
        error = np.sqrt(squares / (counted - 1) / counted)
        half = stdtrit(counted - 1.0, (1 + CONFIDENCE) / 2) * error
        ends = np.stack([center, center - half, center + half])
        center, low, high = np.where(positive, np.exp(ends), ends)
    return center, low, high


def stretches(values: Floats) -> list[Stretch]:
    """The levels of a series: the nights between its change points, with what was not measured left out.

    Args:
        values: one value a night, shape (nights,), oldest first; NaN where the series was not measured.
    """
    measured = np.flatnonzero(~np.isnan(values))
    if not measured.size:
        return []
    edges = [int(measured[0]), *(change.index for change in change_points(values)), len(values)]
    found = []
    for begin, end in pairwise(edges):
        held = measured[(measured >= begin) & (measured < end)]
        found.append(Stretch(int(held[0]), int(held[-1]), float(np.median(values[held]))))
    return found
