"""Findings as runs change them: raised from what moved, joined, seen again, recovered from.

A series is in one finding at a time: as long as that one stands, whatever moves the series the same way is more of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, insert, or_, select, update

from perfsvc.model import (
    CacheState,
    Cause,
    Direction,
    EventKind,
    FindingState,
    FindingUpdates,
    Judgement,
    RootCause,
    Series,
    Suspect,
)
from perfsvc.store.baselines import spots_of
from perfsvc.store.cases import case_id, device_id, own_name
from perfsvc.store.findings import events
from perfsvc.store.findings.read import STANDING, places
from perfsvc.store.schema.column_types import number
from perfsvc.store.schema.engine import new_id
from perfsvc.store.schema.judging_tables import FindingCases, Findings
from perfsvc.store.schema.tables import Cases

Held = tuple[tuple[int, int], int, str, CacheState]
"""A series in the database, as ``baselines.spots_of`` tells it: lineage and own name, device, metric, cache state."""

JOINED = (FindingState.OPEN, FindingState.ACKNOWLEDGED)
"""The states of findings that more series of their cause join. What is ignored are cases, and not all that may come."""


def update_findings(
    connection: Connection, run: int, back: Iterable[tuple[int, Series]], blames: Iterable[RootCause], now: datetime
) -> FindingUpdates:
    """All that a run changes of findings; see ``Store.settle_findings``."""
    resolved = recover(connection, run, back, now)
    told = [raise_finding(connection, run, blame, now) for blame in blames]
    over = _end_ignoring(connection, run, now)
    return FindingUpdates(
        _all(one.raised for one in told),
        _all(one.joined for one in told),
        _all([over, *(one.reopened for one in told)]),
        tuple(resolved),
        _all(one.seen for one in told),
    )


def _all(numbers: Iterable[Iterable[int]]) -> tuple[int, ...]:
    return tuple(sorted({one for some in numbers for one in some}))


# --- raising ---------------------------------------------------------------------------------------------------------


def raise_finding(connection: Connection, run: int, blame: RootCause, now: datetime) -> FindingUpdates:
    """Puts suspects of one cause where they belong; see ``Store.raise_finding``."""
    spots = spots_of(connection, [suspect.series for suspect in blame.suspects], run)
    held = _held(connection, set(spots.values()))
    fresh: list[Suspect] = []
    reopened: set[int] = set()
    seen: set[int] = set()
    for suspect in blame.suspects:
        place = _place_of(held.get((spots.get(suspect.series), suspect.direction), ()), suspect.judgement, run)
        if place is None:
            fresh.append(suspect)
        elif _see_again(connection, run, place, suspect.judgement):
            reopened.add(place.finding_id)
        else:
            seen.add(place.finding_id)
    for finding in sorted(reopened):
        _set_open(connection, finding, blame.evidence, run=run, now=now)
    updates = FindingUpdates(reopened=tuple(sorted(reopened)), seen=tuple(sorted(seen - reopened)))
    if not fresh:
        return updates
    joined = _of_origin(connection, blame, fresh)
    if joined is None:
        return replace(updates, raised=(_insert(connection, run, replace(blame, suspects=tuple(fresh)), now),))
    _join(connection, run, joined, replace(blame, suspects=tuple(fresh)), now)
    return replace(updates, joined=(joined,))


def _held(connection: Connection, spots: set[Held]) -> Mapping[tuple[Held | None, Direction], Sequence[Any]]:
    """The places of each series in findings, by where it moved in them, the newest finding first."""
    query = (
        select(FindingCases, Findings.state, Findings.cause, Cases.lineage_id, own_name(FindingCases.last_run_id))
        .join(Findings, Findings.id == FindingCases.finding_id)
        .join(Cases, Cases.id == FindingCases.case_id)
        .where(Cases.lineage_id.in_({lineage for (lineage, _), *_ in spots}))
        .order_by(FindingCases.finding_id.desc())
    )
    held: dict[tuple[Held | None, Direction], list[Any]] = defaultdict(list)
    for row in connection.execute(query):
        spot = ((row.lineage_id, row.own_name), row.device_id, row.metric, row.cache)
        held[spot, row.direction].append(row)
    return held


def _place_of(rows: Iterable[Any], judgement: Judgement, run: int) -> Any | None:
    """The place of a series in the finding that speaks for it.

    That is one that stands, or one of the same cause that it recovered from to the very same level, or one that has
    seen this run or later ones already, whatever became of it since.
    """
    speaking = (
        row
        for row in rows
        if row.state in STANDING
        or row.last_run_id >= run
        or (
            row.state is FindingState.RESOLVED
            and row.cause is judgement.cause
            and row.baseline_run_id == judgement.baseline_run
        )
    )
    return next(speaking, None)


def _see_again(connection: Connection, run: int, place: Any, judgement: Judgement) -> bool:
    """Notes that a run shows what a finding tells, and returns whether that opens a resolved one again."""
    stands = place.state in STANDING
    if place.last_run_id > run or (place.last_run_id == run and not stands):
        return False
    newest = {name: number(getattr(judgement, name)) for name in ("ratio", "low", "high", "candidate_s")}
    case = _case_of(connection, place, judgement.series)
    seen = update(FindingCases).where(*same_place(place))
    connection.execute(seen.values(case_id=case, last_run_id=run, recovered_run_id=None, **newest))
    connection.execute(
        update(Findings).where(Findings.id == place.finding_id, Findings.last_run_id < run).values(last_run_id=run)
    )
    return not stands


def _case_of(connection: Connection, place: Any, series: Series) -> int:
    """The case under the name that the run has, by which a name that was given anew is told from its heir's."""
    case = case_id(connection, series.case)
    if case == place.case_id:
        return case
    names = ("finding_id", "device_id", "metric", "cache")
    beside = exists().where(
        FindingCases.case_id == case, *(getattr(FindingCases, n) == getattr(place, n) for n in names)
    )
    return int(place.case_id) if connection.scalar(select(beside)) else case


