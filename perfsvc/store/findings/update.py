"""Apply what a run shows to findings: recovered series, suspects, further steps, and ignored findings that reopen."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, delete, exists, or_, select, update

from perfsvc.model import (
    FAILURES,
    OF_THE_MACHINE,
    Cause,
    Direction,
    EventKind,
    FindingState,
    FindingUpdates,
    Judgement,
    RootCause,
    Series,
    Suspect,
    evidence_of,
)
from perfsvc.store.cases import is_judged, put_series, series_ids
from perfsvc.store.findings import sightings
from perfsvc.store.findings.read import ACTIVE, CODE, put_event, put_open_finding, series_rows, set_state
from perfsvc.store.findings.sightings import Columns, back, begin, see
from perfsvc.store.schema.engine import among
from perfsvc.store.schema.judging_tables import STEP, FindingCases, Findings, Sightings
from perfsvc.units import some

Recovered = tuple[int, Series, int]
"""The number of a finding, one of its series, and the step that the series has recovered from."""

JOINABLE = (FindingState.OPEN, FindingState.ACKNOWLEDGED)
"""The states of findings that take in more series. A person who ignores a finding ignores only the series it has."""


_UNRECOVERED = exists().where(FindingCases.finding_id == Findings.id, FindingCases.recovered_run_id.is_(None))
"""Whether a finding has a step that has not recovered."""


def update_findings(connection: Connection, shown: "RunFindings") -> FindingUpdates:
    """Apply everything that a run shows to the findings; return the changed findings by kind of change."""
    updates: dict[str, set[int]] = defaultdict(set)
    recovered = set(shown.recovered)
    rows = [
        row
        for row, series in series_rows(connection, {finding for finding, *_ in recovered})
        if (row.finding_id, series, row.step) in recovered and row.last_run_id <= shown.run
    ]
    see(connection, [(row, back(shown.run)) for row in rows])
    updates["resolved"] = _resolve_recovered(connection, shown)
    for cause in shown.causes:
        _add_suspects(connection, shown, cause, updates)
    for cause in shown.steps:
        _add_steps(connection, shown, cause, updates)
    updates["resolved"] |= _resolve_recovered(connection, shown)  # what the code of this run explains
    updates["reopened"] |= _reopen_ignored(connection, shown.run, shown.now)
    return FindingUpdates(**{kind: tuple(sorted(numbers)) for kind, numbers in updates.items()})


@dataclass(frozen=True, slots=True)
class RunFindings:
    """What a run shows about findings.

    Attributes:
        run: the number of the run.
        now: the time of the update.
        recovered: the steps from which series have recovered.
        causes: the suspects of the run, by root cause.
        steps: the series of active findings that moved again, by root cause.
        moved_again: all series of active findings that seem to have moved again, whatever the reason.
        rebased: the series whose next step is judged against this run.
    """

    run: int
    now: datetime
    recovered: Collection[Recovered]
    causes: Collection[RootCause]
    steps: Collection[RootCause]
    moved_again: AbstractSet[Series]
    rebased: AbstractSet[Series]


def _resolve_recovered(connection: Connection, shown: RunFindings) -> set[int]:
    """Resolve the findings of which all series have recovered, and return them; an ignored finding stays ignored."""
    run = shown.run
    of_cases = Findings.cause.not_in((Cause.MISSING, Cause.SLOW_GPU))
    has_recovered = (~_UNRECOVERED, of_cases, Findings.state.in_(ACTIVE), Findings.state != FindingState.IGNORED)
    resolved = connection.execute(select(Findings.id, Findings.cause).where(*has_recovered).order_by(Findings.id)).all()
    for finding in resolved:
        text = "correct again" if finding.cause in FAILURES else "back at its old level"
        set_state(connection, finding.id, FindingState.RESOLVED, f"{text} in run {run}", run=run, at=shown.now)
    return {finding.id for finding in resolved}


def _add_suspects(
    connection: Connection, shown: RunFindings, cause: RootCause, updates: Mapping[str, set[int]]
) -> None:
    """Put the suspects of one root cause into findings; add the findings' numbers to ``updates`` by kind of change."""
    run, now = shown.run, shown.now
    ids = series_ids(connection, [suspect.series for suspect in cause.suspects])
    rows = _rows_by_series(connection, ids.values())
    unassigned: list[Suspect] = []
    by_event: dict[EventKind | None, dict[int, list[Suspect]]] = defaultdict(lambda: defaultdict(list))
    seen: list[tuple[Any, Columns]] = []
    for suspect in cause.suspects:
        of_series = rows[ids.get(suspect.series), suspect.direction]
        of_series, explained = _without_explained(shown, suspect, of_series)
        seen += explained
        row = _row_to_update(of_series, suspect.judgement, cause.root_cause, run)
        if row is None:
            unassigned.append(suspect)
            continue
        if row.cause is Cause.UNCONFIRMED and suspect.judgement.cause is not Cause.UNCONFIRMED:
            _confirm(connection, run, row.finding_id, cause, now)
        event, sighting = _seen_again(shown, row, suspect)
        by_event[event][row.finding_id].append(suspect)
        if sighting:
            seen.append((row, sighting))
    see(connection, seen)
    for finding, suspects in sorted(by_event[EventKind.REOPENED].items()):
        evidence = evidence_of(suspects) or cause.evidence
        set_state(connection, finding, FindingState.OPEN, evidence, run=run, at=now)
        connection.execute(update(Findings).where(Findings.id == finding).values(evidence=evidence))
    for finding, suspects in sorted(by_event[EventKind.JOINED].items()):
        text = f"again, after it was back for a while: {_in_words(suspects, cause)}"
        put_event(connection, finding, EventKind.JOINED, text, run=run, at=now)
    for finding in {finding for findings in by_event.values() for finding in findings}:
        _set_last_run(connection, finding, run)
    updates["reopened"].update(by_event[EventKind.REOPENED])
    updates["joined"].update(by_event[EventKind.JOINED])
    updates["seen"].update(by_event[None].keys() - by_event[EventKind.REOPENED].keys())
    if unassigned:
        if len(unassigned) < len(cause.suspects):
            cause = replace(cause, suspects=tuple(unassigned), evidence=evidence_of(unassigned) or cause.evidence)
        _join_or_raise(connection, shown, cause, updates)


