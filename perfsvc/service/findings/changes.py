"""Changes: an alert with the levels on either side of it, as far as the nights of tonight's segment show them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Self

import numpy as np

from perfsvc import judge
from perfsvc.judge.changes.scores import Floats, Ints
from perfsvc.model import ChangeKind


def is_nearer(level: float | None, one: float | None, other: float | None) -> bool:
    """Whether a level is nearer to one than to another, by ratios; no where any of them is unknown, or zero."""
    if not level or not one or not other:
        return False
    return abs(log(level / one)) < abs(log(level / other))


@dataclass(frozen=True, slots=True)
class Change:
    """The last alert of a series, tonight.

    Nights are counted from 0; of those before and after only the ones that measured the series are there.

    Attributes:
        alert: that tells of it.
        values: of every night, NaN where it did not measure the series, shape (nights,).
        old: the nights of the level before, one at least.
        new: the nights since, one at least unless tonight is the only one.
    """

    alert: judge.Alert
    values: Floats
    old: Ints
    new: Ints

    @classmethod
    def of(cls, alerts: Sequence[judge.Alert], values: Floats, segments: Ints) -> Self | None:
        """The change that a series shows tonight; None where none was raised of tonight's segment, or none is left.

        A drift may have begun with the first night of a segment: that one is then the level before. A step that is
        taken back before the watch has seen it is none any more.
        """
        begin = int(np.flatnonzero(np.diff(segments, prepend=segments[0] - 1))[-1])
        if not alerts or alerts[-1].start < begin or np.isnan(values[-1]):
            return None
        *earlier, alert = alerts
        first = max([begin, *(night for one in earlier for night in _ends(one) if night < alert.start)])
        nights = np.flatnonzero(np.isfinite(values))
        nights = nights[nights >= first]
        many = max(int((nights < alert.start).sum()), 1)
        change = cls(alert, values, nights[:many], nights[many:])
        return change if change.new.size and change.stays else None

    @property
    def before(self) -> float:
        """The level that the series left."""
        return float(np.median(self.values[self.old]))

    @property
    def after(self) -> float:
        """The level at which it was when the alert was raised."""
        return float(np.median(self.values[self.new[self.new <= max(self.alert.raised, self.new[0])]]))

    @property
    def ratio(self) -> float:
        """Tonight over the level that the series left."""
        return float(self.values[-1]) / self.before

    @property
    def stays(self) -> bool:
        """Whether tonight shows it still. Of two states each night has one, and tells nothing of their mix."""
        tonight = self.alert.raised == len(self.values) - 1
        return tonight or self.alert.kind is ChangeKind.MIXTURE or self.is_after(float(self.values[-1]))

    @property
    def last_before(self) -> list[int]:
        """The nights that may have been the last of the level before, the latest first."""
        earliest = self._earliest - 1
        return [int(night) for night in self.old[: earliest - 1 if earliest else None : -1]]

    @property
    def _earliest(self) -> int:
        """With which of the nights before and after the level after may have begun at the earliest."""
        return judge.earliest_start(self.values[np.concatenate([self.old, self.new])], self.old.size)

    def is_after(self, level: float) -> bool:
        """Whether a level is nearer to where the series went than to where it was, by ratios."""
        return is_nearer(level, self.after, self.before)

    def contains(self, night: int, level: float | None) -> bool:
        """Whether a night (and its level) is of the time after the change, also where that began before its alert says.

        Where no night before is known, the first one after stands for the level before.
        """
        if night <= self.old[0]:
            return False
        earliest = np.concatenate([self.old, self.new])[self._earliest]
        return night >= self.alert.start or bool(night >= earliest and is_nearer(level, self.after, self.before))


def _ends(alert: judge.Alert) -> tuple[int, ...]:
    """The nights with which the level after an alert may begin: after a drift, that on which it was raised."""
    return (alert.start, alert.raised) if alert.kind is ChangeKind.TREND else (alert.start,)
