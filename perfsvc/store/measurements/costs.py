"""What cases cost on devices, by which a run is planned: read from their newest measurements, never from all."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean
from typing import Any

from sqlalchemy import CTE, ColumnElement, Connection, and_, func, select, true

from perfsvc.model import TIME, CacheState, Case, RunState
from perfsvc.store.cases import ids_of
from perfsvc.store.rows import CaseCost
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.engine import among
from perfsvc.store.schema.tables import Cases, Devices, Levels, Measurements, Runs, SeriesRows

NEWEST = 30
"""The measurements of a case on a device that are read: ten runs with three replicas, in one cache state. More would
change no plan."""


def costs_of(
    connection: Connection, cases: Iterable[Case], devices: Collection[str], before: int | None
) -> dict[tuple[str, str, CacheState], CaseCost]:
    """Return the cost and the noise of cases by device (UUID), case id and cache state; see ``CaseCost``."""
    ids = ids_of(connection, cases)
    newest = _newest(set(ids.values()), devices, before)
    measured = _measured(connection, newest, before)
    between = _between(connection, newest, before)
    found: dict[int, list[tuple[str, CacheState, CaseCost]]] = {number: [] for number in ids.values()}
    for (number, uuid, cache), past in measured.items():
        if past.walls_s:
            cost = CaseCost(fmean(past.walls_s), between.get((number, uuid, cache)), past.last, len(past.runs))
            found[number].append((uuid, cache, cost))
    return {(uuid, case.id, cache): cost for case, number in ids.items() for uuid, cache, cost in found[number]}


_Place = tuple[int, str, CacheState]
"""A case's id, a device's UUID, and a cache state."""


@dataclass(slots=True)
class _Past:
    """The newest measurements of a case on a device in a cache state.

    Attributes:
        last: when the last of them was made.
        runs: their runs.
        walls_s: the seconds of each replica in the newest run that has ended.
    """

    last: datetime
    runs: set[int] = field(default_factory=set)
    ended: int | None = None
    walls_s: list[float] = field(default_factory=list)

    def add(self, run: int, state: RunState, wall_s: float, measured_at: datetime) -> None:
        """Add a measurement; measurements come from the newest run to the oldest."""
        self.runs.add(run)
        self.last = max(self.last, measured_at)
        if self.ended is None and state in ENDED:
            self.ended = run
        if run == self.ended:
            self.walls_s.append(wall_s)


def _newest(cases: Collection[int], devices: Collection[str], before: int | None) -> CTE:
    """Return a query of the cases on each device, with the run of its ``NEWEST``-th newest measurement."""
    run = (
        select(Measurements.run_id)
        .where(Measurements.case_id == Cases.id, Measurements.device_id == Devices.id)
        .where(Measurements.wall_s > 0, *_earlier(Measurements, before))
        .order_by(Measurements.run_id.desc())
        .offset(NEWEST - 1)
        .limit(1)
        .scalar_subquery()
    )
    return (
        select(Cases.id.label("case_id"), Devices.id.label("device_id"), Devices.uuid)
        .add_columns(func.coalesce(run, 0).label("run_id"))
        .join(Devices, true())
        .where(among(Cases.id, cases), Devices.uuid.in_(devices))
        .cte()
        .prefix_with("MATERIALIZED")  # else SQLite computes the run again for every measurement of the case
    )


def _earlier(table: Any, before: int | None) -> tuple[ColumnElement[bool], ...]:
    return () if before is None else (table.run_id < before,)


def _measured(connection: Connection, newest: CTE, before: int | None) -> dict[_Place, _Past]:
    """Read the newest measurements; one that took no time is ignored: its case did not compile or was skipped."""
    query = (
        select(newest.c.case_id, newest.c.uuid, Measurements.cache, Measurements.run_id)
        .add_columns(Runs.state, Measurements.wall_s, Measurements.measured_at)
        .join(
            Measurements,
            and_(
                Measurements.case_id == newest.c.case_id,
                Measurements.device_id == newest.c.device_id,
                Measurements.run_id >= newest.c.run_id,
                *_earlier(Measurements, before),
            ),
        )
        .join(Runs, Runs.id == Measurements.run_id)
        .where(Measurements.wall_s > 0)
        .order_by(Measurements.run_id.desc())
    )
    measured: dict[_Place, _Past] = {}
    for case, uuid, cache, run, state, wall_s, measured_at in connection.execute(query):
        past = measured.setdefault((case, uuid, cache), _Past(measured_at))
        past.add(run, state, wall_s, measured_at)
    return measured


def _between(connection: Connection, newest: CTE, before: int | None) -> dict[_Place, float]:
    """Return the noise between replicas in the newest run that has such a value."""
    same = SeriesRows.case_id == newest.c.case_id, SeriesRows.device_id == newest.c.device_id, SeriesRows.metric == TIME
    query = (
        select(newest.c.case_id, newest.c.uuid, SeriesRows.cache, Levels.noise_between)
        .join(SeriesRows, and_(*same))
        .join(Levels, Levels.series_id == SeriesRows.id)
        .where(Levels.noise_between.is_not(None), Levels.run_id >= newest.c.run_id, *_earlier(Levels, before))
        .order_by(Levels.run_id)
    )
    return {(case, uuid, cache): between for case, uuid, cache, between in connection.execute(query)}
