"""The watch over many series: what each night adds, what is raised, and the level that follows."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfsvc.judge.estimates import median
from perfsvc.judge.histories import NONE, TOGETHER, Histories
from perfsvc.judge.shapes import SURELY, Change, Direction, Kind, changes_in
from perfsvc.judge.shifts import Floats, Ints, may_reach, scores

LEAST_SCORE = 11.1
"""The score of an alert."""

LEAST_GROWTH = 0.03
"""By how much a trend must grow, as a fraction of the level, before it is raised again."""

LATEST = 3
"""How many nights of a trend the next level begins with."""

LOOKS = (2, 3, 4, 5, 6, 7, 9, 11, 13, 16, 19, 23, 28, 33, 40, 48, 58, 69, 83, 100)
"""After how many nights a step that was raised is looked at again: it may turn out to be the beginning of a trend."""

NEVER = np.iinfo(np.intp).max
"""Instead of how many nights there must be until a series is asked for again."""

CERTAIN = 8.0
"""By how much better a step must explain a change than a trend before nobody looks again, as a log-likelihood."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A change of level that the nights up to ``night`` show.

    Attributes:
        index: the first night of the new state, counted from 0.
        night: the night on which it is raised; the alert rests on nothing later.
        kind: ``step``, ``trend`` (a drift that was still going on) or ``cache`` (two states, mixed otherwise).
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
        matrix: one finite value a series and night, shape (series, nights); NaN where a series was not measured.
        begins: on which nights a segment begins, other than the first, shape (series, nights).
        believed: which of some series (their rows) with some scores are believed to have changed.
    """

    def __init__(
        self, matrix: Floats, begins: NDArray[np.bool_], believed: Callable[[Ints, Floats], NDArray[np.bool_]]
    ) -> None:
        series, nights = matrix.shape
        self.alerts: list[list[Alert]] = [[] for _ in range(series)]
        self._histories = Histories(matrix, begins)
        self._believed = believed
        self._scores = np.zeros((nights, series))
        """Of each night and series, by what is known tonight of those to come; see ``_scored``."""
        self._hopeful = np.full(series, NEVER)
        """With how many places each series has a score of ``LEAST_SCORE``, by what is known of it."""
        self._doubts: dict[int, _Doubt] = {}
        self._look = np.full(series, NEVER)
        """With how many places each series that is in doubt is looked at again."""
        self._raised_at: dict[int, float] = {}
        """The value at which a trend was raised."""

    def see(self, night: int) -> None:
        """Adds a night, judges it, raises what is believed, and only then learns from it."""
        for row in self._histories.add(night).tolist():
            self._settle(row)
            self._raised_at.pop(row, None)
        changed = self._found_in(night)
        if changed.size:
            self._changed(changed, night)
        doubted = np.flatnonzero(self._look == self._histories.filled)
        if doubted.size:
            self._doubted(doubted, night)
        learned = self._histories.learn(np.minimum(self._hopeful, self._look))
        if learned.size:
            self._look_ahead(learned)

    def _look_ahead(self, rows: Ints) -> None:
        """Scores the nights to come of series of which something new is known, as long as nothing else is."""
        self._hopeful[rows] = NEVER
        rows, ends = self._histories.ahead(rows)
        nights = self._histories.nights[rows, ends - 1]
        for begin in range(0, rows.size, TOGETHER):
            some = slice(begin, begin + TOGETHER)
            found = self._scored(rows[some], ends[some])
            self._scores[nights[some], rows[some]] = found
            high = found >= LEAST_SCORE
            np.minimum.at(self._hopeful, rows[some][high], ends[some][high])

    def _scored(self, rows: Ints, ends: Ints) -> Floats:
        """The score of the likeliest window of some nights, shape (rows,); 0 where it cannot reach ``LEAST_SCORE``.

        Args:
            rows: the series of each night.
            ends: how many places that has then.
        """
        histories, found = self._histories, np.zeros(rows.size)
        sums = histories.sums(rows, ends)
        hopeful = may_reach(sums, LEAST_SCORE)
        if hopeful.any():
            some = rows[hopeful]
            latest = histories.latest(some, ends[hopeful])
            shape = histories.skew(some), histories.persistence(some)
            found[hopeful] = scores(sums.of(hopeful), latest, *shape).max(axis=0)
        return found

    def _found_in(self, night: int) -> Ints:
        """The series that are believed to have changed, by their scores of a night."""
        found = self._scores[night]
        if found.max(initial=0.0) < LEAST_SCORE:
            return NONE
        judged = self._histories.judged(night)
        return judged[self._believed(judged, found[judged])]

    def _changes(self, rows: Ints, first: Ints, *, surely: bool = False) -> list[tuple[int, Change]]:
        """The likeliest change of each series from a place on: those with equally many nights since at once."""
        histories = self._histories
        found: list[tuple[int, Change]] = []
        nights = histories.filled[rows] - first
        for many in set(nights.tolist()):
            some = rows[nights == many]
            values = histories.last(some, many)
            found += zip(
                some.tolist(), changes_in(values, histories.in_units(some, values), surely=surely), strict=True
            )
        return found

    def _changed(self, rows: Ints, night: int) -> None:
        """Raises what series show whose levels have changed, and begins the next levels.

        A trend that goes on after it was raised is followed, and raised again whenever it has added ``LEAST_GROWTH``.
        """
        histories = self._histories
        found = self._changes(rows, histories.first[rows])
        places = []
        for row, change in found:
            first, end = int(histories.first[row]), int(histories.filled[row])
            places.append(end - LATEST if change.kind == "trend" else first + change.place)
            if not self._goes_on(row, change):
                doubt = self._doubts.get(row)
                since = doubt.first if doubt and change.direction == self.alerts[row][-1].direction else first
                self._raise(row, first, night, change)
                if change.kind == "step" and change.lead > -CERTAIN:
                    self._doubts[row] = _Doubt(since, end)
                    self._look[row] = end + LOOKS[0]
        self._restart([row for row, _ in found], places, np.array([change.around for _, change in found]))

    def _doubted(self, rows: Ints, night: int) -> None:
        """Raises trends where steps that were raised have turned out to have been some."""
        filled, drifting = self._histories.filled, []
        first = np.array([self._doubts[row].first for row in rows.tolist()])
        for row, change in self._changes(rows, first, surely=True):
            doubt, end = self._doubts[row], int(filled[row])
            if change.kind == "trend" and change.direction == self.alerts[row][-1].direction:
                self._raise(row, doubt.first, night, change)
                drifting.append(row)
            elif change.lead < -CERTAIN or end - doubt.raised == LOOKS[-1]:
                self._settle(row)
            else:
                self._look[row] = doubt.raised + LOOKS[bisect_right(LOOKS, end - doubt.raised)]
        if drifting:
            self._restart(drifting, filled[drifting] - LATEST, None)

    def _restart(self, rows: Sequence[int], places: ArrayLike, around: Floats | None) -> None:
        """New levels begin; see ``Histories.restart``."""
        again = np.array(rows)
        self._histories.restart(again, np.asarray(places), around)
        self._look_ahead(again)

    def _goes_on(self, row: int, change: Change) -> bool:
        """Whether a change is no more than the trend that was raised last."""
        if row not in self._raised_at or change.direction != self.alerts[row][-1].direction or change.lead < -SURELY:
            return False
        before = self._raised_at[row]
        return abs(self._now(row) - before) < LEAST_GROWTH * abs(before)

    def _raise(self, row: int, first: int, night: int, change: Change) -> None:
        self._settle(row)
        self._raised_at.pop(row, None)
        if change.kind == "trend":
            self._raised_at[row] = self._now(row)
        index = int(self._histories.nights[row, first + change.place])
        self.alerts[row].append(Alert(index, night, change.kind, change.direction))

    def _settle(self, row: int) -> None:
        """Doubts a step no longer."""
        self._doubts.pop(row, None)
        self._look[row] = NEVER

    def _now(self, row: int) -> float:
        end = self._histories.filled[row]
        return median(self._histories.values[row, end - LATEST : end])