def _rows_by_series(connection: Connection, ids: Iterable[int]) -> dict[tuple[int | None, Direction], list[Any]]:
    """Return the ``finding_cases`` rows of some series by series and direction.

    Rows of active findings come first, and among these the last step that has not recovered. Rows of other findings
    follow, newest finding first. A series that left its finding because its data was excluded has no row.
    """
    query = (
        select(FindingCases, Findings.state, Findings.cause)
        .join(Findings, Findings.id == FindingCases.finding_id)
        .where(among(FindingCases.series_id, set(ids)))
        .where(is_judged(FindingCases.recovered_run_id, FindingCases.series_id))
        .order_by(FindingCases.finding_id.desc(), FindingCases.step.desc())
    )
    rows: dict[tuple[int | None, Direction], list[Any]] = defaultdict(list)
    for row in connection.execute(query):
        rows[row.series_id, row.direction].append(row)
    for of_series in rows.values():
        of_series.sort(key=_standing_first)
    return rows


def _standing_first(row: Any) -> tuple[bool, bool, int]:
    """Return a sort key: active findings first, then steps that have not recovered; among active rows the last step."""
    is_active = row.state in ACTIVE
    return not is_active, row.recovered_run_id is not None, -row.step if is_active else 0


def _row_to_update(rows: Iterable[Any], judgement: Judgement, root_cause: str, run: int) -> Any | None:
    """Return the first row to which a judgement of its series belongs; None if there is none.

    A judgement belongs to a row in three cases:

    - The row's finding is active, and the series has not recovered.
    - The row already shows this run or a later run, whatever the state of its finding is now.
    - The series has recovered, or the finding was resolved, and the finding has the same cause, baseline run and root
      cause. The root cause may differ if a person resolved the finding while the series was still slower.

    If other commits slow a series after its recovery, no row is returned: these commits get a finding of their own.
    """
    for row in rows:
        same_root_cause = row.root_cause == root_cause or row.recovered_run_id is None
        same_change = row.cause is judgement.cause and row.baseline_run_id == judgement.baseline_run and same_root_cause
        stands = row.state in ACTIVE and row.recovered_run_id is None
        if stands or row.last_run_id >= run or (row.state is not FindingState.ACCEPTED and same_change):
            return row
    return None


def _without_explained(
    shown: RunFindings, suspect: Suspect, rows: list[Any]
) -> tuple[list[Any], list[tuple[Any, Columns]]]:
    """Return the rows of a series without those that blame the machine, if its code is the reason now.

    The second result says that such steps are over, if the code explains the same change. It does not if the series was
    slower already because of the machine, and is further slowed by its code: this is another baseline, or a step.
    """
    judgement = suspect.judgement
    if judgement.cause not in CODE or suspect.series in shown.moved_again:
        return rows, []
    standing = [row for row in rows if row.state in ACTIVE and row.recovered_run_id is None]
    of_machine = [row for row in standing if row.cause in OF_THE_MACHINE]
    over = [(row, back(shown.run)) for row in of_machine if row.baseline_run_id == judgement.baseline_run]
    return [row for row in rows if row not in of_machine], over