def same_place(place: Any) -> tuple[ColumnElement[bool], ...]:
    """That a row is a certain one of what a finding moved."""
    names = ("finding_id", "case_id", "device_id", "metric", "cache")
    return tuple(getattr(FindingCases, name) == getattr(place, name) for name in names)


def _of_origin(connection: Connection, blame: RootCause, fresh: Sequence[Suspect]) -> int | None:
    """The newest finding of the same cause that somebody may still look at, and that tells of none of the series."""
    if not blame.root_cause:
        return None
    devices = {one.series.device: device_id(connection, one.series.device) for one in fresh}
    told = or_(
        *(
            and_(
                FindingCases.case_id == case_id(connection, one.series.case),
                FindingCases.device_id == devices[one.series.device],
                FindingCases.metric == one.series.metric,
                FindingCases.cache == one.series.cache,
            )
            for one in fresh
        )
    )
    query = (
        select(Findings.id)
        .where(Findings.cause == _cause_of(blame), Findings.root_cause == blame.root_cause, Findings.state.in_(JOINED))
        .where(~exists().where(FindingCases.finding_id == Findings.id, told))
        .order_by(Findings.id.desc())
        .limit(1)
    )
    return connection.scalar(query)


def _cause_of(blame: RootCause) -> Cause | None:
    return blame.suspects[0].judgement.cause


def _insert(connection: Connection, run: int, blame: RootCause, now: datetime) -> int:
    row = {
        "cause": _cause_of(blame),
        "root_cause": blame.root_cause,
        "first_run_id": run,
        "last_run_id": run,
        "evidence": blame.evidence,
        "state": FindingState.OPEN,
        "reason": "",
        "set_by": "",
        "set_at": now,
        "owner": "",
        "ignored_until": None,
    }
    finding = new_id(connection, Findings, row)
    _put_moved(connection, run, finding, blame.suspects)
    events.put(connection, [finding], EventKind.RAISED, blame.evidence, run=run, at=now)
    return finding


def _join(connection: Connection, run: int, finding: int, blame: RootCause, now: datetime) -> None:
    _put_moved(connection, run, finding, blame.suspects)
    newer = update(Findings).where(Findings.id == finding, Findings.last_run_id < run)
    connection.execute(newer.values(last_run_id=run))
    names = ", ".join(sorted({suspect.series.case.id for suspect in blame.suspects}))
    events.put(connection, [finding], EventKind.JOINED, f"{names}: {blame.evidence}", run=run, at=now)


def _put_moved(connection: Connection, run: int, finding: int, suspects: Sequence[Suspect]) -> None:
    rows = [_moved_row(connection, run, finding, suspect) for suspect in suspects]
    connection.execute(insert(FindingCases), rows)


def _moved_row(connection: Connection, run: int, finding: int, suspect: Suspect) -> dict[str, Any]:
    judgement, series = suspect.judgement, suspect.series
    return {
        "finding_id": finding,
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


# --- recovering ------------------------------------------------------------------------------------------------------


def recover(connection: Connection, run: int, back: Iterable[tuple[int, Series]], now: datetime) -> list[int]:
    """Notes which series of which findings are back at their old levels; see ``Store.recover``."""
    wanted = set(back)
    cases: dict[tuple[int, int, str, CacheState], list[int]] = defaultdict(list)
    for row, series in places(connection, {finding for finding, _ in wanted}):
        if (row.finding_id, series) in wanted:
            cases[row.finding_id, row.device_id, row.metric, row.cache].append(row.case_id)
    for (finding, device, metric, cache), of_place in cases.items():
        here = (
            FindingCases.finding_id == finding,
            FindingCases.device_id == device,
            FindingCases.metric == metric,
            FindingCases.cache == cache,
            FindingCases.case_id.in_(of_place),
            FindingCases.last_run_id <= run,
        )
        connection.execute(update(FindingCases).where(*here).values(recovered_run_id=run))
    still = exists().where(FindingCases.finding_id == Findings.id, FindingCases.recovered_run_id.is_(None))
    resolved = sorted(connection.scalars(select(Findings.id).where(~still, Findings.state.in_(STANDING))))
    said = f"back at its old level in run {run}"
    values = {"state": FindingState.RESOLVED, "reason": said, "set_by": "", "set_at": now, "ignored_until": None}
    connection.execute(update(Findings).where(Findings.id.in_(resolved)).values(values))
    events.put(connection, resolved, EventKind.RESOLVED, said, run=run, at=now)
    return resolved


# --- ignoring --------------------------------------------------------------------------------------------------------


def _end_ignoring(connection: Connection, run: int, now: datetime) -> list[int]:
    """Opens the findings again whose time of being ignored is over."""
    over = (Findings.state == FindingState.IGNORED, Findings.ignored_until <= now)
    rows = connection.execute(select(Findings.id, Findings.ignored_until).where(*over).order_by(Findings.id)).all()
    for finding, until in rows:
        _set_open(connection, finding, f"it was ignored until {until:%Y-%m-%d}", run=run, now=now)
    return [finding for finding, _ in rows]


def _set_open(connection: Connection, finding: int, why: str, *, run: int, now: datetime) -> None:
    values = {"state": FindingState.OPEN, "reason": "", "set_by": "", "set_at": now, "ignored_until": None}
    connection.execute(update(Findings).where(Findings.id == finding).values(values))
    events.put(connection, [finding], EventKind.REOPENED, why, run=run, at=now)
