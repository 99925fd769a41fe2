"""Load findings with the series that they hold, and store and load their events."""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, insert, select, update
from sqlalchemy import text as sql

from perfsvc.errors import NotMeasuredError
from perfsvc.model import TIME, Cause, Direction, EventKind, Finding, FindingEvent, FindingState, MovedSeries, Series
from perfsvc.store.cases import series_of, with_series
from perfsvc.store.profiles import explanation_of
from perfsvc.store.schema.base import from_row
from perfsvc.store.schema.code_tables import Explanations
from perfsvc.store.schema.engine import POSTGRESQL, among, new_id
from perfsvc.store.schema.judging_tables import FindingCases, FindingEvents, Findings
from perfsvc.store.schema.tables import SeriesRows

ACTIVE = (FindingState.OPEN, FindingState.ACKNOWLEDGED, FindingState.IGNORED)
"""A step of a series with a finding in one of these states gets no second finding in the same direction."""

CODE = frozenset({Cause.KERNEL, Cause.LAUNCH, Cause.TOOLCHAIN})
"""The causes of findings that the code explains; their cases are profiled."""


def lock(connection: Connection) -> None:
    """Let only this transaction change findings until it ends.

    Otherwise runs on two hosts could each raise a finding for the same root cause.
    """
    if connection.dialect.name == POSTGRESQL:  # SQLite has one writer at a time anyway
        connection.execute(sql("LOCK TABLE findings IN SHARE ROW EXCLUSIVE MODE"))


def get(connection: Connection, number: int) -> Finding:
    """Return a finding; raises ``NotMeasuredError`` if it does not exist."""
    findings = load(connection, Findings.id == number)
    if not findings:
        raise NotMeasuredError(f"there is no finding {number}", cure="perfsvc findings --all")
    return findings[0]


def active(connection: Connection) -> list[Finding]:
    """Return the active findings, newest first."""
    return load(connection, Findings.state.in_(ACTIVE))


def load(connection: Connection, *where: ColumnElement[bool]) -> list[Finding]:
    """Return findings with the series that they hold, newest first."""
    findings = connection.execute(select(Findings).where(*where).order_by(Findings.id.desc())).all()
    if not findings:
        return []
    numbers = {finding.id for finding in findings}
    rows = series_rows(connection, numbers)
    explanations = _explanations(connection, numbers)
    profiled = _profiled_runs(connection, {run for row, _ in rows for run in (row.first_run_id, row.last_run_id)})
    by_code = {finding.id for finding in findings if finding.cause in CODE}
    moved: dict[int, list[MovedSeries]] = defaultdict(list)
    for row, series in rows:
        is_slower_time = row.metric == TIME and row.direction is Direction.SLOWER
        explained = explanations.get((row.finding_id, row.case_id, row.device_id)) if row.metric == TIME else None
        moved[row.finding_id].append(
            from_row(
                MovedSeries,
                row,
                series=series,
                explanation=explained and explanation_of(explained, series.case, series.device, series.device_model),
                awaits_profile=explained is None
                and is_slower_time
                and row.recovered_run_id is None
                and row.finding_id in by_code
                and not profiled.isdisjoint({row.first_run_id, row.last_run_id}),
            )
        )
    return [from_row(Finding, row, by=row.set_by, at=row.set_at, moved=tuple(moved[row.id])) for row in findings]


def series_rows(connection: Connection, numbers: Collection[int]) -> list[tuple[Any, Series]]:
    """Return the ``finding_cases`` rows of some findings, each with its series. Renamed cases have present names."""
    query = with_series(FindingCases).where(among(FindingCases.finding_id, numbers))
    of_series = (SeriesRows.case_id, SeriesRows.device_id, SeriesRows.metric, SeriesRows.cache)
    in_order = query.order_by(FindingCases.finding_id, *of_series, FindingCases.step)
    return [(row, series_of(row)) for row in connection.execute(in_order)]


