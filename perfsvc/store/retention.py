"""Retention: delete data that is older than the settings allow, but never data that is still needed."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    delete,
    exists,
    func,
    or_,
    select,
    text,
    union,
    union_all,
    update,
)
from sqlalchemy import case as sql_case

from perfsvc.model import FindingState, RunState, Status
from perfsvc.store.baselines.baselines import ACCEPTING
from perfsvc.store.runs import ENDED, LONGEST_RUN, newest_of_scopes, remember_removed
from perfsvc.store.schema.code_tables import Profiles
from perfsvc.store.schema.engine import POSTGRESQL, StorePart, among
from perfsvc.store.schema.judging_tables import FindingCases, Findings, Pins
from perfsvc.store.schema.night_tables import Deliveries, Messages, Nights
from perfsvc.store.schema.tables import (
    Artifacts,
    Binaries,
    BinaryFiles,
    Levels,
    Measurements,
    PythonCodes,
    Runs,
    SeriesRows,
)

CONFIRMING_HOSTS, CONFIRMING_DAYS = 2, 3
"""A time is confirmed if this many hosts, or one host on this many days, began a run or a night then or later."""
SLACK = timedelta(days=7)
"""How far the time from which ages count may be ahead of the newest confirmed time."""


@dataclass(frozen=True, slots=True)
class Removed:
    """The number of removed rows, and their compressed size."""

    count: int = 0
    size_bytes: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(self.count + other.count, self.size_bytes + other.size_bytes)


@dataclass(frozen=True, slots=True)
class RemovedCode:
    """The numbers of removed profiler reports and binaries, and the artifacts that nothing uses any more."""

    reports: int = 0
    binaries: int = 0
    artifacts: Removed = Removed()


class Retention(StorePart):
    """Removes what is old; each method but ``samples`` is one transaction. A ``dry_run`` only returns what would go."""

    def confirmed_time(self, now: datetime) -> datetime:
        """Return the time from which ages count: ``now``, or an earlier time if nothing confirms ``now``.

        A single clock is never trusted: if the clock of a host is a year ahead for one night, nearly everything looks
        old. So the result is never later than PostgreSQL's clock, and at most ``SLACK`` later than the newest run or
        night that several hosts or days confirm.

        Args:
            now: the time by the clock of this host.
        """
        with self._database.reading() as connection:
            if connection.dialect.name == POSTGRESQL:
                now = min(now, connection.scalar(select(func.now())) or now)
            newest = _newest_confirmed(connection)
        return now if newest is None else min(now, newest + SLACK)

    def prunable(self) -> tuple[int, ...]:
        """Return how many measurements have samples, how many profiles have a report, and all binaries and nights."""
        counts = (
            *(Measurements.samples.is_not(None), Profiles.report_sha256.is_not(None)),
            *(Binaries.id.is_not(None), Nights.id.is_not(None)),
        )
        with self._database.reading() as connection:
            return tuple(connection.scalar(select(func.count()).where(counted)) or 0 for counted in counts)

    def samples(self, before: datetime, *, dry_run: bool) -> Removed:
        """Remove the samples and batches of measurements of runs that began before a moment.

        Levels hold all that comparisons, histories and pages need of the samples. The samples of a run that has not
        ended or may be resumed stay. Each run is a transaction of its own, so that a run that stores results waits only
        for a short time.

        Args:
            before: the moment.
            dry_run: whether to change nothing.
        """
        has_samples = Measurements.samples.is_not(None)
        old = select(Runs.id).where(Runs.started_at < before, ~_is_resumable())
        with self._database.reading() as connection:
            runs = connection.scalars(old.where(exists().where(Measurements.run_id == Runs.id, has_samples))).all()
        removed = Removed()
        for run in runs:
            of_run = (Measurements.run_id == run, Measurements.run_id.in_(old), has_samples)
            counted = select(func.count(), func.coalesce(func.sum(func.length(Measurements.samples)), 0)).where(*of_run)
            with self._database.reading() if dry_run else self._database.writing() as connection:
                removed += Removed(*connection.execute(counted).one())
                if not dry_run:
                    emptied = {"samples": None, "place_medians": None, "batches": None}
                    connection.execute(update(Measurements).where(*of_run).values(emptied))
        return removed

    def code(
        self,
        *,
        binaries: datetime | None,
        profiles: datetime | None,
        keep: Collection[int],
        watched: int,
        now: datetime,
        dry_run: bool,
    ) -> RemovedCode | None:
        """Remove old binaries and profiler reports, and then all Python code and artifacts that nothing uses.

        The profilers' metrics stay. While a run is running, nothing is removed and the result is None: the run may be
        about to measure a binary that it has stored.

        Args:
            binaries: remove the binaries that no run has used since this time; None for none.
            profiles: remove the reports of profiles made before this time; None for none.
            keep: runs whose code stays. Code of the levels that ``_needed`` finds stays too.
            watched: how many of the newest runs of each scope keep their code, where changes may still be found.
            now: the time.
            dry_run: whether to change nothing.
        """
        with self._attempt(dry_run=dry_run) as connection:
            if _is_run_running(connection, now):
                return None
            unused = ~exists().where(Measurements.python_code_id == PythonCodes.id)
            connection.execute(delete(PythonCodes).where(unused))
            keep = {*keep, *connection.scalars(select(Runs.id).where(_is_resumable()))}
            return RemovedCode(
                _remove_reports(connection, profiles, keep) if profiles else 0,
                _remove_binaries(connection, binaries, keep, watched) if binaries else 0,
                _remove_unused_artifacts(connection),
            )

    def nights(self, before: datetime, *, dry_run: bool) -> list[int]:
        """Remove nights that began before a moment, with their stages and messages; return their numbers.

        The runs of the nights stay. The last night of each host and nights with an undelivered message stay too.
        """
        newest = select(func.max(Nights.id)).group_by(Nights.host)
        undelivered = exists().where(
            Messages.night_id == Nights.id, Deliveries.message_id == Messages.id, Deliveries.sent_at.is_(None)
        )
        old = (Nights.started_at < before, Nights.state != RunState.RUNNING, Nights.id.not_in(newest), ~undelivered)
        with self._attempt(dry_run=dry_run) as connection:
            nights = list(connection.scalars(select(Nights.id).where(*old).order_by(Nights.id)))
            remember_removed(connection, Nights, nights)
            connection.execute(delete(Nights).where(among(Nights.id, nights)))
        return nights

    @contextmanager
    def _attempt(self, *, dry_run: bool) -> Iterator[Connection]:
        """Run a transaction; a dry run is rolled back, after it has counted exactly what it would remove."""
        with self._database.writing() as connection:
            yield connection
            if dry_run and (transaction := connection.get_transaction()):
                transaction.rollback()


def _needed() -> Select[int, int]:
    """Return a query of the levels, as pairs of run and case, whose code and reports later commands may still need.

    - levels that a later run may be compared with: pins, all levels that were ever accepted (a newer one may be
      revoked), and the first correct result after each change of the environment or after a wrong result;
    - excluded levels, which become such levels once they are included again;
    - the newest level of each series;
    - the baselines and candidates of findings that are not resolved.

    The query may find more levels than later commands need, but never fewer. Committed and uncommitted code have
    histories of their own here, since the first result of committed code may be a baseline whatever came before it.
    """
    environment = sql_case((and_(Levels.status == Status.OK, Levels.excluded.is_(None)), Levels.environment_id))
    # By a sum, which no index finds: SQLite would read the levels one by one in the order of the index.
    before = func.lag(environment).over(partition_by=(Levels.series_id + 0, Runs.git_dirty), order_by=Levels.run_id)
    level = (
        select(Levels.run_id, Levels.series_id, environment.label("environment"), before.label("before"))
        .add_columns(or_(Levels.excluded.is_not(None), and_(*ACCEPTING)).label("may_be_level"))
        .join(Runs, Runs.id == Levels.run_id)
        .where(Levels.status.is_not(None))
        .subquery()
        .c
    )
    begins = and_(level.environment.is_not(None), level.before.is_distinct_from(level.environment))
    of_findings = (
        *(Findings.first_run_id, FindingCases.first_run_id, FindingCases.level_run_id),
        *(FindingCases.last_run_id, FindingCases.baseline_run_id),
    )
    found = union(
        select(level.run_id, level.series_id).where(or_(level.may_be_level, begins)),
        select(func.max(Levels.run_id), Levels.series_id).group_by(Levels.series_id),
        select(Pins.run_id, Pins.series_id),
        *(
            select(run, FindingCases.series_id)
            .join_from(FindingCases, Findings, Findings.id == FindingCases.finding_id)
            .where(Findings.state != FindingState.RESOLVED, run.is_not(None))
            for run in of_findings
        ),
    ).subquery()
    return select(found.c.run_id, SeriesRows.case_id).join(SeriesRows, SeriesRows.id == found.c.series_id).distinct()


def _is_resumable() -> ColumnElement[bool]:
    """Return an SQL condition that is true for runs that have not ended, and for the run of each host's last night."""
    newest = select(func.max(Nights.id)).group_by(Nights.host)
    of_nights = select(Nights.run_id).where(Nights.id.in_(newest), Nights.run_id.is_not(None))
    return or_(Runs.state.not_in(ENDED), Runs.id.in_(of_nights))


