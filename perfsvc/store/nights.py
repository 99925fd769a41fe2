"""Nights: one execution of ``perfsvc nightly`` each, with its stages."""

import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from perfsvc.errors import DatabaseError
from perfsvc.keys import Signed
from perfsvc.model import NightRow, RunState, StageRow
from perfsvc.store.runs import alive, is_elsewhere, this_process, unknown_night
from perfsvc.store.schema.base import from_row, to_row
from perfsvc.store.schema.engine import POSTGRESQL, Database, StorePart, new_id, translated
from perfsvc.store.schema.night_tables import Nights, Stages


class ServerLock:
    """A lock in a PostgreSQL database, which several containers may share though they share no folder.

    The server releases the lock when the connection of this process ends.

    Args:
        database: the database.
        name: the name of the lock; two locks of one name exclude each other.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        self._connection: Connection | None = None

    def take(self) -> bool:
        """Take the lock; returns False if another connection holds it."""
        if self._connection is not None:
            return True
        engine = self._database.engine
        with translated(engine.url):
            connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            if connection.scalar(select(func.pg_try_advisory_lock(self._key))):
                self._connection = connection
            else:
                connection.close()
        return self._connection is not None

    def release(self) -> None:
        """Release the lock if this object holds it; a connection that was cut has released it already."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(DatabaseError), translated(self._database.engine.url), connection:
                connection.execute(select(func.pg_advisory_unlock(self._key)))


