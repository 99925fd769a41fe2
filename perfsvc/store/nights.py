"""The nights of a run's series: what each earlier run measured of them, and in which environment."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Text, select, type_coerce

from perfsvc.model import MAX_ERROR, TIME, UNJUDGED, Status
from perfsvc.store.lookup import ENDED, run
from perfsvc.store.naming import Place, of_cases, own_name, present_cases
from perfsvc.store.rows import Night
from perfsvc.store.tables import Cases, Measurements, Metrics, Runs

Watched = tuple[Place, str]
"""Of what there is a history: a place, and the metric."""
_Spot = tuple[int, int, int, str]
"""A place in the database: lineage, own name, device, mode."""
_OK = Status.OK.value
_Measured = Sequence[Any]
"""What of a measurement is asked for: its id, case, device, mode, run, status, median, maximum error, environment."""


def nights(connection: Connection, number: int, last: int) -> dict[Watched, list[Night]]:
    """What the nights up to a run say of all that it measured; see ``Store.nights``.

    A year of a suite is some hundred thousand measurements, read every night: so no more is asked of the database than
    its rows as they lie there, and what belongs together is put together here.
    """
    numbers = _numbers(connection, number, last)
    tonight = connection.execute(
        of_cases(Measurements, Measurements.device_id, own_name(Measurements.run_id)).where(
            Measurements.run_id == number
        )
    ).all()
    cases = present_cases(tonight)
    places = {
        (row.lineage_id, row.own_name, row.device_id, row.mode.value): (row.uuid, cases[row.case_id], row.mode)
        for row in tonight
    }
    lineages = _lineages(connection, {lineage for lineage, *_ in places})
    named = _named(connection, numbers)
    histories: dict[Watched, list[Night]] = defaultdict(list)
    for night, measured in groupby(connection.execute(_measured(numbers)), itemgetter(4)):
        for spot, rows in _by_spot(measured, lineages).items():
            for metric, values in _values(rows, named) if spot in places else ():
                histories[places[spot], metric].append(Night(night, rows[0][8], values))
    return dict(histories)


def _lineages(connection: Connection, wanted: Collection[int]) -> Mapping[int, tuple[int, bool]]:
    """The lineage of each case of some lineages, and whether its name is a former one."""
    query = select(Cases.id, Cases.lineage_id, Cases.former).where(Cases.lineage_id.in_(wanted))
    return {case: (lineage, former) for case, lineage, former in connection.execute(query)}


def _by_spot(measured: Iterable[Any], lineages: Mapping[int, tuple[int, bool]]) -> dict[_Spot, list[_Measured]]:
    """A night's replicas of each place, of cases of some lineages.

    A former name that it measured beside another of its lineage stands by itself, as ``naming.own_name`` has it.
    """
    replicas: dict[tuple[int, int, str], list[_Measured]] = defaultdict(list)
    for row in measured:
        _, case, device, mode, *_ = row
        if case in lineages:
            replicas[case, device, mode].append(row)
    names = Counter(lineages[case][0] for case in {case for case, *_ in replicas})
    found: dict[_Spot, list[_Measured]] = defaultdict(list)
    for (case, device, mode), rows in replicas.items():
        lineage, former = lineages[case]
        found[lineage, case if former and names[lineage] > 1 else 0, device, mode] += rows
    return found


def _measured(numbers: Sequence[int]) -> Any:
    """The measurements of some runs, oldest first; words stay the text that they are stored as."""
    return (
        select(
            Measurements.id,
            Measurements.case_id,
            Measurements.device_id,
            type_coerce(Measurements.mode, Text),
            Measurements.run_id,
            type_coerce(Measurements.status, Text),
            Measurements.median_s,
            Measurements.max_error,
            Measurements.environment_id,
        )
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
    rows: Sequence[_Measured], named: Mapping[int, Sequence[tuple[str, float]]]
) -> Iterable[tuple[str, tuple[float, ...]]]:
    """What the replicas of a case measured one night, by metric; a case that any replica got wrong has no values."""
    found: dict[str, list[float]] = {}
    for measurement, *_, status, median_s, max_error, _ in rows:
        if status != _OK:
            return [(TIME, ())]
        if median_s is not None:
            found.setdefault(TIME, []).append(median_s)
        if max_error is not None:
            found.setdefault(MAX_ERROR, []).append(max_error)
        for metric, value in named.get(measurement, ()):
            found.setdefault(metric, []).append(value)
    return [(metric, tuple(values)) for metric, values in found.items()]


def _numbers(connection: Connection, number: int, last: int) -> list[int]:
    """The newest runs of a run's scope up to itself, those with uncommitted changes left out; oldest first."""
    scope = run(connection, number).provenance.scope
    earlier = (Runs.id < number, Runs.scope == scope, Runs.git_dirty.is_(False), Runs.state.in_(ENDED))
    newest = select(Runs.id).where(*earlier).order_by(Runs.id.desc()).limit(last - 1)
    return [*sorted(connection.scalars(newest)), number]
