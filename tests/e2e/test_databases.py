"""Whatever a database may be, a command uses it or says how to cure it."""

import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from perfsvc.installation import data_folder
from perfsvc.store import Store
from perfsvc.store.keeping import upgrades
from perfsvc.store.schema import engine

NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "next"
down_revision = "{head}"


def upgrade():
    with op.batch_alter_table("runs") as runs:
        runs.add_column(sa.Column("weather", sa.Text()))
"""


@pytest.fixture
def database(perfsvc):
    """The workplace's database, with our tables and no rows."""
    Store.open(perfsvc.database).close()
    return perfsvc.database


@pytest.fixture
def newer(tmp_path, monkeypatch):
    """A perfsvc with one more migration than this one."""
    shutil.copytree(data_folder("migrations"), tmp_path / "migrations")
    (tmp_path / "migrations" / "versions" / "next.py").write_text(NEXT.format(head=upgrades.head()))
    monkeypatch.setattr(upgrades, "data_folder", lambda name: tmp_path / name)


def test_an_older_schema_is_refused_until_it_is_upgraded(perfsvc, database, newer):
    head = Store.check(database).revision
    for command in (("runs",), ("run", "--device", "cpu"), ("compare", "1", "2"), ("report",), ("show", "x/y")):
        ended = perfsvc(*command, code=5)
        assert "and this perfsvc needs next" in ended.err
        assert "cure: perfsvc db upgrade" in ended.err
    state = perfsvc("db", "check", "--format", "json", code=5).json
    assert (state["revision"], state["head"]) == (head, "next")
    assert "perfsvc db upgrade" in state["problems"][0]
    assert f"is upgraded from {head} to next; the old database is kept as" in perfsvc("db", "upgrade", code=0).out
    assert perfsvc("runs", "--format", "json", code=0).json == []


def test_a_damaged_row_stops_a_command_with_its_cure_and_levels_are_rebuilt(perfsvc):
    with closing(sqlite3.connect(perfsvc.database)) as connection, connection:
        connection.executescript((Path(__file__).parents[1] / "data" / "schemas" / "0001.sql").read_text())
    assert perfsvc("db", "rebuild", "--format", "json", code=0).json["differences"] == []
    with closing(sqlite3.connect(perfsvc.database)) as connection, connection:
        connection.execute("UPDATE levels SET spread = 9 WHERE run_id = 1 AND medians IS NOT NULL")
        connection.execute("UPDATE measurements SET cache = 'gone' WHERE id = 1")
    assert "measurements.cache of id 1" in perfsvc("db", "check", code=5).out
    ended = perfsvc("db", "rebuild", code=5)
    assert "'gone' is damaged in the database" in ended.err
    assert "restore a backup" in ended.err
    with closing(sqlite3.connect(perfsvc.database)) as connection, connection:
        connection.execute("UPDATE measurements SET cache = 'cold' WHERE id = 1")
    assert "stored otherwise: spread" in perfsvc("db", "rebuild", code=0).out
    assert "all levels are what the measurements say" in perfsvc("db", "rebuild", code=0).out


def test_a_newer_schema_asks_for_a_newer_perfsvc(perfsvc, database):
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    for command in (("runs",), ("db", "upgrade")):
        ended = perfsvc(*command, code=5)
        assert "was written by a newer perfsvc" in ended.err
        assert "pip install --upgrade " in ended.err
    assert "newer perfsvc" in perfsvc("db", "check", code=5).out


def test_a_database_is_made_by_an_upgrade_and_not_by_a_check_and_is_said_to_be_good(perfsvc):
    database, head = perfsvc.database, upgrades.head()
    assert "there is no database" in perfsvc("db", "check", code=5).err
    assert not database.exists()
    assert "is upgraded from nothing to" in perfsvc("db", "upgrade", code=0).out
    state = perfsvc("db", "check", "--format", "json", code=0).json
    assert state == {"url": str(database), "revision": head, "head": head, "problems": []}
    assert perfsvc("db", "upgrade", code=0).out == f"{database} is up to date ({head})\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder in which not even root may write")
def test_a_folder_without_permission_is_said_before_anything_is_measured(perfsvc):
    perfsvc.play({})
    ended = perfsvc.fake("--db", "/proc/perfsvc.db", code=5)
    assert "/proc/perfsvc.db: unable to open database file" in ended.err
    assert "cure: check that its folder exists and that you may write to it" in ended.err


def test_an_option_names_a_database_before_the_environment_does(perfsvc, database):
    other = perfsvc.folder / "other.db"
    Store.open(other).close()
    assert perfsvc("db", "check", "--format", "json", code=0).json["url"] == str(database)
    for place, url in ((other, str(other)), (f"sqlite:///{other}", str(other)), ("other.db", "other.db")):
        assert perfsvc("db", "check", "--db", place, "--format", "json", code=0).json["url"] == url
    perfsvc.environment["PERFSVC_DB"] = "other.db"
    assert perfsvc("db", "check", "--format", "json", code=0).json["url"] == "other.db"