def _seen_again(shown: RunFindings, row: Any, suspect: Suspect) -> tuple[EventKind | None, Columns | None]:
    """Return the event and the sighting of a step that a run shows again; None for what is not to be recorded.

    The event is ``reopened`` if the finding was resolved, and ``joined`` if the finding is active and the series had
    recovered.
    """
    run, is_active = shown.run, row.state in ACTIVE
    if row.last_run_id > run or (row.last_run_id == run and not is_active):
        return None, None
    if is_active and suspect.series in shown.moved_again:
        return None, None  # the row keeps the level after its step
    is_level = not is_active or suspect.series in shown.rebased
    sighting = sightings.shown(run, suspect.judgement, new_level=is_level)
    if not is_active:
        return EventKind.REOPENED, sighting
    return EventKind.JOINED if row.recovered_run_id not in {None, run} else None, sighting


def _confirm(connection: Connection, run: int, finding: int, cause: RootCause, now: datetime) -> None:
    """Give an unconfirmed finding the cause that a run has found; do nothing if it has a cause already."""
    values = {"cause": cause.cause, "root_cause": cause.root_cause, "evidence": cause.evidence}
    unconfirmed = (Findings.id == finding, Findings.cause == Cause.UNCONFIRMED)
    if connection.execute(update(Findings).where(*unconfirmed).values(values)).rowcount:
        rows = update(FindingCases).where(FindingCases.finding_id == finding, FindingCases.step == 1)
        connection.execute(rows.values(root_cause=cause.root_cause))
        text = ", ".join(filter(None, [cause.cause, cause.root_cause]))
        put_event(connection, finding, EventKind.CONFIRMED, f"{text}: {cause.evidence}", run=run, at=now)


def _set_last_run(connection: Connection, finding: int, run: int) -> None:
    """Store a run as the newest one that shows a finding, unless a newer one is stored."""
    newer = update(Findings).where(Findings.id == finding, Findings.last_run_id < run)
    connection.execute(newer.values(last_run_id=run))


# --- steps -----------------------------------------------------------------------------------------------------------


def _add_steps(connection: Connection, shown: RunFindings, cause: RootCause, updates: Mapping[str, set[int]]) -> None:
    """Add a step for each suspect of one root cause; all of their series are in active findings.

    The step goes into the finding of the previous step, unless only one of the two steps is due to the code.
    Then the step goes into the finding of its own root cause, which may be a new finding.
    """
    run, now = shown.run, shown.now
    ids = series_ids(connection, [suspect.series for suspect in cause.suspects])
    rows = _rows_by_series(connection, ids.values())
    stepped: dict[int, list[tuple[Suspect, int]]] = defaultdict(list)
    elsewhere: list[tuple[Suspect, int]] = []
    for suspect in cause.suspects:
        active = [row for row in rows[ids.get(suspect.series), suspect.direction] if row.state in ACTIVE]
        if stored := next((row for row in active if row.first_run_id == run), None):  # this update is repeated
            if stored.baseline_run_id == suspect.judgement.baseline_run:
                see(connection, [(stored, sightings.shown(run, suspect.judgement))])
            updates["seen"].add(stored.finding_id)
            continue
        before = next((row for row in active if row.recovered_run_id is None), None)
        step = 1 + max((row.step for row in active), default=0)
        if before:
            _end_before(connection, before, suspect.judgement)
        if before and (before.cause in OF_THE_MACHINE) is (cause.cause in OF_THE_MACHINE):
            stepped[before.finding_id].append((suspect, step))
        else:
            elsewhere.append((suspect, step))
    for finding, steps in sorted(stepped.items()):
        new = [(row | {"finding_id": finding}, first) for row, first in _rows(connection, run, cause, steps)]
        for row, _ in new:  # a step of this number may have left the finding with an excluded run
            connection.execute(delete(FindingCases).filter_by(**{name: row[name] for name in STEP}))
        begin(connection, new)
        _set_last_run(connection, finding, run)
        where = f", {cause.root_cause}" if cause.root_cause else ""
        text = f"step {max(step for _, step in steps)}{where}: {_in_words([suspect for suspect, _ in steps], cause)}"
        put_event(connection, finding, EventKind.STEP, text, run=run, at=now)
        updates["stepped"].add(finding)
    if elsewhere:
        others = replace(cause, suspects=tuple(suspect for suspect, _ in elsewhere))
        _join_or_raise(connection, shown, others, updates, [step for _, step in elsewhere])


