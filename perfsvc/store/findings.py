"""Findings: raised from what moved, seen again, recovered from, accepted.

A series is in one finding at a time: as long as that one stands, whatever moves the series the same way is more of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, insert, select, update
from sqlalchemy.orm import aliased

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import Direction, Finding, FindingState, Judgement, Mode, Moved, Series, Suspect
from perfsvc.store.baselines import Key, keys_of
from perfsvc.store.columntypes import number
from perfsvc.store.interning import case_id, case_of, new_id
from perfsvc.store.profiles import Explanations
from perfsvc.store.tables import Cases, Devices, FindingCases, Findings

STANDING = (FindingState.OPEN, FindingState.ACKNOWLEDGED, FindingState.IGNORED)
"""The states in which a finding still speaks for its series: no other is raised of them."""


def raise_finding(connection: Connection, run: int, suspects: Sequence[Suspect], evidence: str) -> list[int]:
    """Raises one finding of suspects that share all but their series; see ``Store.raise_finding``."""
    keys = keys_of(connection, [suspect.series for suspect in suspects])
    held = _held(connection, set(keys.values()), suspects[0].direction)
    known: set[int] = set()
    fresh = []
    for suspect in suspects:
        place = _place_of(held.get(keys[suspect.series], ()), suspect.judgement)
        if place is None:
            fresh.append(suspect)
        else:
            _see_again(connection, run, place, suspect.judgement)
            known.add(place.finding_id)
    raised = [_insert(connection, run, fresh, evidence)] if fresh else []
    return [*sorted(known), *raised]


def _held(connection: Connection, keys: set[Key], direction: Direction) -> Mapping[Key, Sequence[Any]]:
    """The findings of each series that moved it the same way and may still speak for it, newest first."""
    query = (
        select(FindingCases, Findings.state, Findings.device_id, Cases.lineage_id)
        .join(Findings, Findings.id == FindingCases.finding_id)
        .join(Cases, Cases.id == FindingCases.case_id)
        .where(Cases.lineage_id.in_({lineage for lineage, *_ in keys}), Findings.direction == direction)
        .where(Findings.state.in_((*STANDING, FindingState.RESOLVED)))
        .order_by(FindingCases.finding_id.desc())
    )
    held: dict[Key, list[Any]] = defaultdict(list)
    for row in connection.execute(query):
        held[row.lineage_id, row.device_id, row.metric, row.mode].append(row)
    return held


def _place_of(rows: Iterable[Any], judgement: Judgement) -> Any | None:
    """The place of a series in a finding that stands, or in one that it recovered from to the very same level."""
    standing = [row for row in rows if row.state in STANDING or row.baseline_run_id == judgement.baseline_run]
    return next(iter(standing), None)


def _see_again(connection: Connection, run: int, place: Any, judgement: Judgement) -> None:
    """Notes that a run shows what a finding tells; one that was resolved is open again."""
    seen = update(FindingCases).where(*_same_place(place))
    newest = {name: number(getattr(judgement, name)) for name in ("ratio", "low", "high", "candidate_s")}
    connection.execute(seen.values(last_run_id=run, recovered_run_id=None, **newest))
    connection.execute(update(Findings).where(Findings.id == place.finding_id).values(last_run_id=run))
    if place.state is FindingState.RESOLVED:
        _set_state(connection, place.finding_id, FindingState.OPEN)


def _same_place(place: Any) -> tuple[ColumnElement[bool], ...]:
    return (
        FindingCases.finding_id == place.finding_id,
        FindingCases.case_id == place.case_id,
        FindingCases.metric == place.metric,
        FindingCases.mode == place.mode,
    )


def _insert(connection: Connection, run: int, suspects: Sequence[Suspect], evidence: str) -> int:
    first = suspects[0]
    devices = select(Devices.id).where(Devices.uuid == first.series.device)
    row = {
        "cause": first.judgement.cause,
        "shift": first.shift,
        "direction": first.direction,
        "device_id": connection.execute(devices).scalar_one(),
        "first_run_id": run,
        "last_run_id": run,
        "evidence": evidence,
        "state": FindingState.OPEN,
        "reason": "",
        "set_by": "",
        "set_at": datetime.now(UTC),
    }
    finding = new_id(connection, Findings, row)
    moved = [_moved_row(connection, run, finding, suspect.judgement) for suspect in suspects]
    connection.execute(insert(FindingCases), moved)
    return finding


def _moved_row(connection: Connection, run: int, finding: int, judgement: Judgement) -> dict[str, Any]:
    return {
        "finding_id": finding,
        "case_id": case_id(connection, judgement.series.case),
        "metric": judgement.series.metric,
        "mode": judgement.series.mode,
        "ratio": number(judgement.ratio),
        "low": number(judgement.low),
        "high": number(judgement.high),
        "baseline_run_id": judgement.baseline_run,
        "baseline_s": number(judgement.baseline_s),
        "candidate_s": number(judgement.candidate_s),
        "last_run_id": run,
        "recovered_run_id": None,
    }


def recover(connection: Connection, run: int, back: Iterable[tuple[int, Series]]) -> list[int]:
    """Notes which series of which findings are back at their old levels; see ``Store.recover``."""
    places = list(back)
    keys = keys_of(connection, {series for _, series in places})
    lineages: dict[tuple[int, str, Mode], set[int]] = defaultdict(set)
    for finding, series in places:
        if series in keys:
            lineages[finding, series.metric, series.mode].add(keys[series][0])
    for (finding, metric, mode), of_place in lineages.items():
        cases = select(Cases.id).where(Cases.lineage_id.in_(of_place))
        place = (FindingCases.finding_id == finding, FindingCases.metric == metric, FindingCases.mode == mode)
        here = update(FindingCases).where(*place, FindingCases.case_id.in_(cases))
        connection.execute(here.values(recovered_run_id=run))
    touched = {finding for finding, _ in places}
    still = exists().where(FindingCases.finding_id == Findings.id, FindingCases.recovered_run_id.is_(None))
    whole = select(Findings.id).where(Findings.id.in_(touched), ~still, Findings.state.in_(STANDING))
    resolved = sorted(connection.scalars(whole))
    for finding in resolved:
        _set_state(connection, finding, FindingState.RESOLVED, reason=f"back at its old level in run {run}")
    return resolved


def accept(connection: Connection, finding: int, *, reason: str, by: str) -> Finding:
    """Makes where a finding's series are now their level; see ``Store.accept_finding``."""
    found = get(connection, finding)
    if found.state in {FindingState.ACCEPTED, FindingState.RESOLVED}:
        raise UsageError(
            f"finding {finding} is {found.state.value} already: {found.reason}", cure="see the others: perfsvc findings"
        )
    _set_state(connection, finding, FindingState.ACCEPTED, reason=reason, by=by)
    return get(connection, finding)


