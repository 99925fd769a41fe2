"""Copying what one database has and another lacks: runs first, then what refers to them.

Each run, night, check and finding is one transaction of the target. So a killed sync leaves whole runs, and the next
sync continues after them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, literal, select, update

from perfsvc.model import EventKind, RunState
from perfsvc.store.findings.read import lock
from perfsvc.store.keeping.copying import Copier, NotCopiedError, Numbers, Row
from perfsvc.store.keeping.tables import OF_RUN, OF_RUN_REPLACED, PARTS, Table
from perfsvc.store.levels import write_levels
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.code_tables import Checks, Explanations, Profiles
from perfsvc.store.schema.engine import Database
from perfsvc.store.schema.judging_tables import (
    Bisections,
    Confirmations,
    Exclusions,
    FindingCases,
    FindingEvents,
    Findings,
    Pins,
)
from perfsvc.store.schema.night_tables import Deliveries, Messages, Nights, Stages
from perfsvc.store.schema.tables import (
    GpuPeaks,
    Levels,
    Measurements,
    RemovedUids,
    Runs,
)

_BEGINNING = datetime.min.replace(tzinfo=UTC)
_STAMPS = (
    (Confirmations, Confirmations.confirmed_at),
    (Profiles, Profiles.profiled_at),
    (Explanations, Explanations.explained_at),
    (Exclusions, Exclusions.excluded_at),
    (Exclusions, Exclusions.included_at),
)
"""The tables whose rows a later command adds to a run, with the time at which it adds them."""


class SyncAction(StrEnum):
    """What a sync does with a run: copies it, copies what was added to it, or leaves it out and why."""

    NEW = "new"
    CHANGED = "changed"
    SAME = "same"
    UNDER_WAY = "under way"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class RunToSync:
    """A run of the source, and what a sync does with it.

    Attributes:
        number: its number in the source.
        uid: its identity in every database.
        action: what a sync does.
        newer: whether the source changed the run later than the target did; then the source's verdicts replace those
            of the target.
        measurements: how many measurements it has in the source.
    """

    number: int
    uid: str
    action: SyncAction
    newer: bool
    measurements: int


@dataclass(frozen=True, slots=True)
class _Content:
    """What a database has of a run: when it was changed last, and how many rows of each table belong to it."""

    number: int
    state: RunState
    changed_at: datetime
    counts: Mapping[Table, int]


@dataclass(slots=True)
class Sync:
    """A sync from one database to another; the methods are called in the order in which they are defined.

    Attributes:
        source: the database that is read.
        target: the database that is written.
    """

    source: Database
    target: Database
    _numbers: Numbers = field(default_factory=lambda: defaultdict(dict), init=False)

    def plan(self) -> list[RunToSync]:
        """Return what is done with each run of the source, oldest first; change nothing."""
        with self.source.reading() as connection:
            source = _contents(connection)
        with self.target.reading() as connection:
            stored = _contents(connection)
            removed = set(connection.scalars(select(RemovedUids.uid)))
        return [_planned(uid, run, stored.get(uid), removed) for uid, run in source.items()]

    def copy_run(self, run: RunToSync) -> int | None:
        """Copy a run or what was added to it, in one transaction; return its number in the target.

        Returns None, and copies nothing, if the run was deleted or resumed since the plan was made.
        """
        with self._copying() as copier:
            target = copier.target
            row = next(copier.rows(Runs, Runs.id == run.number, Runs.state.in_(ENDED)), None)
            if row is None:
                return None
            number = copier.number(Runs, run.number)
            if number is None:
                number = copier.put(Runs, row)
            elif run.newer:
                target.execute(update(Runs).where(Runs.id == number).values(copier.translated(Runs, row)))
                for replaced in OF_RUN_REPLACED:
                    target.execute(delete(replaced).where(replaced.run_id == number))
            elif _verdicts(copier.source, run.number) > _verdicts(target, number):
                target.execute(delete(Levels).where(Levels.run_id == number))
            for table in (*OF_RUN, *OF_RUN_REPLACED):
                copier.add_missing(table, "run_id", run.number, number)
            if run.newer:
                _take_exclusions_back(copier, run.number, number)
            write_levels(target, number)  # the target may have further measurements of the run, and other exclusions
            copier.numbers.pop(Profiles, None)  # those of the next run are looked up anew
        return int(number)

    def copy_nights(self) -> int:
        """Copy nights that have ended, their stages and messages; return how many were new or changed.

        Only deliveries that succeeded are copied, so that no night of the target sends a message again.
        """
        with self.source.reading() as connection:
            source = _nights(connection)
        with self.target.reading() as connection:
            stored = _nights(connection)
            removed = set(connection.scalars(select(RemovedUids.uid)))
        changed = 0
        for uid, night in source.items():
            if night.state is not RunState.RUNNING and uid not in removed and _has_more(night, stored.get(uid)):
                self._copy_night(night.id)
                changed += 1
        with self._copying() as copier:
            _copy_messages(copier, None)
        return changed

    def copy_checks(self) -> int:
        """Copy the static checks that the target does not have; return how many."""
        with self.target.reading() as connection:
            stored = set(connection.scalars(select(Checks.uid)))
        with self.source.reading() as connection:
            checks = connection.execute(select(Checks.id, Checks.uid).order_by(Checks.id)).all()
        new = [number for number, uid in checks if uid not in stored]
        for number in new:
            with self._copying() as copier:
                in_target = copier.put(Checks, copier.row(Checks, number))
                for table, column in PARTS[Checks].items():
                    copier.add_missing(table, column, number, in_target)
        return len(new)

    def copy_pins_and_peaks(self) -> int:
        """Copy pins and the measured peaks of GPUs; of two that name the same, the newer one stays. Return how many."""
        with self._copying() as copier:
            return _copy_newest(copier, Pins, "set_at") + _copy_newest(copier, GpuPeaks, "measured_at")

    def copy_findings(self) -> tuple[int, int]:
        """Copy findings with their events; return how many were new or changed, and how many have to wait.

        If both databases have changed a finding, the one with the newest event stays, and the events of both are kept.
        A finding waits if one of its runs is not in the target.
        """
        with self.source.reading() as connection:
            source = _findings(connection)
        with self.target.reading() as connection:
            stored = _findings(connection)
        changed = waiting = 0
        for uid, finding in source.items():
            in_target = stored.get(uid)
            if in_target and in_target.has_all_of(finding):
                continue
            try:
                self._copy_finding(finding, in_target)
                changed += 1
            except NotCopiedError:
                waiting += 1
        return changed, waiting

    @contextmanager
    def _copying(self) -> Iterator[Copier]:
        """Run a transaction that copies a row; if it fails, the numbers found in it are forgotten."""
        numbers: Numbers = defaultdict(dict, {table: dict(known) for table, known in self._numbers.items()})
        with self.source.reading() as source, self.target.writing() as target:
            yield Copier(source, target, numbers)
        self._numbers = numbers

    def _copy_night(self, number: int) -> None:
        with self._copying() as copier:
            writing = copier.target
            row = copier.row(Nights, number)
            stored = copier.number(Nights, number)
            if stored is None:
                stored = copier.put(Nights, row)
            else:
                values = copier.translated(Nights, row)
                if values["run_id"] is None:  # the target's night keeps its run if the source has deleted the run
                    del values["run_id"]
                writing.execute(update(Nights).where(Nights.id == stored).values(values))
                writing.execute(delete(Stages).where(Stages.night_id == stored))
            copier.add_missing(Stages, "night_id", number, stored)
            _copy_messages(copier, number)

    def _copy_finding(self, finding: "_FindingState", stored: "_FindingState | None") -> None:
        with self._copying() as copier:
            writing = copier.target
            lock(writing)
            row = copier.row(Findings, finding.number)
            if stored is None:
                number = copier.put(Findings, row)
            else:
                number = stored.number
                if finding.changed_at > stored.changed_at:
                    values = copier.translated(Findings, row)
                    writing.execute(update(Findings).where(Findings.id == number).values(values))
                    writing.execute(delete(FindingCases).where(FindingCases.finding_id == number))
            if stored is None or finding.changed_at > stored.changed_at:
                copier.add_missing(FindingCases, "finding_id", finding.number, number)
            copier.add_missing(FindingEvents, "finding_id", finding.number, number)
            copier.add_missing(Bisections, "finding_id", finding.number, number)


def _contents(connection: Connection) -> dict[str, _Content]:
    """Return what a database has of each run by the run's ``uid``, oldest run first."""
    changed: dict[int, datetime] = defaultdict(lambda: _BEGINNING)
    for stamped, column in _STAMPS:
        for number, at in connection.execute(select(stamped.run_id, func.max(column)).group_by(stamped.run_id)):
            changed[number] = max(changed[number], at or _BEGINNING)
    counts: dict[int, dict[Table, int]] = defaultdict(dict)
    for table in (*OF_RUN, *OF_RUN_REPLACED):
        more = func.count(Levels.verdict) if table is Levels else literal(0)
        for number, count in connection.execute(select(table.run_id, func.count() + more).group_by(table.run_id)):
            counts[number][table] = count
    runs = connection.execute(select(Runs.id, Runs.uid, Runs.state, Runs.finished_at).order_by(Runs.id))
    return {
        row.uid: _Content(row.id, row.state, max(changed[row.id], row.finished_at or _BEGINNING), counts[row.id])
        for row in runs
    }


