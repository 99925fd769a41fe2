"""Runs: begin and end them, find them, and what they skipped because the budget was used up."""

import logging
import os
import platform
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    true,
    union,
    update,
)

from perfsvc.errors import DamagedError, NotMeasuredError, UsageError
from perfsvc.model import TIME, Exclusion, Provenance, RunRow, RunState, Series, Status
from perfsvc.store.cases import judged, load_series, put_series
from perfsvc.store.rows import CaseKey, DeviceInRun
from perfsvc.store.run_devices import count_cases, forget_run_devices, read_run_devices
from perfsvc.store.schema.base import from_row, to_row
from perfsvc.store.schema.column_types import Utc
from perfsvc.store.schema.engine import StorePart, among, new_id
from perfsvc.store.schema.judging_tables import Exclusions
from perfsvc.store.schema.night_tables import Nights
from perfsvc.store.schema.tables import (
    Cases,
    Levels,
    Measurements,
    OverBudgetCases,
    RemovedUids,
    Runs,
    SeriesRows,
)

ENDED = (RunState.FINISHED, RunState.INTERRUPTED, RunState.FAILED)
"""The states of runs that can be baselines: what a run measured before it was cut short is as good as any."""

LONGEST_RUN = timedelta(days=7)
"""A run that is stored as running for longer has died, and its host has not begun a run since."""

_COMPARABLE = (Runs.state.in_(ENDED), exists().where(Measurements.run_id == Runs.id), judged(Runs.id))