def _set_state(connection: Connection, finding: int, state: FindingState, *, reason: str = "", by: str = "") -> None:
    values = {"state": state, "reason": reason, "set_by": by, "set_at": datetime.now(UTC)}
    connection.execute(update(Findings).where(Findings.id == finding).values(values))


def get(connection: Connection, finding: int) -> Finding:
    """One finding; raises ``NotMeasuredError`` where there is none."""
    found = findings(connection, Findings.id == finding)
    if not found:
        raise NotMeasuredError(f"there is no finding {finding}", cure="perfsvc findings --all")
    return found[0]


def standing(connection: Connection) -> list[Finding]:
    """Those that still speak for their series, newest first."""
    return findings(connection, Findings.state.in_(STANDING))


def findings(connection: Connection, *where: ColumnElement[bool]) -> list[Finding]:
    """Findings, newest first, each with what it moved under the present names of the cases."""
    query = (
        select(Findings, Devices.uuid, Devices.model)
        .join(Devices, Devices.id == Findings.device_id)
        .where(*where)
        .order_by(Findings.id.desc())
    )
    rows = connection.execute(query).all()
    numbers = {row.id for row in rows}
    moved, why = _moved(connection, numbers), _why(connection, numbers)
    return [_finding(row, moved[row.id], why.get(row.id, "")) for row in rows]


def _why(connection: Connection, numbers: set[int]) -> dict[int, str]:
    """The newest sentence on any of the cases that each finding moved."""
    shown = Explanations.run_id.between(Findings.first_run_id, FindingCases.last_run_id)
    query = (
        select(Findings.id, Explanations.sentence)
        .join(FindingCases, FindingCases.finding_id == Findings.id)
        .join(
            Explanations,
            and_(Explanations.case_id == FindingCases.case_id, Explanations.device_id == Findings.device_id, shown),
        )
        .where(Findings.id.in_(numbers), Explanations.sentence != "")
        .order_by(Explanations.id)
    )
    return {row.id: row.sentence for row in connection.execute(query)}


def _finding(row: Any, moved: Sequence[Moved], why: str) -> Finding:
    return Finding(
        id=row.id,
        cause=row.cause,
        shift=row.shift,
        direction=row.direction,
        device=row.uuid,
        device_model=row.model,
        first_run=row.first_run_id,
        last_run=row.last_run_id,
        state=row.state,
        evidence=row.evidence,
        reason=row.reason,
        by=row.set_by,
        at=row.set_at,
        moved=tuple(moved),
        why=why,
    )


def _moved(connection: Connection, numbers: set[int]) -> Mapping[int, Sequence[Moved]]:
    """What each finding moved."""
    present = aliased(Cases)
    names = (present.benchmark, present.variant, present.point, present.version)
    query = (
        select(FindingCases, *names, Devices.uuid, Devices.model)
        .join(Findings, Findings.id == FindingCases.finding_id)
        .join(Devices, Devices.id == Findings.device_id)
        .join(Cases, Cases.id == FindingCases.case_id)
        .join(present, and_(present.lineage_id == Cases.lineage_id, present.former.is_(False)))
        .where(FindingCases.finding_id.in_(numbers))
        .order_by(FindingCases.finding_id, FindingCases.case_id, FindingCases.metric, FindingCases.mode)
    )
    moved: dict[int, list[Moved]] = defaultdict(list)
    for row in connection.execute(query):
        case = case_of(row.benchmark, row.variant, row.point, row.version)
        moved[row.finding_id].append(_series_moved(row, Series(case, row.uuid, row.model, row.metric, row.mode)))
    return moved


def _series_moved(row: Any, series: Series) -> Moved:
    return Moved(
        series,
        row.ratio,
        row.low,
        row.high,
        baseline_run=row.baseline_run_id,
        baseline_s=row.baseline_s,
        candidate_s=row.candidate_s,
        last_run=row.last_run_id,
        recovered_run=row.recovered_run_id,
    )
