"""A run whose database goes away loses nothing: its results wait in a spool, and reach the database once."""

import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

import psycopg
import pytest
from sqlalchemy import create_engine, event, text

from perfsvc.errors import DatabaseError
from perfsvc.service.run import record
from perfsvc.service.run.record import Recorder
from perfsvc.service.run.spool import locked
from perfsvc.store import Store
from perfsvc.store.keeping.sync import Sync
from perfsvc.store.measurements import MeasurementStore
from perfsvc.store.runs import RunStore
from perfsvc.store.schema import engine
from perfsvc.store.schema.engine import resolve
from tests.e2e.nights import Nights
from tests.e2e.test_peaks import PLAUSIBLE

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
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'",  # noqa: S608
        )

    def end(self):
        self._do(f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS true")


@pytest.fixture
def kind():
    """The kind of database, unless a test names another."""
    return "sqlite"


ON_BOTH = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


@pytest.fixture
def outage(request, perfsvc, kind, monkeypatch):
    monkeypatch.setattr(engine, "LOCK_WAIT_S", 0.1)
    monkeypatch.setattr(record, "PAUSE_S", 0.01)
    monkeypatch.setattr(record, "WAIT_S", 5.0)
    perfsvc.environment["XDG_DATA_HOME"] = str(perfsvc.folder / "data")
    perfsvc.play({"*": {"seconds": 1e-4}})
    if kind == "sqlite":
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
    for counted in (
        "count(status), count(verdict), count(noise_within) FROM levels",
        "count(copy_bytes_per_s), count(statuses) FROM run_devices",
    ):
        count = "SELECT {} WHERE run_id = {}"
        assert rows(outage, count.format(counted, run)) == rows(outage, count.format(counted, like))
    assert (run, "finished") in rows(outage, "SELECT id, state FROM runs")
    ids = "SELECT full_environment_id IS NULL, uid IS NULL FROM runs"
    assert set(rows(outage, ids)) == {(False, False)}


@ON_BOTH
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


@ON_BOTH
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


def test_a_peak_that_a_case_exceeds_during_an_outage_is_measured_again(perfsvc, outage):
    run = ("--select", "*/alpha", "--replicas", "2")
    perfsvc.play({"*": {"seconds": 1.0}, "peak": {"seconds": 10.0}, **PLAUSIBLE}, l2_bytes=1 << 20)
    perfsvc.fake(*run, code=0)
    in_doubt = "SELECT name FROM gpu_peaks WHERE version = 0"
    assert not rows(outage, in_doubt)
    perfsvc.play({"*": {"seconds": 1e-9}, "peak": {"seconds": 1e-3}, **PLAUSIBLE}, l2_bytes=1 << 20)
    begun, put, sleep = [], Recorder.put, time.sleep

    def putting(self, measurements):
        if measurements and not begun:
            outage.begin()
            begun.append(True)
        put(self, measurements)

    def sleeping(seconds):
        outage.end()
        sleep(seconds)

    with mock.patch.object(Recorder, "put", putting), mock.patch.object(record.time, "sleep", sleeping):
        ended = perfsvc.fake(*run)
    assert "the database answers again" in ended.err
    assert ("fp32",) in rows(outage, in_doubt)


def test_a_spool_that_cannot_be_read_is_set_aside(left):
    workplace, file = left
    file.write_bytes(b"nonsense" * 100)
    ended = workplace.fake(code=0)
    assert f"it is kept as {file}.unusable" in ended.err
    assert Path(f"{file}.unusable").read_bytes() == b"nonsense" * 100


KILLED_DURING_AN_OUTAGE = """
import os, signal, sqlite3
from perfsvc.cli import main
from perfsvc.service.run.record import Recorder
from perfsvc.store.schema import engine

engine.LOCK_WAIT_S = 0.1
put, puts = Recorder.put, []

def putting(self, measurements):
    put(self, measurements)
    puts.append(1)
    if len(puts) == 4:
        global holder
        holder = sqlite3.connect(os.environ["PERFSVC_DB"], isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
    if len(puts) == 6:
        os.kill(os.getpid(), signal.SIGKILL)

Recorder.put = putting
main()
"""
"""``perfsvc`` whose database is locked after its first measurement, and which is killed after its third."""


def test_a_night_killed_during_an_outage_is_resumed_with_what_its_spool_has(perfsvc):
    perfsvc.environment["XDG_DATA_HOME"] = str(perfsvc.folder / "data")
    nights = Nights(perfsvc)
    program = [sys.executable, "-c", KILLED_DURING_AN_OUTAGE, "nightly"]
    killed = subprocess.run(program, cwd=perfsvc.folder, env=perfsvc.environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert perfsvc.rows("select count(*) from measurements") == [(1,)]
    resumed = nights("--resume", code=0)
    assert "were sent to the database: 3 measurements of run 1" in resumed.err
    assert perfsvc.rows("select id, state from runs") == [(1, "finished")]
    assert perfsvc.rows("select count(*), count(distinct case_id || ' ' || replica) from measurements") == [(6, 6)]
    began = perfsvc.rows("select max(started_at) from stages where name = 'run'")[0][0]
    assert perfsvc.rows("select sum(measured_at < ?), sum(measured_at >= ?) from measurements", began, began) == [
        (3, 3)
    ]
    assert spools(perfsvc) == []
    perfsvc("db", "check", code=0)


def one_run(perfsvc):
    perfsvc.environment["XDG_DATA_HOME"] = str(perfsvc.folder / "data")
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(code=0)


def an_outage(perfsvc):
    """Leave the spool of a second run, whose database stayed away."""
    one_run(perfsvc)
    outage = SqliteOutage(perfsvc)
    with mock.patch.multiple(record, WAIT_S=0.05), away(outage, until_sleep=False):
        perfsvc.fake(code=5)
    outage.end()


@pytest.fixture
def lone(prepared, monkeypatch):
    """A workplace on SQLite with one run, and short waits."""
    monkeypatch.setattr(engine, "LOCK_WAIT_S", 0.1)
    monkeypatch.setattr(record, "WAIT_S", 0.05)
    return prepared(one_run)


@pytest.fixture
def left(prepared, monkeypatch):
    """The same after an outage, and the spool that it left."""
    monkeypatch.setattr(engine, "LOCK_WAIT_S", 0.1)
    workplace = prepared(an_outage)
    (file,) = [spool for spool in spools(workplace) if spool.suffix == ".db"]
    return workplace, file


def test_a_full_disk_costs_no_measurement(lone):
    """SQLite refuses to grow a file beyond ``max_page_count``, as on a full disk."""
    put, puts = Recorder.put, []

    def putting(self, measurements):
        puts.append(1)
        if len(puts) == 5:
            opened = self._store.database.engine
            opened.dispose()
            event.listen(opened, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
            with closing(sqlite3.connect(lone.database)) as connection, connection:  # no page is free
                connection.execute("VACUUM")
        put(self, measurements)

    with mock.patch.object(Recorder, "put", putting):
        ended = lone.fake(code=5)
    assert "database or disk is full: measuring goes on" in ended.err
    assert "nothing is lost" in ended.err
    lone.fake(code=0)
    require_whole(SqliteOutage(lone), 2, like=1)


def test_a_spool_waits_for_its_own_database_and_perfsvc_sync_sends_it_too(left):
    workplace, file = left
    other = workplace.folder / "other.db"
    workplace.fake("--db", other, code=0)
    checks = {row["check"]: row for row in workplace("doctor", "--format", "json").json}
    assert checks["spools"]["found"] == f"results wait in {file}"
    workplace("sync", file, workplace.database, code=0)
    assert workplace.rows("select state from runs where id = 2") == [("finished",)]
    workplace.fake(code=0)
    require_whole(SqliteOutage(workplace), 2, like=1)
    assert "spools" not in {row["check"] for row in workplace("doctor", "--format", "json").json}


def test_a_moved_database_names_the_spool_that_it_left_behind_until_it_is_sent(left):
    lone, file = left
    moved = lone.folder / "a new place" / "perfsvc.db"
    moved.parent.mkdir()
    lone.database.rename(moved)
    command = f"perfsvc sync {file} '{moved}'"
    ended = lone.fake("--db", moved, code=0)
    assert "results of run 2 wait in the spool of a database at another path" in ended.err
    assert command in ended.err
    (row,) = (row for row in lone("doctor", "--db", moved, "--format", "json").json if row["check"] == "spools")
    assert "results of run 2 wait" in row["found"]
    lone("sync", file, moved, code=0)
    assert "another path" not in lone.fake("--db", moved, code=0).err
    moved.rename(lone.database)
    assert lone.rows(MEASUREMENTS.format(run=2)) == lone.rows(MEASUREMENTS.format(run=1))


def test_a_spool_that_cannot_be_sent_now_is_left_for_later_and_stops_no_run(left):
    workplace, file = left
    with locked(file) as lock:
        assert lock is not None
        workplace.fake(code=0)
    refusal = DatabaseError(f"{file}: database or disk is full", cure="free some disk space")
    with mock.patch.object(Store, "upgrade", side_effect=refusal):
        ended = workplace.fake(code=0)
    assert f"the spool {file} is left for later: {file}: database or disk is full" in ended.err
    with mock.patch.object(Sync, "copy_run", side_effect=DatabaseError("perfsvc.db refused a row")):
        ended = workplace.fake(code=0)
    assert f"the spool {file} is left for later: perfsvc.db refused a row" in ended.err
    assert file in spools(workplace)
    file.with_name("a.db").symlink_to("nothing")  # it hides no other spool
    file.with_name(f"{file.name}.0001-20250101T000000Z.backup").write_bytes(b"an older schema")
    workplace.fake(code=0)
    for run in range(2, 7):
        require_whole(SqliteOutage(workplace), run, like=1)
    assert not file.exists()
    assert not list(file.parent.glob("*.backup"))


@pytest.mark.quick
def test_without_a_place_for_a_spool_the_run_fails_with_the_error_of_the_database(lone):
    (lone.folder / "data").mkdir(exist_ok=True)
    (lone.folder / "data" / "perfsvc").write_text("a file where the folder should be")
    outage = SqliteOutage(lone)
    puts, put = [], Recorder.put

    def putting(self, measurements):
        puts.append(1)
        if len(puts) == 5:
            outage.begin()
        put(self, measurements)

    with mock.patch.object(Recorder, "put", putting):
        ended = lone.fake(code=5)
    outage.end()
    assert "database is locked" in ended.err
    assert len(puts) == 5


@pytest.mark.quick
def test_cases_over_budget_are_kept_if_only_the_end_of_the_run_is_refused(lone):
    end, refused = RunStore.end, []

    def refusing(self, run, state):
        if not refused:
            refused.append(run)
            raise DatabaseError("the connection is lost", again=True)
        end(self, run, state)

    with closing(sqlite3.connect(lone.database)) as connection, connection:
        connection.execute("update measurements set wall_s = 10")
    with mock.patch.object(RunStore, "end", refusing):
        ended = lone.fake("--budget", "25s", "--replicas", "2", code=0)
    assert refused == [2]
    assert "the database answers again" in ended.err
    assert lone.rows("select run_id, count(*) from over_budget group by run_id") == [(2, 2)]
    assert spools(lone) == []


@pytest.mark.quick
def test_a_run_that_was_excluded_while_its_results_waited_is_finished(left):
    lone, _ = left
    with closing(sqlite3.connect(lone.database)) as connection, connection:  # as another user's run marks it
        connection.execute("update runs set state = 'interrupted', finished_at = started_at where id = 2")
    lone("runs", "exclude", "2", "--reason", "odd", code=0)
    ended = lone.fake(code=0)
    assert lone.rows("select id, state from runs") == [(run, "finished") for run in (1, 2, 3)], ended.err
    assert lone.rows("select count(*) from exclusions where included_at is null") == [(1,)]


def test_a_deleted_run_is_named_when_its_results_are_dropped(left):
    lone, file = left
    with closing(sqlite3.connect(lone.database)) as connection, connection:
        connection.execute("insert into removed_uids select uid, started_at from runs where id = 2")
        connection.execute("update runs set uid = 'of another run' where id = 2")
    ended = lone.fake(code=0)
    assert f"the results that waited in {file} were dropped: their run was deleted" in ended.err
    assert spools(lone) == []
