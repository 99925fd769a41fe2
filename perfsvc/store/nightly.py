"""Nights as the store keeps them: begun, gone on with, ended, and each of their stages; and runs gone on with."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, delete, insert, select, update

from perfsvc.errors import NotMeasuredError
from perfsvc.model import Measurement
from perfsvc.store import processes, resuming
from perfsvc.store.checks import Checks
from perfsvc.store.engine import transaction
from perfsvc.store.interning import new_id, table
from perfsvc.store.night_tables import Nights, Stages
from perfsvc.store.rows import NightRow, StageRow, State


class Nightly:
    """The part of ``Store`` that is about nights; each method is one transaction."""

    _engine: Engine

    def begin_night(
        self, *, host: str, started: datetime, suite: str, command_line: str, settings: Mapping[str, Any]
    ) -> int:
        """Stores a night as running and returns its number; first ends those of the host whose process died.

        Args:
            host: this machine.
            started: now.
            suite: the folder of benchmarks.
            command_line: what was typed.
            settings: what is in force, as JSON can hold it, and nothing secret.
        """
        row = {
            "state": State.RUNNING,
            "started_at": started,
            "host": host,
            "suite": suite,
            "git_commit": "",
            "git_dirty": False,
            "suite_digest": "",
            "command_line": command_line,
            "settings": dict(settings),
            **processes.this_process(),
        }
        with transaction(self._engine, writes=True) as connection:
            _mark_interrupted(connection, host)
            return new_id(connection, Nights, row)

    def resume_night(self, number: int) -> None:
        """Has this process go on with a night."""
        with transaction(self._engine, writes=True) as connection:
            _change(connection, number, {"state": State.RUNNING, "finished_at": None, **processes.this_process()})

    def end_night(self, number: int, state: State, exit_code: int | None) -> None:
        """Stores how a night ended, and that it did so now; without an exit code it may be gone on with."""
        ended = {"state": state, "exit_code": exit_code, "finished_at": datetime.now(UTC)}
        with transaction(self._engine, writes=True) as connection:
            _change(connection, number, ended)

    def put_snapshot(self, number: int, *, commit: str, dirty: bool, digest: str) -> None:
        """Stores which suite a night measures: its revision, empty outside a repository, and a digest of its files."""
        with transaction(self._engine, writes=True) as connection:
            _change(connection, number, {"git_commit": commit, "git_dirty": dirty, "suite_digest": digest})

    def put_stage(self, night: int, stage: StageRow) -> None:
        """Stores a stage of a night, in place of what was stored of it before."""
        row = {
            "night_id": night,
            "name": stage.name,
            "place": stage.place,
            "state": stage.state,
            "started_at": stage.started,
            "wall_s": stage.wall_s,
            "said": stage.said,
            "cure": stage.cure,
            "exit_code": stage.exit_code,
        }
        with transaction(self._engine, writes=True) as connection:
            connection.execute(delete(Stages).where(Stages.night_id == night, Stages.name == stage.name))
            connection.execute(insert(Stages).values(row))

    def night(self, number: int) -> NightRow:
        """One night; raises ``NotMeasuredError`` where there is none."""
        with transaction(self._engine, writes=False) as connection:
            found = _rows(connection, Nights.id == number, limit=1)
        if not found:
            raise _unknown(number)
        return found[0]

    def nights_held(self, limit: int | None = None) -> list[NightRow]:
        """All nights, or the last ``limit``, newest first; what a series was like in them is ``nights``."""
        with transaction(self._engine, writes=False) as connection:
            return _rows(connection, limit=limit)

    def running_night(self, host: str) -> NightRow | None:
        """The night that is under way on a host, which must be this machine."""
        with transaction(self._engine, writes=False) as connection:
            rows = _rows(connection, Nights.host == host, Nights.state == State.RUNNING)
        return next((row for row in rows if processes.alive(row.pid, row.process_start)), None)

    def unfinished_night(self, host: str) -> NightRow | None:
        """The newest night of a host (this machine), if it was stopped before its end and nobody goes on with it."""
        with transaction(self._engine, writes=False) as connection:
            rows = _rows(connection, Nights.host == host, limit=1)
        stopped = (row for row in rows if row.state is State.INTERRUPTED or _is_dead(row))
        return next(stopped, None)

    def forget_checks(self, host: str, command_line: str, since: datetime) -> None:
        """Removes the static checks that a command stored on a host: what is done again should find what it found."""
        mine = (Checks.host == host, Checks.command_line == command_line, Checks.checked_at >= since)
        with transaction(self._engine, writes=True) as connection:
            connection.execute(delete(Checks).where(*mine))

    def resume_run(self, run: int) -> None:
        """Has this process go on with a run, which is running again."""
        with transaction(self._engine, writes=True) as connection:
            resuming.resume_run(connection, run)

    def measured(self, run: int) -> list[Measurement]:
        """What a run holds, as it came: cases, how they ended and their samples (rounded to float32), and no more."""
        with transaction(self._engine, writes=False) as connection:
            return resuming.measured(connection, run)


def belongs_to(connection: Connection, night: int, run: int) -> None:
    """Stores that a run is a night's."""
    _change(connection, night, {"run_id": run})


def _is_dead(row: NightRow) -> bool:
    return row.state is State.RUNNING and not processes.alive(row.pid, row.process_start)


def _mark_interrupted(connection: Connection, host: str) -> None:
    for row in _rows(connection, Nights.host == host, Nights.state == State.RUNNING):
        if _is_dead(row):
            _change(connection, row.id, {"state": State.INTERRUPTED, "finished_at": datetime.now(UTC)})


def _change(connection: Connection, number: int, values: Mapping[str, Any]) -> None:
    if connection.execute(update(Nights).where(Nights.id == number).values(values)).rowcount == 0:
        raise _unknown(number)


def _unknown(number: int) -> NotMeasuredError:
    return NotMeasuredError(f"there is no night {number}", cure="perfsvc nightly makes one")


def _rows(connection: Connection, *where: ColumnElement[bool], limit: int | None = None) -> list[NightRow]:
    """Newest first, with their stages."""
    query = select(table(Nights)).where(*where).order_by(Nights.id.desc()).limit(limit)
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
    query = select(table(Stages)).where(Stages.night_id.in_(list(numbers))).order_by(Stages.night_id, Stages.place)
    found: dict[int, list[StageRow]] = defaultdict(list)
    for row in connection.execute(query):
        found[row.night_id].append(
            StageRow(row.name, row.place, row.state, row.started_at, row.wall_s, row.said, row.cure, row.exit_code)
        )
    return found