def _newest_confirmed(connection: Connection) -> datetime | None:
    """Go back through the starts of runs and nights until they cover several hosts or days; return the start reached.

    Several means ``CONFIRMING_HOSTS`` or ``CONFIRMING_DAYS``. None if the database has neither runs nor nights.
    """
    starts = union_all(select(Runs.started_at, Runs.host), select(Nights.started_at, Nights.host)).subquery()
    hosts: set[str] = set()
    days: set[date] = set()
    started: datetime | None = None
    for started, host in connection.execute(select(starts).order_by(starts.c.started_at.desc())):
        hosts.add(host)
        days.add(started.date())
        if len(hosts) >= CONFIRMING_HOSTS or len(days) >= CONFIRMING_DAYS:
            break
    return started


def _is_run_running(connection: Connection, now: datetime) -> bool:
    """Return True if a run is running on any host; on PostgreSQL, no run can begin until the transaction ends."""
    if connection.dialect.name == POSTGRESQL:
        connection.execute(text("LOCK TABLE runs IN SHARE MODE"))
    running = exists().where(Runs.state == RunState.RUNNING, Runs.started_at > now - LONGEST_RUN)
    return bool(connection.scalar(select(running)))


def _remove_binaries(connection: Connection, before: datetime, keep: Collection[int], watched: int) -> int:
    """Remove the binaries that no run since ``before`` used and that are not needed; return how many."""
    young = select(Runs.id).where(Runs.started_at >= before)
    kept = among(Measurements.run_id, {*keep, *newest_of_scopes(connection, watched)})
    needed = _needed().subquery().c
    of_level = and_(Measurements.run_id == needed.run_id, Measurements.case_id == needed.case_id)
    used = select(Measurements.binary_id).distinct()
    removed = set(connection.scalars(select(Binaries.id)))
    for condition in (or_(Measurements.run_id.in_(young), kept), of_level):
        removed -= set(connection.scalars(used.where(condition)))
    connection.execute(delete(Binaries).where(among(Binaries.id, removed)))
    connection.execute(update(Levels).where(among(Levels.binary_id, removed)).values(binary_id=None))
    return len(removed)


def _remove_unused_artifacts(connection: Connection) -> Removed:
    """Remove the artifacts that neither a binary nor a profile uses."""
    used = or_(
        exists().where(BinaryFiles.sha256 == Artifacts.sha256),
        exists().where(Profiles.report_sha256 == Artifacts.sha256),
    )
    size = func.coalesce(func.sum(func.length(Artifacts.content)), 0)
    removed = Removed(*connection.execute(select(func.count(), size).where(~used)).one())
    connection.execute(delete(Artifacts).where(~used))
    return removed


def _remove_reports(connection: Connection, before: datetime, keep: Collection[int]) -> int:
    """Remove the reports of profiles that were made before ``before``, except needed reports; return how many."""
    old = (Profiles.profiled_at < before, Profiles.report_sha256.is_not(None), ~among(Profiles.run_id, keep))
    needed = set(map(tuple, connection.execute(_needed())))
    rows = connection.execute(select(Profiles.id, Profiles.run_id, Profiles.case_id).where(*old))
    removed = [row.id for row in rows if (row.run_id, row.case_id) not in needed]
    connection.execute(update(Profiles).where(among(Profiles.id, removed)).values(report_sha256=None))
    return len(removed)
