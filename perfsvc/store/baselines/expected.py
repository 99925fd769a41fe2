"""The series that a run should have measured, by the previous run of its scope."""

from collections.abc import Iterable, Mapping

from sqlalchemy import CTE, ColumnElement, Connection, and_, func, select, tuple_, union

from perfsvc.model import RunState, Series, Status
from perfsvc.store.cases import CaseIds, SeriesKey, judged, series_keys
from perfsvc.store.levels import load_series
from perfsvc.store.schema.engine import among
from perfsvc.store.schema.judging_tables import Exclusions
from perfsvc.store.schema.tables import Levels, Measurements, OverBudgetCases, Runs, SeriesRows


def expected_series(connection: Connection, run: int) -> dict[Series, int]:
    """Return the series that a run should have measured, each with the earlier run that measured it.

    These are the series of the previous run of each device, without cases that were over budget or excluded in ``run``.
    """
    previous = _previous_runs(connection, run)
    earlier = measured_before_budget_ran_out(connection, previous)
    excused = _not_measured(connection, run)
    runs: dict[Series, int] = {}
    for source in sorted({*previous.values(), *earlier.values()}):
        for series, key in correct_series(connection, source).items():
            if key.case_ids not in excused and source == earlier.get(key.case_ids, previous.get(key.device)):
                runs[series] = source
    return runs


def correct_series(connection: Connection, run: int) -> dict[Series, SeriesKey]:
    """Return the series of which a run has a correct result, each with its key."""
    levels = (Levels.run_id == run, Levels.status == Status.OK, Levels.excluded.is_(None))
    of_run = load_series(connection, SeriesRows.id.in_(select(Levels.series_id).where(*levels)))
    return series_keys(connection, of_run.values())


def _previous_runs(connection: Connection, number: int) -> dict[int, int]:
    """For each device of a run (by id), return the newest earlier run of the same scope that finished on it.

    A scope is a suite with a selection of cases. Runs without uncommitted changes are preferred.
    """
    scope = connection.scalar(select(Runs.scope).where(Runs.id == number))
    if not scope:
        return {}
    missing = _devices(connection, number)
    runs = select(Runs.id, Runs.git_dirty).where(Runs.scope == scope, Runs.state == RunState.FINISHED, Runs.id < number)
    runs = runs.where(judged(Runs.id))
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
    """For each case that was over budget in ``runs``, return the newest earlier run that measured it.

    A case that is excluded from judging counts as over budget. ``runs`` maps the id of each device to a run on it.
    """
    unmeasured = _skipped(runs.values())
    scope = select(Runs.scope).where(Runs.id == unmeasured.c.run_id).correlate(unmeasured).scalar_subquery()
    earlier = and_(
        Measurements.case_id == unmeasured.c.case_id,
        Measurements.device_id == unmeasured.c.device_id,
        Measurements.cache == unmeasured.c.cache,
        Measurements.run_id < unmeasured.c.run_id,
        judged(Measurements.run_id, Measurements.case_id),
    )
    query = (
        select(Measurements.case_id, Measurements.device_id, Measurements.cache, newest_clean())
        .select_from(unmeasured)
        .join(Measurements, earlier)
        .join(Runs, Runs.id == Measurements.run_id)
        .where(tuple_(unmeasured.c.device_id, unmeasured.c.run_id).in_(list(runs.items())))
        .where(Runs.scope == scope, Runs.state == RunState.FINISHED)
        .group_by(Measurements.case_id, Measurements.device_id, Measurements.cache)
    )
    return {(case, device, cache): run for case, device, cache, run in connection.execute(query)}


def newest_clean() -> ColumnElement[int]:
    """Return an SQL aggregate: the newest run of a group of rows, preferably without uncommitted changes."""
    clean = func.max(Runs.id).filter(Runs.git_dirty.is_(False))
    return func.coalesce(clean, func.max(Runs.id))


def _skipped(runs: Iterable[int]) -> CTE:
    """Return a query of the cases that were over budget in some runs or individually excluded from them."""
    numbers = set(runs)
    over_budget = select(
        OverBudgetCases.run_id, OverBudgetCases.case_id, OverBudgetCases.device_id, OverBudgetCases.cache
    ).where(among(OverBudgetCases.run_id, numbers))
    excluded = (
        select(Measurements.run_id, Measurements.case_id, Measurements.device_id, Measurements.cache)
        .join(Exclusions, and_(Exclusions.run_id == Measurements.run_id, Exclusions.case_id == Measurements.case_id))
        .where(among(Measurements.run_id, numbers), Exclusions.included_at.is_(None))
    )
    return union(over_budget, excluded).cte("skipped")


def _not_measured(connection: Connection, run: int) -> set[CaseIds]:
    """Return the cases that were over budget in a run or individually excluded from it."""
    unmeasured = _skipped([run])
    query = select(unmeasured.c.case_id, unmeasured.c.device_id, unmeasured.c.cache)
    return {(case, device, cache) for case, device, cache in connection.execute(query)}
