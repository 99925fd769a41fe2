"""The nights of a run's series: what each earlier run measured of them, and in which environment."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, select

from perfsvc.model import MAX_ERROR, TIME, UNJUDGED, Mode, Status
from perfsvc.store.lookup import ENDED, run
from perfsvc.store.naming import Place, of_cases, own_name, present_cases
from perfsvc.store.rows import Night
from perfsvc.store.tables import Cases, Measurements, Metrics, Runs

Watched = tuple[Place, str]
"""Of what there is a history: a place, and the metric."""
_Spot = tuple[int, int, int, Mode]
"""A place in the database: lineage, own name, device, mode."""


def nights(connection: Connection, number: int, last: int) -> dict[Watched, list[Night]]:
    """What the nights up to a run say of all that it measured; see ``Store.nights``."""
    numbers = _numbers(connection, number, last)
    tonight = connection.execute(
        of_cases(Measurements, Measurements.device_id, own_name(Measurements.run_id)).where(
            Measurements.run_id == number
        )
    ).all()
    cases = present_cases(tonight)
    places = {_spot(row): (row.uuid, cases[row.case_id], row.mode) for row in tonight}
    named = _named(connection, numbers)
    histories: dict[Watched, list[Night]] = defaultdict(list)
    for night, measured in groupby(connection.execute(_measured(numbers)), attrgetter("run_id")):
        replicas: dict[_Spot, list[Any]] = defaultdict(list)
        for row in measured:
            replicas[_spot(row)].append(row)
        for spot, rows in replicas.items():
            for metric, values in _values(rows, named) if spot in places else ():
                histories[places[spot], metric].append(Night(night, rows[0].environment_id, values))
    return dict(histories)


def _spot(row: Any) -> _Spot:
    return row.lineage_id, row.own_name, row.device_id, row.mode


def _measured(numbers: Sequence[int]) -> Any:
    """The measurements of some runs, oldest first."""
    return (
        select(
            Measurements.id,
            Cases.lineage_id,
            own_name(Measurements.run_id),
            Measurements.device_id,
            Measurements.mode,
            Measurements.run_id,
            Measurements.status,
            Measurements.median_s,
            Measurements.max_error,
            Measurements.environment_id,
        )
        .join(Cases, Cases.id == Measurements.case_id)
        .where(Measurements.run_id.in_(numbers))
        .order_by(Measurements.run_id)
    )


def _named(connection: Connection, numbers: Sequence[int]) -> Mapping[int, Sequence[tuple[str, float]]]:
    """The metrics of these runs' measurements that are judged, by the measurements' ids."""
    query = (
        select(Metrics.measurement_id, Metrics.name, Metrics.value)
        .join(Measurements, Measurements.id == Metrics.measurement_id)
        .where(Measurements.run_id.in_(numbers), Metrics.name.not_in(UNJUDGED))
    )
    found: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for measurement, name, value in connection.execute(query):
        if value is not None:
            found[measurement].append((name, value))
    return found


def _values(
    rows: Sequence[Any], named: Mapping[int, Sequence[tuple[str, float]]]
) -> Iterable[tuple[str, tuple[float, ...]]]:
    """What the replicas of a case measured one night, by metric; a case that any replica got wrong has no values."""
    if any(row.status is not Status.OK for row in rows):
        return [(TIME, ())]
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for metric, value in _of_replica(row, named):
            found[metric].append(value)
    return [(metric, tuple(values)) for metric, values in found.items()]


def _of_replica(row: Any, named: Mapping[int, Sequence[tuple[str, float]]]) -> Iterator[tuple[str, float]]:
    if row.median_s is not None:
        yield TIME, row.median_s
    if row.max_error is not None:
        yield MAX_ERROR, row.max_error
    yield from named.get(row.id, ())


def _numbers(connection: Connection, number: int, last: int) -> list[int]:
    """The newest runs of a run's scope up to itself, those with uncommitted changes left out; oldest first."""
    scope = run(connection, number).provenance.scope
    earlier = (Runs.id < number, Runs.scope == scope, Runs.git_dirty.is_(False), Runs.state.in_(ENDED))
    newest = select(Runs.id).where(*earlier).order_by(Runs.id.desc()).limit(last - 1)
    return [*sorted(connection.scalars(newest)), number]
