"""What a run should have measured: what the run before it measured, even if one of them ran out of budget."""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, and_, func, select, tuple_
from sqlalchemy.orm import aliased

from perfsvc.model import RunState, Series, Status
from perfsvc.store.cases import CaseIds, SeriesKey, lineage_keys
from perfsvc.store.schema.tables import Cases, Measurements, OverBudgetCases, Runs
from perfsvc.store.series import levels_in


def expected(connection: Connection, run: int) -> dict[Series, int]:
    """Return the series that a run should have a correct result of, each with the run that has one.

    See ``BaselineStore.expected``.
    """
    previous = _previous_runs(connection, run)
    earlier = measured_before_budget_ran_out(connection, previous)
    excused = _over_budget(connection, run)
    runs: dict[Series, int] = {}
    for source in sorted({*previous.values(), *earlier.values()}):
        for series, key in correct_series(connection, source).items():
            if key.case_ids not in excused and source == earlier.get(key.case_ids, previous.get(key.device)):
                runs[series] = source
    return runs


def correct_series(connection: Connection, run: int) -> dict[Series, SeriesKey]:
    """Return the series of which a run has a correct result, each with its key."""
    correct = [series for series, level in levels_in(connection, run).items() if level.status is Status.OK]
    return lineage_keys(connection, correct)


def _previous_runs(connection: Connection, number: int) -> dict[int, int]:
    """Return the newest earlier run that finished in a run's scope, for each device (id) of the run.

    Runs without uncommitted changes go first.
    """
    scope = connection.scalar(select(Runs.scope).where(Runs.id == number))
    if not scope:
        return {}
    missing = _devices(connection, number)
    runs = select(Runs.id, Runs.git_dirty).where(Runs.scope == scope, Runs.state == RunState.FINISHED, Runs.id < number)
    clean: dict[int, int] = {}
    dirty: dict[int, int] = {}
    for run, is_dirty in connection.execute(runs.order_by(Runs.id.desc())).all():
        if not missing:
            break
        for device in missing & _devices(connection, run):
            (dirty if is_dirty else clean).setdefault(device, run)
        missing -= clean.keys()
    return dirty | clean


def _devices(connection: Connection, run: int) -> set[int]:
    return set(connection.scalars(select(Measurements.device_id).where(Measurements.run_id == run).distinct()))


def measured_before_budget_ran_out(connection: Connection, runs: Mapping[int, int]) -> dict[CaseIds, int]:
    """Return the newest earlier run that measured each case that was over budget, by lineage, device and cache state.

    ``runs`` names, for each device (id), the run that was over budget.
    """
    skipped = aliased(Cases)
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
        .join(skipped, skipped.id == OverBudgetCases.case_id)
        .join(Cases, Cases.lineage_id == skipped.lineage_id)
        .join(Measurements, earlier)
        .join(Runs, Runs.id == Measurements.run_id)
        .where(tuple_(OverBudgetCases.device_id, OverBudgetCases.run_id).in_(list(runs.items())))
        .where(Runs.scope == scope, Runs.state == RunState.FINISHED)
        .group_by(Cases.lineage_id, Measurements.device_id, Measurements.cache)
    )
    return {(lineage, device, cache): run for lineage, device, cache, run in connection.execute(query)}


def newest_clean() -> ColumnElement[int]:
    """Return an SQL aggregate: the newest run of some measurements; runs without uncommitted changes go first."""
    clean = func.max(Measurements.run_id).filter(Runs.git_dirty.is_(False))
    return func.coalesce(clean, func.max(Measurements.run_id))


def _over_budget(connection: Connection, run: int) -> set[CaseIds]:
    """Return the cases that a run skipped because its budget was used up."""
    query = (
        select(Cases.lineage_id, OverBudgetCases.device_id, OverBudgetCases.cache)
        .join(Cases, Cases.id == OverBudgetCases.case_id)
        .where(OverBudgetCases.run_id == run)
    )
    return {(lineage, device, cache) for lineage, device, cache in connection.execute(query)}