def _explanations(connection: Connection, numbers: Collection[int]) -> dict[tuple[int, int, int], Any]:
    """Return the newest explanation of each case by the ids of finding, case and device; absent if there is none.

    An explanation without an answer is returned only if no other has an answer.
    """
    of_finding = and_(
        Explanations.case_id == SeriesRows.case_id,
        Explanations.device_id == SeriesRows.device_id,
        Explanations.run_id.between(Findings.first_run_id, FindingCases.last_run_id),
    )
    query = (
        select(Findings.id.label("finding_id"), Explanations)
        .join(FindingCases, FindingCases.finding_id == Findings.id)
        .join(SeriesRows, SeriesRows.id == FindingCases.series_id)
        .join(Explanations, of_finding)
        .where(among(Findings.id, numbers))
        .order_by(Explanations.sentence != "", Explanations.id)
    )
    return {(row.finding_id, row.case_id, row.device_id): row for row in connection.execute(query)}


def _profiled_runs(connection: Connection, runs: Collection[int | None]) -> set[int]:
    """Return which of some runs have an explanation of any case."""
    known = [run for run in runs if run is not None]
    query = select(Explanations.run_id).where(among(Explanations.run_id, known)).distinct()
    return set(connection.scalars(query)) if known else set()


def put_open_finding(
    connection: Connection, cause: Cause, root_cause: str, evidence: str, *, at: datetime, run: int | None = None
) -> int:
    """Store an open finding without series, and return its number; ``run`` is None if it is about something missing."""
    row = {
        "cause": cause,
        "root_cause": root_cause,
        "first_run_id": run,
        "last_run_id": run,
        "evidence": evidence,
        "state": FindingState.OPEN,
        "reason": "",
        "set_by": "",
        "set_at": at,
        "decided": False,
        "owner": "",
        "ignored_until": None,
    }
    return new_id(connection, Findings, row)


def set_state(
    connection: Connection,
    finding: int,
    state: FindingState,
    text: str,
    *,
    at: datetime,
    run: int | None = None,
    night: int | None = None,
    by: str = "",
) -> None:
    """Resolve, accept or reopen a finding because of what was measured, and record that as an event.

    An open finding keeps no reason.
    """
    is_open = state is FindingState.OPEN
    values = {"state": state, "reason": "" if is_open else text, "set_by": by, "set_at": at, "ignored_until": None}
    connection.execute(update(Findings).where(Findings.id == finding).values(**values, decided=False))
    put_event(connection, finding, event_of(state), text, run=run, night=night, by=by, at=at)


def event_of(state: FindingState) -> EventKind:
    """Return the event that gives a finding a state."""
    return EventKind.REOPENED if state is FindingState.OPEN else EventKind(state.value)


def put_event(
    connection: Connection,
    finding: int,
    kind: EventKind,
    text: str,
    *,
    at: datetime,
    run: int | None = None,
    night: int | None = None,
    by: str = "",
) -> None:
    """Store an event of a finding: ``run`` or the person ``by`` caused it, or ``night`` noticed an absence."""
    row = {"finding_id": finding, "kind": kind, "run_id": run, "night": night, "done_by": by, "done_at": at}
    row["text"] = text
    connection.execute(insert(FindingEvents).values(row))


def newest_event(connection: Connection) -> int:
    """Return the number of the newest event of any finding; 0 if there is none."""
    return connection.scalar(select(func.max(FindingEvents.id))) or 0


def load_events(
    connection: Connection, *, run: int | None, finding: int | None, night: int | None
) -> list[FindingEvent]:
    """Return the events of a run, of a night, of a finding, or all events, oldest first."""
    where: list[ColumnElement[bool]] = []
    if run is not None:
        where.append(FindingEvents.run_id == run)
    if night is not None:
        where.append(FindingEvents.night == night)
    if finding is not None:
        where.append(FindingEvents.finding_id == finding)
    rows = connection.execute(select(FindingEvents).where(*where).order_by(FindingEvents.id))
    return [from_row(FindingEvent, row, by=row.done_by, at=row.done_at) for row in rows]
