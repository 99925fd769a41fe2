"""Change findings when a person excludes data from judging, includes it again, or deletes a run."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, exists, func, select, text, update

from perfsvc.model import ChangeKind, Direction, EventKind, FindingState, FindingUpdates, Verdict
from perfsvc.store.cases import judged, own_name
from perfsvc.store.findings.read import ACTIVE, KEY, put_event
from perfsvc.store.schema.engine import POSTGRESQL, among
from perfsvc.store.schema.judging_tables import FindingCases, FindingEvents, Findings, Verdicts
from perfsvc.store.schema.tables import Cases, Runs

BEGINNINGS = (EventKind.RAISED, EventKind.JOINED, EventKind.STEP)
"""The events with which a series begins in a finding."""
_SHOWN_BY = {
    Direction.BROKEN: Verdict.BROKEN,
    Direction.SLOWER: Verdict.REGRESSION,
    Direction.FASTER: Verdict.IMPROVEMENT,
}


def lock(connection: Connection) -> None:
    """Let only this transaction change findings until it ends.

    Otherwise runs on two hosts could each raise a finding for the same root cause.
    """
    if connection.dialect.name == POSTGRESQL:  # SQLite has one writer at a time anyway
        connection.execute(text("LOCK TABLE findings IN SHARE ROW EXCLUSIVE MODE"))


@dataclass(frozen=True, slots=True)
class Act:
    """Who excludes or includes which data of a run: some cases by their ids, or with None the whole run."""

    run: int
    cases: Collection[int] | None
    by: str
    at: datetime


def release(connection: Connection, act: Act, reason: str) -> FindingUpdates:
    """Take data that has just been excluded out of the active findings, and return which findings this changes.

    - If the newest run that shows the change of a series was excluded, the newest earlier run that shows this change
      counts instead. If there is no such run, or if the baseline was excluded, the series leaves the finding: the
      series is marked as recovered in the excluded run.
    - A finding that all series have left is resolved with the reason of the exclusion.
    - A series that recovered in the excluded run is marked as not recovered, and its finding is reopened if resolved.
    - If the excluded run had brought a series into its finding, the series begins with the next run that shows it. A
      finding that the excluded run had raised begins later as well, and its evidence says so.
    """
    run, cases = act.run, act.cases
    excluded = f"run {run} is excluded: {reason}"
    reopened = _unrecover(connection, act, f"it had recovered in run {run}, which is excluded: {reason}")
    touched: set[int] = set()
    evidence = (FindingCases.baseline_run_id == run) | (FindingCases.last_run_id == run)
    active = (Findings.state.in_(ACTIVE), FindingCases.recovered_run_id.is_(None))
    for row in _rows(connection, cases, evidence, *active):
        earlier = None if row.baseline_run_id == run else _newest_showing(connection, row)
        values = {"recovered_run_id": run} if earlier is None else _as_shown(earlier, row)
        _change(connection, row, **values)
        touched.add(row.finding_id)
    for row in _rows(connection, cases, FindingCases.level_run_id == run, FindingCases.last_run_id != run):
        _change(connection, row, level_run_id=row.last_run_id)
    _begin_later(connection, act, reason, touched)
    for finding in touched:
        shown = select(func.max(FindingCases.last_run_id)).where(
            FindingCases.finding_id == finding, FindingCases.recovered_run_id.is_(None)
        )
        last = connection.scalar(shown)
        if last is not None:
            connection.execute(update(Findings).where(Findings.id == finding).values(last_run_id=last))
            put_event(connection, finding, EventKind.COMMENTED, excluded, by=act.by, at=act.at)
        else:
            _set_state(connection, finding, FindingState.RESOLVED, excluded, act)
    resolved = {finding for finding in touched if _state(connection, finding) is FindingState.RESOLVED}
    return FindingUpdates(resolved=tuple(sorted(resolved)), reopened=tuple(sorted(reopened - resolved)))


def restore(connection: Connection, act: Act, since: datetime) -> FindingUpdates:
    """Return series to the findings that they left when their data was excluded; return which findings are reopened.

    If another finding took in a series since then, the series stays there, and an event of the old finding says so.

    Args:
        connection: a transaction.
        act: the data that is included again, and by whom.
        since: when this data was excluded.
    """
    reopened = _unrecover(connection, act, f"run {act.run} is included again", since)
    _begin_again(connection, act)
    return FindingUpdates(reopened=tuple(sorted(reopened)))


def forget(connection: Connection, run: int) -> tuple[int, ...]:
    """Remove a run from the findings that do not need it, and return the findings that this deletes.

    A series that only this run showed is removed, and a finding without any series left is deleted. If a series of an
    accepted finding had recovered in this run, the series counts as recovered in the next run, because a person accepts
    only the levels of series that have not recovered.
    """
    following = select(func.min(Runs.id)).where(Runs.id > run).scalar_subquery()
    accepted = select(Findings.id).where(Findings.state == FindingState.ACCEPTED)
    recovered = (FindingCases.recovered_run_id == run, FindingCases.finding_id.in_(accepted))
    stays = update(FindingCases).where(*recovered)
    connection.execute(stays.values(recovered_run_id=func.coalesce(following, FindingCases.last_run_id)))
    connection.execute(delete(FindingCases).where(FindingCases.last_run_id == run))
    numbers = connection.scalars(
        select(Findings.id).where((Findings.first_run_id == run) | (Findings.last_run_id == run))
    ).all()
    deleted = []
    for finding in sorted(numbers):
        last = connection.scalar(select(func.max(FindingCases.last_run_id)).where(FindingCases.finding_id == finding))
        if last is None:
            connection.execute(delete(Findings).where(Findings.id == finding))
            deleted.append(finding)
            continue
        first = connection.scalar(
            select(func.min(FindingEvents.run_id)).where(
                FindingEvents.finding_id == finding, FindingEvents.run_id != run
            )
        )
        values = {"last_run_id": last}
        if connection.scalar(select(Findings.first_run_id).where(Findings.id == finding)) == run:
            values["first_run_id"] = last if first is None else min(first, last)
        connection.execute(update(Findings).where(Findings.id == finding).values(values))
    return tuple(deleted)


# --- where findings begin --------------------------------------------------------------------------------------------


def _begin_later(connection: Connection, act: Act, reason: str, touched: Collection[int]) -> None:
    """Let each series that the excluded data brought into a finding begin with the next run that shows its change.

    A finding that changes here gets an event, unless it is ``touched``: then it already has an event.
    """
    begun = (FindingCases.first_run_id == act.run, FindingCases.recovered_run_id.is_(None))
    rows = _rows(connection, act.cases, *begun, Findings.state.in_(ACTIVE))
    for row in rows:
        first = _first_showing(connection, row, act.run)
        root_cause = _ending_with(connection, row.root_cause, act.run, first)
        _change(connection, row, first_run_id=first, root_cause=root_cause)
    for number in dict.fromkeys(row.finding_id for row in rows):
        finding = connection.execute(select(Findings).where(Findings.id == number)).one()
        standing = (FindingCases.finding_id == number, FindingCases.recovered_run_id.is_(None))
        first = connection.scalar(select(func.min(FindingCases.first_run_id)).where(*standing))
        event = f"run {act.run} is excluded: {reason}"
        if finding.first_run_id == act.run and first is not None and first != act.run:
            values = {
                "first_run_id": first,
                "root_cause": _ending_with(connection, finding.root_cause, act.run, first),
                "evidence": f"run {first} shows it too; {_raised_by(act.run)} is excluded ({reason}), "
                "so what it measured does not count",
            }
            connection.execute(update(Findings).where(Findings.id == number).values(values))
            event += f"; run {first} is now the first that shows the finding"
        if number not in touched:
            put_event(connection, number, EventKind.COMMENTED, event, by=act.by, at=act.at)


def _begin_again(connection: Connection, act: Act) -> None:
    """Make a run that is included again the first run of the series and findings that it had been the first to show."""
    events = connection.execute(select(FindingEvents).where(FindingEvents.run_id == act.run)).all()
    brought = {event.finding_id for event in events if event.kind in BEGINNINGS}
    later = (FindingCases.first_run_id > act.run, FindingCases.recovered_run_id.is_(None))
    for row in _rows(connection, act.cases, *later, FindingCases.finding_id.in_(brought)):
        if _first_showing(connection, row, act.run - 1) == act.run:
            root_cause = _ending_with(connection, row.root_cause, row.first_run_id, act.run)
            _change(connection, row, first_run_id=act.run, root_cause=root_cause)
    for event in events:
        finding = connection.execute(select(Findings).where(Findings.id == event.finding_id)).one()
        if event.kind is EventKind.RAISED and _raised_by(act.run) in finding.evidence:
            root_cause = _ending_with(connection, finding.root_cause, finding.first_run_id, act.run)
            values = {"first_run_id": act.run, "evidence": event.text, "root_cause": root_cause}
            connection.execute(update(Findings).where(Findings.id == finding.id).values(values))


def _raised_by(run: int) -> str:
    return f"run {run}, which raised the finding,"


def _first_showing(connection: Connection, row: Any, after: int) -> int:
    """Return the first run after ``after`` that shows a row's change and is not excluded; else the row's last run."""
    query = _verdicts_showing(row).where(Verdicts.run_id > after, Verdicts.run_id <= row.last_run_id)
    first = connection.execute(query.order_by(Verdicts.run_id).limit(1)).first()
    return int(row.last_run_id if first is None else first.run_id)


def _ending_with(connection: Connection, root_cause: str, old: int, new: int) -> str:
    """Return a root cause that names run ``new``, by its commit or number, where it named run ``old``."""
    rows = connection.execute(select(Runs.id, Runs.git_commit).where(Runs.id.in_([old, new])))
    commits: dict[int, str] = {row.id: row.git_commit for row in rows}
    before, after = commits.get(old, "")[:9], commits.get(new, "")[:9]
    if before and after and root_cause.endswith(before) and not root_cause.startswith(after):
        return root_cause.removesuffix(before) + after
    return f"the code of run {new}" if root_cause == f"the code of run {old}" else root_cause


# --- what they share -------------------------------------------------------------------------------------------------


def _rows(connection: Connection, cases: Collection[int] | None, *where: Any) -> list[Any]:
    """Return the ``finding_cases`` rows that meet some conditions.

    ``cases`` limits the rows to some cases under any of their names; None means all cases.
    """
    query = (
        select(
            FindingCases,
            Findings.state,
            Findings.set_by,
            Cases.name,
            Cases.lineage_id,
            own_name(FindingCases.last_run_id),
        )
        .join(Findings, Findings.id == FindingCases.finding_id)
        .join(Cases, Cases.id == FindingCases.case_id)
        .where(*where)
        .order_by(FindingCases.finding_id, FindingCases.case_id)
    )
    if cases is not None:
        lineages = select(Cases.lineage_id).where(among(Cases.id, cases))
        query = query.where(FindingCases.case_id.in_(select(Cases.id).where(Cases.lineage_id.in_(lineages))))
    return list(connection.execute(query))


def _newest_showing(connection: Connection, row: Any) -> Any | None:
    """Return the newest verdict before a row's last run that shows the row's change and is not excluded; else None."""
    query = _verdicts_showing(row).where(Verdicts.run_id >= (row.first_run_id or 0), Verdicts.run_id < row.last_run_id)
    return connection.execute(query.order_by(Verdicts.run_id.desc()).limit(1)).first()


def _verdicts_showing(row: Any) -> Any:
    """Return a query of the verdicts that show the change of a row and are not excluded.

    If the change comes from an alert, no verdict reports the change. Then every verdict on the series counts.
    """
    lineage = select(Cases.lineage_id).where(Cases.id == row.case_id)
    query = (
        select(Verdicts)
        .where(Verdicts.case_id.in_(select(Cases.id).where(Cases.lineage_id.in_(lineage))))
        .where(
            Verdicts.device_id == row.device_id,
            Verdicts.metric == row.metric,
            Verdicts.cache == row.cache,
            judged(Verdicts.run_id, Verdicts.case_id),
        )
    )
    if row.change in {ChangeKind.FAILURE, ChangeKind.REGRESSION, ChangeKind.AGAIN}:
        query = query.where(Verdicts.verdict == _SHOWN_BY[row.direction])
    return query


def _as_shown(verdict: Any, row: Any) -> dict[str, Any]:
    """Return the columns that change in a row of a finding when an earlier verdict becomes its newest evidence.

    A verdict compares with the baseline, not with the level before a further step. A further step therefore gets the
    ratio of the two levels, without an interval.
    """
    shown = {"last_run_id": verdict.run_id, "candidate_s": verdict.candidate_s}
    if row.step == 1:
        return shown | {name: getattr(verdict, name) for name in ("ratio", "low", "high")}
    ratio = verdict.candidate_s / row.baseline_s if verdict.candidate_s and row.baseline_s else None
    return shown | {"ratio": ratio, "low": None, "high": None}


def _change(connection: Connection, row: Any, **values: Any) -> None:
    key = {name: getattr(row, name) for name in KEY}
    connection.execute(update(FindingCases).filter_by(**key).values(values))


def _unrecover(connection: Connection, act: Act, text: str, since: datetime | None = None) -> set[int]:
    """Mark the series that recovered in a run as not recovered; return the resolved findings that this reopens.

    A series stays recovered if another finding holds it now, or if a person has resolved or accepted its finding.
    ``since`` is when the data was excluded, if the data is now included again; None if the data is now excluded.
    """
    reopened: set[int] = set()
    stays: dict[tuple[int, str, int], None] = {}
    for row in _rows(connection, act.cases, FindingCases.recovered_run_id == act.run):
        if row.state not in ACTIVE and not _by_run_or_exclusion(connection, row, act.run):
            continue
        holder = _holder(connection, row, since)
        if holder is not None:
            stays[row.finding_id, row.name, holder] = None
            continue
        _change(connection, row, recovered_run_id=None)
        if row.state is FindingState.RESOLVED:
            reopened.add(row.finding_id)
    for finding in reopened:
        _set_state(connection, finding, FindingState.OPEN, text, act)
    for finding, name, holder in stays if since else ():
        held = f"{text}; {name} stands in finding {holder}"
        put_event(connection, finding, EventKind.COMMENTED, held, by=act.by, at=act.at)
    return reopened


def _by_run_or_exclusion(connection: Connection, row: Any, run: int) -> bool:
    """Return whether the finding of a row is resolved because its series recovered or because ``run`` was excluded.

    Return False if a person resolved the finding.
    """
    if row.state is not FindingState.RESOLVED:
        return False
    reason = connection.scalar(select(Findings.reason).where(Findings.id == row.finding_id)) or ""
    return not row.set_by or reason.startswith(f"run {run} is excluded: ")


def _holder(connection: Connection, row: Any, since: datetime | None) -> int | None:
    """Return the finding that holds a row's change instead of the row; None if there is none.

    This is another active finding with the same step of the series. If the row's data was excluded at ``since`` and is
    now included again, a finding that took in the series since then counts too, with any step and even if a person
    accepted it: without the excluded data, the steps were numbered differently.
    """
    elsewhere = FindingCases.finding_id != row.finding_id
    holds = elsewhere & (FindingCases.step == row.step) & Findings.state.in_(ACTIVE)
    if since:
        began = exists().where(
            FindingEvents.finding_id == FindingCases.finding_id,
            FindingEvents.run_id == FindingCases.first_run_id,
            FindingEvents.kind.in_(BEGINNINGS),
            FindingEvents.done_at > since,
        )
        stands = Findings.state.in_([*ACTIVE, FindingState.ACCEPTED]) & FindingCases.recovered_run_id.is_(None)
        holds |= began & stands & (elsewhere | (FindingCases.step != row.step))
    name = own_name(FindingCases.last_run_id)
    series = [getattr(FindingCases, key) == getattr(row, key) for key in ("device_id", "metric", "cache", "direction")]
    query = (
        select(FindingCases.finding_id)
        .join(Findings, Findings.id == FindingCases.finding_id)
        .join(Cases, Cases.id == FindingCases.case_id)
        .where(*series, Cases.lineage_id == row.lineage_id, name == row.own_name, holds)
        .order_by(FindingCases.finding_id.desc())
    )
    return connection.scalar(query.limit(1))


def _state(connection: Connection, finding: int) -> FindingState:
    return connection.execute(select(Findings.state).where(Findings.id == finding)).scalar_one()


def _set_state(connection: Connection, finding: int, state: FindingState, text: str, act: Act) -> None:
    """Resolve or reopen a finding because of an exclusion; an open finding keeps no reason."""
    resolved = state is FindingState.RESOLVED
    values = {
        "state": state,
        "reason": text if resolved else "",
        "set_by": act.by,
        "set_at": act.at,
        "ignored_until": None,
    }
    connection.execute(update(Findings).where(Findings.id == finding).values(values))
    put_event(connection, finding, EventKind.RESOLVED if resolved else EventKind.REOPENED, text, by=act.by, at=act.at)


def needing(connection: Connection, run: int, cases: Iterable[int] | None, *states: FindingState) -> list[Any]:
    """Return a row for each series whose baseline or newest evidence is ``run``, if its finding has one of ``states``.

    The columns are the number and the state of the finding, the name of the case, and the last run that shows the
    change of the series.
    """
    on_a_side = (FindingCases.last_run_id == run) | (FindingCases.baseline_run_id == run)
    query = (
        select(Findings.id, Findings.state, Cases.name, FindingCases.last_run_id)
        .join(FindingCases, FindingCases.finding_id == Findings.id)
        .join(Cases, Cases.id == FindingCases.case_id)
        .where(on_a_side, Findings.state.in_(states), FindingCases.recovered_run_id.is_(None))
        .order_by(Findings.id, Cases.id)
    )
    if cases is not None:
        lineages = select(Cases.lineage_id).where(among(Cases.id, list(cases)))
        query = query.where(Cases.lineage_id.in_(lineages))
    return list(connection.execute(query))
