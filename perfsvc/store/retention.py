"""Retention: delete data that is older than the settings allow, but never data that is still needed."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, delete, exists, func, or_, select, text, union_all, update

from perfsvc.model import FindingState, RunState
from perfsvc.store.baselines.baselines import IS_ACCEPTED, levels_to_keep
from perfsvc.store.baselines.nights import measured_before_budget_ran_out, newest_clean
from perfsvc.store.cases import ids_of, judged
from perfsvc.store.findings.excluded import excluded_data
from perfsvc.store.runs import ENDED, LONGEST_RUN, newest_of_scopes, remember_removed
from perfsvc.store.schema.code_tables import Profiles
from perfsvc.store.schema.engine import POSTGRESQL, Database, among
from perfsvc.store.schema.judging_tables import Exclusions, FindingCases, FindingEvents, Findings, Pins
from perfsvc.store.schema.night_tables import Deliveries, Messages, Nights
from perfsvc.store.schema.tables import (
    Artifacts,
    Binaries,
    BinaryFiles,
    Devices,
    Environments,
    FormerNames,
    Levels,
    Measurements,
    PythonCodes,
    Runs,
    SeriesRows,
)

Item = TypeVar("Item")

CASES_AT_ONCE = 5_000
"""The cases of a run whose samples one transaction removes; it is short, since a run may wait to store results."""
ROWS_AT_ONCE = 10_000
"""How many rows of a long result are in memory together."""
IDS = 500
"""The number of ids in one statement."""
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

    reports: int
    binaries: int
    artifacts: Removed


@dataclass(frozen=True, slots=True)
class Needed:
    """What must not be removed.

    Attributes:
        runs: everything that these runs measured.
        levels: pairs of a run and a case: what the run measured of the case.
    """

    runs: frozenset[int] = frozenset()
    levels: frozenset[tuple[int, int]] = frozenset()

    def contains(self, run: int, case: int) -> bool:
        """Return True if what a run measured of a case is needed."""
        return run in self.runs or (run, case) in self.levels


@dataclass(frozen=True, slots=True)
class Prunable:
    """How much the database has of each kind of data that pruning removes.

    Attributes:
        samples: measurements that have samples.
        reports: profiles that have a report.
    """

    samples: int
    reports: int
    binaries: int
    nights: int


class Retention:
    """Removes what is old; each method but ``samples`` is one transaction. A ``dry_run`` only returns what would go."""

    def __init__(self, database: Database) -> None:
        self._database = database

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

    def prunable(self) -> Prunable:
        """Return how much the database has of each kind of data that pruning removes."""
        with self._database.reading() as connection:
            return Prunable(
                samples=connection.scalar(select(func.count()).where(Measurements.samples.is_not(None))) or 0,
                reports=connection.scalar(select(func.count()).where(Profiles.report_sha256.is_not(None))) or 0,
                binaries=connection.scalar(select(func.count(Binaries.id))) or 0,
                nights=connection.scalar(select(func.count(Nights.id))) or 0,
            )

    def samples(self, before: datetime, keep: Collection[int], *, dry_run: bool) -> Removed:
        """Remove the samples and batches of measurements of runs that began before a moment.

        Medians, intervals and errors stay. Each run, or part of it, is a transaction of its own, so that a run that
        stores results waits only for a short time.

        Args:
            before: the moment.
            keep: runs that keep everything. Data that the function ``needed`` finds stays too.
            dry_run: whether to change nothing.
        """
        has_samples = exists().where(Measurements.run_id == Runs.id, Measurements.samples.is_not(None))
        old = select(Runs.id).where(Runs.started_at < before, has_samples)
        candidates = select(Measurements.run_id, Measurements.case_id).where(
            Measurements.run_id.in_(old), Measurements.samples.is_not(None)
        )
        with self._database.reading() as connection:
            decided = _what_decides(connection)
            still_needed = needed(connection, keep, candidates)
            pairs = connection.execute(candidates.distinct().execution_options(yield_per=ROWS_AT_ONCE))
            runs = {run for run, case in pairs if not still_needed.contains(run, case)}
        removed, after, remaining = Removed(), 0, sorted(runs, reverse=True)
        while remaining:
            with self._database.reading() if dry_run else self._database.writing() as connection:
                state = _what_decides(connection)
                if state != decided:  # what is needed takes seconds to find, and seldom changes meanwhile
                    still_needed, decided = needed(connection, keep, candidates), state
                run = remaining[-1]
                cases = _sizes_of_samples(connection, run, after)
                unneeded = {case: size for case, size in cases if not still_needed.contains(run, case)}
                if not dry_run:
                    _remove_samples(connection, run, unneeded)
            removed = sum(unneeded.values(), removed)
            if len(cases) < CASES_AT_ONCE:
                remaining.pop()
                after = 0
            else:
                after = cases[-1][0]
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
            keep: runs whose code stays. Code that the function ``needed`` finds stays too.
            watched: how many of the newest runs of each scope keep their code, where changes may still be found.
            now: the time.
            dry_run: whether to change nothing.
        """
        with self._attempt(dry_run=dry_run) as connection:
            if _is_run_running(connection, now):
                return None
            unused = ~exists().where(Measurements.python_code_id == PythonCodes.id)
            connection.execute(delete(PythonCodes).where(unused))
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
            for ids in _chunks(nights):
                remember_removed(connection, Nights, ids)
                connection.execute(delete(Nights).where(Nights.id.in_(ids)))
        return nights

    @contextmanager
    def _attempt(self, *, dry_run: bool) -> Iterator[Connection]:
        """Run a transaction; a dry run is rolled back, after it has counted exactly what it would remove."""
        with self._database.writing() as connection:
            yield connection
            if dry_run and (transaction := connection.get_transaction()):
                transaction.rollback()