class NightStore(StorePart):
    """Nights; each method is one transaction."""

    def begin(self, *, host: str, started: datetime, suite: str, command_line: str, settings: Mapping[str, Any]) -> int:
        """Store a new running night and return its number.

        Other running nights of the host are marked as interrupted if their process has died.

        Args:
            host: the name of this machine.
            started: the present time.
            suite: the folder of benchmarks.
            command_line: the command as typed.
            settings: the settings in force as JSON values, without secrets.
        """
        row = {
            "state": RunState.RUNNING,
            "started_at": started,
            "host": host,
            "suite": suite,
            "git_commit": "",
            "git_dirty": False,
            "suite_digest": "",
            "command_line": command_line,
            "settings": dict(settings),
            "signatures": self._keys.sign(Signed.NIGHT, _signed_text(host, suite, settings)),
            **this_process(),
        }
        with self._database.writing() as connection:
            for night in _load(connection, Nights.host == host, Nights.state == RunState.RUNNING):
                if _has_died(night):
                    values = {"state": RunState.INTERRUPTED, "finished_at": datetime.now(UTC)}
                    _update(connection, night.id, values)
            return new_id(connection, Nights, row)

    def require_signed(self, night: NightRow) -> None:
        """Raise ``UntrustedError`` unless a trusted key has signed the host, the suite and the settings of a night.

        These decide whose code a resumed night runs, and where the night writes files.
        """
        name = f"what night {night.id} began with"
        with self._database.reading() as connection:
            signatures = connection.scalar(select(Nights.signatures).where(Nights.id == night.id)) or ""
        self._keys.require(Signed.NIGHT, _signed_text(night.host, night.suite, night.settings), signatures, name)

    def resume(self, number: int) -> None:
        """Store that this process resumes a night."""
        values = {"state": RunState.RUNNING, "finished_at": None, **this_process()}
        with self._database.writing() as connection:
            _update(connection, number, values)

    def end(self, number: int, state: RunState, exit_code: int | None) -> None:
        """Store that a night has ended now, and how. A night without an exit code may be resumed."""
        values = {"state": state, "exit_code": exit_code, "finished_at": datetime.now(UTC)}
        with self._database.writing() as connection:
            _update(connection, number, values)

    def put_revision(self, number: int, *, commit: str, dirty: bool, digest: str) -> None:
        """Store which suite a night measures: its commit (empty outside a repository) and a digest of its files."""
        with self._database.writing() as connection:
            _update(connection, number, {"git_commit": commit, "git_dirty": dirty, "suite_digest": digest})

    def put_stage(self, night: int, stage: StageRow) -> None:
        """Store a stage of a night; it replaces the night's earlier stage of the same name."""
        row = to_row(Stages, stage) | {"night_id": night}
        with self._database.writing() as connection:
            connection.execute(delete(Stages).where(Stages.night_id == night, Stages.name == stage.name))
            connection.execute(insert(Stages).values(row))

    def get(self, number: int) -> NightRow:
        """Return a night; raises ``NotMeasuredError`` if it does not exist."""
        with self._database.reading() as connection:
            nights = _load(connection, Nights.id == number)
        if not nights:
            raise unknown_night(number)
        return nights[0]

    def previous(self, night: NightRow) -> NightRow | None:
        """Return the night that the same host began before another night; None if there is none."""
        with self._database.reading() as connection:
            nights = _load(connection, Nights.host == night.host, Nights.id < night.id, limit=1)
        return next(iter(nights), None)

    def last(self, host: str) -> NightRow | None:
        """Return the newest night of a host; None if there is none."""
        with self._database.reading() as connection:
            return next(iter(_load(connection, Nights.host == host, limit=1)), None)

    def has(self, began: datetime) -> bool:
        """Return whether a night began at this microsecond, on any host."""
        with self._database.reading() as connection:
            return connection.scalar(select(Nights.id).where(Nights.started_at == began).limit(1)) is not None

    def lock(self, host: str) -> "ServerLock | None":
        """Return the lock of a host's nights in a PostgreSQL database; None for SQLite."""
        return ServerLock(self._database, f"night {host}") if self._database.engine.dialect.name == POSTGRESQL else None

    def running(self, host: str) -> NightRow | None:
        """Return the running night of this machine, whose name is ``host``; None if no night is running.

        A running night of another container with this host name counts too.
        """
        with self._database.reading() as connection:
            nights = _load(connection, Nights.host == host, Nights.state == RunState.RUNNING)
        return next((night for night in nights if is_elsewhere(night.process_start) or not _has_died(night)), None)

    def unfinished(self, host: str) -> NightRow | None:
        """Return the newest night of the machine ``host`` if the night was interrupted and not resumed.

        The caller holds the lock of the host's nights. A night that is stored as running without a process on this
        machine has died.
        """
        night = self.last(host)
        return night if night and (night.state is RunState.INTERRUPTED or _has_died(night)) else None

    def list(self, limit: int | None = None) -> list[NightRow]:
        """Return all nights, or the last ``limit``, newest first."""
        with self._database.reading() as connection:
            return _load(connection, limit=limit)


def _signed_text(host: str, suite: str, settings: Mapping[str, Any]) -> str:
    """Return what is signed of a night; it reads the same from every database."""
    return json.dumps([host, suite, settings], sort_keys=True)


def _update(connection: Connection, number: int, values: Mapping[str, Any]) -> None:
    """Change columns of a night; raises ``NotMeasuredError`` if it does not exist."""
    if connection.execute(update(Nights).where(Nights.id == number).values(values)).rowcount == 0:
        raise unknown_night(number)


def _has_died(night: NightRow) -> bool:
    return night.state is RunState.RUNNING and not alive(night.pid, night.process_start)


def _load(connection: Connection, *where: ColumnElement[bool], limit: int | None = None) -> list[NightRow]:
    """Return nights with their stages, newest first."""
    query = select(Nights).where(*where).order_by(Nights.id.desc()).limit(limit)
    nights = connection.execute(query).all()
    stages: dict[int, list[StageRow]] = defaultdict(list)
    of_nights = select(Stages).where(Stages.night_id.in_([night.id for night in nights]))
    for row in connection.execute(of_nights.order_by(Stages.night_id, Stages.number)):
        stages[row.night_id].append(from_row(StageRow, row))
    return [from_row(NightRow, row, stages=tuple(stages[row.id])) for row in nights]
