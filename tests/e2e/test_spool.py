"""A run whose database goes away loses nothing: its results wait in a spool, and reach the database once."""

import sqlite3
import time
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import psycopg
import pytest
from sqlalchemy import create_engine, text

from perfsvc.errors import DatabaseError
from perfsvc.service.run import record
from perfsvc.service.run.record import Recorder
from perfsvc.store.measurements import MeasurementStore
from perfsvc.store.schema import engine
from perfsvc.store.schema.engine import resolve

MEASUREMENTS = """
SELECT c.name, m.replica, m.status, count(*) FROM measurements m JOIN cases c ON c.id = m.case_id
WHERE m.run_id = {run} GROUP BY c.name, m.replica, m.status ORDER BY c.name, m.replica
"""


class SqliteOutage:
    """Another connection holds the write lock of a SQLite file."""

    def __init__(self, perfsvc):
        self.url = str(perfsvc.database)
        self._holder = None

    def begin(self):
        self._holder = sqlite3.connect(self.url, isolation_level=None)
        self._holder.execute("BEGIN EXCLUSIVE")

    def end(self):
        if self._holder:
            self._holder.close()
            self._holder = None


class PostgresqlOutage:
    """A server that ends all connections to a database and refuses new ones."""

    def __init__(self, databases):
        self.name = databases.create()
        self.url = databases.url(self.name)
        self._server = databases.server

    def _do(self, *statements):
        with psycopg.connect(self._server, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def begin(self):
        self._do(
            f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS false",
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'",
        )

    def end(self):
        self._do(f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS true")


@pytest.fixture(params=["sqlite", "postgresql"])
def outage(request, perfsvc, monkeypatch):
    monkeypatch.setattr(engine, "LOCK_WAIT_S", 0.1)
    monkeypatch.setattr(record, "PAUSE_S", 0.01)
    monkeypatch.setattr(record, "WAIT_S", 5.0)
    perfsvc.environment["XDG_DATA_HOME"] = str(perfsvc.folder / "data")
    perfsvc.play({"*": {"seconds": 1e-4}})
    if request.param == "sqlite":
        made = SqliteOutage(perfsvc)
        yield made
        made.end()
        return
    databases = request.getfixturevalue("databases")
    made = PostgresqlOutage(databases)
    perfsvc.environment["PERFSVC_DB"] = made.url
    yield made
    made.end()
    databases.drop(made.name)


@contextmanager
def away(outage, *, after=3, until_sleep=True, and_then=lambda: None):
    """Make a database go away when a run has stored some measurements, until the run sleeps if ``until_sleep``."""
    puts, put, sleep = [], Recorder.put, time.sleep

    def putting(self, measurements):
        put(self, measurements)
        puts.append(1)
        if len(puts) == after + 1:
            outage.begin()
        if len(puts) == after + 2:
            and_then()

    def sleeping(seconds):
        if until_sleep:
            outage.end()
        sleep(seconds)

    with mock.patch.object(Recorder, "put", putting), mock.patch.object(record.time, "sleep", sleeping):
        yield
    assert len(puts) > after + 1, "the run ended before the outage"


def rows(outage, query):
    made = create_engine(resolve(outage.url))
    try:
        with made.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query))]
    finally:
        made.dispose()


def spools(perfsvc):
    folder = Path(perfsvc.environment["XDG_DATA_HOME"]) / "perfsvc" / "spool"
    return sorted(folder.glob("*")) if folder.exists() else []


def require_whole(outage, run, like):
    """A run has each measurement of another run exactly once, and is judged."""
    assert rows(outage, MEASUREMENTS.format(run=run)) == rows(outage, MEASUREMENTS.format(run=like))
    for table in ("verdicts", "noise", "peaks"):
        counts = [rows(outage, f"SELECT count(*) FROM {table} WHERE run_id = {number}") for number in (run, like)]
        assert counts[0] == counts[1]
    assert rows(outage, f"SELECT state FROM runs WHERE id = {run}") == [("finished",)]
    ids = "SELECT full_environment_id IS NULL, uid IS NULL FROM runs"
    assert set(rows(outage, ids)) == {(False, False)}


def test_a_database_that_comes_back_has_everything_once(perfsvc, outage):
    perfsvc.fake(code=0)
    with away(outage):
        ended = perfsvc.fake(code=0)
    assert "measuring goes on, and the results of run 2 go to " in ended.err
    assert "the database answers again: it has the results of run 2 now" in ended.err
    require_whole(outage, 2, like=1)
    assert rows(outage, "SELECT count(*) FROM runs") == [(2,)]
    assert spools(perfsvc) == []
    perfsvc("db", "check", code=0)


def test_the_next_run_sends_and_judges_what_a_database_that_stayed_away_lacks(perfsvc, outage):
    perfsvc.fake(code=0)
    record.WAIT_S = 0.05
    with away(outage, until_sleep=False):
        ended = perfsvc.fake(code=5)
    (file,) = [spool for spool in spools(perfsvc) if spool.suffix == ".db"]
    assert f"nothing is lost: the results of run 2 are in {file}" in ended.err
    assert f"perfsvc sync {file} " in ended.err
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    outage.end()
    ended = perfsvc.fake(code=0)
    assert f"the results that waited in {file} were sent to the database" in ended.err
    require_whole(outage, 2, like=1)
    require_whole(outage, 3, like=1)
    assert spools(perfsvc) == []
    perfsvc("db", "check", code=0)


def test_ctrl_c_during_an_outage_keeps_the_spool(perfsvc, outage):
    def interrupt():
        raise KeyboardInterrupt

    with away(outage, until_sleep=False, and_then=interrupt):
        ended = perfsvc.fake(code=130)
    assert "nothing is lost: the results of run 1 are in " in ended.err
    outage.end()
    perfsvc.fake(code=0)
    assert rows(outage, "SELECT state FROM runs ORDER BY id") == [("interrupted",), ("finished",)]
    # One measurement was stored before the outage, and the other one during it.
    assert rows(outage, "SELECT count(*) FROM measurements WHERE run_id = 1") == [(2,)]
    assert spools(perfsvc) == []


def test_a_commit_whose_answer_was_lost_is_stored_once(perfsvc, outage):
    perfsvc.fake(code=0)
    puts, stored = [], MeasurementStore.put

    def lossy(self, run, entries):
        stored(self, run, entries)
        puts.append(run)
        if len(puts) == 3:
            raise DatabaseError("the connection is lost", again=True)

    with mock.patch.object(MeasurementStore, "put", lossy):
        perfsvc.fake(code=0)
    require_whole(outage, 2, like=1)


def test_a_spool_that_cannot_be_read_is_set_aside(perfsvc, outage):
    perfsvc.fake(code=0)
    record.WAIT_S = 0.05
    with away(outage, until_sleep=False):
        perfsvc.fake(code=5)
    outage.end()
    (file,) = [spool for spool in spools(perfsvc) if spool.suffix == ".db"]
    file.write_bytes(b"nonsense" * 100)
    ended = perfsvc.fake(code=0)
    assert f"it is kept as {file}.unusable" in ended.err
    assert Path(f"{file}.unusable").read_bytes() == b"nonsense" * 100
