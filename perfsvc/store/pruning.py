"""Pruning: what is older than somebody wants to keep it goes, but never what is still needed (``store.needed``)."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TypeVar

from sqlalchemy import Connection, Engine, delete, exists, func, or_, select, text, update

from perfsvc.store.engine import POSTGRESQL, SQLITE, transaction, translated
from perfsvc.store.lookup import ENDED
from perfsvc.store.needed import NOTHING, needed
from perfsvc.store.night_tables import Deliveries, Messages, Nights
from perfsvc.store.profiles import Profiles
from perfsvc.store.rows import State
from perfsvc.store.tables import Artifacts, Batches, Binaries, BinaryFiles, Cases, Measurements, Runs

Item = TypeVar("Item")

MOST = 20_000
"""Measurements that lose their samples in one transaction, so that no run that measures meanwhile waits for long."""
IDS = 500
"""Ids in one statement."""
LONGEST_RUN = timedelta(days=7)
"""What says of itself that it runs since before that does not: it died on a host that nobody measures on any more."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What went: how many, and the bytes that they took, compressed as they were."""

    count: int = 0
    size_bytes: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(self.count + other.count, self.size_bytes + other.size_bytes)


@dataclass(frozen=True, slots=True)
class Code:
    """What went of code: reports of profilers and binaries, and the artifacts that those had for their own."""

    reports: int
    binaries: int
    artifacts: Removed


class Prunes:
    """The part of ``Store`` that makes room; each method is one transaction, or what ``dry_run`` would be one."""

    _engine: Engine

    def last_of_scopes(self) -> list[int]:
        """The last run of each scope that has ended and has no uncommitted changes, oldest first."""
        with transaction(self._engine, writes=False) as connection:
            return sorted(_watched(connection, 1))

    def prune_samples(self, before: datetime, keep: Collection[int], *, dry_run: bool) -> Removed:
        """Takes the samples, and the batches that they came in, of measurements of runs that began before a moment.

        Medians, intervals and errors stay. It goes on for ``MOST`` measurements at once: call it until nothing is
        removed.

        Args:
            before: the moment.
            keep: runs that stay whole, beside all that is needed anyway.
            dry_run: whether to change nothing, and count all at once.
        """
        with transaction(self._engine, writes=not dry_run) as connection:
            return _prune_samples(connection, before, keep, dry_run=dry_run)

    def prune_code(
        self,
        *,
        binaries: datetime | None,
        profiles: datetime | None,
        keep: Collection[int],
        watched: int,
        now: datetime,
        dry_run: bool,
    ) -> Code | None:
        """Takes old binaries and old reports of profilers, and then all artifacts that nothing owns.

        What profilers counted stays. Nothing is removed, and None returned, where a run is under way: it may be about
        to measure what it has stored.

        Args:
            binaries: binaries go that nothing ran since then; None for none.
            profiles: reports go of profiles that were made before; None for none.
            keep: runs whose code stays, beside all that is needed anyway.
            watched: how many nights of each scope are watched for changes; what they ran stays.
            now: the time.
            dry_run: whether to change nothing.
        """
        with self._attempt(dry_run=dry_run) as connection:
            if _under_way(connection, now):
                return None
            return Code(
                _prune_profiles(connection, profiles, keep) if profiles else 0,
                _prune_binaries(connection, binaries, keep, watched) if binaries else 0,
                _prune_orphans(connection),
            )

    def prune_nights(self, before: datetime, *, dry_run: bool) -> list[int]:
        """Takes nights that began before a moment, with their stages and messages, and returns their numbers.

        Runs stay. So does the last night of each host, and one of which somebody is still to be told.
        """
        with self._attempt(dry_run=dry_run) as connection:
            return _prune_nights(connection, before)

    def vacuum(self) -> None:
        """Gives the room of what went back to the file system. SQLite writes the whole file anew, and locks it."""
        with translated(self._engine.url), self._engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            if connection.dialect.name == SQLITE:
                connection.exec_driver_sql("COMMIT")  # what our own connections begin whatever they are told
            connection.exec_driver_sql("VACUUM")

    @contextmanager
    def _attempt(self, *, dry_run: bool) -> Iterator[Connection]:
        """A transaction; one that is only tried is taken back, having told exactly what it would do."""
        with transaction(self._engine, writes=True) as connection:
            yield connection
            if dry_run and (attempted := connection.get_transaction()):
                attempted.rollback()


