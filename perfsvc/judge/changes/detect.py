"""Detect changes of level in the histories of series, run by run; after each change, track the new level."""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from perfsvc.judge.changes.level import MIN_SCALE, LevelTracker
from perfsvc.judge.changes.scores import (
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
    """A change of level, detected from the runs up to ``raised`` without any later run.

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
    """A raised step that may begin a trend: the old level's first position, and the number of positions when raised."""

    first: int
    raised: int


class Detector:
    """Judges many series, a run at a time.

    Args:
        series: how many series there are.
        runs: how many runs there will be at most.
        believes: a function of series (their rows, shape (rows,)) and their scores, shape (rows,), that returns which
            of them have changed, as far as is believed.

    Attributes:
        alerts: the alerts of each series, oldest first.
    """

    def __init__(self, series: int, runs: int, believes: Callable[[Ints, Floats], Bools]) -> None:
        self.alerts: list[list[Alert]] = [[] for _ in range(series)]
        self._levels = LevelTracker(series, runs)
        self._believes = believes
        self._open_steps: dict[int, _OpenStep] = {}
        self._next_look = np.full(series, NEVER)  # the number of positions at which an open step is judged again
        self._trend_value: dict[int, float] = {}  # the value at which a trend was raised last

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
        """Raise an alert for each series whose level has changed, and begin its next level.

        If a trend goes on after its alert, the trend is raised again once it has grown by ``MIN_GROWTH``.
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
        """Raise a trend for each raised step that has turned out to be the beginning of a trend."""
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


ALERT_RATE = 7e-5
"""How often a flat series reaches ``MIN_SCORE``, a run: simulated, not derived."""

STEEPNESS = 1.0
"""How much the logarithm of a score's chance falls if the score is higher by 1; simulated."""

FALSE_SHARE = 0.003
"""The tolerated share of false alerts in one run of many series. It is far below the 5 % tolerated over all runs,
because most runs have no true alert and may still have a false one."""

LARGEST = 2.0**400
"""The largest value, in units of the first one's order of magnitude: sums of its squares are still finite."""

START_SLACK = 8.0
"""How much less likely (log-likelihood) another start may make the runs and still be the true one."""


def detect_changes(values: ArrayLike, segments: ArrayLike | None = None) -> list[Alert]:
    """Return the alerts of one series, in the order in which they were raised.

    Each run is judged from its own value and the values of earlier runs, so later runs never change an alert. The
    first ``LEARNING`` measured runs of a segment raise nothing. A single run raises nothing either: a change
    needs two runs.

    Args:
        values: one value a run, in any unit, shape (runs,); NaN if the series was not measured. Lower is better.
        segments: one id per run, shape (runs,). The series starts anew where the id changes.

    Raises:
        ValueError: a value is infinite, or an array does not have the shape (runs,).

    Source:
        See ``window_scores``; for judging runs one by one at a known rate of false alerts: E. S. Page (1954),
        Continuous inspection schemes, Biometrika 41(1/2).
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1:
        raise ValueError(f"the values of one series have one axis, not {series.ndim}")
    return detect_changes_in_each(series[None, :], segments)[0]


def detect_changes_in_each(matrix: ArrayLike, segments: ArrayLike | None = None) -> list[list[Alert]]:
    """Return the alerts of each of many series, as ``detect_changes`` finds them, but a hundred times as fast.

    Args:
        matrix: one value a series and run, shape (series, runs); NaN if a series was not measured.
        segments: an id a run, shape (runs,), or an id a run and series, shape (series, runs).

    Raises:
        ValueError: a value is infinite, or an array has another shape.
    """
    return _detect(_as_matrix(matrix), segments, lambda _, scores: scores >= MIN_SCORE)


def detect_changes_together(
    matrix: ArrayLike, groups: Sequence[Hashable] | None = None, segments: ArrayLike | None = None
) -> list[list[Alert]]:
    """Return the alerts of many series over the same runs, with the share of false alerts in each run limited.

    An alert is raised if ``detect_changes`` would raise it, and if the change is a discovery among all series of the
    run. At most ``FALSE_SHARE`` of the discoveries are expected to be false. A change that is not believed in one run
    is looked at again in the next.

    Args:
        matrix: one value a series and run, shape (series, runs); NaN if a series was not measured.
        groups: what each series belongs to (its device, its benchmark), shape (series,). Changes in one group do not
            permit more false alerts in another group.
        segments: an id a run, shape (runs,), or an id a run and series, shape (series, runs).

    Returns:
        The alerts of each series, in the order in which they were raised.

    Raises:
        ValueError: a value is infinite, or an array has another shape.
    """
    many = _as_matrix(matrix)
    if groups is not None and len(groups) != len(many):
        raise ValueError(f"{len(many)} series need {len(many)} groups, not {len(groups)}")
    labels: Ints | None = None
    if groups is not None:
        numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
        labels = np.array([numbers[group] for group in groups], np.intp)

    def believes(rows: Ints, scores: Floats) -> Bools:
        """Return which series changed: their scores are high, and remain so after the control of false discoveries."""
        high: Bools = scores >= MIN_SCORE
        if not high.any():
            return high
        chances = np.where(high, ALERT_RATE * np.exp(STEEPNESS * (MIN_SCORE - scores)), 1.0)
        return high & discoveries(chances, None if labels is None else labels[rows], FALSE_SHARE)

    return _detect(many, segments, believes)


def discoveries(chances: Floats, groups: Ints | None, rate: float) -> Bools:
    """Return which series have changed, with the expected share of false discoveries limited to ``rate``.

    Without groups, the method is that of Benjamini and Hochberg. With groups, it has two steps. First it selects the
    groups with a change, by the Simes chance of each group. Then it selects series within each selected group, at the
    rate times the share of groups selected. The expected share of false discoveries, averaged over the selected groups,
    stays within the rate. A change in one group does not permit more false discoveries in other groups.

    Args:
        chances: each series' chance of reaching its score without a change, shape (series,).
        groups: the number of each series' group, shape (series,).
        rate: the tolerated share of false discoveries.

    Source:
        Y. Benjamini and Y. Hochberg (1995), Controlling the false discovery rate, J. R. Stat. Soc. B 57(1);
        Y. Benjamini and M. Bogomolov (2014), Selective inference on multiple families of hypotheses, J. R. Stat.
        Soc. B 76(1); R. J. Simes (1986), An improved Bonferroni procedure for multiple tests of significance,
        Biometrika 73(3).
    """
    if groups is None or not chances.size:
        return chances <= _discovery_limit(chances, rate)
    order = np.lexsort((chances, groups))  # group by group, the smallest chance of each first
    begins = np.flatnonzero(np.diff(groups[order], prepend=groups[order[0]] - 1))
    sizes = np.diff(begins, append=order.size)
    ranks = np.arange(1, order.size + 1) - np.repeat(begins, sizes)
    simes = np.minimum.reduceat(chances[order] * np.repeat(sizes, sizes) / ranks, begins)
    discovered = np.zeros(chances.size, bool)
    chosen = np.flatnonzero(simes <= _discovery_limit(simes, rate))
    for begin, size in zip(begins[chosen], sizes[chosen], strict=True):
        rows = order[begin : begin + size]
        discovered[rows] = chances[rows] <= _discovery_limit(chances[rows], rate * chosen.size / begins.size)
    return discovered


def _discovery_limit(chances: Floats, rate: float) -> float:
    """Return the largest chance that is a discovery by Benjamini and Hochberg's rule; -1 if no chance is."""
    ordered = np.sort(chances)
    small = np.flatnonzero(ordered <= rate * np.arange(1, ordered.size + 1) / ordered.size)
    return float(ordered[small[-1]]) if small.size else -1.0


def earliest_start(values: Floats, start: int) -> int:
    """Return the earliest run at which a detected change may have begun, from 1 to ``start``.

    A detected start is an estimate; for a small step it may be some runs off. Each run divides the history into two
    levels of normal noise. An earlier division is possible if it is at most ``START_SLACK`` less likely than the
    division at ``start``. A drift has no second level, so it may have begun long before the result.

    Args:
        values: the values of the level before the change and of the level after it, one a run, positive, shape (runs,).
        start: the first run of the level after, counted from 0; at least 1, and below the number of runs.

    Source:
        The likelihood interval of a change: D. V. Hinkley (1970), Inference about the change-point in a sequence of
        random variables, Biometrika 57(1).
    """
    logs = np.log(values)
    centered = logs - logs.mean()
    starts = np.arange(1, start + 1)
    before = centered.cumsum()[:start]
    explained = before**2 / starts + before**2 / (logs.size - starts)
    residual = float(centered @ centered - explained[-1])
    variance = max(residual / max(logs.size - 2, 1), MIN_SCALE**2)
    possible = explained >= explained[-1] - 2 * START_SLACK * variance
    return int(starts[possible.argmax()])


def _detect(matrix: Floats, segments: ArrayLike | None, believes: Callable[[Ints, Floats], Bools]) -> list[list[Alert]]:
    """Pass all runs to a new detector, one after the other, and return the alerts of each series."""
    if np.isinf(matrix).any():
        raise ValueError("a value is infinite: a run without a measurement is NaN")
    series, runs = matrix.shape
    begins = np.zeros(matrix.shape, bool)
    if segments is not None:
        ids = np.asarray(segments)
        if ids.shape not in {matrix.shape, matrix.shape[1:]}:
            raise ValueError(f"one segment id a run has the shape {matrix.shape[1:]}, not {ids.shape}")
        begins[:, 1:] = ids[..., 1:] != ids[..., :-1]
    scaled = _in_range(matrix)
    detector = Detector(series, runs, believes)
    for run in range(runs):
        detector.add(run, scaled[:, run], begins[:, run])
    return detector.alerts


def _as_matrix(matrix: ArrayLike) -> Floats:
    """Return the values as an array of shape (series, runs); raise ``ValueError`` unless they have two axes."""
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != len(("series", "runs")):
        raise ValueError(f"the values of many series have two axes, series and runs, not {values.ndim}")
    return values


def _in_range(matrix: Floats) -> Floats:
    """Return each series divided by the power of two of its first measured value, so that no square overflows.

    The division changes no digit, and uses no later run. Larger values are clipped at ``LARGEST``.
    """
    if not matrix.size:
        return matrix
    first = matrix[np.arange(len(matrix)), (~np.isnan(matrix)).argmax(axis=1)]
    _, exponents = np.frexp(np.nan_to_num(first))
    with np.errstate(over="ignore"):
        scaled: Floats = np.clip(np.ldexp(matrix, -exponents[:, None]), -LARGEST, LARGEST)
    return scaled