def _verdicts(connection: Connection, run: int) -> int:
    """Return how many series of a run have a verdict."""
    return connection.scalar(select(func.count(Levels.verdict)).where(Levels.run_id == run)) or 0


def _planned(uid: str, run: _Content, stored: _Content | None, removed: Iterable[str]) -> RunToSync:
    """Return what a sync does with a run; ``stored`` is what the target has of it."""
    newer = stored is not None and run.changed_at > stored.changed_at
    if uid in removed:
        action = SyncAction.REMOVED
    elif run.state not in ENDED:
        action = SyncAction.UNDER_WAY
    elif stored is None:
        action = SyncAction.NEW
    elif newer or any(count > stored.counts.get(table, 0) for table, count in run.counts.items()):
        action = SyncAction.CHANGED
    else:
        action = SyncAction.SAME
    return RunToSync(run.number, uid, action, newer, run.counts.get(Measurements, 0))


def _take_exclusions_back(copier: Copier, run: int, number: int) -> None:
    """Store which exclusions of a run the source has taken back."""
    for row in copier.rows(Exclusions, Exclusions.run_id == run, Exclusions.included_at.is_not(None)):
        values = copier.translated(Exclusions, row)
        same_case = Exclusions.case_id == values["case_id"] if values["case_id"] else Exclusions.case_id.is_(None)
        wanted = (Exclusions.run_id == number, same_case, Exclusions.excluded_at == values["excluded_at"])
        taken_back = {name: values[name] for name in ("included_by", "included_at")}
        copier.target.execute(update(Exclusions).where(*wanted, Exclusions.included_at.is_(None)).values(taken_back))


