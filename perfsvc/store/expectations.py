"""Expectations: the hosts, GPUs and cases that nights had, and the findings about those that are missing."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, exists, func, insert, select, update

from perfsvc import units
from perfsvc.model import (
    Absence,
    Cause,
    EventKind,
    Expected,
    ExpectedKind,
    FindingState,
    FindingUpdates,
    RunState,
    Status,
)
from perfsvc.store.cases import judged
from perfsvc.store.findings.read import ACTIVE, lock, put_event, put_open_finding, set_state
from perfsvc.store.rows import CasesInRun
from perfsvc.store.schema.base import from_row, to_row
from perfsvc.store.schema.engine import StorePart
from perfsvc.store.schema.judging_tables import Expectations, Findings
from perfsvc.store.schema.night_tables import Nights
from perfsvc.store.schema.tables import Cases, Devices, Measurements, OverBudgetCases, Runs, SeriesRows

_KEY = ("host", "scope", "kind", "name", "devices")


class ExpectationStore(StorePart):
    """Expectations; each method is one transaction."""

    def of_host(self, host: str | None) -> list[Expected]:
        """Return what is expected of a host, or of all hosts (None).

        The result is sorted by host. Each host comes first, then its GPUs, then its cases, by name.
        """
        where = () if host is None else (Expectations.host == host,)
        with self._database.reading() as connection:
            rows = connection.execute(select(Expectations).where(*where)).all()
        order = ("host", "gpu", "case")
        return sorted(map(_expected, rows), key=lambda row: (row.host, order.index(row.kind), row.name, row.scope))

    def update(
        self,
        seen: Iterable[Expected],
        missing: Iterable[Absence],
        *,
        renamed: Iterable[Expected] = (),
        night: int | None = None,
        now: datetime | None = None,
    ) -> FindingUpdates:
        """Store what is there, raise a finding for each absence, and resolve the findings whose subjects are back.

        If an active finding of any host already reports an absence, the absence joins that finding without an event. If
        the finding about an absence was resolved, the finding is reopened. If only some of a finding's subjects are
        back, the finding stays open, names what is still missing, and gets an event. A repeated call changes nothing.

        Args:
            seen: the things that are present; they replace the stored expectations with the same keys.
            missing: what is expected and not there.
            renamed: cases that have another name by now; the old name is expected no longer.
            night: the night that looked; None for ``perfsvc watchdog``.
            now: the time; by default the current time.
        """
        now = now or datetime.now(UTC)
        with self._database.writing() as connection:
            lock(connection)
            back = _see(connection, seen)
            _forget(connection, renamed)
            updates: dict[str, list[int]] = {"raised": [], "reopened": [], "resolved": []}
            for absence in missing:
                finding, change = _finding_of(connection, absence, night=night, now=now)
                for expected in absence.expected:
                    linked = update(Expectations).filter_by(**_key(expected))
                    connection.execute(linked.values(finding_id=finding))
                _describe(connection, finding, absence)
                if change:
                    updates[change].append(finding)
                elif names := back.get(finding):
                    verb = "is" if len(names) == 1 else "are"
                    text = f"{units.some(names)} {verb} back; still missing: {absence.subject}"
                    put_event(connection, finding, EventKind.RETURNED, text, night=night, at=now)
            where = "" if night is None else f" in night {night}"
            updates["resolved"] += _close_unlinked(connection, f"back{where}", night=night, now=now)
        return FindingUpdates(**{name: tuple(sorted(numbers)) for name, numbers in updates.items()})

    def forget(
        self, forgotten: Collection[Expected], *, by: str, reason: str = "", left: Iterable[Absence] = ()
    ) -> list[int]:
        """Stop expecting some things, on behalf of a person, and return the findings that this accepts.

        Args:
            forgotten: the hosts, GPUs and cases to forget.
            by: the person who forgets them.
            reason: why they are gone.
            left: what is still missing, for each finding that loses only some of its subjects.
        """
        with self._database.writing() as connection:
            lock(connection)
            _forget(connection, forgotten)
            for absence in left:
                for finding in {expected.finding for expected in absence.expected if expected.finding is not None}:
                    _describe(connection, finding, absence)
            accepted = FindingState.ACCEPTED
            reason = reason or "no longer expected"
            return _close_unlinked(connection, reason, state=accepted, by=by, now=datetime.now(UTC))

    # --- what was there ----------------------------------------------------------------------------------------------

    def gpus_of(self, host: str) -> dict[str, str]:
        """Return the models of the GPUs that any run of a host measured on, by UUID; imported runs do not count."""
        measured_here = exists().where(
            Measurements.device_id == Devices.id, Runs.id == Measurements.run_id, Runs.host == host
        )
        is_gpu = (Devices.kind != "cpu", Devices.spec != "")
        query = select(Devices.uuid, Devices.model).where(*is_gpu, measured_here).order_by(Devices.id)
        with self._database.reading() as connection:
            return {row.uuid: row.model for row in connection.execute(query)}

    def cases_of(self, run: int) -> CasesInRun:
        """Return which cases a run measured, skipped or had no budget for, by their present ids."""
        measured = (
            select(
                Cases.name,
                Cases.benchmark,
                Devices.uuid,
                Measurements.status,
                func.min(Measurements.reason).label("reason"),
                Measurements.relative_to,
            )
            .join(Cases, Cases.id == Measurements.case_id)
            .join(Devices, Devices.id == Measurements.device_id)
            .where(Measurements.run_id == run)
            .group_by(Cases.name, Cases.benchmark, Devices.uuid, Measurements.status, Measurements.relative_to)
        )
        over_budget = (
            select(Cases.name)
            .join(SeriesRows, SeriesRows.case_id == Cases.id)
            .join(OverBudgetCases, OverBudgetCases.series_id == SeriesRows.id)
            .where(OverBudgetCases.run_id == run)
        )
        with self._database.reading() as connection:
            rows = connection.execute(measured).all()
            late = set(connection.scalars(over_budget))
        ran: dict[str, set[str]] = {}
        skipped: dict[str, str] = {}
        for row in rows:
            if row.status is Status.SKIPPED:
                skipped[row.name] = row.reason
            else:
                ran.setdefault(row.name, set()).add(row.uuid)
        return CasesInRun(
            measured=ran,
            correct={row.name for row in rows if row.status is Status.OK},
            skipped={name: reason for name, reason in skipped.items() if name not in ran},
            over_budget=late - ran.keys(),
            references={f"{row.benchmark}/{row.relative_to}" for row in rows if row.relative_to},
        )

    def nights_of(self, host: str, scope: str) -> dict[int, int]:
        """Return the nights of a host, each with its run, oldest first.

        Only nights count whose run has the scope ``scope``, is finished and is not excluded.
        """
        query = (
            select(Nights.id, Runs.id)
            .join(Runs, Runs.id == Nights.run_id)
            .where(Nights.host == host, Runs.scope == scope, Runs.state == RunState.FINISHED, judged(Runs.id))
            .order_by(Nights.id)
        )
        with self._database.reading() as connection:
            return dict(connection.execute(query).all())

    def last_nights(self) -> dict[str, tuple[int, datetime]]:
        """Return the newest night of each host and when it began."""
        newest = select(func.max(Nights.id)).group_by(Nights.host)
        query = select(Nights.host, Nights.id, Nights.started_at).where(Nights.id.in_(newest))
        with self._database.reading() as connection:
            return {row.host: (row.id, row.started_at) for row in connection.execute(query)}


def _expected(row: Any) -> Expected:
    """Return a row of ``expectations`` as an ``Expected``."""
    return from_row(Expected, row)


def _key(expected: Expected) -> dict[str, Any]:
    return dict(zip(_KEY, expected.key, strict=True))


def _see(connection: Connection, seen: Iterable[Expected]) -> dict[int, list[str]]:
    """Store what is there, and return the names of returned things, by the finding that reported them as missing.

    An expectation with the same key is replaced.
    """
    rows = {expected.key: to_row(Expectations, expected) | {"finding_id": None} for expected in seen}
    hosts = {host for host, *_ in rows}
    stored: dict[tuple[Any, ...], int] = {}
    back: dict[int, list[str]] = {}
    for row in connection.execute(select(Expectations).where(Expectations.host.in_(hosts)).order_by(Expectations.id)):
        expected = _expected(row)
        stored[expected.key] = row.id
        if expected.key in rows and row.finding_id is not None:
            names = back.setdefault(row.finding_id, [])
            names += [expected.text] if expected.text not in names else []
    known = [row | {"number": stored[key]} for key, row in rows.items() if key in stored]
    new = [row for key, row in rows.items() if key not in stored]
    if known:
        connection.execute(update(Expectations).where(Expectations.id == bindparam("number")), known)
    if new:
        connection.execute(insert(Expectations), new)
    return back


def _forget(connection: Connection, forgotten: Iterable[Expected]) -> None:
    for expected in forgotten:
        connection.execute(delete(Expectations).filter_by(**_key(expected)))


def _finding_of(connection: Connection, absence: Absence, *, night: int | None, now: datetime) -> tuple[int, str]:
    """Return the finding about an absence, and whether it was just ``raised`` or ``reopened``; else an empty text."""
    linked = {expected.finding for expected in absence.expected if expected.finding is not None}
    query = select(Findings.id, Findings.state).where(Findings.id.in_(linked)).order_by(Findings.id.desc())
    known = connection.execute(query).first()
    if known and known.state is FindingState.RESOLVED:
        set_state(connection, known.id, FindingState.OPEN, absence.evidence, night=night, at=now)
        return known.id, "reopened"
    if known:
        return known.id, ""
    if (shared := _shared_finding(connection, absence)) is not None:
        return shared, ""
    number = put_open_finding(connection, Cause.MISSING, absence.subject, absence.evidence, at=now)
    put_event(connection, number, EventKind.RAISED, absence.evidence, night=night, at=now)
    return number, "raised"


def _shared_finding(connection: Connection, absence: Absence) -> int | None:
    """Return the newest active finding that reports the same absence already, from another host, suite or selection.

    Such a finding has an equal subject. It is also about one of the same GPUs or hosts, or about cases of the same
    suite that another host or selection misses. The suite must be the same because two suites may have benchmarks of
    the same name.
    """
    about = (Findings.cause == Cause.MISSING, Findings.root_cause == absence.subject, Findings.state.in_(ACTIVE))
    query = select(Expectations).join(Findings, Findings.id == Expectations.finding_id).where(*about)
    reported: dict[int, list[Expected]] = {}
    for row in connection.execute(query):
        reported.setdefault(row.finding_id, []).append(_expected(row))
    runs = {(expected.host, expected.scope) for expected in absence.expected}
    things = {(expected.kind, expected.name) for expected in absence.expected}
    suites = {expected.suite for expected in absence.expected}

    def is_shared(rows: Collection[Expected]) -> bool:
        """Return whether the rows of a finding are about the same GPU or host, or about the same suite elsewhere."""
        if any(row.kind is not ExpectedKind.CASE for row in rows):
            return any((row.kind, row.name) in things for row in rows)
        elsewhere = runs.isdisjoint((row.host, row.scope) for row in rows)
        return elsewhere and any(row.suite in suites for row in rows)

    return max((number for number, rows in reported.items() if is_shared(rows)), default=None)


def _describe(connection: Connection, finding: int, absence: Absence) -> None:
    """Make a finding describe an absence; keep the finding's text if it also reports another absence."""
    reported = connection.execute(select(Expectations).where(Expectations.finding_id == finding)).all()
    if {_expected(row).key for row in reported} <= {expected.key for expected in absence.expected}:
        values = {"root_cause": absence.subject, "evidence": absence.evidence}
        connection.execute(update(Findings).where(Findings.id == finding).values(**values))


def _close_unlinked(
    connection: Connection,
    reason: str,
    *,
    now: datetime,
    state: FindingState = FindingState.RESOLVED,
    by: str = "",
    night: int | None = None,
) -> list[int]:
    """Resolve or accept the active findings about absences that no expectation refers to; return their numbers."""
    still_missing = exists().where(Expectations.finding_id == Findings.id)
    query = select(Findings.id).where(Findings.cause == Cause.MISSING, Findings.state.in_(ACTIVE), ~still_missing)
    closed = list(connection.scalars(query.order_by(Findings.id)))
    for finding in closed:
        set_state(connection, finding, state, reason, at=now, by=by, night=night)
    return closed