def needed(connection: Connection, keep: Collection[int], candidates: Select[int, int]) -> Needed:
    """Return the runs and levels that later commands may still need, as far as they are among the candidates.

    - the runs in ``keep``;
    - levels that later runs may be compared with;
    - excluded runs and cases: once included again, they may be such levels too;
    - the baseline and the candidate of every finding that is not resolved;
    - the last run of each scope (suite and selection) on each device, which shows the next run what is missing; and for
      each case that was over budget in this last run, the last run that measured the case;
    - runs that have not ended, and the run of each host's last night, which may be resumed.

    ``candidates`` is a query of the runs and cases (``run_id``, ``case_id``) of what may be removed. The result
    may have more of the candidates than later commands need, but never fewer.
    """
    last, over_budget = _last_finished(connection)
    excluded = excluded_data(connection)
    excluded_runs = {run for run, case in excluded if case is None}
    excluded_levels = {(run, case) for run, case in excluded if case is not None}
    levels = levels_to_keep(connection, candidates) | excluded_levels | over_budget | _in_findings(connection)
    return Needed(frozenset({*keep, *last, *excluded_runs, *_resumable(connection)}), frozenset(levels))


def _what_decides(connection: Connection) -> tuple[Any, ...]:
    """Return a value that changes whenever the result of ``needed`` may change.

    Runs, findings, pins and exclusions decide what is needed. A finding never changes without an event.
    """
    states = connection.execute(select(Runs.state, func.count()).group_by(Runs.state).order_by(Runs.state)).all()
    counts = (
        select(func.max(Runs.id)),
        select(func.max(Nights.id)),
        select(func.max(Levels.run_id)),
        select(func.count()).select_from(Levels).where(IS_ACCEPTED),  # an older run may be judged late
        select(func.max(FindingEvents.id)),
        select(func.max(Exclusions.id)),
        select(func.count(Exclusions.included_at)),
        select(func.max(Pins.set_at)),
        select(func.count()).select_from(Pins),
        select(func.count()).select_from(FormerNames),  # a case that was renamed may have taken over another one
    )
    return (tuple(states), *(connection.scalar(count) for count in counts))


def _sizes_of_samples(connection: Connection, run: int, after: int) -> list[tuple[int, Removed]]:
    """Return the next cases of a run that have samples: the id, and how much there is to remove.

    ``after`` is the last id that was handled; the result has at most ``CASES_AT_ONCE`` cases.
    """
    query = (
        select(Measurements.case_id, func.count(), func.sum(func.length(Measurements.samples)))
        .where(Measurements.run_id == run, Measurements.samples.is_not(None), Measurements.case_id > after)
        .group_by(Measurements.case_id)
        .order_by(Measurements.case_id)
        .limit(CASES_AT_ONCE)
    )
    return [(case, Removed(*counted)) for case, *counted in connection.execute(query)]


def _remove_samples(connection: Connection, run: int, cases: Iterable[int]) -> None:
    for ids in _chunks(cases):
        of_cases = (Measurements.run_id == run, Measurements.case_id.in_(ids), Measurements.samples.is_not(None))
        connection.execute(update(Measurements).where(*of_cases).values(samples=None, place_medians=None, batches=None))


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


def _in_findings(connection: Connection) -> set[tuple[int, int]]:
    """Return the baselines and candidates of findings that are not resolved, as pairs of run and case."""
    of_step = ("first_run_id", "level_run_id", "last_run_id", "baseline_run_id")
    query = (
        select(Findings.first_run_id, *(getattr(FindingCases, name) for name in of_step), SeriesRows.case_id)
        .join(FindingCases, FindingCases.finding_id == Findings.id)
        .join(SeriesRows, SeriesRows.id == FindingCases.series_id)
        .where(Findings.state != FindingState.RESOLVED)
    )
    return {(run, case) for *runs, case in connection.execute(query) for run in runs if run is not None}


