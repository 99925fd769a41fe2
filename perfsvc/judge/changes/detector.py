"""The detector: judges many series run by run, raises alerts, and begins the levels that follow."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfsvc.judge.changes.level import LevelTracker
from perfsvc.judge.changes.scores import Bools, Floats, Ints, may_reach, window_scores
from perfsvc.judge.changes.shapes import SURE_TREND_LEAD, FittedChange, fit_changes
from perfsvc.model import ChangeKind, Direction

MIN_SCORE = 11.1
"""The score of an alert."""

MIN_GROWTH = 0.03
"""By how much a trend must grow, as a fraction of the level, before it is raised again."""

TREND_END = 3
"""The level after a trend begins with this many of its latest runs."""

LOOKS = (2, 3, 4, 5, 6, 7, 9, 11, 13, 16, 19, 23, 28, 33, 40, 48, 58, 69, 83, 100)
"""After so many runs a raised step is looked at again: it may turn out to be the beginning of a trend."""

CERTAIN_STEP_LEAD = 8.0
"""By how much better (log-likelihood) a step must explain a change than a trend to end these looks."""

NEVER = np.iinfo(np.intp).max


@dataclass(frozen=True, slots=True)
class Alert:
    """A change of level, shown by the runs up to ``raised`` and by none after it.

    Attributes:
        start: the first run of the new state, counted from 0.
        raised: the run at which the alert was raised.
        kind: step, trend (a drift that was still going on) or mixture (two states in new shares).
        direction: ``SLOWER`` if the values grew, else ``FASTER``.
    """

    start: int
    raised: int
    kind: ChangeKind
    direction: Direction


@dataclass(frozen=True, slots=True)
class _OpenStep:
    """A step that may begin a trend: the first position before it, and how many there were when it was raised."""

    first: int
    raised: int


class Detector:
    """Judges many series, a run at a time.

    Args:
        series: how many series there are.
        runs: how many runs there will be at most.
        believes: returns which of some series (rows, shape (rows,)) with some scores are believed to have changed.

    Attributes:
        alerts: of each series, oldest first.
    """

    def __init__(self, series: int, runs: int, believes: Callable[[Ints, Floats], Bools]) -> None:
        self.alerts: list[list[Alert]] = [[] for _ in range(series)]
        self._levels = LevelTracker(series, runs)
        self._believes = believes
        self._open_steps: dict[int, _OpenStep] = {}
        self._next_look = np.full(series, NEVER)  # with how many positions an open step is looked at again
        self._trend_value: dict[int, float] = {}  # the value at which a trend was raised last

    def add(self, run: int, values: Floats, begins: Bools) -> None:
        """Add a run, judge it, raise what is believed, and only then learn from it.

        Args:
            run: its number, counted from 0.
            values: one finite value a series, NaN if the run did not measure it, shape (series,).
            begins: in which series the run begins a segment, shape (series,).
        """
        levels = self._levels
        if begins.any():
            levels.begin_segments(np.flatnonzero(begins))
            for row in np.flatnonzero(begins).tolist():
                self._close_step(row)
                self._trend_value.pop(row, None)
        measured = np.flatnonzero(~np.isnan(values))
        levels.add(run, measured, values[measured])
        judged = measured[levels.learned[measured]]
        if judged.size:
            changed = judged[self._believes(judged, self._scores(judged))]
            if changed.size:
                self._handle_changes(changed, run)
        looked_at = np.flatnonzero(self._next_look == levels.filled)
        if looked_at.size:
            self._look_again(looked_at, run)
        levels.learn()

    def _scores(self, rows: Ints) -> Floats:
        """Return the score of each series' likeliest window, shape (rows,); 0 if it cannot reach ``MIN_SCORE``."""
        levels, best = self._levels, np.zeros(rows.size)
        possible = may_reach(levels.sums(rows), MIN_SCORE)
        if possible.any():
            some = rows[possible]
            latest = levels.latest_units(some)
            scores = window_scores(levels.sums(some), latest, levels.skew[some], levels.persistence[some])
            best[possible] = scores.max(axis=0)
        return best

    def _handle_changes(self, rows: Ints, run: int) -> None:
        """Raise what the series show whose levels have changed, and begin their next levels.

        A trend that goes on after it was raised is followed, and raised again when it has added ``MIN_GROWTH``.
        """
        levels = self._levels
        positions, residuals = [], []
        fitted = self._fit(rows, levels.first[rows])
        for row, change in fitted:
            first, end = int(levels.first[row]), int(levels.filled[row])
            positions.append(end - TREND_END if change.kind is ChangeKind.TREND else first + change.start)
            residuals.append(change.residual)
            if not self._continues_trend(row, change):
                step = self._open_steps.get(row)
                since = step.first if step and change.direction is self.alerts[row][-1].direction else first
                self._raise(row, first, run, change)
                if change.kind is ChangeKind.STEP and change.trend_lead > -CERTAIN_STEP_LEAD:
                    self._open_steps[row] = _OpenStep(since, end)
                    self._next_look[row] = end + LOOKS[0]
        levels.begin_levels(np.array([row for row, _ in fitted]), np.array(positions), np.array(residuals))

    def _look_again(self, rows: Ints, run: int) -> None:
        """Raise a trend for each raised step that has turned out to be the beginning of one."""
        levels, trends = self._levels, []
        first = np.array([self._open_steps[row].first for row in rows.tolist()])
        for row, change in self._fit(rows, first, sure=True):
            step, end = self._open_steps[row], int(levels.filled[row])
            if change.kind is ChangeKind.TREND and change.direction is self.alerts[row][-1].direction:
                self._raise(row, step.first, run, change)
                trends.append(row)
            elif change.trend_lead < -CERTAIN_STEP_LEAD or end - step.raised == LOOKS[-1]:
                self._close_step(row)
            else:
                self._next_look[row] = step.raised + LOOKS[bisect_right(LOOKS, end - step.raised)]
        if trends:
            drifting = np.array(trends)
            levels.begin_levels(drifting, levels.filled[drifting] - TREND_END, None)

    def _fit(self, rows: Ints, first: Ints, *, sure: bool = False) -> list[tuple[int, FittedChange]]:
        """Fit the likeliest change of each series since a position; series with equally many runs together."""
        levels = self._levels
        fitted: list[tuple[int, FittedChange]] = []
        counts = levels.filled[rows] - first
        for count in set(counts.tolist()):
            some = rows[counts == count]
            values = levels.latest_values(some, count)
            changes = fit_changes(values, levels.in_units(some, values), sure=sure)
            fitted += zip(some.tolist(), changes, strict=True)
        return fitted

    def _continues_trend(self, row: int, change: FittedChange) -> bool:
        """Return True if a change is only the trend that was raised last."""
        raised = self._trend_value.get(row)
        if raised is None or change.direction is not self.alerts[row][-1].direction:
            return False
        if change.trend_lead < -SURE_TREND_LEAD:
            return False
        return abs(self._latest_median(row) - raised) < MIN_GROWTH * abs(raised)

    def _raise(self, row: int, first: int, run: int, change: FittedChange) -> None:
        self._close_step(row)
        self._trend_value.pop(row, None)
        if change.kind is ChangeKind.TREND:
            self._trend_value[row] = self._latest_median(row)
        start = int(self._levels.runs[row, first + change.start])
        self.alerts[row].append(Alert(start, run, change.kind, change.direction))

    def _close_step(self, row: int) -> None:
        """Stop looking at a raised step again."""
        self._open_steps.pop(row, None)
        self._next_look[row] = NEVER

    def _latest_median(self, row: int) -> float:
        end = self._levels.filled[row]
        return float(np.median(self._levels.values[row, end - TREND_END : end]))
