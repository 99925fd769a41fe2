"""Load findings and their events, and update them with what a run shows."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, exists, insert, select, update

from perfsvc.errors import NotMeasuredError
from perfsvc.model import (
    TIME,
    Cause,
    Direction,
    EventKind,
    Finding,
    FindingEvent,
    FindingState,
    FindingUpdates,
    Judgement,
    MovedSeries,
    RootCause,
    Series,
    Suspect,
    evidence_of,
)
from perfsvc.store.cases import SeriesKey, case_id, device_id, own_name, series_keys, series_of, with_series
from perfsvc.store.schema.code_tables import Explanations
from perfsvc.store.schema.column_types import number
from perfsvc.store.schema.engine import new_id
from perfsvc.store.schema.judging_tables import FindingCases, FindingEvents, Findings
from perfsvc.store.schema.tables import Cases

ACTIVE = (FindingState.OPEN, FindingState.ACKNOWLEDGED, FindingState.IGNORED)
"""A series with a finding in one of these states gets no second finding in the same direction."""

KEY = ("finding_id", "case_id", "device_id", "metric", "cache")
"""The primary key of ``finding_cases``."""

JOINABLE = (FindingState.OPEN, FindingState.ACKNOWLEDGED)
"""The states of findings that take in more series. A person who ignores a finding ignores only the series it has."""


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
    sentences = _sentences(connection, numbers)
    moved: dict[int, list[MovedSeries]] = defaultdict(list)
    for row, series in series_rows(connection, numbers):
        moved[row.finding_id].append(
            MovedSeries(
                series,
                row.ratio,
                row.low,
                row.high,
                baseline_run=row.baseline_run_id,
                baseline_s=row.baseline_s,
                candidate_s=row.candidate_s,
                last_run=row.last_run_id,
                recovered_run=row.recovered_run_id,
                change=row.change,
                direction=row.direction,
                why=sentences.get((row.finding_id, row.case_id, row.device_id), "") if row.metric == TIME else "",
            )
        )
    return [
        Finding(
            id=finding.id,
            cause=finding.cause,
            root_cause=finding.root_cause,
            first_run=finding.first_run_id,
            last_run=finding.last_run_id,
            state=finding.state,
            evidence=finding.evidence,
            reason=finding.reason,
            by=finding.set_by,
            at=finding.set_at,
            moved=tuple(moved[finding.id]),
            owner=finding.owner,
            ignored_until=finding.ignored_until,
        )
        for finding in findings
    ]


def series_rows(connection: Connection, numbers: Collection[int]) -> list[tuple[Any, Series]]:
    """Return the ``finding_cases`` rows of some findings, each with its series under the present name of its case."""
    query = with_series(FindingCases, FindingCases.last_run_id).where(FindingCases.finding_id.in_(numbers))
    in_order = query.order_by(*(getattr(FindingCases, name) for name in KEY))
    return [(row, series_of(row)) for row in connection.execute(in_order)]


def _sentences(connection: Connection, numbers: Collection[int]) -> dict[tuple[int, int, int], str]:
    """Return the newest explanation of each case by the ids of finding, case and device; absent if there is none."""
    of_finding = and_(
        Explanations.case_id == FindingCases.case_id,
        Explanations.device_id == FindingCases.device_id,
        Explanations.run_id.between(Findings.first_run_id, FindingCases.last_run_id),
    )
    query = (
        select(Findings.id, Explanations.case_id, Explanations.device_id, Explanations.sentence)
        .join(FindingCases, FindingCases.finding_id == Findings.id)
        .join(Explanations, of_finding)
        .where(Findings.id.in_(numbers), Explanations.sentence != "")
        .order_by(Explanations.id)
    )
    return {(row.id, row.case_id, row.device_id): row.sentence for row in connection.execute(query)}


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
    return [
        FindingEvent(row.id, row.finding_id, row.kind, row.run_id, row.done_by, row.done_at, row.text, night=row.night)
        for row in rows
    ]


# --- what a run shows ------------------------------------------------------------------------------------------------


def update_findings(
    connection: Connection,
    run: int,
    recovered: Iterable[tuple[int, Series]],
    causes: Iterable[RootCause],
    now: datetime,
) -> FindingUpdates:
    """Apply everything that a run shows to the findings; see ``FindingStore.update``."""
    updates: dict[str, set[int]] = defaultdict(set)
    updates["resolved"] = _resolve_recovered(connection, run, set(recovered), now)
    for cause in causes:
        _add_suspects(connection, run, cause, now, updates)
    updates["reopened"] |= _reopen_ignored(connection, run, now)
    return FindingUpdates(**{kind: tuple(sorted(numbers)) for kind, numbers in updates.items()})


def _resolve_recovered(connection: Connection, run: int, recovered: set[tuple[int, Series]], now: datetime) -> set[int]:
    """Mark series as recovered and return the findings that this resolves."""
    rows = [
        {f"key_{name}": getattr(row, name) for name in KEY}
        for row, series in series_rows(connection, {finding for finding, _ in recovered})
        if (row.finding_id, series) in recovered
    ]
    if rows:
        key = (getattr(FindingCases, name) == bindparam(f"key_{name}") for name in KEY)
        mark = update(FindingCases).where(*key, FindingCases.last_run_id <= run).values(recovered_run_id=run)
        connection.execute(mark, rows)
    unrecovered = exists().where(FindingCases.finding_id == Findings.id, FindingCases.recovered_run_id.is_(None))
    has_recovered = (~unrecovered, Findings.cause != Cause.MISSING, Findings.state.in_(ACTIVE))
    resolved = connection.scalars(select(Findings.id).where(*has_recovered)).all()
    for finding in sorted(resolved):
        _set_state(connection, finding, FindingState.RESOLVED, f"back at its old level in run {run}", run=run, now=now)
    return set(resolved)


def _add_suspects(
    connection: Connection, run: int, cause: RootCause, now: datetime, updates: Mapping[str, set[int]]
) -> None:
    """Put the suspects of one root cause into findings, and the findings' numbers into ``updates``."""
    keys = series_keys(connection, [suspect.series for suspect in cause.suspects], run)
    rows = _rows_by_series(connection, {key.lineage for key in keys.values()})
    unassigned: list[Suspect] = []
    reopened: dict[int, list[Suspect]] = defaultdict(list)
    seen: set[int] = set()
    for suspect in cause.suspects:
        key = keys.get(suspect.series)
        row = _row_to_update(rows[key, suspect.direction] if key else (), suspect.judgement, run)
        if row is None:
            unassigned.append(suspect)
        elif _see_again(connection, run, row, suspect.judgement):
            reopened[row.finding_id].append(suspect)
        else:
            seen.add(row.finding_id)
    for finding in sorted(reopened):
        evidence = evidence_of(reopened[finding]) or cause.evidence
        _set_state(connection, finding, FindingState.OPEN, evidence, run=run, now=now)
    updates["reopened"].update(reopened)
    updates["seen"].update(seen - reopened.keys())
    if unassigned:
        left = replace(cause, suspects=tuple(unassigned), evidence=evidence_of(unassigned) or cause.evidence)
        _join_or_raise(connection, run, left, now, updates)