def _nights(connection: Connection) -> dict[str, Any]:
    """Return each night by its ``uid``, oldest first, with the number of its messages and of their deliveries."""
    messages = select(func.count()).where(Messages.night_id == Nights.id).correlate(Nights).scalar_subquery()
    sent = (
        select(func.count())
        .select_from(Deliveries)
        .join(Messages, Messages.id == Deliveries.message_id)
        .where(Messages.night_id == Nights.id, Deliveries.sent_at.is_not(None))
        .correlate(Nights)
        .scalar_subquery()
    )
    columns = (Nights.id, Nights.uid, Nights.state, Nights.finished_at, messages.label("messages"), sent.label("sent"))
    return {row.uid: row for row in connection.execute(select(*columns).order_by(Nights.id))}


def _has_more(night: Any, stored: Any) -> bool:
    """Return True if the target lacks a night, its end, one of its messages or the delivery of a message."""
    if stored is None:
        return True
    ended_later = (night.finished_at or _BEGINNING) > (stored.finished_at or _BEGINNING)
    return bool(ended_later or night.messages > stored.messages or night.sent > stored.sent)


def _copy_messages(copier: Copier, night: int | None) -> None:
    """Copy the messages of a night, or of ``perfsvc watchdog``, and the deliveries of them that succeeded.

    ``event_id`` says up to which event a watchdog has reported, and each database has a watchdog of its own.
    """
    stored = dict(copier.target.execute(select(Messages.key, Messages.id)).all())
    of_night = Messages.night_id.is_(None) if night is None else Messages.night_id == night
    for row in list(copier.rows(Messages, of_night)):
        number = stored.get(row["key"]) or copier.put(Messages, {**row, "event_id": None})
        known = set(copier.target.scalars(select(Deliveries.target).where(Deliveries.message_id == number)))
        sent = select(Deliveries).where(Deliveries.message_id == row["id"], Deliveries.sent_at.is_not(None))
        new: list[Row] = [
            {**delivery, "message_id": number}
            for delivery in copier.source.execute(sent).mappings()
            if delivery["target"] not in known
        ]
        if new:
            copier.target.execute(insert(Deliveries), new)


