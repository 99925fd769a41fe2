"""Spools: where the results of a run go while its database cannot be written.

A spool is a SQLite database of perfsvc with the same run in it. It lies in the user's data folder, and is named by the
run and by the database that it belongs to. The process that fills or sends a spool holds a lock beside it.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs

from perfsvc.errors import DamagedError, DatabaseError, InfrastructureError
from perfsvc.measure.host.lock import HostLock
from perfsvc.model import DeviceInfo, FullEnvironment, Provenance
from perfsvc.store import CaseCode, MeasurementEntry, RunRow, RunState, Store
from perfsvc.store.keeping.sync import Sync, SyncAction
from perfsvc.store.schema.engine import POSTGRESQL, SQLITE

SUFFIX = ".db"
UNUSABLE = ".unusable"
"""What is appended to the name of a spool that perfsvc cannot read."""

_OWNER_ONLY = 0o700
_NO_DATABASE = ("file is not a database", "malformed")
"""Parts of SQLite's messages about a file that will not be readable later either."""


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What a spool needs to know about its run; it is read before the database can go away.

    Attributes:
        uid: the identity of the run in every database.
        provenance: the provenance of the run.
        full_environment: the full environment of the run.
    """

    uid: str
    provenance: Provenance
    full_environment: FullEnvironment

    @classmethod
    def of(cls, store: Store, run: int) -> "RunIdentity":
        """Return the identity of a run."""
        full = store.devices.full_environments([run]).get(run, FullEnvironment())
        return cls(store.runs.uid(run), store.runs.get(run).provenance, full)


class Spool:
    """An open spool, whose lock this process holds.

    Attributes:
        file: the SQLite file.
        store: the database in this file.
        run: the number of the run in this database.
    """

    def __init__(self, file: Path, lock: HostLock, store: Store, run: int) -> None:
        self.file = file
        self._lock = lock
        self.store = store
        self.run = run
        self._binaries: dict[int, int] = {}

    @classmethod
    def make(
        cls, database: Store, identity: RunIdentity, devices: Sequence[DeviceInfo], codes: Mapping[int, CaseCode]
    ) -> "Spool":
        """Make the spool of a run.

        Args:
            database: the database that cannot be written.
            identity: the run.
            devices: the devices of the run.
            codes: the code of the run's cases, by the number of the binary in the database.

        Raises:
            InfrastructureError: the spool cannot be written.
        """
        file = _file(database, identity.uid)
        lock = _lock(file)
        try:
            file.parent.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
            if not lock.take():
                raise DatabaseError(f"another process uses the spool {file}", cure="let it end")
            file.touch(mode=0o600)  # SQLite gives its journal the permissions of the file
        except OSError as error:
            lock.release()
            raise DatabaseError(f"{file}: {error.strerror}", cure="let this user write there") from error
        try:
            store = Store.open(file)
        except BaseException:
            lock.release()
            raise
        try:
            run = store.runs.of_uid(identity.uid)  # of an earlier outage, if its spool could not be sent
            if run is None:
                run = store.runs.begin(identity.provenance, uid=identity.uid)
            else:
                store.runs.resume(run)
            spool = cls(file, lock, store, run)
            store.devices.put_full_environment(spool.run, identity.full_environment)
            for device in devices:
                store.devices.put(device)
            spool._binaries = dict(zip(codes, store.binaries.put(list(codes.values())), strict=True))
        except BaseException:
            store.close()
            lock.release()
            raise
        return spool

    def put(self, entries: Sequence[MeasurementEntry]) -> None:
        """Store measurements, whose binaries have their numbers in the database."""
        translated = [
            replace(entry, binary=None if entry.binary is None else self._binaries.get(entry.binary))
            for entry in entries
        ]
        self.store.measurements.put(self.run, translated)

    def close(self) -> None:
        """Close the file and release the lock; a later run sends the spool."""
        self.store.close()
        self._lock.release()

    def send(self, database: Store) -> str:
        """Copy the spool into its database, delete the spool, and return in words what was copied.

        A run that the database has only in part is completed; what the database has already is not copied again.

        Raises:
            DatabaseError: the database still cannot be written. The spool is unchanged.
        """
        counts = copy_run(self.store, database)
        self.store.close()
        upgrades = self.file.parent.glob(f"{self.file.name}.*.backup")  # this perfsvc upgraded an older one's spool
        for file in (*upgrades, *(self.file.with_name(self.file.name + end) for end in ("-wal", "-shm", ""))):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            _lock_file(self.file).unlink()  # while this process holds the lock: others then lock a new file
        self._lock.release()
        return counts


def copy_run(spool: Store, database: Store) -> str:
    """Copy the run of a spool into its database, and return in words what the spool had."""
    sync = Sync(spool.database, database.database)
    unfinished = set()
    for planned in sync.plan():
        stored = database.runs.of_uid(planned.uid)
        if stored is not None and database.runs.get(stored).state is not RunState.FINISHED:
            # The database may have marked or excluded the run after the spool's end. The spool knows how it ended.
            unfinished.add(planned.uid)
    copied = [run for run in sync.plan() if run.action is not SyncAction.REMOVED]
    for run in copied:
        if run.uid in unfinished:
            sync.copy_run(replace(run, newer=True))
        elif run.action in {SyncAction.NEW, SyncAction.CHANGED}:
            sync.copy_run(run)
    sync.copy_pins_and_peaks()
    return f"{sum(run.measurements for run in copied)} measurements"


def waiting(database: Store) -> list[Path]:
    """Return the spools that belong to a database, oldest first; spools that a living process uses are included."""
    return [file for file in _files() if _belongs(file, database)]


def left_at_another_path(database: Store) -> list[tuple[Path, int]]:
    """Return the spools of another path whose unfinished run a database has, each with the number of the run.

    A spool is named by the path of its SQLite file, so it does not belong to a file that was moved. A copy of that file
    has the run too, so a person must decide. A spool that a living process uses is left out.
    """
    left = []
    for file in _files():
        uid, _, owner = file.name.partition("-")
        run = None if _belongs(file, database) or not owner.startswith(SQLITE) else database.runs.of_uid(uid)
        if run is not None and database.runs.get(run).state is not RunState.FINISHED:
            with locked(file) as lock:
                left += [(file, run)] if lock else []
    return left


def _files() -> list[Path]:
    """Return all spools of this user, oldest first."""
    files = []
    with contextlib.suppress(OSError, RuntimeError):
        for file in folder().glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):  # it was sent meanwhile, or is a broken link
                files.append((file.stat().st_mtime, file))
    return [file for _, file in sorted(files)]


@contextlib.contextmanager
def locked(file: Path) -> Iterator[HostLock | None]:
    """Hold the lock of a spool; yield None if another process holds it, or has just sent the spool."""
    lock = _lock(file)
    try:
        yield lock if lock.take() and file.exists() else None
    finally:
        lock.release()


def opened(file: Path, lock: HostLock) -> Spool:
    """Open a spool to send it; a run whose process was killed is marked as interrupted.

    Raises:
        DamagedError: the file is no spool, or is damaged.
        DatabaseError: the file cannot be read now, for example because the disk is full.
    """
    try:
        Store.upgrade(file)
        store = Store.open(file, create=False)
    except DatabaseError as error:
        if any(sign in error.what for sign in _NO_DATABASE):
            raise DamagedError(error.what, cure=error.cure) from error
        raise
    try:
        run = _only_run(file, store)
        if run.state is RunState.RUNNING:  # no process fills the spool, because this process has its lock
            store.runs.end(run.id, RunState.INTERRUPTED)
        return Spool(file, lock, store, run.id)
    except BaseException:
        store.close()
        raise


def _only_run(file: Path, store: Store) -> RunRow:
    runs = store.runs.list()
    if not runs:  # its process was killed while it made the spool
        raise DamagedError(f"{file} holds no run")
    return runs[0]


def set_aside(file: Path) -> Path:
    """Rename a spool that cannot be read, with its journal, and return its new name."""
    for end in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            file.with_name(file.name + end).rename(file.with_name(file.name + UNUSABLE + end))
    return file.with_name(file.name + UNUSABLE)


def folder() -> Path:
    """Return the folder of this user's spools. Raises ``RuntimeError`` if this user has no home folder."""
    data = platformdirs.user_data_path("perfsvc")
    if not data.is_absolute():  # older versions of platformdirs return ~/… without a home folder
        raise RuntimeError("this user has no home folder")
    return data / "spool"


def _file(database: Store, uid: str) -> Path:
    """Return the spool of a run: its name has the ``uid`` of the run, and the kind and the digest of the database."""
    try:
        return folder() / f"{uid}-{_owner(database)}{SUFFIX}"
    except RuntimeError as error:
        raise InfrastructureError(f"there is no place for a spool: {error}", cure="set HOME") from error


def _owner(database: Store) -> str:
    digest = hashlib.sha256(os.fsencode(database.identity)).hexdigest()[:16]
    return f"{database.database.engine.dialect.name}-{digest}"


def _belongs(file: Path, database: Store) -> bool:
    """Return True if a spool belongs to a database.

    A URL of PostgreSQL may be spelled in several ways, so a server that has the spool's run owns the spool too.
    """
    uid, _, owner = file.name.removesuffix(SUFFIX).partition("-")
    if owner == _owner(database):
        return True
    return owner.startswith(POSTGRESQL) and database.file is None and database.runs.of_uid(uid) is not None


def _lock(file: Path) -> HostLock:
    return HostLock(file.name, "two processes from sending a spool", file.parent)


def _lock_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.lock")