def _end_before(connection: Connection, row: Any, step: Judgement) -> None:
    """Let a row show its change up to the level that its series' next step left, which may have begun some runs ago."""
    level_run = step.baseline_run
    if level_run is not None and level_run < row.last_run_id and row.baseline_s and step.baseline_s:
        own = replace(
            step,
            ratio=step.baseline_s / row.baseline_s,
            low=None,
            high=None,
            baseline_run=row.baseline_run_id,
            baseline_s=row.baseline_s,
            candidate_s=step.baseline_s,
        )
        connection.execute(delete(Sightings).where(Sightings.step_id == row.id, Sightings.run_id > level_run))
        see(connection, [(row, sightings.shown(level_run, own))])


def _in_words(suspects: Sequence[Suspect], cause: RootCause) -> str:
    """Return a text with the names of some cases of suspects, and their evidence.

    If the suspects have different evidence, the text has the evidence of one suspect.
    """
    cases = some(sorted({suspect.series.case.id for suspect in suspects}))
    evidence = {suspect.evidence for suspect in suspects}
    shared = f"{cases}: {evidence.pop() or cause.evidence}" if len(evidence) == 1 else ""
    return shared or f"{cases}; {evidence_of(suspects) or cause.evidence}"


# --- findings --------------------------------------------------------------------------------------------------------


def _join_or_raise(
    connection: Connection,
    shown: RunFindings,
    cause: RootCause,
    updates: Mapping[str, set[int]],
    steps: Sequence[int] = (),
) -> None:
    """Put suspects that no finding holds into the finding of their root cause, or into a new finding.

    ``steps`` has the number of each suspect's step; empty if each step is a first step.
    """
    run, now = shown.run, shown.now
    numbered = zip(cause.suspects, steps or [1] * len(cause.suspects), strict=True)
    rows = _rows(connection, run, cause, list(numbered))
    finding = _joinable(connection, cause, [row for row, _ in rows])
    if finding is None:
        finding = put_open_finding(connection, cause.cause, cause.root_cause, cause.evidence, at=now, run=run)
        kind, text = EventKind.RAISED, cause.evidence
        updates["raised"].add(finding)
    else:
        if finding == cause.finding and cause.cause is not Cause.UNCONFIRMED:
            _confirm(connection, run, finding, cause, now)
        _set_last_run(connection, finding, run)
        kind, text = EventKind.JOINED, _in_words(cause.suspects, cause)
        updates["joined"].add(finding)
    begin(connection, [(row | {"finding_id": finding}, first) for row, first in rows])
    put_event(connection, finding, kind, text, run=run, at=now)


def _rows(
    connection: Connection, run: int, cause: RootCause, steps: Sequence[tuple[Suspect, int]]
) -> list[tuple[dict[str, Any], Columns]]:
    """Return the new steps of suspects, each with its number, without their finding; and their first sightings."""
    ids = put_series(connection, [suspect.series for suspect, _ in steps])
    return [
        (
            {
                "series_id": ids[suspect.series],
                "step": step,
                "root_cause": cause.root_cause,
                "change": suspect.change,
                "direction": suspect.direction,
            },
            sightings.shown(run, suspect.judgement),
        )
        for suspect, step in steps
    ]


def _joinable(connection: Connection, cause: RootCause, rows: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the finding that new series join, or None; it holds none of these series yet.

    It is the finding that reports the change on another device, else the newest one with the same root cause.
    """
    if not cause.root_cause:
        return None
    new = {row["series_id"] for row in rows}
    same = and_(Findings.cause == cause.cause, Findings.root_cause == cause.root_cause)
    candidates = select(Findings.id).where(or_(Findings.id == cause.finding, same), Findings.state.in_(JOINABLE))
    newest = connection.scalars(candidates.order_by(Findings.id.desc())).all()
    for finding in sorted(newest, key=lambda finding: finding != cause.finding):
        held = select(FindingCases.series_id).where(FindingCases.finding_id == finding)
        if new.isdisjoint(connection.scalars(held)):
            return finding
    return None


def _reopen_ignored(connection: Connection, run: int, now: datetime) -> set[int]:
    """Reopen the findings that were ignored until a time before ``now``, and return their numbers.

    A finding whose series have all recovered meanwhile is resolved instead.
    """
    is_over = (Findings.state == FindingState.IGNORED, Findings.ignored_until <= now)
    of_moved = Findings.cause.not_in((Cause.MISSING, Cause.SLOW_GPU))
    query = select(Findings.id, Findings.ignored_until, (_UNRECOVERED | ~of_moved).label("stands")).where(*is_over)
    reopened = set()
    for finding, until, stands in connection.execute(query.order_by(Findings.id)).all():
        state = FindingState.OPEN if stands else FindingState.RESOLVED
        back = "" if stands else ", and its series are back at their old levels"
        set_state(connection, finding, state, f"it was ignored until {until:%Y-%m-%d}{back}", run=run, at=now)
        reopened |= {finding} if stands else set()
    return reopened
