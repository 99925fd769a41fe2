"""Nights as the store keeps them: begun, gone on with, ended, and each of their stages; and runs gone on with."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from perfsvc.errors import NotMeasuredError
from perfsvc.store.rows import NightRow, RunState, StageRow
from perfsvc.store.runs import alive, this_process
from perfsvc.store.schema.engine import Database, new_id
from perfsvc.store.schema.night_tables import Nights, Stages


class NightStore:
    """Executions of ``perfsvc nightly``; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, *, host: str, started: datetime, suite: str, command_line: str, settings: Mapping[str, Any]) -> int:
        """Stores a night as running and returns its number; first ends those of the host whose process died.

        Args:
            host: this machine.
            started: now.
            suite: the folder of benchmarks.
            command_line: what was typed.
            settings: what is in force, as JSON can hold it, and nothing secret.
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
            **this_process(),
        }
        with self._database.writing() as connection:
            _mark_interrupted(connection, host)
            return new_id(connection, Nights, row)

    def resume(self, number: int) -> None:
        """Has this process go on with a night."""
        with self._database.writing() as connection:
            _change(connection, number, {"state": RunState.RUNNING, "finished_at": None, **this_process()})

    def end(self, number: int, state: RunState, exit_code: int | None) -> None:
        """Stores how a night ended, and that it did so now; without an exit code it may be gone on with."""
        ended = {"state": state, "exit_code": exit_code, "finished_at": datetime.now(UTC)}
        with self._database.writing() as connection:
            _change(connection, number, ended)

    def put_revision(self, number: int, *, commit: str, dirty: bool, digest: str) -> None:
        """Stores which suite a night measures: its revision, empty outside a repository, and a digest of its files."""
        with self._database.writing() as connection:
            _change(connection, number, {"git_commit": commit, "git_dirty": dirty, "suite_digest": digest})

    def put_stage(self, night: int, stage: StageRow) -> None:
        """Stores a stage of a night, in place of what was stored of it before."""
        row = {
            "night_id": night,
            "name": stage.name,
            "number": stage.number,
            "state": stage.state,
            "started_at": stage.started,
            "wall_s": stage.wall_s,
            "message": stage.message,
            "cure": stage.cure,
            "exit_code": stage.exit_code,
        }
        with self._database.writing() as connection:
            connection.execute(delete(Stages).where(Stages.night_id == night, Stages.name == stage.name))
            connection.execute(insert(Stages).values(row))

    def get(self, number: int) -> NightRow:
        """One night; raises ``NotMeasuredError`` where there is none."""
        with self._database.reading() as connection:
            found = _rows(connection, Nights.id == number, limit=1)
        if not found:
            raise _unknown(number)
        return found[0]

    def running(self, host: str) -> NightRow | None:
        """The night that is under way on a host, which must be this machine."""
        with self._database.reading() as connection:
            rows = _rows(connection, Nights.host == host, Nights.state == RunState.RUNNING)
        return next((row for row in rows if alive(row.pid, row.process_start)), None)

    def unfinished(self, host: str) -> NightRow | None:
        """The newest night of a host (this machine), if it was stopped before its end and nobody goes on with it."""
        with self._database.reading() as connection:
            rows = _rows(connection, Nights.host == host, limit=1)
        stopped = (row for row in rows if row.state is RunState.INTERRUPTED or _is_dead(row))
        return next(stopped, None)

    def list(self, limit: int | None = None) -> list[NightRow]:
        """All nights, or the last ``limit``, newest first; what a series was like in them is ``nights``."""
        with self._database.reading() as connection:
            return _rows(connection, limit=limit)


def _is_dead(row: NightRow) -> bool:
    return row.state is RunState.RUNNING and not alive(row.pid, row.process_start)


def _mark_interrupted(connection: Connection, host: str) -> None:
    for row in _rows(connection, Nights.host == host, Nights.state == RunState.RUNNING):
        if _is_dead(row):
            _change(connection, row.id, {"state": RunState.INTERRUPTED, "finished_at": datetime.now(UTC)})


def _change(connection: Connection, number: int, values: Mapping[str, Any]) -> None:
    if connection.execute(update(Nights).where(Nights.id == number).values(values)).rowcount == 0:
        raise _unknown(number)


def _unknown(number: int) -> NotMeasuredError:
    return NotMeasuredError(f"there is no night {number}", cure="perfsvc nightly makes one")


def _rows(connection: Connection, *where: ColumnElement[bool], limit: int | None = None) -> list[NightRow]:
    """Newest first, with their stages."""
    query = select(Nights).where(*where).order_by(Nights.id.desc()).limit(limit)
    found = connection.execute(query).all()
    stages = _stages(connection, [row.id for row in found])
    return [
        NightRow(
            id=row.id,
            state=row.state,
            started=row.started_at,
            finished=row.finished_at,
            host=row.host,
            pid=row.pid,
            process_start=row.process_start,
            suite=row.suite,
            commit=row.git_commit,
            dirty=row.git_dirty,
            suite_digest=row.suite_digest,
            run=row.run_id,
            command_line=row.command_line,
            settings=row.settings,
            exit_code=row.exit_code,
            stages=tuple(stages[row.id]),
        )
        for row in found
    ]


def _stages(connection: Connection, numbers: Iterable[int]) -> dict[int, list[StageRow]]:
    query = select(Stages).where(Stages.night_id.in_(list(numbers))).order_by(Stages.night_id, Stages.number)
    found: dict[int, list[StageRow]] = defaultdict(list)
    for row in connection.execute(query):
        found[row.night_id].append(
            StageRow(row.name, row.number, row.state, row.started_at, row.wall_s, row.message, row.cure, row.exit_code)
        )
    return found
