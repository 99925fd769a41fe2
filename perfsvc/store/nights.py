"""The nights of a run's series: what each earlier run measured of them, and in which environment."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from perfsvc.model import MAX_ERROR, TIME, CacheState
from perfsvc.store import summaries
from perfsvc.store.lookup import ENDED
from perfsvc.store.naming import Place, of_cases, own_name, present_cases
from perfsvc.store.rows import Nights
from perfsvc.store.summaries import Rows
from perfsvc.store.tables import Cases, Measurements, Runs

Watched = tuple[Place, str]
"""Of what there is a history: a place, and the metric."""
_Spot = tuple[int, int, int, int]
"""A place in the database: lineage, own name, device, and the cache state's place in ``CacheState``."""
_ELSEWHERE = -1
"""The number of what was measured at no place of tonight."""

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


def nights(connection: Connection, number: int, last: int) -> dict[Watched, Nights]:
    """What the nights up to a run say of all that it measured; see ``Store.nights``.

    A year of a suite is some hundred thousand measurements, read every night: so no more is asked of the database than
    their summaries as they lie there, and what belongs together is put together here.
    """
    numbers = _numbers(connection, number, last)
    of_tonight = of_cases(Measurements, Measurements.device_id, own_name(Measurements.run_id))
    tonight = connection.execute(of_tonight.where(Measurements.run_id == number).distinct()).all()
    cases, caches = present_cases(tonight), list(CacheState)
    places = {
        (row.lineage_id, row.own_name, row.device_id, caches.index(row.cache)): (
            row.uuid,
            cases[row.case_id],
            row.cache,
        )
        for row in tonight
    }
    measured, named = summaries.read(connection, numbers)
    lineages = _lineages(connection, {lineage for lineage, *_ in places})
    spots = _Spots.of(list(places), lineages, measured)
    table = _Table.of(spots.numbers(measured), measured)
    columns = {TIME: table.column(measured["median_s"]), MAX_ERROR: table.column(measured["max_error"])}
    columns |= {name: table.column_of(spots.numbers(rows), rows) for name, rows in named.items()}
    return table.histories(list(places.values()), columns)


def _numbers(connection: Connection, number: int, last: int) -> list[int]:
    """The newest runs of a run's scope up to itself, those with uncommitted changes left out; oldest first.

    They begin with the first that measured anything where the run did: all before are of other segments.
    """
    scope = select(Runs.scope).where(Runs.id == number).scalar_subquery()
    earlier = (Runs.id < number, Runs.scope == scope, Runs.git_dirty.is_(False), Runs.state.in_(ENDED))
    newest = select(Runs.id).where(*earlier).order_by(Runs.id.desc()).limit(last - 1)
    numbers = [*sorted(connection.scalars(newest)), number]
    here = select(Measurements.environment_id).where(Measurements.run_id == number).distinct()
    first = select(func.min(Measurements.run_id)).where(
        Measurements.environment_id.in_(connection.scalars(here).all()), Measurements.run_id.in_(numbers)
    )
    return numbers[numbers.index(connection.scalar(first) or number) :]


def _lineages(connection: Connection, wanted: Collection[int]) -> Mapping[int, tuple[int, bool]]:
    """The lineage of each case of some lineages, and whether its name is a former one."""
    query = select(Cases.id, Cases.lineage_id, Cases.former).where(Cases.lineage_id.in_(wanted))
    return {case: (lineage, former) for case, lineage, former in connection.execute(query)}


@dataclass(frozen=True, slots=True)
class _Spots:
    """Which of tonight's places a measurement belongs to, by their numbers.

    Attributes:
        places: the number of each.
        lineages: of the cases that may be at one of them, and whether their names are former ones.
        apart: the runs, each with a former name, that measured another name of its lineage beside it: there that one
            stands by itself, as ``naming.own_name`` has it.
    """

    places: Mapping[_Spot, int]
    lineages: Mapping[int, tuple[int, bool]]
    apart: frozenset[tuple[int, int]]

    @classmethod
    def of(cls, places: Sequence[_Spot], lineages: Mapping[int, tuple[int, bool]], measured: Rows) -> Self:
        """The places, and all that was measured of their lineages."""
        former = {lineage for lineage, is_former in lineages.values() if is_former}
        named = [case for case, (lineage, _) in lineages.items() if lineage in former]
        beside: dict[tuple[int, int], set[int]] = defaultdict(set)
        for number, case_ in _runs_of(named, measured):
            beside[number, lineages[case_][0]].add(case_)
        apart = frozenset(
            (number, case_)
            for (number, _), cases in beside.items()
            for case_ in cases
            if len(cases) > 1 and lineages[case_][1]
        )
        return cls({place: number for number, place in enumerate(places)}, lineages, apart)

    def numbers(self, rows: Rows) -> Ints:
        """The number of the place of each measurement; ``_ELSEWHERE`` of those that are at none."""
        keys, which = np.unique(rows["key"], return_inverse=True)
        parted = [summaries.parted(key) for key in keys.tolist()]
        found: Ints = np.array([self._number(*place, own=0) for place in parted], np.intp)[which]
        for number, case_ in self.apart:
            for at, place in enumerate(parted):
                if place[0] == case_:
                    found[(which == at) & (rows["run"] == number)] = self._number(*place, own=case_)
        return found

    def _number(self, case_: int, device: int, cache: int, *, own: int) -> int:
        if case_ not in self.lineages:
            return _ELSEWHERE
        return self.places.get((self.lineages[case_][0], own, device, cache), _ELSEWHERE)


