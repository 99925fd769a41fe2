"""Derive findings again when a person excludes data from judging, includes it again, or deletes a run."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, exists, func, or_, select, update

from perfsvc.model import EventKind, FindingState, FindingUpdates
from perfsvc.store.cases import is_judged, reasons_of_exclusion
from perfsvc.store.findings.read import ACTIVE, put_event, set_state
from perfsvc.store.findings.sightings import Columns, derived
from perfsvc.store.schema.engine import among
from perfsvc.store.schema.judging_tables import FindingCases, FindingEvents, Findings, Sightings
from perfsvc.store.schema.tables import Cases, Runs, SeriesRows

BEGINNINGS = (EventKind.RAISED, EventKind.JOINED, EventKind.STEP)
"""The events with which a series begins in a finding."""


@dataclass(frozen=True, slots=True)
class Act:
    """Who excludes or includes which data of a run.

    Attributes:
        run: the run.
        cases: some cases by their ids; None for the whole run.
        by: the person.
        at: the time of the act.
        reason: why the data is excluded; empty if it is included again.
        since: when the data was excluded that is included again; None if it is excluded now.
    """

    run: int
    cases: Collection[int] | None
    by: str
    at: datetime
    reason: str = ""
    since: datetime | None = None

    @property
    def text(self) -> str:
        """The act in words."""
        is_included = f"run {self.run} is included again"
        return is_included if self.since else f"run {self.run} is excluded: {self.reason}"


def derive_again(connection: Connection, act: Act) -> FindingUpdates:
    """Derive the findings again that use data which has just been excluded or included; return what this changes.

    Findings that a person has resolved or accepted stay as they are. For the other findings:

    - Each step follows from the sightings whose run and baseline are not excluded. A step without such a sighting has
      left its finding: it counts as recovered in the excluded run.
    - A finding without a step that stands is resolved, and one that has such a step again is reopened. If another
      finding took in a series since its data was excluded, the series stays there; an event says so.
    - A finding begins with the first run that shows it. If a run that raised a finding is excluded, the evidence of the
      finding says so.
    """
    steps = _steps(connection, act)
    sightings = _judged_sightings(connection, steps)
    elsewhere: dict[tuple[int, str, int], None] = {}
    for step in steps:
        values = derived(sightings[step.id]) or {"recovered_run_id": act.run}
        if step.recovered_run_id is not None and values["recovered_run_id"] is None:
            holder = _holder(connection, step, act.since)
            if holder is not None:
                elsewhere[step.finding_id, step.name, holder] = None
                continue
        first = values.get("first_run_id", step.first_run_id)
        root_cause = _ending_with(connection, step.root_cause, step.first_run_id, first)
        changed = update(FindingCases).where(FindingCases.id == step.id)
        connection.execute(changed.values(**values, root_cause=root_cause))
    resolved, reopened = set(), set()
    for number in dict.fromkeys(step.finding_id for step in steps):
        now = _derive_finding(connection, number, act, [held for held in elsewhere if held[0] == number])
        resolved |= {number} if now is FindingState.RESOLVED else set()
        reopened |= {number} if now is FindingState.OPEN else set()
    return FindingUpdates(resolved=tuple(sorted(resolved)), reopened=tuple(sorted(reopened)))


def _derive_finding(
    connection: Connection, number: int, act: Act, elsewhere: Iterable[tuple[int, str, int]]
) -> FindingState | None:
    """Derive state, runs, root cause and evidence of a finding from its steps; return its state if it changed."""
    finding = connection.execute(select(Findings).where(Findings.id == number)).one()
    has_not_left = is_judged(FindingCases.recovered_run_id, FindingCases.series_id)
    query = select(FindingCases).where(FindingCases.finding_id == number, has_not_left)
    steps = connection.execute(query.order_by(FindingCases.first_run_id, FindingCases.step)).all()
    standing = [step.last_run_id for step in steps if step.recovered_run_id is None]
    event = act.text
    if standing and finding.first_run_id != steps[0].first_run_id:
        first = steps[0].first_run_id
        evidence = _evidence_since(connection, finding, first)
        values = {"first_run_id": first, "root_cause": steps[0].root_cause, "evidence": evidence}
        connection.execute(update(Findings).where(Findings.id == number).values(values))
        event += f"; run {first} is now the first that shows the finding"
    if standing:
        connection.execute(update(Findings).where(Findings.id == number).values(last_run_id=max(standing)))
    if bool(standing) is not (finding.state in ACTIVE):
        state = FindingState.OPEN if standing else FindingState.RESOLVED
        set_state(connection, number, state, act.text, by=act.by, at=act.at)
        return state
    for _, name, holder in elsewhere:
        event += f"; {name} stands in finding {holder}"
    put_event(connection, number, EventKind.COMMENTED, event, by=act.by, at=act.at)
    return None


def forget(connection: Connection, run: int) -> tuple[int, ...]:
    """Remove a run from the findings that do not need it, and return the findings that this deletes.

    A step that only this run showed is removed, and a finding without any step left is deleted. If a series of an
    accepted finding had recovered in this run, the series counts as recovered in the next run, because a person accepts
    only the levels of series that have not recovered.
    """
    following = select(func.min(Runs.id)).where(Runs.id > run).scalar_subquery()
    accepted = select(Findings.id).where(Findings.state == FindingState.ACCEPTED)
    recovered = (FindingCases.recovered_run_id == run, FindingCases.finding_id.in_(accepted))
    stays = update(FindingCases).where(*recovered)
    connection.execute(stays.values(recovered_run_id=func.coalesce(following, FindingCases.last_run_id)))
    connection.execute(delete(FindingCases).where(FindingCases.last_run_id == run))
    later = (Sightings.step_id == FindingCases.id, Sightings.run_id > run, ~Sightings.back)
    next_shown = select(func.min(Sightings.run_id)).where(*later)
    begins_later = update(FindingCases).where(FindingCases.first_run_id == run)
    first = func.coalesce(next_shown.scalar_subquery(), FindingCases.last_run_id)
    connection.execute(begins_later.values(first_run_id=first))
    numbers = connection.scalars(
        select(Findings.id).where((Findings.first_run_id == run) | (Findings.last_run_id == run))
    ).all()
    deleted: list[int] = []
    for finding in sorted(numbers):
        ends = (func.min(FindingCases.first_run_id).label("first"), func.max(FindingCases.last_run_id).label("last"))
        runs = connection.execute(select(*ends).where(FindingCases.finding_id == finding)).one()
        if runs.last is None:
            connection.execute(delete(Findings).where(Findings.id == finding))
            deleted.append(finding)
            continue
        values = {"first_run_id": runs.first, "last_run_id": runs.last}
        connection.execute(update(Findings).where(Findings.id == finding).values(values))
    return tuple(deleted)


def needing(connection: Connection, run: int, cases: Iterable[int] | None, *states: FindingState) -> list[Any]:
    """Return a row for each series whose baseline or newest evidence is ``run``, if its finding has one of ``states``.

    The columns are the number and the state of the finding, the name of the case, and the last run that shows the
    change of the series.
    """
    on_a_side = (FindingCases.last_run_id == run) | (FindingCases.baseline_run_id == run)
    query = (
        select(Findings.id, Findings.state, Cases.name, FindingCases.last_run_id)
        .join(FindingCases, FindingCases.finding_id == Findings.id)
        .join(SeriesRows, SeriesRows.id == FindingCases.series_id)
        .join(Cases, Cases.id == SeriesRows.case_id)
        .where(on_a_side, Findings.state.in_(states), FindingCases.recovered_run_id.is_(None))
        .order_by(Findings.id, Cases.id)
    )
    return list(connection.execute(query if cases is None else query.where(among(Cases.id, list(cases)))))


def _steps(connection: Connection, act: Act) -> list[Any]:
    """Return the steps with a sighting that has the act's data on one side, unless a person has decided on them."""
    uses = select(Sightings.step_id).where((Sightings.run_id == act.run) | (Sightings.baseline_run_id == act.run))
    is_undecided = Findings.state.in_(ACTIVE) | ((Findings.state == FindingState.RESOLVED) & ~Findings.decided)
    query = (
        select(FindingCases, Cases.name, SeriesRows.case_id)
        .join(Findings, Findings.id == FindingCases.finding_id)
        .join(SeriesRows, SeriesRows.id == FindingCases.series_id)
        .join(Cases, Cases.id == SeriesRows.case_id)
        .where(FindingCases.id.in_(uses), is_undecided)
        .order_by(FindingCases.finding_id, SeriesRows.case_id, FindingCases.step)
    )
    return list(connection.execute(query if act.cases is None else query.where(among(Cases.id, list(act.cases)))))