def _prune_samples(connection: Connection, before: datetime, keep: Collection[int], *, dry_run: bool) -> Removed:
    of_needed = needed(connection, keep)
    query = (
        select(Measurements.id, Measurements.run_id, Cases.lineage_id, func.length(Measurements.samples).label("size"))
        .join(Runs, Runs.id == Measurements.run_id)
        .join(Cases, Cases.id == Measurements.case_id)
        .where(Runs.started_at < before, Measurements.samples.is_not(None))
        .order_by(Measurements.id)
    )
    found = (row for row in connection.execute(query) if not of_needed.holds(row.run_id, row.lineage_id))
    going = list(found if dry_run else islice(found, MOST))
    if not dry_run:
        for ids in _chunks(row.id for row in going):
            connection.execute(update(Measurements).where(Measurements.id.in_(ids)).values(samples=None))
            connection.execute(delete(Batches).where(Batches.measurement_id.in_(ids)))
    return Removed(len(going), sum(row.size for row in going))


def _chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """``IDS`` of them at a time."""
    left = iter(items)
    while chunk := list(islice(left, IDS)):
        yield chunk


def _under_way(connection: Connection, now: datetime) -> bool:
    """Whether any run is under way on any host; on a server none can begin until the transaction is over."""
    if connection.dialect.name == POSTGRESQL:
        connection.execute(text("LOCK TABLE runs IN SHARE MODE"))
    running = exists().where(Runs.state == State.RUNNING, Runs.started_at > now - LONGEST_RUN)
    return bool(connection.scalar(select(running)))


def _prune_binaries(connection: Connection, before: datetime, keep: Collection[int], watched: int) -> int:
    used = (
        select(Measurements.binary_id, Measurements.run_id, Cases.lineage_id, (Runs.started_at < before).label("old"))
        .join(Runs, Runs.id == Measurements.run_id)
        .join(Cases, Cases.id == Measurements.case_id)
        .where(Measurements.binary_id.is_not(None))
        .distinct()
    )
    rows = connection.execute(used).all()
    old = set(connection.scalars(select(Binaries.id))) - {row.binary_id for row in rows if not row.old}
    of_needed = needed(connection, {*keep, *_watched(connection, watched)}) if old else NOTHING
    going = sorted(old - {row.binary_id for row in rows if of_needed.holds(row.run_id, row.lineage_id)})
    for ids in _chunks(going):
        connection.execute(delete(Binaries).where(Binaries.id.in_(ids)))
    return len(going)


def _watched(connection: Connection, watched: int) -> set[int]:
    """The newest runs of each scope whose histories are watched, as many as that."""
    newest_first = func.row_number().over(partition_by=Runs.scope, order_by=Runs.id.desc())
    ranked = (
        select(Runs.id, newest_first.label("place")).where(Runs.git_dirty.is_(False), Runs.state.in_(ENDED)).subquery()
    )
    return set(connection.scalars(select(ranked.c.id).where(ranked.c.place <= watched)))


def _prune_orphans(connection: Connection) -> Removed:
    """What no binary is made of and no profile reported."""
    owned = or_(
        exists().where(BinaryFiles.sha256 == Artifacts.sha256),
        exists().where(Profiles.report_sha256 == Artifacts.sha256),
    )
    going = connection.execute(select(Artifacts.sha256, func.length(Artifacts.content)).where(~owned)).all()
    for rows in _chunks(going):
        connection.execute(delete(Artifacts).where(Artifacts.sha256.in_([sha256 for sha256, _ in rows])))
    return Removed(len(going), sum(size for _, size in going))


def _prune_profiles(connection: Connection, before: datetime, keep: Collection[int]) -> int:
    query = (
        select(Profiles.id, Profiles.run_id, Cases.lineage_id)
        .join(Cases, Cases.id == Profiles.case_id)
        .where(Profiles.profiled_at < before, Profiles.report_sha256.is_not(None))
    )
    rows = connection.execute(query).all()
    of_needed = needed(connection, keep) if rows else NOTHING
    going = [row for row in rows if not of_needed.holds(row.run_id, row.lineage_id)]
    for ids in _chunks(row.id for row in going):
        connection.execute(update(Profiles).where(Profiles.id.in_(ids)).values(report_sha256=None))
    return len(going)


def _prune_nights(connection: Connection, before: datetime) -> list[int]:
    newest = select(func.max(Nights.id)).group_by(Nights.host)
    untold = exists().where(
        Messages.night_id == Nights.id, Deliveries.message_id == Messages.id, Deliveries.sent_at.is_(None)
    )
    over = (Nights.started_at < before, Nights.state != State.RUNNING, Nights.id.not_in(newest), ~untold)
    going = list(connection.scalars(select(Nights.id).where(*over).order_by(Nights.id)))
    for ids in _chunks(going):
        connection.execute(delete(Nights).where(Nights.id.in_(ids)))
    return going
