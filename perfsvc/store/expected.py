"""What a run should have measured: what the run before it did, also where one of the two had not the time for all."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, func, or_, select, tuple_
from sqlalchemy.orm import aliased

from perfsvc.model import MAX_ERROR, TIME, CacheState, Series, Status
from perfsvc.store.cases import CaseIds, of_cases, present_cases
from perfsvc.store.rows import RunState
from perfsvc.store.schema.tables import Cases, Measurements, Metrics, OverBudgetCases, Runs

_Place = tuple[int, int, CacheState]
"""What a measurement is of, in the database: case, device, cache state."""


def expected(connection: Connection, number: int) -> dict[Series, int]:
    """What a run should have a right result of, each with the run that has one; see ``Store.expected``."""
    before = _runs_before(connection, number)
    missed = owed(connection, before)
    excused = _excused(connection, number)
    found: dict[Series, int] = {}
    for run in sorted({*before.values(), *missed.values()}):
        for series, spot in _right(connection, run).items():
            if run == missed.get(spot, before.get(spot[1])) and spot not in excused:
                found[series] = run
    return found


def _right(connection: Connection, run: int) -> dict[Series, CaseIds]:
    """The series that a run has a right result of, each with its spot: those of ``reading.levels`` that are ok."""
    rows = connection.execute(_told(), {"run": run}).all()
    cases = present_cases(rows)
    broken = {_place(row) for row in rows if row.status is not Status.OK}
    metrics: dict[_Place, dict[str, None]] = defaultdict(dict)
    for row in rows:
        told = {TIME: row.is_timed, MAX_ERROR: row.has_error}
        metrics[_place(row)] |= dict.fromkeys(metric for metric, is_told in told.items() if is_told)
    for row in connection.execute(_named(), {"run": run}):
        metrics[_place(row)][row.name] = None
    return {
        Series(cases[row.case_id], row.uuid, row.model, metric, row.cache): (row.lineage_id, row.device_id, row.cache)
        for row in rows
        if _place(row) not in broken
        for metric in metrics[_place(row)]
    }


@cache
def _told() -> Any:
    """What the measurements of a run (``run``) are of, once where all replicas are alike."""
    is_timed = or_(Measurements.samples.is_not(None), Measurements.median_s.is_not(None)).label("is_timed")
    has_error = Measurements.max_error.is_not(None).label("has_error")
    told = of_cases(Measurements, Measurements.device_id, Measurements.status, is_timed, has_error)
    return told.where(Measurements.run_id == bindparam("run")).distinct()


@cache
def _named() -> Any:
    """The names of the metrics of a run's measurements, by what those are of."""
    return (
        select(Measurements.case_id, Measurements.device_id, Measurements.cache, Metrics.name)
        .join(Metrics, Metrics.measurement_id == Measurements.id)
        .where(Measurements.run_id == bindparam("run"), Metrics.value.is_not(None))
        .order_by(Metrics.name)
        .distinct()
    )


def _place(row: Any) -> _Place:
    return row.case_id, row.device_id, row.cache


def _runs_before(connection: Connection, number: int) -> dict[int, int]:
    """For each device of a run (its id) the newest earlier one of its scope that finished and measured there."""
    scope = connection.scalar(select(Runs.scope).where(Runs.id == number))
    if not scope:
        return {}
    left = _devices(connection, number)
    runs = select(Runs.id, Runs.git_dirty).where(Runs.scope == scope, Runs.state == RunState.FINISHED, Runs.id < number)
    clean: dict[int, int] = {}
    dirty: dict[int, int] = {}
    for run, changed in connection.execute(runs.order_by(Runs.id.desc())).all():
        if not left:
            break
        for device in left & _devices(connection, run):
            (dirty if changed else clean).setdefault(device, run)
        left -= clean.keys()
    return dirty | clean


def _devices(connection: Connection, run: int) -> set[int]:
    return set(connection.scalars(select(Measurements.device_id).where(Measurements.run_id == run).distinct()))


def owed(connection: Connection, before: Mapping[int, int]) -> dict[CaseIds, int]:
    """For whatever those runs left out on their devices, the newest run before them that measured it."""
    missed = aliased(Cases)
    scope = select(Runs.scope).where(Runs.id == OverBudgetCases.run_id).correlate(OverBudgetCases).scalar_subquery()
    earlier = and_(
        Measurements.case_id == Cases.id,
        Measurements.device_id == OverBudgetCases.device_id,
        Measurements.cache == OverBudgetCases.cache,
        Measurements.run_id < OverBudgetCases.run_id,
    )
    query = (
        select(Cases.lineage_id, Measurements.device_id, Measurements.cache, newest_clean())
        .select_from(OverBudgetCases)
        .join(missed, missed.id == OverBudgetCases.case_id)
        .join(Cases, Cases.lineage_id == missed.lineage_id)
        .join(Measurements, earlier)
        .join(Runs, Runs.id == Measurements.run_id)
        .where(tuple_(OverBudgetCases.device_id, OverBudgetCases.run_id).in_(list(before.items())))
        .where(Runs.scope == scope, Runs.state == RunState.FINISHED)
        .group_by(Cases.lineage_id, Measurements.device_id, Measurements.cache)
    )
    return {(lineage, device, cache): run for lineage, device, cache, run in connection.execute(query)}


def newest_clean() -> ColumnElement[int]:
    """Of a group of measurements the newest run: of those without uncommitted changes, if there are any."""
    clean = func.max(Measurements.run_id).filter(Runs.git_dirty.is_(False))
    return func.coalesce(clean, func.max(Measurements.run_id))


def _excused(connection: Connection, number: int) -> set[CaseIds]:
    """What a run itself left out."""
    query = (
        select(Cases.lineage_id, OverBudgetCases.device_id, OverBudgetCases.cache)
        .join(Cases, Cases.id == OverBudgetCases.case_id)
        .where(OverBudgetCases.run_id == number)
    )
    return {(lineage, device, cache) for lineage, device, cache in connection.execute(query)}
