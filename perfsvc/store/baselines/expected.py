"""The series that a run should have measured, by the previous run of its scope."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, exists, func, select, union

from perfsvc.model import CacheState, Case, RunState, Series, Status
from perfsvc.store.cases import judged, load_series
from perfsvc.store.schema.engine import among
from perfsvc.store.schema.judging_tables import Exclusions
from perfsvc.store.schema.tables import Devices, Levels, Measurements, OverBudgetCases, Runs, SeriesRows

_Cell = tuple[Case, str, CacheState]
"""A case on a device (UUID) in a cache state."""


def expected_series(connection: Connection, run: int) -> dict[Series, int]:
    """Return the series that a run should have measured, each with the earlier run that measured it.

    These are the series of the previous run of each device, without cases that were over budget or excluded in ``run``.
    """
    previous = _previous_runs(connection, run)
    earlier = measured_before_budget_ran_out(connection, previous)
    excused = _not_measured(connection, run)
    runs: dict[Series, int] = {}
    for source in sorted({*previous.values(), *earlier.values()}):
        for series in correct_series(connection, source).values():
            cell = (series.case, series.device, series.cache)
            if cell not in excused and source == earlier.get(cell, previous.get(series.device)):
                runs[series] = source
    return runs


def correct_series(connection: Connection, run: int) -> dict[int, Series]:
    """Return the series of which a run has a correct result, by their id."""
    levels = (Levels.run_id == run, Levels.status == Status.OK, Levels.excluded.is_(None))
    return load_series(connection, SeriesRows.id.in_(select(Levels.series_id).where(*levels)))


def _previous_runs(connection: Connection, number: int) -> dict[str, int]:
    """For each device of a run (by UUID), return the newest earlier run of the same scope that finished on it.

    A scope is a suite with a selection of cases. Runs without uncommitted changes are preferred.
    """
    scope = connection.scalar(select(Runs.scope).where(Runs.id == number))
    if not scope:
        return {}
    missing = _devices(connection, number)
    runs = select(Runs.id, Runs.git_dirty).where(Runs.scope == scope, Runs.state == RunState.FINISHED, Runs.id < number)
    runs = runs.where(judged(Runs.id))
    clean: dict[str, int] = {}
    dirty: dict[str, int] = {}
    for run, is_dirty in connection.execute(runs.order_by(Runs.id.desc())).all():
        if not missing:
            break
        for device in missing & _devices(connection, run):
            (dirty if is_dirty else clean).setdefault(device, run)
        missing -= clean.keys()
    return dirty | clean


def _devices(connection: Connection, run: int) -> set[str]:
    measured = select(Measurements.device_id).where(Measurements.run_id == run)
    return set(connection.scalars(select(Devices.uuid).where(Devices.id.in_(measured))))


def measured_before_budget_ran_out(connection: Connection, runs: Mapping[str, int]) -> dict[_Cell, int]:
    """For each case that was over budget in ``runs``, return the newest earlier run that measured it.

    A case that is excluded from judging counts as over budget. ``runs`` maps the UUID of each device to a run on it.
    """
    found: dict[_Cell, int] = {}
    for device, run in runs.items():
        scope = select(Runs.scope).where(Runs.id == run).scalar_subquery()
        unmeasured = load_series(connection, SeriesRows.id.in_(_skipped(run)), Devices.uuid == device)
        query = (
            select(Levels.series_id, newest_clean())
            .join(Runs, Runs.id == Levels.run_id)
            .where(among(Levels.series_id, unmeasured), Levels.status.is_not(None), Levels.excluded.is_(None))
            .where(Levels.run_id < run, Runs.scope == scope, Runs.state == RunState.FINISHED)
            .group_by(Levels.series_id)
        )
        for number, newest in connection.execute(query) if unmeasured else ():
            series = unmeasured[number]
            found[series.case, series.device, series.cache] = newest
    return found


def newest_clean() -> ColumnElement[int]:
    """Return an SQL aggregate: the newest run of a group of rows, preferably without uncommitted changes."""
    clean = func.max(Runs.id).filter(Runs.git_dirty.is_(False))
    return func.coalesce(clean, func.max(Runs.id))


def _skipped(run: int) -> Select[Any]:
    """Return a query of the series of times that were over budget in a run or individually excluded from it."""
    over_budget = select(OverBudgetCases.series_id).where(OverBudgetCases.run_id == run)
    by_case = Exclusions.run_id == run, Exclusions.included_at.is_(None), Exclusions.case_id == SeriesRows.case_id
    is_excluded = (Levels.run_id == run, Levels.excluded.is_not(None), exists().where(*by_case))
    excluded = select(Levels.series_id).join(SeriesRows, SeriesRows.id == Levels.series_id).where(*is_excluded)
    return select(union(over_budget, excluded).subquery())


def _not_measured(connection: Connection, run: int) -> set[_Cell]:
    """Return the cases that were over budget in a run or individually excluded from it."""
    unmeasured = load_series(connection, SeriesRows.id.in_(_skipped(run)))
    return {(series.case, series.device, series.cache) for series in unmeasured.values()}