class RunStore(StorePart):
    """Runs; each method is one transaction."""

    # --- the life of a run -----------------------------------------------------------------------------------------

    def begin(self, provenance: Provenance, *, night: int | None = None, uid: str = "") -> int:
        """Store a new running run and return its id.

        Other running runs of the host are marked as interrupted if their process has died.

        Args:
            provenance: the suite, commit, host and versions of the run; an empty host means this machine.
            night: the night to which the run belongs, if any.
            uid: the identity of a run that another database has; empty for a new run.
        """
        row = run_row(provenance, RunState.RUNNING) | ({"uid": uid} if uid else {})
        with self._database.writing() as connection:
            _mark_interrupted(connection, row["host"])
            run = new_id(connection, Runs, row)
            if night is not None:
                changed = connection.execute(update(Nights).where(Nights.id == night).values(run_id=run))
                if changed.rowcount == 0:
                    raise unknown_night(night)
            return run

    def resume(self, run: int) -> None:
        """Store a run as running again, in this process; it has no levels until it ends."""
        with self._database.writing() as connection:
            _change(connection, run, state=RunState.RUNNING, finished_at=None, **this_process())
            connection.execute(delete(Levels).where(Levels.run_id == run))
            forget_run_devices(connection, run)

    def end(self, run: int, state: RunState) -> None:
        """Store that a run has ended now, and how, with its levels."""
        with self._database.writing() as connection:
            _end(connection, run, state)

    def mark_interrupted(self, host: str) -> None:
        """Mark the runs of this machine, whose name is ``host``, as interrupted if their process died."""
        with self._database.writing() as connection:
            _mark_interrupted(connection, host)

    # --- finding runs ----------------------------------------------------------------------------------------------

    def get(self, number: int) -> RunRow:
        """Return one run; raises ``NotMeasuredError`` if it does not exist."""
        with self._database.reading() as connection:
            rows = _rows(connection, Runs.id == number)
        if not rows:
            raise unknown(number)
        return rows[0]

    def uid(self, run: int) -> str:
        """Return the identity of a run in every database; raises ``NotMeasuredError`` if the run does not exist."""
        with self._database.reading() as connection:
            uid = connection.scalar(select(Runs.uid).where(Runs.id == run))
        if uid is None:
            raise unknown(run)
        return uid

    def of_uid(self, uid: str) -> int | None:
        """Return the number of the run with an identity; None if this database does not have the run."""
        with self._database.reading() as connection:
            return connection.scalar(select(Runs.id).where(Runs.uid == uid))

    def newest(self, n: int = 0) -> RunRow | None:
        """Return the newest run that has ended and measured anything, or the ``n``-th such run before it.

        A run that was interrupted or failed counts like a finished one. Excluded runs do not count.
        """
        with self._database.reading() as connection:
            return _first(connection, *_COMPARABLE, offset=n)

    def neighbours(self, run: int, base: int | None) -> tuple[int | None, int | None]:
        """Return the runs before and after a run that selected the same cases; None if there is no such run.

        Runs that still run or measured nothing do not count.

        Args:
            run: the number of the judged run.
            base: the run that it is compared with; its neighbours are later. None if each series has its own baseline.
        """
        scope = select(Runs.scope).where(Runs.id == run).scalar_subquery()
        ended = (Runs.state != RunState.RUNNING, exists().where(Measurements.run_id == Runs.id))
        same = select(Runs.id).where(Runs.scope == scope, Runs.id > (base or 0), *ended)
        with self._database.reading() as connection:
            before = connection.scalar(same.where(Runs.id < run).order_by(Runs.id.desc()).limit(1))
            after = connection.scalar(same.where(Runs.id > run).order_by(Runs.id).limit(1))
        return before, after

    def labelled(self, label: str) -> RunRow | None:
        """Return the newest run with a label that has ended and measured anything."""
        with self._database.reading() as connection:
            return _first(connection, *_COMPARABLE, Runs.label == label) if label else None

    def of_branch(self, branch: str) -> RunRow | None:
        """Return the newest run of a branch that has ended, measured anything and had no uncommitted changes."""
        clean = (Runs.git_branch == branch, Runs.git_dirty.is_(False))
        with self._database.reading() as connection:
            return _first(connection, *_COMPARABLE, *clean) if branch else None

    def of_commit(self, prefix: str, devices: Collection[str] = ()) -> list[RunRow]:
        """Return the runs of the commit that starts with ``prefix``, best first. Each has ended and measured something.

        The better of two runs is decided by the first of these properties in which they differ: no uncommitted changes;
        finished; more cases (measured or over budget, each cache state for itself); one of ``devices`` (UUIDs) is among
        its devices; more devices; newer.

        Raises ``UsageError`` if the prefix matches several commits.
        """
        if not prefix:
            return []
        matches = (*_COMPARABLE, Runs.git_commit.startswith(prefix, autoescape=True))
        query = select(Runs.git_commit).where(*matches).distinct().order_by(Runs.git_commit)
        with self._database.reading() as connection:
            commits = connection.scalars(query).all()
            if len(commits) > 1:
                message = f"{prefix} stands for {len(commits)} commits: {', '.join(commits)}"
                raise UsageError(message, cure="give more digits")
            rows = _rows(connection, *matches)
            sizes = _sizes(connection, [row.id for row in rows])

        def goodness(row: RunRow) -> tuple[bool, bool, int, bool, int, int]:
            shares_device = not set(devices).isdisjoint(row.devices)
            finished = row.state is RunState.FINISHED
            return not row.provenance.dirty, finished, sizes[row.id], shares_device, len(row.devices), row.id

        return sorted(rows, key=goodness, reverse=True)

    def commits(self, run: int, *, later: bool = False) -> dict[int, str]:
        """Return the commits of a run and of the earlier runs of its scope (suite, selection) by run, newest first.

        Other runs count only if they have ended, had no uncommitted changes and are not excluded. A commit is empty
        outside git. With ``later``, the later runs are returned too.
        """
        scope = select(Runs.scope).where(Runs.id == run).scalar_subquery()
        clean = (Runs.git_dirty.is_(False), Runs.state.in_(ENDED), judged(Runs.id))
        others = and_(Runs.scope == scope, *clean, true() if later else Runs.id < run)
        query = select(Runs.id, Runs.git_commit).where(or_(Runs.id == run, others)).order_by(Runs.id.desc())
        with self._database.reading() as connection:
            return dict(connection.execute(query).all())

    def last_of_scopes(self) -> list[int]:
        """Return the newest ended run of each scope (suite and selection), oldest first.

        Runs with uncommitted changes and excluded runs do not count.
        """
        with self._database.reading() as connection:
            return sorted(newest_of_scopes(connection, 1))

    # --- budgets ---------------------------------------------------------------------------------------------------

    def put_over_budget(self, run: int, keys: Iterable[CaseKey]) -> None:
        """Store the cases that a run did not measure because its budget was used up.

        These cases replace all cases that were stored earlier for this run.
        """
        with self._database.writing() as connection:
            connection.execute(delete(OverBudgetCases).where(OverBudgetCases.run_id == run))
            times = [Series(case, uuid, "", TIME, cache) for uuid, case, cache in dict.fromkeys(keys)]
            rows = [{"run_id": run, "series_id": number} for number in put_series(connection, times).values()]
            if rows:
                connection.execute(insert(OverBudgetCases), rows)

    def over_budget(self, run: int) -> list[CaseKey]:
        """Return the cases that a run did not measure because its budget was used up, under their present names."""
        skipped = select(OverBudgetCases.series_id).where(OverBudgetCases.run_id == run)
        with self._database.reading() as connection:
            times = load_series(connection, SeriesRows.id.in_(skipped)).values()
        return [(series.device, series.case, series.cache) for series in times]

    def list(self, limit: int | None = None) -> list[RunRow]:
        """Return all runs, or the newest ``limit``, newest first."""
        with self._database.reading() as connection:
            return _rows(connection, limit=limit)