def _runs_of(cases: Sequence[int], measured: Rows) -> set[tuple[int, int]]:
    """In which runs some cases were measured: a run and a case each."""
    if not cases:
        return set()
    of_case = summaries.cases_of(measured)
    there = np.isin(of_case, cases)
    return set(zip(measured["run"][there].tolist(), of_case[there].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Table:
    """The nights of all places, one row a night that measured one, ordered by place and run.

    Attributes:
        order: the measurements of these rows, by their numbers, shape (measurements,).
        rows: the row of each of those, likewise.
        first: of each row its first measurement, shape (rows,).
        places: of each row its place, likewise.
        runs: the same of its run.
        segments: and of its environment.
        right: whether every replica is ok.
    """

    order: Ints
    rows: Ints
    first: Ints
    places: Ints
    runs: Ints
    segments: Ints
    right: NDArray[np.bool_]

    @classmethod
    def of(cls, places: Ints, measured: Rows) -> Self:
        """The nights that measurements are of; what is ``_ELSEWHERE`` is in none."""
        order = _in_order(places, measured)
        at, runs = places[order], measured["run"][order]
        begins = np.append(True, (at[1:] != at[:-1]) | (runs[1:] != runs[:-1]))[: order.size]
        starts = np.flatnonzero(begins)
        first = order[starts]
        segments = measured["segment"][order]
        right = np.minimum.reduceat(segments, starts) > 0 if starts.size else np.empty(0, bool)
        return cls(order, np.cumsum(begins) - 1, first, at[starts], runs[starts], np.abs(segments[starts]), right)

    def column(self, values: Floats) -> Floats:
        """The values of all measurements by row and replica, as in ``Nights``; NaN is where there is no value."""
        return self._packed(self.rows, values[self.order])

    def column_of(self, places: Ints, named: Rows) -> Floats:
        """The same of a metric that some measurements have."""
        order = _in_order(places, named)
        runs = self.runs.max() + 1
        rows = np.searchsorted(self.places * runs + self.runs, places[order] * runs + named["run"][order])
        return self._packed(rows, named["value"][order])

    def _packed(self, rows: Ints, values: Floats) -> Floats:
        there = ~np.isnan(values) & self.right[rows]
        rows, values = rows[there], values[there]
        count = np.bincount(rows, minlength=self.first.size)
        place = np.arange(rows.size) - (np.cumsum(count) - count)[rows]
        packed = np.full((self.first.size, count.max(initial=0)), np.nan)
        packed[rows, place] = values
        return packed

    def histories(self, places: Sequence[Place], columns: Mapping[str, Floats]) -> dict[Watched, Nights]:
        """The nights of each place and metric, in the order in which they were first measured."""
        bounds = np.searchsorted(self.places, np.arange(len(places) + 1))
        found: list[tuple[int, Watched, Nights]] = []
        for metric, values in columns.items():
            there = ~np.isnan(values[:, 0]) if values.shape[1] else np.zeros(self.first.size, bool)
            if metric == TIME:  # which a wrong result is told by
                there |= ~self.right
            for place, (begin, end) in zip(places, pairwise(bounds), strict=True):
                rows = begin + np.flatnonzero(there[begin:end])
                if rows.size:
                    nights_ = Nights(self.runs[rows], self.segments[rows], values[rows])
                    found.append((int(self.first[rows[0]]), (place, metric), nights_))
        return {watched: of_place for _, watched, of_place in sorted(found, key=lambda one: one[0])}


def _in_order(places: Ints, rows: Rows) -> Ints:
    """The rows that are at a place, by place and run."""
    order: Ints = np.lexsort((rows["run"], places))
    return order[np.searchsorted(places[order], 0) :]
