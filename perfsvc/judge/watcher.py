"""The watch over many series: what each night adds, what is raised, and the level that follows."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfsvc.judge.estimates import median
from perfsvc.judge.histories import TOGETHER, Histories
from perfsvc.judge.shapes import SURELY, Change, Direction, Kind, change_in
from perfsvc.judge.shifts import Floats, Ints, may_reach, scores

LEAST_SCORE = 11.1
"""The score of an alert."""

LEAST_GROWTH = 0.03
"""By how much a trend must grow, as a fraction of the level, before it is raised again."""

LATEST = 3
"""How many nights of a trend the next level begins with."""

LOOKS = frozenset({2, 3, 4, 5, 6, 7, 9, 11, 13, 16, 19, 23, 28, 33, 40, 48, 58, 69, 83, 100})
"""After how many nights a step that was raised is looked at again: it may turn out to be the beginning of a trend."""

CERTAIN = 8.0
"""By how much better a step must explain a change than a trend before nobody looks again, as a log-likelihood."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A change of level that the nights up to ``night`` show.

    Attributes:
        index: the first night of the new state, counted from 0.
        night: the night on which it is raised; the alert rests on nothing later.
        kind: ``step``, ``trend`` (a drift that was still going on) or ``mode`` (two states, mixed otherwise).
        direction: ``slower`` (the values grew) or ``faster``.
    """

    index: int
    night: int
    kind: Kind
    direction: Direction


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A step that may be the beginning of a trend: the first place of the level before it, and the end when raised."""

    first: int
    raised: int


class Watcher:
    """Watches many series, a night at a time.

    Args:
        series: how many.
        nights: how many there will be.
        believed: which of some series (their rows) with some scores are believed to have changed.
    """

    def __init__(self, series: int, nights: int, believed: Callable[[Ints, Floats], NDArray[np.bool_]]) -> None:
        self.alerts: list[list[Alert]] = [[] for _ in range(series)]
        self._histories = Histories(series, nights)
        self._believed = believed
        self._doubts: dict[int, _Doubt] = {}
        self._raised_at: dict[int, float] = {}
        """The value at which a trend was raised."""

    def forget(self, rows: Ints) -> None:
        """A segment begins in some series."""
        self._histories.forget(rows)
        for row in rows:
            self._doubts.pop(int(row), None)
            self._raised_at.pop(int(row), None)

    def see(self, night: int, values: Floats) -> None:
        """Adds a night, shape (series,), judges it, raises what is believed, and only then learns from it."""
        measured = np.flatnonzero(~np.isnan(values))
        judged = self._histories.add(measured, values[measured], night)
        doubted = [row for row in self._doubts if not math.isnan(values[row])]
        changed = judged[self._believed(judged, self._scores(judged))].tolist()
        for row in changed:
            self._changed(row, night)
        for row in set(doubted).difference(changed):
            self._doubted(row, night)
        self._histories.learn(measured)

    def _scores(self, rows: Ints) -> Floats:
        """The score of the likeliest window of each series, shape (rows,); 0 where it cannot reach ``LEAST_SCORE``."""
        found = np.zeros(rows.size)
        for begin in range(0, rows.size, TOGETHER):
            some = rows[begin : begin + TOGETHER]
            found[begin : begin + TOGETHER] = self._scores_of(some)
        return found

    def _scores_of(self, rows: Ints) -> Floats:
        found, histories = np.zeros(rows.size), self._histories
        sums = histories.sums(rows)
        hopeful = may_reach(sums, LEAST_SCORE)
        if hopeful.any():
            some = rows[hopeful]
            latest, skew, persistence = (of(some) for of in (histories.latest, histories.skew, histories.persistence))
            found[hopeful] = scores(sums.of(hopeful), latest, skew, persistence).max(axis=0)
        return found

    def _changed(self, row: int, night: int) -> None:
        """Raises what a series shows whose level has changed, and begins the next level.

        A trend that goes on after it was raised is followed, and raised again whenever it has added ``LEAST_GROWTH``.
        """
        histories = self._histories
        first, end = int(histories.first[row]), int(histories.filled[row])
        change = change_in(histories.level(row), histories.units(row))
        if not self._goes_on(row, change):
            doubt = self._doubts.get(row)
            since = doubt.first if doubt and change.direction == self.alerts[row][-1].direction else first
            self._raise(row, first, night, change)
            if change.kind == "step" and change.lead > -CERTAIN:
                self._doubts[row] = _Doubt(since, end)
        histories.restart(row, end - LATEST if change.kind == "trend" else first + change.place, change.around)

    def _doubted(self, row: int, night: int) -> None:
        """Raises a trend where a step that was raised has turned out to have been one."""
        doubt, end = self._doubts[row], int(self._histories.filled[row])
        if end - doubt.raised not in LOOKS:
            return
        level = self._histories.values[row, doubt.first : end]
        change = change_in(level, self._histories.in_units(row, level), surely=True)
        if change.kind == "trend" and change.direction == self.alerts[row][-1].direction:
            self._raise(row, doubt.first, night, change)
            self._histories.restart(row, end - LATEST, None)
        elif change.lead < -CERTAIN or end - doubt.raised == max(LOOKS):
            del self._doubts[row]

    def _goes_on(self, row: int, change: Change) -> bool:
        """Whether a change is no more than the trend that was raised last."""
        if row not in self._raised_at or change.direction != self.alerts[row][-1].direction or change.lead < -SURELY:
            return False
        before = self._raised_at[row]
        return abs(self._now(row) - before) < LEAST_GROWTH * abs(before)

    def _raise(self, row: int, first: int, night: int, change: Change) -> None:
        self._doubts.pop(row, None)
        self._raised_at.pop(row, None)
        if change.kind == "trend":
            self._raised_at[row] = self._now(row)
        index = int(self._histories.nights[row, first + change.place])
        self.alerts[row].append(Alert(index, night, change.kind, change.direction))

    def _now(self, row: int) -> float:
        end = self._histories.filled[row]
        return median(self._histories.values[row, end - LATEST : end])