def unknown(run: int) -> NotMeasuredError:
    """Return the error for a run that does not exist."""
    return NotMeasuredError(f"there is no run {run}", cure="perfsvc runs")


def unknown_night(number: int) -> NotMeasuredError:
    """Return the error for a night that does not exist."""
    return NotMeasuredError(f"there is no night {number}", cure="perfsvc nightly makes one")


def remember_removed(connection: Connection, table: type[Runs | Nights], ids: Collection[int]) -> None:
    """Store the ``uid`` of runs or nights that are about to be removed, so that no sync copies them here again."""
    uids = select(table.uid, literal(datetime.now(UTC), Utc)).where(table.id.in_(ids))
    connection.execute(insert(RemovedUids).from_select(["uid", "removed_at"], uids))


def newest_of_scopes(connection: Connection, count: int) -> set[int]:
    """Return the newest ``count`` ended runs of each scope (suite and selection).

    Runs with uncommitted changes and excluded runs do not count.
    """
    newest_first = func.row_number().over(partition_by=Runs.scope, order_by=Runs.id.desc())
    clean = (Runs.git_dirty.is_(False), Runs.state.in_(ENDED), judged(Runs.id))
    ranked = select(Runs.id, newest_first.label("rank")).where(*clean).subquery()
    return set(connection.scalars(select(ranked.c.id).where(ranked.c.rank <= count)))


def run_row(provenance: Provenance, state: RunState) -> dict[str, Any]:
    """Return the row of a new run of this process; an empty host means this machine."""
    return to_row(Runs, provenance) | {
        "state": state,
        "host": provenance.host or platform.node(),
        "packages": dict(provenance.packages),
        **this_process(),
    }


def load_exclusions(connection: Connection, *where: ColumnElement[bool]) -> list[Exclusion]:
    """Return exclusions, oldest first, including exclusions of deleted runs and exclusions that were taken back."""
    query = (
        select(Exclusions, Cases.name)
        .outerjoin(Cases, Cases.id == Exclusions.case_id)
        .where(*where)
        .order_by(Exclusions.id)
    )
    return [
        from_row(Exclusion, row, case=row.name or "", by=row.excluded_by, at=row.excluded_at)
        for row in connection.execute(query)
    ]


def _end(connection: Connection, run: int, state: RunState) -> None:
    from perfsvc.store.levels import write_levels  # imports NumPy, which takes long

    _change(connection, run, state=state, finished_at=datetime.now(UTC))
    write_levels(connection, run)


def _change(connection: Connection, run: int, **values: Any) -> None:
    if connection.execute(update(Runs).where(Runs.id == run).values(values)).rowcount == 0:
        raise unknown(run)