def _rows_by_series(connection: Connection, lineages: Collection[int]) -> dict[tuple[SeriesKey, Direction], list[Any]]:
    """Return the ``finding_cases`` rows of some lineages by series and direction, the newest finding first."""
    query = (
        select(FindingCases, Findings.state, Findings.cause, Cases.lineage_id, own_name(FindingCases.last_run_id))
        .join(Findings, Findings.id == FindingCases.finding_id)
        .join(Cases, Cases.id == FindingCases.case_id)
        .where(Cases.lineage_id.in_(lineages))
        .order_by(FindingCases.finding_id.desc())
    )
    rows: dict[tuple[SeriesKey, Direction], list[Any]] = defaultdict(list)
    for row in connection.execute(query):
        rows[SeriesKey(row.lineage_id, row.own_name, row.device_id, row.metric, row.cache), row.direction].append(row)
    return rows


def _row_to_update(rows: Iterable[Any], judgement: Judgement, run: int) -> Any | None:
    """Return the first row to which a judgement of its series belongs; None if there is none.

    A judgement belongs to a row if the row's finding is active, if the row already shows this run or a later one
    (whatever the state of its finding is now), or if its finding was resolved and has the same cause and baseline run.
    """
    for row in rows:
        same_change = row.cause is judgement.cause and row.baseline_run_id == judgement.baseline_run
        if row.state in ACTIVE or row.last_run_id >= run or (row.state is FindingState.RESOLVED and same_change):
            return row
    return None


def _see_again(connection: Connection, run: int, row: Any, judgement: Judgement) -> bool:
    """Store that a run shows the change of a row; return True if this reopens a resolved finding."""
    is_active = row.state in ACTIVE
    if row.last_run_id > run or (row.last_run_id == run and not is_active):
        return False
    newest = {name: number(getattr(judgement, name)) for name in ("ratio", "low", "high", "candidate_s")}
    newest |= {"case_id": _case_id(connection, row, judgement.series), "last_run_id": run, "recovered_run_id": None}
    key = {name: getattr(row, name) for name in KEY}
    connection.execute(update(FindingCases).filter_by(**key).values(newest))
    _set_last_run(connection, row.finding_id, run)
    return not is_active


