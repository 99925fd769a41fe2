"""What a person does to a finding, what a comparison of GPUs does, and the bisections of a finding.

An action on only some of a finding's series first splits these series off into a finding of their own.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from statistics import median

from sqlalchemy import Connection, delete, exists, select, update

from perfsvc.errors import UsageError
from perfsvc.model import (
    FAILURES,
    Bisection,
    Cause,
    EventKind,
    Finding,
    FindingState,
    FindingUpdates,
    Measurement,
    Series,
    SlowGpu,
    StoredBisection,
    Trial,
)
from perfsvc.model.codec import encode
from perfsvc.store.findings.read import (
    ACTIVE,
    active,
    event_of,
    get,
    load_events,
    put_event,
    put_open_finding,
    series_rows,
    set_state,
)
from perfsvc.store.schema.column_types import stored
from perfsvc.store.schema.engine import among, new_id
from perfsvc.store.schema.judging_tables import Bisections, Expectations, FindingCases, Findings, Sightings
from perfsvc.units import some


def update_slow_gpus(
    connection: Connection, run: int, slow: Collection[SlowGpu], fast: Mapping[str, str], now: datetime
) -> FindingUpdates:
    """Raise, reopen and resolve the findings about slow GPUs; a repeated call changes nothing.

    Args:
        connection: a transaction that may change findings.
        run: the run.
        slow: the GPUs that are slower than their siblings.
        fast: the GPUs that are as fast as their siblings, by UUID, each with how that is known.
        now: the time of the update.
    """
    updates: dict[str, list[int]] = defaultdict(list)
    findings = connection.execute(select(Findings).where(Findings.cause == Cause.SLOW_GPU).order_by(Findings.id)).all()
    newest = {finding.root_cause.partition(" (")[0]: finding for finding in findings}
    for gpu in slow:
        finding = newest.get(gpu.device)
        if finding is None:
            number = put_open_finding(connection, Cause.SLOW_GPU, gpu.text, gpu.evidence, at=now, run=run)
            put_event(connection, number, EventKind.RAISED, gpu.evidence, run=run, at=now)
            updates["raised"].append(number)
            continue
        values = {"root_cause": gpu.text, "last_run_id": max(run, finding.last_run_id or run)}
        connection.execute(update(Findings).where(Findings.id == finding.id).values(values))
        if finding.state is FindingState.RESOLVED and (finding.last_run_id or 0) < run:
            connection.execute(update(Findings).where(Findings.id == finding.id).values(evidence=gpu.evidence))
            set_state(connection, finding.id, FindingState.OPEN, gpu.evidence, run=run, at=now)
            updates["reopened"].append(finding.id)
        elif finding.state in ACTIVE:
            updates["seen"].append(finding.id)
    for device, reason in fast.items():
        finding = newest.get(device)
        if finding is not None and finding.state is not FindingState.RESOLVED:
            last = max(run, finding.last_run_id or run)
            connection.execute(update(Findings).where(Findings.id == finding.id).values(last_run_id=last))
            set_state(connection, finding.id, FindingState.RESOLVED, reason, run=run, at=now)
            updates["resolved"].append(finding.id)
    return FindingUpdates(**{kind: tuple(sorted(numbers)) for kind, numbers in updates.items()})


def put_bisection(connection: Connection, finding: int, bisection: Bisection) -> None:
    """Add a bisection to a finding that exists; earlier bisections stay."""
    stored = replace(
        bisection,
        proof=bisection.proof and _without_samples(bisection.proof),
        trials=tuple(map(_without_samples, bisection.trials)),
    )
    row = {"finding_id": finding, "answer": encode(stored).decode(), "stored_at": datetime.now(UTC)}
    new_id(connection, Bisections, row)


def load_bisections(connection: Connection, finding: int) -> list[StoredBisection]:
    """Return the bisections of a finding, the newest first; raise ``DatabaseError`` if one of them is damaged."""
    query = select(Bisections).where(Bisections.finding_id == finding).order_by(Bisections.id.desc())
    return [
        StoredBisection(stored(Bisection, row.answer, f"bisection {row.id} of finding {finding}"), row.stored_at)
        for row in connection.execute(query)
    ]


def _without_samples(trial: Trial) -> Trial:
    return replace(trial, baseline=_medians(trial.baseline), candidate=_medians(trial.candidate))


def _medians(measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """Return measurements with their median as their only sample, and without what nobody reads again."""
    return tuple(
        replace(
            measurement,
            samples_s=(median(measurement.samples_s),) if measurement.samples_s else (),
            places_s=(),
            batches=(),
            python=None,
            files={},
        )
        for measurement in measurements
    )


_FROM: Mapping[FindingState, Collection[FindingState]] = {
    FindingState.OPEN: frozenset(FindingState) - {FindingState.OPEN},
    FindingState.ACKNOWLEDGED: {FindingState.OPEN, FindingState.IGNORED},
}
"""The states from which a person may set a state, if not from all active ones."""


@dataclass(frozen=True, slots=True)
class Action:
    """Who acts on which part of a finding.

    Attributes:
        by: the person.
        series: the series of the finding to act on; None for all series.
        step: the last step to act on; None for all steps.
        at: the time of the action.
    """

    by: str
    series: Collection[Series] | None
    step: int | None = None
    at: datetime = field(default_factory=partial(datetime.now, UTC))


def act(
    connection: Connection, number: int, state: FindingState, action: Action, *, reason: str, until: datetime | None
) -> Finding:
    """Set the state of a finding, or of some of its series, which are first split off into a finding of their own.

    Raises ``UsageError`` if a person cannot change the finding from its present state to ``state``.
    """
    finding = get(connection, number)
    if finding.state not in _FROM.get(state, ACTIVE):
        why = f": {finding.reason}" if finding.reason else ""
        cure = f"perfsvc findings {'show' if finding.state in ACTIVE else 'reopen'} {number}"
        raise UsageError(f"finding {number} is {finding.state.value} already{why}", cure=cure)
    if state is FindingState.ACCEPTED and finding.cause in FAILURES:
        what = f"finding {number} is about cases without a correct result: there is no level to accept"
        raise UsageError(what, cure=f"mend the cases; to hear no more of them: perfsvc findings ignore {number}")
    finding = _split(connection, finding, action)
    if state is FindingState.ACCEPTED:
        connection.execute(delete(Expectations).where(Expectations.finding_id == finding.id))
    if state is FindingState.OPEN:
        _prepare_reopening(connection, finding)
    values = {"state": state, "reason": reason, "set_by": action.by, "set_at": action.at, "ignored_until": until}
    connection.execute(update(Findings).where(Findings.id == finding.id).values(**values, decided=True))
    text = "; ".join(filter(None, [reason, f"until {until:%Y-%m-%d}" if until else ""]))
    _record(connection, finding.id, event_of(state), text, action)
    return get(connection, finding.id)


def assign(connection: Connection, number: int, owner: str, action: Action) -> Finding:
    """Set the owner of a finding, or of some of its series, which are first split off into a finding of their own."""
    finding = _split(connection, get(connection, number), action)
    connection.execute(update(Findings).where(Findings.id == finding.id).values(owner=owner))
    _record(connection, finding.id, EventKind.ASSIGNED, owner or "no owner", action)
    return get(connection, finding.id)


def comment(connection: Connection, number: int, text: str, action: Action) -> Finding:
    """Record a comment on a finding, or on some of its series, which are first split off into their own finding."""
    finding = _split(connection, get(connection, number), action)
    _record(connection, finding.id, EventKind.COMMENTED, text, action)
    return finding


def _record(connection: Connection, finding: int, kind: EventKind, text: str, action: Action) -> None:
    put_event(connection, finding, kind, text, by=action.by, at=action.at)


def _prepare_reopening(connection: Connection, finding: Finding) -> None:
    """Mark the recovered series of a resolved finding as not recovered.

    Raises ``UsageError`` if another active finding holds one of these series by now, or if what the finding reports as
    missing is present again or no longer expected.
    """
    is_reported = exists().where(Expectations.finding_id == finding.id)
    if finding.cause is Cause.MISSING and not connection.scalar(select(is_reported)):
        what = f"nothing that finding {finding.id} reports is missing or expected any more"
        raise UsageError(
            what, cure="a night that misses it again raises a new finding; what is expected: perfsvc expect"
        )
    held = {(moved.series, moved.direction, moved.step) for moved in finding.moved}
    for other in active(connection):
        shared = [moved.series.case.id for moved in other.moved if (moved.series, moved.direction, moved.step) in held]
        if other.id != finding.id and shared:
            raise UsageError(f"finding {other.id} holds {shared[0]} by now", cure=f"perfsvc findings show {other.id}")
    if finding.state is FindingState.RESOLVED:
        cases = update(FindingCases).where(FindingCases.finding_id == finding.id)
        connection.execute(cases.values(recovered_run_id=None))
        steps = select(FindingCases.id).where(FindingCases.finding_id == finding.id)
        connection.execute(delete(Sightings).where(Sightings.step_id.in_(steps), Sightings.back))


def _split(connection: Connection, finding: Finding, action: Action) -> Finding:
    """Return the finding that holds exactly the series and steps of an action; split it off if ``finding`` has more.

    Raises ``UsageError`` if ``finding`` holds none of these series and steps.
    """
    if action.series is None and action.step is None:
        return finding
    every_row = series_rows(connection, [finding.id])
    chosen = {series for _, series in every_row} if action.series is None else set(action.series)
    last = max((row.step for row, _ in every_row), default=1) if action.step is None else action.step
    if action.step is not None and action.step not in {row.step for row, _ in every_row}:
        steps = some(sorted({str(row.step) for row, _ in every_row}))
        what = f"finding {finding.id} has no step {action.step}; it has step {steps}"
        raise UsageError(what, cure=f"perfsvc findings show {finding.id}")
    rows = [row for row, series in every_row if series in chosen and row.step <= last]
    if len(rows) == len(every_row):
        return finding
    if not rows:
        has_series = any(series in chosen for _, series in every_row)
        what = f"no step up to {last}" if has_series else "none of these series"
        raise UsageError(f"finding {finding.id} holds {what}", cure=f"perfsvc findings show {finding.id}")
    original = connection.execute(select(Findings).where(Findings.id == finding.id)).mappings().one()
    copy = {**original, "last_run_id": max(row.last_run_id for row in rows)}
    del copy["id"], copy["uid"]
    number = new_id(connection, Findings, copy)
    split = among(FindingCases.id, [row.id for row in rows])
    connection.execute(update(FindingCases).where(split).values(finding_id=number))
    if action.step is not None:
        _describe_by_next_step(connection, finding)
    names = some(sorted({series.case.id for row, series in every_row if series in chosen and row.step <= last}))
    part = names if action.step is None else f"{names} up to step {last}"
    _record(connection, finding.id, EventKind.SPLIT, f"{part} is finding {number} from now on", action)
    _record(connection, number, EventKind.SPLIT, f"{part} was part of finding {finding.id}", action)
    return get(connection, number)


def _describe_by_next_step(connection: Connection, finding: Finding) -> None:
    """Give a finding the root cause, the evidence and the first run of its first remaining step."""
    rows = [row for row, _ in series_rows(connection, [finding.id])]
    first = min(rows, key=lambda row: row.step)
    if first.step == 1:
        return
    steps = [
        event
        for event in load_events(connection, run=None, night=None, finding=finding.id)
        if event.kind is EventKind.STEP
    ]
    evidence = next((event.text for event in steps if event.run == first.first_run_id), finding.evidence)
    values = {"root_cause": first.root_cause, "first_run_id": first.first_run_id or finding.first_run}
    connection.execute(update(Findings).where(Findings.id == finding.id).values(evidence=evidence, **values))