@pytest.fixture
def postgresql(databases):
    name = databases.create()
    yield databases.url(name)
    databases.drop(name)


def test_a_password_that_was_typed_is_not_stored(perfsvc, postgresql):
    url = make_url(postgresql).update_query_dict({"password": "geheim"}).render_as_string(hide_password=False)
    perfsvc.play({})
    perfsvc.fake("--db", url, code=0)
    with Store.open(postgresql) as store:
        (run,) = store.runs.list()
    assert "--db" in run.provenance.command_line
    assert "geheim" not in run.provenance.command_line


def test_a_server_is_as_good_as_a_file(perfsvc, postgresql):
    perfsvc.environment["PERFSVC_DB"] = postgresql
    suite = perfsvc.own("scale")
    perfsvc.play({"*": {"seconds": 1e-4}})
    perfsvc.fake(suite=suite, code=0)
    perfsvc.rebuild(suite)
    perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"seconds": 1.05e-4}})
    perfsvc.fake(suite=suite, code=1)
    rows = perfsvc("compare", "latest~1", "latest", "--format", "json", code=1).json["verdicts"]
    assert [row["case"] for row in rows if row["verdict"] == "regression"] == ["scale/beta[n=100]"]
    assert len(perfsvc("report", "--all", "--format", "json", code=0).json) == 18
    assert len(perfsvc("show", "scale/beta[n=100]", "--format", "json", code=0).json) == 2
    assert "is the baseline of 3 series" in perfsvc("baseline", "set", "1", code=0).out
    assert perfsvc("db", "check", "--format", "json", code=0).json["problems"] == []
    assert not perfsvc.database.exists()


def test_a_number_that_no_database_holds_is_refused(perfsvc, database):
    for command in (("report", "{0}"), ("report", "latest~{0}"), ("findings", "show", "{0}")):
        ended = perfsvc(*(word.format(10**20) for word in command), code=2)
        assert ended.err == ("error: a number is too large for the database\n  cure: give one of at most 9 digits\n")
    for command in (("runs",), ("show", "scale"), ("dashboard", "build")):
        ended = perfsvc(*command, "--last", str(10**30), code=2)
        assert "'--last'" in ended.err
        assert "999999999" in ended.err


def _truncated(file):
    file.write_bytes(file.read_bytes()[:6000])


def _foreign(file):
    file.unlink()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
        connection.execute("INSERT INTO songs VALUES ('Yesterday')")


def _text(file):
    file.write_text("buy milk\n" * 1000)


@pytest.mark.parametrize(
    ("damage", "what"),
    [(_truncated, "malformed"), (_foreign, "of another program"), (_text, "file is not a database")],
)
def test_a_damaged_or_foreign_file_is_refused_and_left_as_it_is(perfsvc, database, damage, what):
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    damage(database)
    content = database.read_bytes()
    perfsvc.play({})
    run = ("run", "--device", f"fake:{perfsvc.script}", "--suite", perfsvc.suites / "scale")
    for command in (("runs",), ("compare", "1", "2"), ("db", "check"), ("db", "upgrade"), run):
        ended = perfsvc(*command, code=5)
        assert what in ended.out + ended.err, command
        assert "Traceback" not in ended.err
        assert "cure: " in ended.err or command == ("db", "check")
        assert database.read_bytes() == content


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(perfsvc, database, monkeypatch):
    """A read-only file: root may write to any file, so SQLite opens it only for reading."""
    opened = engine._open_as_permitted

    def only_for_reading(path, dialect, record, arguments, options):
        opened(path, dialect, record, arguments, options)
        arguments[0], options["uri"] = f"file:{path}?mode=ro", True

    monkeypatch.setattr(engine, "_open_as_permitted", only_for_reading)
    content = database.read_bytes()
    perfsvc.play({})
    ended = perfsvc.fake(code=5)
    assert "readonly database" in ended.err
    assert "cure: make the file and its folder writable" in ended.err
    assert database.read_bytes() == content
    assert perfsvc("runs", "--format", "json", code=0).json == []


def test_a_locked_file_is_reported_with_a_cure(perfsvc, database, monkeypatch):
    monkeypatch.setattr(engine, "LOCK_WAIT_S", 0.1)
    perfsvc.play({})
    with closing(sqlite3.connect(database, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        ended = perfsvc.fake(code=5)
    assert "database is locked" in ended.err
    assert "cure: another process is writing to it; let it end" in ended.err
    assert perfsvc("runs", "--format", "json", code=0).json == []