def _mark_interrupted(connection: Connection, host: str) -> None:
    """Mark the running runs of this machine, whose name is ``host``, as interrupted if their process died.

    A run in another container with this host name counts as alive until it has lasted ``LONGEST_RUN``.
    """
    now = datetime.now(UTC)
    running = select(Runs.id, Runs.pid, Runs.process_start, Runs.started_at)
    here = (Runs.state == RunState.RUNNING, Runs.host == host)
    for run, pid, start, started in connection.execute(running.where(*here)).all():
        may_live = is_elsewhere(start) and started > now - LONGEST_RUN
        if not may_live and not alive(pid, start):
            try:
                _end(connection, run, RunState.INTERRUPTED)
            except DamagedError as error:  # it must not stop the run that begins now
                logging.getLogger("perfsvc").warning("run %d has no levels: %s (perfsvc db check)", run, error.what)


def _first(connection: Connection, *where: ColumnElement[bool], offset: int = 0) -> RunRow | None:
    return next(iter(_rows(connection, *where, limit=1, offset=offset)), None)


def _sizes(connection: Connection, runs: Sequence[int]) -> Counter[int]:
    """Return how many cases each run selected, on any device; a case counts once for each cache state."""
    sizes: Counter[int] = Counter()
    measured = select(Measurements.run_id, Measurements.case_id, Measurements.cache)
    skipped = select(OverBudgetCases.run_id, SeriesRows.case_id, SeriesRows.cache)
    selected = union(
        measured.where(among(Measurements.run_id, runs)),
        skipped.join(SeriesRows, SeriesRows.id == OverBudgetCases.series_id).where(among(OverBudgetCases.run_id, runs)),
    ).subquery()
    sizes.update(dict(connection.execute(select(selected.c.run_id, func.count()).group_by(selected.c.run_id)).all()))
    return sizes


def _rows(
    connection: Connection, *where: ColumnElement[bool], limit: int | None = None, offset: int = 0
) -> list[RunRow]:
    """Return the runs that meet some conditions, newest first."""
    query = select(Runs).where(*where).order_by(Runs.id.desc()).limit(limit).offset(offset)
    rows = connection.execute(query).all()
    numbers = [row.id for row in rows]
    devices = read_run_devices(connection, numbers)
    running = count_cases(connection, [row.id for row in rows if row.cases is None])
    excluded: dict[int, list[Exclusion]] = defaultdict(list)
    for exclusion in load_exclusions(connection, among(Exclusions.run_id, numbers), Exclusions.included_at.is_(None)):
        excluded[exclusion.run].append(exclusion)
    return [
        _run_row(
            row,
            running.get(row.id, 0) if row.cases is None else row.cases,
            devices.get(row.id, ()),
            tuple(excluded[row.id]),
        )
        for row in rows
    ]


def _run_row(row: Any, cases: int, devices: Iterable[DeviceInRun], excluded: tuple[Exclusion, ...]) -> RunRow:
    """Return a row of ``runs`` as a ``RunRow``, with its number of cases, devices and exclusions."""
    counts: Counter[Status] = Counter()
    for device in devices:
        counts.update(device.statuses)
    provenance = from_row(Provenance, row)
    uuids = tuple(sorted(device.device for device in devices))
    return RunRow(row.id, row.state, provenance, row.finished_at, dict(counts), cases, uuids, excluded)


# --- the process of a run or a night ----------------------------------------------------------------------------------


def start_of(pid: int) -> str:
    """Return when a process started, in the kernel's ticks, and the PID namespace in which it has its id.

    The result is empty if the process is gone or the system does not report it. Only the id, the start and the
    namespace together identify a process: the system reuses ids, and each container has ids of its own.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    state, start = fields[0], fields[19]
    return "" if state in "ZX" else f"{start} {_namespace()}".strip()


def _namespace() -> str:
    """Return the PID namespace of this process; empty if the system does not report it."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""


def is_elsewhere(start: str) -> bool:
    """Return True if a process with this start has its id in another PID namespace, where this process cannot see it.

    Two containers may have one host name.
    """
    _, _, namespace = start.partition(" ")
    return bool(namespace) and namespace != _namespace()


def alive(pid: int, start: str) -> bool:
    """Return True if the process with this id and this start still runs; False if it runs in another PID namespace."""
    if start:
        return start_of(pid) == start
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it runs as another user
    return True


def this_process() -> dict[str, Any]:
    """Return the columns that identify this process in a run or a night."""
    return {"pid": os.getpid(), "process_start": start_of(os.getpid())}