def _copy_newest(copier: Copier, table: type[Pins | GpuPeaks], changed_at: str) -> int:
    """Copy rows that the target lacks or has an older version of; return how many."""
    columns = table.__table__.columns
    keys = [column.name for column in table.__table__.primary_key]
    copied = 0
    for row in list(copier.rows(table)):
        try:
            values = copier.translated(table, row)
        except NotCopiedError:  # the pinned run is not copied
            continue
        same = and_(*(columns[name] == values[name] for name in keys))
        stored = copier.target.scalar(select(columns[changed_at]).where(same))
        if stored is None or stored < values[changed_at]:
            copier.target.execute(delete(table).where(same))
            copier.target.execute(insert(table), values)
            copied += 1
    return copied


@dataclass(frozen=True, slots=True)
class _FindingState:
    """A finding in a database: its number, the time of its newest change, and what identifies its rows.

    Attributes:
        number: its number in this database.
        changed_at: when its state or one of its events was stored; a bisection changes neither.
        events: what identifies its events.
        bisections: when its bisections were stored.
    """

    number: int
    changed_at: datetime
    events: frozenset[tuple[EventKind, datetime, str]]
    bisections: frozenset[datetime]

    def has_all_of(self, other: "_FindingState") -> bool:
        """Return whether another database's state of this finding has nothing new for this database."""
        has_rows = other.events <= self.events and other.bisections <= self.bisections
        return has_rows and other.changed_at <= self.changed_at


def _findings(connection: Connection) -> dict[str, _FindingState]:
    """Return the state of each finding by its ``uid``, oldest first."""
    events: dict[int, set[tuple[EventKind, datetime, str]]] = defaultdict(set)
    query = select(FindingEvents.finding_id, FindingEvents.kind, FindingEvents.done_at, FindingEvents.text)
    for number, kind, at, text in connection.execute(query):
        events[number].add((kind, at, text))
    bisections: dict[int, set[datetime]] = defaultdict(set)
    for number, at in connection.execute(select(Bisections.finding_id, Bisections.stored_at)):
        bisections[number].add(at)
    findings = connection.execute(select(Findings.id, Findings.uid, Findings.set_at).order_by(Findings.id))
    return {
        row.uid: _FindingState(
            row.id,
            max([row.set_at, *(at for _, at, _ in events[row.id])]),
            frozenset(events[row.id]),
            frozenset(bisections[row.id]),
        )
        for row in findings
    }
