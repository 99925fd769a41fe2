"""Judge many series run by run: raise alerts, and track the new level after each change."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from perfsvc.judge.changes.level import LevelTracker
from perfsvc.judge.changes.scores import (
    MIN_SCORE,
    SURE_TREND_LEAD,
    Bools,
    FittedChange,
    Floats,
    Ints,
    fit_changes,
    may_reach,
    window_scores,
)
from perfsvc.model import ChangeKind, Direction

PLATEAU = 20
"""A change that is undone within this many runs was a plateau."""

RETURN_ERRORS = 2.0
"""A level within this many standard errors of the level before a plateau is the same level."""

MAX_HEIGHT = 1e6
"""The height of a plateau counts as at most this many standard deviations, so that its square is finite."""


@dataclass(slots=True)
class Plateau:
    """A raised change that may prove to be a plateau.

    Attributes:
        before: the level before the change.
        during: the level since the change.
        scale: the standard deviation of the level before, above 0.
        begin: the first position of the change.
        score: how much likelier (log-likelihood) the latest runs are at the level before, 0 or above.
        end: the first of these latest runs, as a position.
    """

    before: float
    during: float
    scale: float
    begin: int
    score: float = 0.0
    end: int = 0

    def add(self, position: int, value: float) -> None:
        """Add how much likelier a run is at the level before than at the plateau to the score.

        A run adds at most half of ``MIN_SCORE``, so that no single run ends a plateau.

        Source:
            E. S. Page (1954), Continuous inspection schemes, Biometrika 41(1/2).
        """
        if not self.score:
            self.end = position
        height = self.during - self.before
        if height:
            share = min(max((value - self.before) / height, 0.0), 1.0)
            evidence = min(abs(height) / self.scale, MAX_HEIGHT) ** 2 * (0.5 - share)
            self.score = max(self.score + min(max(evidence, -MIN_SCORE / 2), MIN_SCORE / 2), 0.0)

    def returns_to(self, values: Floats, smallest: float) -> bool:
        """Return whether runs have the level before the plateau.

        Args:
            values: the latest runs, shape (runs,), at least one.
            smallest: the smallest relevant change, as a fraction: levels that differ by less are the same.
        """
        allowed = max(smallest * abs(self.before), RETURN_ERRORS * self.scale / np.sqrt(values.size))
        return bool(abs(np.median(values) - self.before) <= allowed)


MIN_GROWTH = 0.03
"""By how much a trend must grow, as a fraction of the level, before it is raised again."""

TREND_END = 3
"""The level after a trend begins with this many of its latest runs."""

LOOKS = (2, 3, 4, 5, 6, 7, 9, 11, 13, 16, 19, 23, 28, 33, 40, 48, 58, 69, 83, 100)
"""After so many runs a raised step is looked at again: it may turn out to be the beginning of a trend."""

CERTAIN_STEP_LEAD = 8.0
"""By how much better (log-likelihood) a step must explain a change than a trend to end these looks."""

SUDDEN_SCORE = 25.0
"""The score of a sudden change: among any number of series it is a discovery."""

NEARER = 0.25
"""A step of two runs counts if the smaller of their two changes is at least this fraction of the larger one."""

NEVER = np.iinfo(np.intp).max


@dataclass(frozen=True, slots=True)
class Alert:
    """A change of level, detected from the runs up to ``raised`` without any later run; only ``end`` may follow.

    Attributes:
        start: the first run of the new state, counted from 0.
        raised: the run at which the alert was raised.
        kind: step, trend (a drift that was still going on) or mixture (two states in new shares).
        direction: ``SLOWER`` if the values grew, else ``FASTER``.
        end: the first run back at the level before the change, if the change lasted at most ``PLATEAU`` runs; else
            None. Such a change was a plateau, and its end raises no alert.
    """

    start: int
    raised: int
    kind: ChangeKind
    direction: Direction
    end: int | None = None


@dataclass(frozen=True, slots=True)
class _OpenStep:
    """A raised step that may begin a trend: the old level's first position, and the number of positions when raised."""

    first: int
    raised: int


