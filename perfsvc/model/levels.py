"""The levels of many series as columns: a run has ten thousand series, and an object for each takes long to make."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfsvc.model.measurements import Status
from perfsvc.model.verdicts import Level, Series


@dataclass(frozen=True, eq=False)
class SideColumns:
    """What comparisons need to know of the replicas of many sides: of baselines or of candidates.

    Attributes:
        sizes: the number of replicas of each side, shape (sides,).
        medians: ``Level.medians`` of each side, shape (sides, most replicas); NaN beyond the replicas of a side.
        spreads: ``Level.spread`` of each side, shape (sides,).
        steps: ``Level.step`` of each side, likewise.
    """

    sizes: NDArray[np.int64]
    medians: NDArray[np.float64]
    spreads: NDArray[np.float64]
    steps: NDArray[np.float64]

    @classmethod
    def of(cls, sizes: NDArray[np.int64], values: NDArray[np.float64]) -> "SideColumns":
        """Return sides whose replicas have one value each.

        Args:
            sizes: the number of replicas of each side, shape (sides,).
            values: the value of each replica, side after side, shape (replicas,).
        """
        is_replica = np.arange(sizes.max(initial=0)) < sizes[:, None]
        medians = np.full(is_replica.shape, np.nan)
        medians[is_replica] = values
        return cls(sizes, medians, np.zeros(sizes.size), np.full(sizes.size, np.inf))

    @classmethod
    def of_levels(cls, levels: Sequence[Level]) -> "SideColumns":
        """Return the replicas of some levels as columns."""
        sizes = np.array([len(level.medians) for level in levels], np.int64)
        return replace(
            cls.of(sizes, np.array([median for level in levels for median in level.medians], np.float64)),
            spreads=np.array([level.spread for level in levels], np.float64),
            steps=np.array([level.step for level in levels], np.float64),
        )

    @cached_property
    def lowest(self) -> NDArray[np.float64]:
        """The lowest median of each side; NaN if the side has no replica, or a median that is not a finite number."""
        return self._ends(np.fmin)

    @cached_property
    def highest(self) -> NDArray[np.float64]:
        """The highest median of each side; NaN like ``lowest``."""
        return self._ends(np.fmax)

    def _ends(self, of: np.ufunc) -> NDArray[np.float64]:
        is_sound = (np.isfinite(self.medians).sum(axis=1) == self.sizes) & (self.sizes > 0)
        return np.where(is_sound, of.reduce(self.medians, axis=1, initial=np.nan), np.nan)

    def where(self, chosen: NDArray[np.intp]) -> "SideColumns":
        """Return some of the sides, by their places."""
        return SideColumns(self.sizes[chosen], self.medians[chosen], self.spreads[chosen], self.steps[chosen])


@dataclass(frozen=True, eq=False)
class LevelColumns(Mapping[Series, Level]):
    """The level of each of many series. As a mapping, it makes a ``Level`` each time that one is asked for.

    Attributes:
        series: the series of each level; no two are equal.
        runs: the run of each level, shape (levels,).
        bad: the status and the reason of each level that is not ok, by its place among the levels.
        sides: the replicas of each level.
        further: the further runs of the levels that have any, by place.
    """

    series: Sequence[Series]
    runs: NDArray[np.int64]
    bad: Mapping[int, tuple[Status, str]]
    sides: SideColumns
    further: Mapping[int, tuple[tuple[float, ...], ...]]

    @classmethod
    def of(cls, levels: Mapping[Series, Level]) -> "LevelColumns":
        """Return levels as columns."""
        if isinstance(levels, cls):
            return levels
        values = list(levels.values())
        return cls(
            list(levels),
            np.array([level.run for level in values], np.int64),
            {at: (level.status, level.reason) for at, level in enumerate(values) if level.status is not Status.OK},
            SideColumns.of_levels(values),
            {at: level.further for at, level in enumerate(values) if level.further},
        )

    @cached_property
    def places(self) -> Mapping[Series, int]:
        """The place of each series among the levels."""
        return {series: at for at, series in enumerate(self.series)}

    def level(self, at: int) -> Level:
        """Return the level at a place."""
        sides = self.sides
        status, reason = self.bad.get(at, (Status.OK, ""))
        medians = sides.medians[at, : sides.sizes[at]]
        spread, step = float(sides.spreads[at]), float(sides.steps[at])
        return Level(int(self.runs[at]), status, reason, medians, spread, step, self.further.get(at, ()))

    def __getitem__(self, series: Series) -> Level:
        return self.level(self.places[series])

    def __iter__(self) -> Iterator[Series]:
        return iter(self.series)

    def __len__(self) -> int:
        return len(self.series)