def _judged_sightings(connection: Connection, steps: Iterable[Any]) -> Mapping[int, list[Columns]]:
    """Return the sightings of steps whose data is not excluded, oldest first, by the id of the step."""
    cases = {step.id: step.case_id for step in steps}
    query = select(Sightings).where(among(Sightings.step_id, cases.keys())).order_by(Sightings.run_id)
    excluded = reasons_of_exclusion(connection, None).keys()
    by_step: dict[int, list[Columns]] = defaultdict(list)
    for row in connection.execute(query):
        sides = {(run, of) for run in (row.run_id, row.baseline_run_id) for of in (None, cases[row.step_id])}
        if excluded.isdisjoint(sides):
            by_step[row.step_id].append(row._asdict())
    return by_step


def _evidence_since(connection: Connection, finding: Any, first: int) -> str:
    """Return the evidence of a finding that begins with run ``first`` now.

    A finding that was split off has no event of the run that raised it.
    """
    is_raised = (FindingEvents.finding_id == finding.id, FindingEvents.kind == EventKind.RAISED)
    raised = connection.execute(select(FindingEvents.run_id, FindingEvents.text).where(*is_raised)).first()
    if raised and raised.run_id == first:
        return str(raised.text)
    run = raised.run_id if raised else finding.first_run_id
    reasons = reasons_of_exclusion(connection, {run} if run is not None else ())
    if not reasons:
        return f"run {first} shows it"
    why = f"run {run}, which raised the finding, is excluded ({next(iter(reasons.values()))})"
    return f"run {first} shows it too; {why}, so what it measured does not count"