class Detector:
    """Judges many series, a run at a time.

    Args:
        series: how many series there are.
        runs: how many runs there will be at most.
        smallest: the smallest relevant change of each series, as a fraction of its level, shape (series,).
        believes: a function of series (their rows, shape (rows,)) and their scores, shape (rows,), that returns which
            of them have changed, as far as is believed.

    Attributes:
        alerts: the alerts of each series, oldest first.
    """

    def __init__(self, series: int, runs: int, smallest: Floats, believes: Callable[[Ints, Floats], Bools]) -> None:
        self.alerts: list[list[Alert]] = [[] for _ in range(series)]
        self._levels = LevelTracker(series, runs)
        self._smallest = smallest
        self._believes = believes
        self._open_steps: dict[int, _OpenStep] = {}
        self._next_look = np.full(series, NEVER)  # the number of positions at which an open step is judged again
        self._trend_value: dict[int, float] = {}  # the value at which a trend was raised last
        self._plateaus: dict[int, Plateau] = {}  # by series, from its last alert on

    def add(self, run: int, values: Floats, begins: Bools) -> None:
        """Add a run, judge it, raise its alerts, and only then learn from the run.

        Args:
            run: the run's number, counted from 0.
            values: one finite value a series, NaN if the run did not measure the series, shape (series,).
            begins: in which series the run begins a segment, shape (series,).
        """
        levels = self._levels
        if begins.any():
            levels.begin_segments(np.flatnonzero(begins))
            for row in np.flatnonzero(begins).tolist():
                self._forget_alert(row)
        measured = np.flatnonzero(~np.isnan(values))
        levels.add(run, measured, values[measured])
        self._end_early_plateaus(measured)
        sudden = levels.sudden(measured)
        early = measured[sudden & ~levels.learned[measured]]
        if early.size:
            levels.learn_early(early)
        judged = measured[levels.learned[measured] | sudden]
        if judged.size:
            scores = self._scores(judged)
            scores[np.isin(judged, measured[sudden])] = SUDDEN_SCORE
            likely = judged[scores >= MIN_SCORE]
            if likely.size:
                changes = self._relevant_changes(likely)
                scores[~np.isin(judged, list(changes))] = 0.0
                believed = judged[self._believes(judged, scores)]
                if believed.size:
                    self._handle_changes({row: changes[row] for row in believed.tolist()}, run)
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

    def _relevant_changes(self, rows: Ints) -> dict[int, FittedChange]:
        """Return the likeliest change in the level of each series, by series; changes that are too small are left out.

        The level of such a series goes on. A change that grows later is then compared with the whole level.
        """
        first = self._levels.first
        fitted = self._fit(rows, first[rows])
        return {row: change for row, change in fitted if self._is_relevant(row, int(first[row]), change)}

    def _is_relevant(self, row: int, first: int, change: FittedChange) -> bool:
        """Return whether a change, fitted from position ``first``, is at least the series' smallest relevant change.

        Two runs of which one is almost at the old level are a single run: the next run tells what they are.
        """
        before, after = self._around(row, first, change)
        last = int(self._levels.filled[row])
        if change.kind is ChangeKind.STEP and first + change.start == last - 2:
            nearer, farther = sorted((self._levels.values[row, last - 2 : last] - before) * np.sign(after - before))
            if nearer < NEARER * farther:
                return False
        return bool(abs(after - before) >= self._smallest[row] * min(abs(before), abs(after)))

    def _around(self, row: int, first: int, change: FittedChange) -> tuple[float, float]:
        """Return the levels before and after a change that was fitted from position ``first``.

        Levels are medians. A mixture moves the mean, but rarely the median. The median of a drift is at half of its
        height.
        """
        values = self._levels.latest_values(np.array([row]), int(self._levels.filled[row]) - first)[0]
        if change.kind is ChangeKind.MIXTURE:
            return float(values[: change.start].mean()), float(values[change.start :].mean())
        if change.kind is ChangeKind.TREND:
            start = max(change.start, TREND_END)
            before, middle = float(np.median(values[:start])), float(np.median(values[start:]))
            return before, 2 * middle - before
        return float(np.median(values[: change.start])), float(np.median(values[change.start :]))

    def _handle_changes(self, changes: Mapping[int, FittedChange], run: int) -> None:
        """Raise an alert for each series whose level has changed, and begin its next level.

        If a trend goes on after its alert, the trend is raised again once it has grown by ``MIN_GROWTH``.
        """
        levels = self._levels
        positions = []
        for row, change in changes.items():
            first, end = int(levels.first[row]), int(levels.filled[row])
            positions.append(end - TREND_END if change.kind is ChangeKind.TREND else first + change.start)
            if self._ends_plateau(row, positions[-1], change):
                self._end_plateau(row, positions[-1])
            elif self._continues_trend(row, change):
                self._plateaus.pop(row, None)
            else:
                step = self._open_steps.get(row)
                since = step.first if step and change.direction is self.alerts[row][-1].direction else first
                self._raise(row, first, run, change)
                self._watch_plateau(row, first, change)
                if change.kind is ChangeKind.STEP and change.trend_lead > -CERTAIN_STEP_LEAD:
                    self._open_steps[row] = _OpenStep(since, end)
                    self._next_look[row] = end + LOOKS[0]
        residuals = np.array([change.residual for change in changes.values()])
        levels.begin_levels(np.array(list(changes), np.intp), np.array(positions, np.intp), residuals)

    def _watch_plateau(self, row: int, first: int, change: FittedChange) -> None:
        """Watch whether a change, fitted from position ``first`` and just raised, ends within ``PLATEAU`` runs."""
        levels = self._levels
        begin, filled = first + change.start, levels.filled[row]
        if change.kind is ChangeKind.TREND:
            begin = max(begin, first + TREND_END)
        before = float(np.median(levels.values[row, first:begin]))
        during = float(np.median(levels.values[row, begin:filled]))
        share = levels.persistence[row]
        scale = float(levels.scale[row] * np.sqrt((1 + share) / (1 - share)))
        self._plateaus[row] = Plateau(before, during, scale, begin)

    def _end_early_plateaus(self, measured: Ints) -> None:
        """End the plateaus whose latest runs are much likelier at the level before than at the plateau.

        The scores of windows need many more runs for that: they do not know the level before. A mixture is left to
        them, because each of its runs may be at either level.
        """
        levels = self._levels
        for row in np.intersect1d(list(self._plateaus), measured).tolist() if self._plateaus else ():
            if self.alerts[row][-1].kind is ChangeKind.MIXTURE:
                continue
            plateau, latest = self._plateaus[row], int(levels.filled[row]) - 1
            plateau.add(latest, float(levels.values[row, latest]))
            if not plateau.score and latest - plateau.begin >= PLATEAU:
                del self._plateaus[row]
            elif plateau.score >= MIN_SCORE and self._is_back(row, plateau.end):
                residual = self._residual(row, plateau.end)
                self._end_plateau(row, plateau.end)
                levels.begin_levels(np.array([row]), np.array([plateau.end]), np.array([residual]))

    def _residual(self, row: int, position: int) -> float:
        """Return the sum of squares that a step at a position leaves unexplained in the level of a series."""
        rows, first = np.array([row]), int(self._levels.first[row])
        units = self._levels.in_units(rows, self._levels.latest_values(rows, int(self._levels.filled[row]) - first))[0]
        parts = units[: position - first], units[position - first :]
        return sum(float(((part - part.mean()) ** 2).sum()) for part in parts)

    def _ends_plateau(self, row: int, position: int, change: FittedChange) -> bool:
        """Return whether a change at a position is the return from a plateau."""
        if row not in self._plateaus or change.direction is self.alerts[row][-1].direction:
            return False
        return position - self._plateaus[row].begin <= PLATEAU and self._is_back(row, position)

    def _is_back(self, row: int, position: int) -> bool:
        """Return whether the runs from a position on have the level before the last alert of a series."""
        values = self._levels.values[row, position : self._levels.filled[row]]
        return self._plateaus[row].returns_to(values, self._smallest[row])

    def _end_plateau(self, row: int, position: int) -> None:
        """Set the end of the last alert of a series."""
        self.alerts[row][-1] = replace(self.alerts[row][-1], end=int(self._levels.runs[row, position]))
        self._forget_alert(row)

    def _look_again(self, rows: Ints, run: int) -> None:
        """Raise a trend for each raised step that has turned out to be the beginning of a trend."""
        levels, trends = self._levels, []
        first = np.array([self._open_steps[row].first for row in rows.tolist()])
        for row, change in self._fit(rows, first, sure=True):
            step, end = self._open_steps[row], int(levels.filled[row])
            is_trend = change.kind is ChangeKind.TREND and change.direction is self.alerts[row][-1].direction
            if is_trend and self._is_relevant(row, step.first, change):
                plateau = self._plateaus.get(row)
                self._raise(row, step.first, run, change)
                if plateau:  # the same change
                    self._plateaus[row] = replace(plateau, during=self._latest_median(row), score=0.0)
                trends.append(row)
            elif change.trend_lead < -CERTAIN_STEP_LEAD or end - step.raised == LOOKS[-1]:
                self._close_step(row)
            else:
                self._next_look[row] = step.raised + LOOKS[bisect_right(LOOKS, end - step.raised)]
        if trends:
            drifting = np.array(trends)
            levels.begin_levels(drifting, levels.filled[drifting] - TREND_END, None)

    def _fit(self, rows: Ints, first: Ints, *, sure: bool = False) -> list[tuple[int, FittedChange]]:
        """Fit the likeliest change of each series since its position ``first``; return (row, change) for each series.

        Series with equally many positions since ``first`` are fitted together, which is faster.
        """
        levels = self._levels
        fitted: list[tuple[int, FittedChange]] = []
        counts = levels.filled[rows] - first
        for count in set(counts.tolist()):
            same_length = rows[counts == count]
            values = levels.latest_values(same_length, count)
            changes = fit_changes(values, levels.in_units(same_length, values), sure=sure)
            fitted += zip(same_length.tolist(), changes, strict=True)
        return fitted

    def _continues_trend(self, row: int, change: FittedChange) -> bool:
        """Return True if a change only continues the trend of the series' last alert."""
        raised = self._trend_value.get(row)
        if raised is None or change.direction is not self.alerts[row][-1].direction:
            return False
        if change.trend_lead < -SURE_TREND_LEAD:
            return False
        return abs(self._latest_median(row) - raised) < MIN_GROWTH * abs(raised)

    def _raise(self, row: int, first: int, run: int, change: FittedChange) -> None:
        """Append an alert for a change of a series.

        Args:
            row: the series.
            first: the position from which the change was fitted.
            run: the present run, which raises the alert.
            change: the change; its start counts from ``first``.
        """
        self._forget_alert(row)
        if change.kind is ChangeKind.TREND:
            self._trend_value[row] = self._latest_median(row)
        start = int(self._levels.runs[row, first + change.start])
        self.alerts[row].append(Alert(start, run, change.kind, change.direction))

    def _close_step(self, row: int) -> None:
        """Stop looking at a raised step again."""
        self._open_steps.pop(row, None)
        self._next_look[row] = NEVER

    def _forget_alert(self, row: int) -> None:
        """Forget what may still become of the last alert of a series: a trend, or a plateau."""
        self._close_step(row)
        self._trend_value.pop(row, None)
        self._plateaus.pop(row, None)

    def _latest_median(self, row: int) -> float:
        end = self._levels.filled[row]
        return float(np.median(self._levels.values[row, end - TREND_END : end]))