def _case_id(connection: Connection, row: Any, series: Series) -> int:
    """Return the id of a series' case under its name in the run: the name in the row may belong to a new case by now.

    If another row of the finding already has that id, return the id in the row.
    """
    case = case_id(connection, series.case)
    same_row = {name: getattr(row, name) for name in KEY} | {"case_id": case}
    taken = connection.scalar(select(FindingCases.case_id).filter_by(**same_row))
    return int(row.case_id) if taken is not None else case


def _set_last_run(connection: Connection, finding: int, run: int) -> None:
    """Store a run as the newest one that shows a finding, unless a newer one is stored."""
    newer = update(Findings).where(Findings.id == finding, Findings.last_run_id < run)
    connection.execute(newer.values(last_run_id=run))


def _join_or_raise(
    connection: Connection, run: int, cause: RootCause, now: datetime, updates: Mapping[str, set[int]]
) -> None:
    """Put suspects that no finding holds into the finding of their root cause, or into a new one."""
    rows = [_row(connection, run, suspect) for suspect in cause.suspects]
    finding = _joinable(connection, cause, rows)
    if finding is None:
        finding = _insert_finding(connection, run, cause, now)
        kind, text = EventKind.RAISED, cause.evidence
        updates["raised"].add(finding)
    else:
        _set_last_run(connection, finding, run)
        cases = ", ".join(sorted({suspect.series.case.id for suspect in cause.suspects}))
        evidence = {suspect.evidence for suspect in cause.suspects}
        shared = f"{cases}: {evidence.pop() or cause.evidence}" if len(evidence) == 1 else ""
        kind, text = EventKind.JOINED, shared or f"{cases}; {cause.evidence}"
        updates["joined"].add(finding)
    connection.execute(insert(FindingCases), [row | {"finding_id": finding} for row in rows])
    put_event(connection, finding, kind, text, run=run, at=now)


def _row(connection: Connection, run: int, suspect: Suspect) -> dict[str, Any]:
    judgement, series = suspect.judgement, suspect.series
    return {
        "case_id": case_id(connection, series.case),
        "device_id": device_id(connection, series.device),
        "metric": series.metric,
        "cache": series.cache,
        "change": suspect.change,
        "direction": suspect.direction,
        "ratio": number(judgement.ratio),
        "low": number(judgement.low),
        "high": number(judgement.high),
        "baseline_run_id": judgement.baseline_run,
        "baseline_s": number(judgement.baseline_s),
        "candidate_s": number(judgement.candidate_s),
        "last_run_id": run,
        "recovered_run_id": None,
    }


def _joinable(connection: Connection, cause: RootCause, rows: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the newest joinable finding of a root cause that holds none of the series, whatever their direction."""
    if not cause.root_cause:
        return None
    series = ("case_id", "device_id", "metric", "cache")
    new = {tuple(row[name] for name in series) for row in rows}
    candidates = (
        select(Findings.id)
        .where(Findings.cause == cause.suspects[0].judgement.cause, Findings.root_cause == cause.root_cause)
        .where(Findings.state.in_(JOINABLE))
        .order_by(Findings.id.desc())
    )
    for finding in connection.scalars(candidates).all():
        held = select(*(getattr(FindingCases, name) for name in series)).where(FindingCases.finding_id == finding)
        if new.isdisjoint(tuple(row) for row in connection.execute(held)):
            return finding
    return None


def _insert_finding(connection: Connection, run: int, cause: RootCause, now: datetime) -> int:
    row = {
        "cause": cause.suspects[0].judgement.cause,
        "root_cause": cause.root_cause,
        "first_run_id": run,
        "last_run_id": run,
        "evidence": cause.evidence,
        "state": FindingState.OPEN,
        "reason": "",
        "set_by": "",
        "set_at": now,
        "owner": "",
        "ignored_until": None,
    }
    return new_id(connection, Findings, row)


def _reopen_ignored(connection: Connection, run: int, now: datetime) -> set[int]:
    """Reopen the ignored findings whose time is over, and return them."""
    is_over = (Findings.state == FindingState.IGNORED, Findings.ignored_until <= now)
    rows = connection.execute(select(Findings.id, Findings.ignored_until).where(*is_over).order_by(Findings.id)).all()
    for finding, until in rows:
        text = f"it was ignored until {until:%Y-%m-%d}"
        _set_state(connection, finding, FindingState.OPEN, text, run=run, now=now)
    return {finding for finding, _ in rows}


def _set_state(
    connection: Connection, finding: int, state: FindingState, text: str, *, run: int, now: datetime
) -> None:
    """Resolve or reopen a finding because of a run; an open finding keeps no reason."""
    resolved = state is FindingState.RESOLVED
    values = {"state": state, "reason": text if resolved else "", "set_by": "", "set_at": now, "ignored_until": None}
    connection.execute(update(Findings).where(Findings.id == finding).values(values))
    put_event(connection, finding, EventKind.RESOLVED if resolved else EventKind.REOPENED, text, run=run, at=now)