def _ending_with(connection: Connection, root_cause: str, old: int, new: int) -> str:
    """Return a root cause that names run ``new``, by its commit or number, where it named run ``old``."""
    rows = connection.execute(select(Runs.id, Runs.git_commit).where(Runs.id.in_([old, new])))
    commits: dict[int, str] = {row.id: row.git_commit for row in rows}
    before, after = commits.get(old, "")[:9], commits.get(new, "")[:9]
    if before and after and root_cause.endswith(before) and not root_cause.startswith(after):
        return root_cause.removesuffix(before) + after
    return f"the code of run {new}" if root_cause == f"the code of run {old}" else root_cause


def _holder(connection: Connection, step: Any, since: datetime | None) -> int | None:
    """Return the finding that holds a step's series instead of the step's finding; None if there is none.

    This is another active finding with the same step of the series. If the step's data was excluded at ``since`` and is
    now included again, a finding that took in the series since then counts too, with any step and even if a person
    accepted it: without the excluded data, the steps were numbered differently.
    """
    elsewhere = FindingCases.finding_id != step.finding_id
    holds = elsewhere & (FindingCases.step == step.step) & Findings.state.in_(ACTIVE)
    if since:
        began = exists().where(
            FindingEvents.finding_id == FindingCases.finding_id,
            FindingEvents.run_id == FindingCases.first_run_id,
            FindingEvents.kind.in_(BEGINNINGS),
            FindingEvents.done_at > since,
        )
        stands = Findings.state.in_([*ACTIVE, FindingState.ACCEPTED]) & FindingCases.recovered_run_id.is_(None)
        holds = or_(holds, began & stands & (elsewhere | (FindingCases.step != step.step)))
    series = [FindingCases.series_id == step.series_id, FindingCases.direction == step.direction]
    query = (
        select(FindingCases.finding_id)
        .join(Findings, Findings.id == FindingCases.finding_id)
        .where(*series, holds)
        .order_by(FindingCases.finding_id.desc())
    )
    return connection.scalar(query.limit(1))