def _last_finished(connection: Connection) -> tuple[set[int], set[tuple[int, int]]]:
    """Return the last finished run of each scope on each device, and the levels of cases that these runs left out.

    These runs had no budget for such cases. A level is a pair: the last earlier run that measured the case, and the
    case.
    """
    measured = exists().where(
        # Any environment: with it, one step in an index shows whether a run measured on a device.
        Measurements.environment_id.in_(select(Environments.id)),
        Measurements.run_id == Runs.id,
        Measurements.device_id == Devices.id,
    )
    query = (
        select(Runs.scope, Devices.uuid, newest_clean())
        .select_from(Runs)
        .join(Devices, measured.correlate(Runs, Devices))
        .where(Runs.state == RunState.FINISHED, judged(Runs.id))
        .group_by(Runs.scope, Devices.uuid)
    )
    last: dict[str, dict[str, int]] = {}
    for scope, device, run in connection.execute(query):
        last.setdefault(scope, {})[device] = run
    earlier = [
        (run, case)
        for runs in last.values()
        for (case, *_), run in measured_before_budget_ran_out(connection, runs).items()
    ]
    ids = ids_of(connection, {case for _, case in earlier})
    return {run for of_scope in last.values() for run in of_scope.values()}, {(run, ids[case]) for run, case in earlier}


def _resumable(connection: Connection) -> set[int]:
    """Return the runs that have not ended, and the run of each host's last night."""
    running = set(connection.scalars(select(Runs.id).where(Runs.state.not_in(ENDED))))
    newest = select(func.max(Nights.id)).group_by(Nights.host)
    nights = select(Nights.run_id).where(Nights.id.in_(newest), Nights.run_id.is_not(None))
    return running | {run for run in connection.scalars(nights) if run is not None}


def _chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield the items in lists of at most ``IDS``."""
    remaining = iter(items)
    while chunk := list(islice(remaining, IDS)):
        yield chunk


def _is_run_running(connection: Connection, now: datetime) -> bool:
    """Return True if a run is running on any host; on PostgreSQL, no run can begin until the transaction ends."""
    if connection.dialect.name == POSTGRESQL:
        connection.execute(text("LOCK TABLE runs IN SHARE MODE"))
    running = exists().where(Runs.state == RunState.RUNNING, Runs.started_at > now - LONGEST_RUN)
    return bool(connection.scalar(select(running)))


def _remove_binaries(connection: Connection, before: datetime, keep: Collection[int], watched: int) -> int:
    """Remove the binaries that no run since ``before`` used and that are not needed; return how many."""
    young = select(Runs.id).where(Runs.started_at >= before)
    used = select(Measurements.binary_id).where(Measurements.run_id.in_(young), Measurements.binary_id.is_not(None))
    old = set(connection.scalars(select(Binaries.id))) - set(connection.scalars(used.distinct()))
    if not old:
        return 0
    of_old = among(Measurements.binary_id, old)
    uses = select(Measurements.run_id, Measurements.case_id).where(of_old)
    still_needed = needed(connection, {*keep, *newest_of_scopes(connection, watched)}, uses)
    uses = uses.add_columns(Measurements.binary_id).distinct()
    removed = sorted(old - {binary for *use, binary in connection.execute(uses) if still_needed.contains(*use)})
    for ids in _chunks(removed):
        connection.execute(delete(Binaries).where(Binaries.id.in_(ids)))
        connection.execute(update(Levels).where(Levels.binary_id.in_(ids)).values(binary_id=None))
    return len(removed)


def _remove_unused_artifacts(connection: Connection) -> Removed:
    """Remove the artifacts that neither a binary nor a profile uses."""
    used = or_(
        exists().where(BinaryFiles.sha256 == Artifacts.sha256),
        exists().where(Profiles.report_sha256 == Artifacts.sha256),
    )
    removed = connection.execute(select(Artifacts.sha256, func.length(Artifacts.content)).where(~used)).all()
    for rows in _chunks(removed):
        connection.execute(delete(Artifacts).where(Artifacts.sha256.in_([sha256 for sha256, _ in rows])))
    return Removed(len(removed), sum(size for _, size in removed))


def _remove_reports(connection: Connection, before: datetime, keep: Collection[int]) -> int:
    """Remove the reports of profiles that were made before ``before``, except needed reports; return how many."""
    old = (Profiles.profiled_at < before, Profiles.report_sha256.is_not(None))
    query = select(Profiles.run_id, Profiles.case_id).where(*old)
    rows = connection.execute(query.add_columns(Profiles.id)).all()
    if not rows:
        return 0
    still_needed = needed(connection, keep, query)
    removed = [row.id for row in rows if not still_needed.contains(row.run_id, row.case_id)]
    for ids in _chunks(removed):
        connection.execute(update(Profiles).where(Profiles.id.in_(ids)).values(report_sha256=None))
    return len(removed)
