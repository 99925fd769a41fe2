"""The levels of many series as columns: a run has ten thousand series, and an object for each takes long to make."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from perfsvc.model.measurements import Status
from perfsvc.model.verdicts import Level, Series


@dataclass(frozen=True, eq=False)
class LevelColumns(Mapping[Series, Level]):
    """The level of each of many series. As a mapping, it makes a ``Level`` each time that one is asked for.

    Attributes:
        series: the series of each level; no two are equal.
        runs: the run of each level, shape (levels,).
        bad: the status and the reason of each level that is not ok, by its place among the levels.
        sizes: the number of replicas of each level, shape (levels,).
        lengths: the number of values of each replica, level after level, shape (replicas,).
        numbers: the values of each replica, one after the other, shape (values,).
        further: the further runs of the levels that have any, by place.
    """

    series: Sequence[Series]
    runs: NDArray[np.int64]
    bad: Mapping[int, tuple[Status, str]]
    sizes: NDArray[np.int64]
    lengths: NDArray[np.int64]
    numbers: NDArray[np.float64]
    further: Mapping[int, tuple[tuple[float, ...], ...]]

    @classmethod
    def of(cls, levels: Mapping[Series, Level]) -> "LevelColumns":
        """Return levels as columns."""
        if isinstance(levels, cls):
            return levels
        values = list(levels.values())
        replicas = [replica for level in values for replica in level.replicas]
        return cls(
            list(levels),
            np.array([level.run for level in values], np.int64),
            {at: (level.status, level.reason) for at, level in enumerate(values) if level.status is not Status.OK},
            np.array([len(level.replicas) for level in values], np.int64),
            np.array(list(map(len, replicas)), np.int64),
            np.concatenate(replicas, dtype=np.float64) if replicas else np.empty(0),
            {at: level.further for at, level in enumerate(values) if level.further},
        )

    @cached_property
    def places(self) -> Mapping[Series, int]:
        """The place of each series among the levels."""
        return {series: at for at, series in enumerate(self.series)}

    def where(self, chosen: NDArray[np.bool_]) -> "LevelColumns":
        """Return some of the levels; ``chosen`` is True for each of them, shape (levels,)."""
        if chosen.all():
            return self
        of_replicas = np.repeat(chosen, self.sizes)
        place = (np.cumsum(chosen) - 1).tolist()
        is_chosen = chosen.tolist()
        return LevelColumns(
            [series for series, is_in in zip(self.series, is_chosen, strict=True) if is_in],
            self.runs[chosen],
            {place[at]: why for at, why in self.bad.items() if is_chosen[at]},
            self.sizes[chosen],
            self.lengths[of_replicas],
            self.numbers[np.repeat(of_replicas, self.lengths)],
            {place[at]: runs for at, runs in self.further.items() if is_chosen[at]},
        )

    def __getitem__(self, series: Series) -> Level:
        at = self.places[series]
        first, end = self._replicas[at], self._replicas[at + 1]
        edges = self._edges[first : end + 1].tolist()
        replicas = tuple(self.numbers[low:high] for low, high in pairwise(edges))
        status, reason = self.bad.get(at, (Status.OK, ""))
        return Level(int(self.runs[at]), status, reason, replicas, self.further.get(at, ()))

    def __iter__(self) -> Iterator[Series]:
        return iter(self.series)

    def __len__(self) -> int:
        return len(self.series)

    @cached_property
    def _replicas(self) -> NDArray[np.int64]:
        """The first replica of each level, and the end of the last level."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def _edges(self) -> NDArray[np.int64]:
        """The first value of each replica, and the end of the last replica."""
        return np.concatenate([[0], np.cumsum(self.lengths)])
