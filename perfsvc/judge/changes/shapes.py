"""What a change looks like: a step, a trend, or another mixture of two states."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from perfsvc.judge.changes.scores import Bools, Floats, Ints
from perfsvc.model import ChangeKind, Direction

MIN_RAMP = 8
"""A change that took fewer runs than this is a step, whatever its shape."""

APART = 3.0
"""Two states are distinct if each mean is this many of their standard deviations from the point between them."""

MIN_SHARE = 0.15
"""The smallest share of the runs that makes a state of its own; at least two runs."""

TREND_LEAD = 0.5
"""By how much better (log-likelihood) a trend must explain a change than a step to be called a trend."""

SURE_TREND_LEAD = 1.0
"""The same margin for calling an already raised step a trend, or a change within a trend a step."""

MIN_RESIDUAL = 2.0**-300
"""Divisor in place of a residual of 0."""


@dataclass(frozen=True, slots=True)
class FittedChange:
    """The likeliest change within some runs.

    Attributes:
        start: its first run, counted from the first of the runs.
        kind: step, trend or mixture.
        direction: ``SLOWER`` if the values grew, else ``FASTER``.
        residual: the sum of squares that the change leaves unexplained.
        trend_lead: by how much better a trend explains the runs than a step (log-likelihood); negative if a step does.
    """

    start: int
    kind: ChangeKind
    direction: Direction
    residual: float
    trend_lead: float


def fit_changes(values: Floats, units: Floats, *, sure: bool = False) -> list[FittedChange]:
    """Return the likeliest change in each of several levels of equal length.

    Args:
        values: as measured, shape (levels, runs), four runs or more.
        units: the same in units of each level's scale, with spikes clipped.
        sure: require the larger margin ``SURE_TREND_LEAD`` before calling a change a trend.

    Source:
        A step compared with a hinge by the squares that each explains, both having one place, one height and one level:
        D. V. Hinkley (1971), Inference in two-phase regression, J. Am. Stat. Assoc. 66.
    """
    step_start, step_residual, by_step, rise = fit_step(units)
    ramp_start, by_ramp = fit_ramp(units)
    lead = (by_ramp - by_step) * units.shape[1] / 2 / np.maximum(step_residual, MIN_RESIDUAL)
    mixture = is_mixture(values, step_start)
    trend = ~mixture & (lead > (SURE_TREND_LEAD if sure else TREND_LEAD))
    start = np.where(trend, ramp_start, step_start)
    residual = np.where(trend, step_residual + by_step - by_ramp, step_residual)
    trend_lead = np.where(mixture, 0.0, lead)
    return [
        FittedChange(
            int(start[row]),
            ChangeKind.MIXTURE if mixture[row] else ChangeKind.TREND if trend[row] else ChangeKind.STEP,
            Direction.SLOWER if rise[row] > 0 else Direction.FASTER,
            float(residual[row]),
            float(trend_lead[row]),
        )
        for row in range(len(units))
    ]


def fit_step(units: Floats) -> tuple[Ints, Floats, Floats, Floats]:
    """Fit the likeliest step to each level, with at least two runs on either side.

    Args:
        units: the values of the levels, shape (levels, runs), four runs or more.

    Returns:
        Each of shape (levels,): the first run after the step; the sum of squares around the two means; by how much that
        is less than around one mean; the second mean minus the first.
    """
    runs = units.shape[1]
    before = np.arange(2.0, runs - 1)
    after = runs - before
    head = units.cumsum(axis=1)[:, 1:-2]
    total = np.add.reduce(units, axis=1, keepdims=True)
    difference = (total - head) / after - head / before
    explained = difference * difference * before * after / runs
    best, rows = explained.argmax(axis=1), np.arange(len(units))
    offsets = units - total / runs
    residual = np.add.reduce(offsets * offsets, axis=1) - explained[rows, best]
    return best + 2, np.maximum(residual, 0.0), explained[rows, best], difference[rows, best]


def fit_ramp(units: Floats) -> tuple[Ints, Floats]:
    """Fit the likeliest trend that lasts until the latest run to each level.

    Args:
        units: the values of the levels, shape (levels, runs).

    Returns:
        Each of shape (levels,): the first run beyond the flat part; the sum of squares that the trend explains, 0 if
        the level is too short for a trend.
    """
    levels, runs = units.shape
    if runs <= MIN_RAMP:
        return np.zeros(levels, np.intp), np.zeros(levels)
    offsets = units - np.add.reduce(units, axis=1, keepdims=True) / runs
    along = offsets[:, ::-1].cumsum(axis=1).cumsum(axis=1)[:, : MIN_RAMP - 2 : -1]
    explained = along * along / _ramp_squares(runs)
    return explained.argmax(axis=1), explained.max(axis=1)


@cache
def _ramp_squares(runs: int) -> Floats:
    """Return the squares around its mean of a trend 1, 2, … by its first run."""
    length = runs - np.arange(runs - MIN_RAMP + 1)
    risen = length * (length + 1) / 2
    squares: Floats = risen * (2 * length + 1) / 3 - risen * risen / runs
    return squares


def is_mixture(values: Floats, starts: Ints) -> Bools:
    """Return for which levels the runs before and after a change are the same two states in different shares.

    This is so if all runs together fall into two distinct groups, and at least one side of the change has runs of both.
    A step has one state on each side.

    Args:
        values: as measured, shape (levels, runs), four runs or more.
        starts: the first run after each level's change, shape (levels,).

    Source:
        The two groups are those with the largest variance between them: N. Otsu (1979), A threshold selection method
        from gray-level histograms, IEEE Trans. Syst. Man Cybern. 9(1).
    """
    runs = values.shape[1]
    ordered = np.sort(values, axis=1)
    first_high, residual, _, gap = fit_step(ordered)
    rows = np.arange(len(values))
    limit = ordered[rows, first_high - 1] / 2 + ordered[rows, first_high] / 2
    distinct = gap > 2 * APART * np.sqrt(residual / runs)
    high = (values > limit[:, None]) & distinct[:, None]
    before = np.add.reduce(high & (np.arange(runs) < starts[:, None]), axis=1)
    after = np.add.reduce(high, axis=1) - before
    return _has_both_states(before, starts) | _has_both_states(after, runs - starts)


def _has_both_states(high: Ints, runs: Ints) -> Bools:
    """Return which levels have enough runs of both states on one side of the change."""
    both: Bools = np.minimum(high, runs - high) >= np.maximum(2, MIN_SHARE * runs)
    return both
