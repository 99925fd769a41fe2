"""The queries behind what a verdict compares against, each built once: to build one takes longer than to run it."""

from functools import cache
from typing import Any

from sqlalchemy import CTE, ColumnElement, and_, bindparam, func, literal, or_, select, union_all

from perfsvc.model import MAX_ERROR, TIME, Cause, FindingState, Status
from perfsvc.store.cases import own_name
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.judging_tables import ACCEPTED, FindingCases, Findings, Verdicts
from perfsvc.store.schema.tables import Cases, Measurements, Metrics, Runs

_OF_LINEAGES = Cases.lineage_id.in_(bindparam("lineages", expanding=True))
_BEFORE_RUN: ColumnElement[int] = bindparam("before_run")
AMONG_RUNS = (Measurements.run_id.in_(bindparam("runs", expanding=True)),)
BETWEEN_RUNS = (Measurements.run_id > bindparam("after"), Measurements.run_id < _BEFORE_RUN, Runs.state.in_(ENDED))

IS_ACCEPTED = Verdicts.verdict.in_(bindparam(None, ACCEPTED, expanding=True, literal_execute=True))
"""With the words themselves: an index that holds these verdicts alone is not found by parameters."""
PASSING = (Cause.NOISE, Cause.ENVIRONMENT)
"""The causes of improvements that the code has no part in: a lucky night would be a bar for every night after it."""


@cache
def former_names() -> Any:
    """The former names of the cases of a run (``run``), each as ``naming.own_name`` has it there."""
    return (
        select(Cases.benchmark, Cases.variant, Cases.point, Cases.version, own_name(Measurements.run_id))
        .join(Measurements, Measurements.case_id == Cases.id)
        .where(Measurements.run_id == bindparam("run"), Cases.former)
        .distinct()
    )


@cache
def accepted_ever() -> Any:
    """Of some lineages the newest runs before another that hold a level to keep, by either way."""
    return union_all(_judged(), _accepted_findings())


def _judged() -> Any:
    """The newest earlier run without uncommitted changes whose verdict took its level as the one to keep."""
    series = (Cases.lineage_id, own_name(Verdicts.run_id), Verdicts.device_id, Verdicts.metric, Verdicts.cache)
    return (
        select(*series, func.max(Verdicts.run_id))
        .join(Cases, Cases.id == Verdicts.case_id)
        .join(Runs, Runs.id == Verdicts.run_id)
        .where(_OF_LINEAGES, Verdicts.run_id < _BEFORE_RUN, IS_ACCEPTED)
        .where(Runs.git_dirty.is_(False), or_(Verdicts.cause.is_(None), Verdicts.cause.not_in(PASSING)))
        .group_by(*series)
    )


def _accepted_findings() -> Any:
    """The newest run of what a person accepted; of a series that was back at its old level there was nothing to."""
    own = own_name(FindingCases.last_run_id)
    series = (Cases.lineage_id, own, FindingCases.device_id, FindingCases.metric, FindingCases.cache)
    return (
        select(*series, func.max(FindingCases.last_run_id))
        .join(Findings, Findings.id == FindingCases.finding_id)
        .join(Cases, Cases.id == FindingCases.case_id)
        .where(_OF_LINEAGES, FindingCases.last_run_id < _BEFORE_RUN)
        .where(Findings.state == FindingState.ACCEPTED, FindingCases.recovered_run_id.is_(None))
        .group_by(*series)
    )


@cache
def first_ok_of(runs: tuple[ColumnElement[bool], ...], metrics: frozenset[str] | None = None) -> Any:
    """Of some lineages the first of some runs with a right result of each series, or of those of some metrics."""
    right = _right(runs)
    told = {
        TIME: _first(right, literal(TIME)).where(right.c.samples > 0),
        MAX_ERROR: _first(right, literal(MAX_ERROR)).where(right.c.max_error.is_not(None)),
    }
    of_right = (getattr(Measurements, name) == right.c[name] for name in _PLACE)
    named = (
        _first(right, Metrics.name)
        .join(Measurements, and_(*of_right))
        .join(Metrics, Metrics.measurement_id == Measurements.id)
        .where(Metrics.value.is_not(None))
        .group_by(Metrics.name)
    )
    if metrics is None:
        return union_all(*told.values(), named)
    found = [query for metric, query in told.items() if metric in metrics]
    return union_all(*found, *([named] if metrics - told.keys() else []))


_PLACE = ("run_id", "case_id", "device_id", "cache")


def _right(runs: tuple[ColumnElement[bool], ...]) -> CTE:
    """What some runs measured with every replica ok: the most samples of a replica, and the largest error."""
    place = [getattr(Measurements, name) for name in _PLACE]
    return (
        select(
            *place,
            func.max(Measurements.sample_count).label("samples"),
            func.max(Measurements.max_error).label("max_error"),
        )
        .join(Runs, Runs.id == Measurements.run_id)
        .where(*runs)
        .group_by(*place)
        .having(func.count().filter(Measurements.status != Status.OK) == 0)
        .cte("right_results")
    )


def _first(right: CTE, metric: Any) -> Any:
    """Of each series of a metric the first run, of a clean tree if there is any."""
    series = (Cases.lineage_id, own_name(right.c.run_id), right.c.device_id)
    clean = func.min(right.c.run_id).filter(Runs.git_dirty.is_(False))
    return (
        select(*series, metric, right.c.cache, func.coalesce(clean, func.min(right.c.run_id)))
        .join(Cases, Cases.id == right.c.case_id)
        .join(Runs, Runs.id == right.c.run_id)
        .where(_OF_LINEAGES)
        .group_by(*series, right.c.cache)
    )
