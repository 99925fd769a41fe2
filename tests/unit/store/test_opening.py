import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from perfsvc.errors import DatabaseError, MissingPackageError
from perfsvc.installation import install_command
from perfsvc.store import Store
from perfsvc.store.schema.engine import resolve, transaction


def refusal(ask):
    with pytest.raises(DatabaseError) as error:
        ask()
    assert error.value.cure
    return error.value


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("perfsvc.db", "sqlite:///perfsvc.db"),
        ("/x/y.db", "sqlite:////x/y.db"),
        ("~/y.db", f"sqlite:///{Path.home()}/y.db"),
        ("sqlite:///y.db", "sqlite:///y.db"),
        ("postgresql://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgres://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg://u@h/d"),
    ],
)
def test_a_path_or_a_url_names_a_database(place, url):
    assert str(resolve(place)) == url


@pytest.mark.parametrize("place", ["mysql://h/d", "://", "what://h/d"])
def test_another_kind_of_database_is_refused(place):
    assert refusal(lambda: Store.open(place)).cure.startswith("name a file (perfsvc.db) or a server")


def test_an_unknown_driver_is_refused():
    error = refusal(lambda: Store.open("postgresql+nothing://h/d"))
    assert error.cure == "use sqlite:/// or postgresql://"


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("~no-such-user/x.db", "the home folder ~no-such-user is unknown"),
        ("a\0.db", "holds the character NUL"),
        ("sqlite:///a\0.db", "holds the character NUL"),
        ("postgresql://u:secret@h:five/d", "the port in the database URL is no number"),
    ],
)
def test_a_place_that_no_database_can_have_is_refused(place, what):
    error = refusal(lambda: Store.open(place))
    assert what in error.what
    assert "secret" not in str(error)


@pytest.mark.parametrize("act", [Store.open, Store.check, Store.upgrade])
def test_a_database_with_two_schema_revisions_is_refused(empty, act):
    with Store.open(empty) as store, transaction(store.database.engine, writes=True) as connection:
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('9999')")
    error = refusal(lambda: act(empty))
    assert "2 schema revisions in its table alembic_version: 0001, 9999" in error.what
    assert error.cure.startswith("restore a backup")


READ = """
import sys
from datetime import UTC, datetime
from perfsvc.errors import DatabaseError
from perfsvc.store import Store

with Store.open(sys.argv[1], create=False) as store:
    print(len(store.runs.list()), Store.check(sys.argv[1]).ok)
    try:
        store.nights.begin(host="here", started=datetime.now(UTC), suite="", command_line="", settings={})
    except DatabaseError as error:
        print(error.cure)
"""


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write everywhere")
@pytest.mark.parametrize("in_use", [False, True])
def test_a_database_in_a_folder_without_write_permission_can_be_read(tmp_path, in_use):
    path = tmp_path / "folder" / "one.db"
    path.parent.mkdir()
    rights = "-dac_override,-dac_read_search"  # what lets root write in any folder
    as_user = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"] if os.geteuid() == 0 else []
    with contextlib.ExitStack() as stack:
        store = Store.open(path)
        if in_use:
            stack.enter_context(store)
            store.nights.list()
        else:
            store.close()
        path.parent.chmod(0o555)
        stack.callback(path.parent.chmod, 0o755)
        read = subprocess.run(
            [*as_user, sys.executable, "-c", READ, path], capture_output=True, text=True, check=False, timeout=60
        )
    assert read.stdout.splitlines()[0] == "0 True", read.stderr
    assert read.stdout.splitlines()[1].startswith("make the file and its folder writable")


def test_a_new_database_gets_its_tables(empty):
    with Store.open(empty) as store:
        assert store.runs.list() == []
    assert Store.check(empty).ok


def test_a_database_may_be_in_memory():
    with Store.open(":memory:") as store:
        assert store.runs.list() == []


def test_two_stores_of_a_database_are_closed_independently(tmp_path):
    Store.open(tmp_path / "one.db").close()
    first, second = Store.open(tmp_path / "one.db"), Store.open(tmp_path / "one.db")
    first.close()
    assert second.runs.list() == []
    second.close()
    with Store.open(tmp_path / "one.db", create=False) as again:
        assert again.runs.list() == []


def test_two_stores_in_memory_are_two_databases():
    with Store.open(":memory:") as first, Store.open(":memory:") as second:
        assert first.database.engine is not second.database.engine
        first.close()
        assert second.runs.list() == []


def test_a_deleted_file_is_created_again_while_another_store_has_it_open(tmp_path):
    path = tmp_path / "one.db"
    Store.open(path).close()
    with Store.open(path) as deleted:
        assert deleted.runs.list() == []
        for file in tmp_path.iterdir():
            file.unlink()
        with Store.open(path) as anew:
            assert path.exists()
            assert anew.database.engine is not deleted.database.engine


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_deleted_or_replaced_while_it_is_open_is_an_error(tmp_path, monkeypatch, replaced):
    monkeypatch.chdir(tmp_path)
    with Store.open("one.db") as store:
        assert store.runs.list() == []
        monkeypatch.chdir("/")
        assert store.runs.list() == []
        if replaced:
            shutil.copy(tmp_path / "one.db", tmp_path / "two.db")
            (tmp_path / "two.db").rename(tmp_path / "one.db")
        else:
            (tmp_path / "one.db").unlink()
        for write in (store.runs.list, lambda: store.runs.mark_interrupted("host")):
            error = refusal(write)
            assert error.what == f"{tmp_path / 'one.db'} was deleted or replaced while it was in use"
            assert not error.again


def test_a_whole_path_needs_no_folder_to_be_in(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for _ in range(2):
        with Store.open(tmp_path / "one.db") as store:
            assert store.runs.list() == []


def test_a_relative_path_starts_at_the_current_folder(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Store.open("one.db").close()
        assert (tmp_path / name / "one.db").exists()


def test_sqlite_waits_for_locks_and_keeps_foreign_keys(tmp_path):
    with Store.open(tmp_path / "perfsvc.db") as store, store.database.engine.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
        }
    assert pragmas == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 60_000, "synchronous": 1}


def test_a_file_that_is_no_database_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("buy milk\n" * 1000)
    error = refusal(lambda: Store.open(path))
    assert "file is not a database" in error.what
    assert "--db" in error.cure
    assert path.read_text() == "buy milk\n" * 1000


def test_the_database_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")
    before = path.read_bytes()
    for ask in (Store.open, Store.upgrade):
        assert "holds tables of another program" in refusal(lambda ask=ask: ask(path)).what
    assert "holds tables of another program" in Store.check(path).problems[0]
    assert path.read_bytes() == before


def test_a_missing_folder_is_named_with_the_command_that_makes_it(tmp_path):
    error = refusal(lambda: Store.open(tmp_path / "no" / "perfsvc.db"))
    assert error.cure == f"mkdir -p {tmp_path / 'no'}"


def test_a_folder_is_no_database(tmp_path):
    assert "is a folder" in refusal(lambda: Store.open(tmp_path)).what


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder in which not even root may write")
def test_a_folder_without_permission_is_named():
    error = refusal(lambda: Store.open("/proc/perfsvc.db"))
    assert error.what == "/proc/perfsvc.db: unable to open database file"
    assert "may write" in error.cure


def test_checking_a_missing_file_does_not_make_it(tmp_path):
    path = tmp_path / "perfsvc.db"
    assert "there is no database" in refusal(lambda: Store.check(path)).what
    assert not path.exists()


def test_a_database_is_created_on_request_only(empty):
    error = refusal(lambda: Store.open(empty, create=False))
    assert "there is no database" in error.what or "is empty" in error.what
    assert "perfsvc run makes" in error.cure
    assert not Path(empty).exists()
    Store.open(empty).close()
    Store.open(empty, create=False).close()


def test_an_empty_file_is_left_empty(tmp_path):
    path = tmp_path / "perfsvc.db"
    path.touch()
    assert "is empty" in refusal(lambda: Store.open(path, create=False)).what
    assert path.stat().st_size == 0


def test_the_error_for_an_unreachable_server_hides_the_password():
    error = refusal(lambda: Store.open("postgresql://ann:secret@127.0.0.1:1/perfsvc?connect_timeout=2"))
    assert "ann:***@127.0.0.1:1" in str(error)
    assert "secret" not in str(error)
    assert error.cure.startswith("check that the server runs")


def test_a_missing_database_on_a_server_is_an_error(server):
    error = refusal(lambda: Store.open(server.replace("/postgres?", "/nowhere?")))
    assert "createdb" in error.cure


def test_a_missing_driver_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingPackageError) as error:
        Store.open("postgresql://localhost/perfsvc")
    assert error.value.cure == install_command("postgresql")


def test_a_locked_database_may_answer_later(tmp_path, monkeypatch):
    monkeypatch.setattr("perfsvc.store.schema.engine.LOCK_WAIT_S", 0.05)
    with Store.open(tmp_path / "one.db") as store, closing(sqlite3.connect(tmp_path / "one.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        error = refusal(lambda: store.runs.mark_interrupted("here"))
        other.rollback()
    assert error.again
    assert "database is locked" in error.what


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_server_that_cuts_the_connection_may_answer_later_and_a_missing_database_never_does(empty, kind):
    with Store.open(empty) as store:
        with pytest.raises(DatabaseError) as cut, store.database.writing() as connection:
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        assert cut.value.again
        assert store.runs.list() == []
    assert not refusal(lambda: Store.open(empty.replace("?", "_missing?"))).again


def test_a_server_that_does_not_answer_may_answer_later():
    assert refusal(lambda: Store.open("postgresql://me@127.0.0.1:9/d")).again
    assert not refusal(lambda: Store.open("nowhere/one.db")).again


def test_no_state_of_a_database_comes_again_with_new_connections(store, story):
    seen = set()
    for _ in range(3):
        first = store.database.state()
        assert store.database.release()
        now = {first, store.database.state()}
        assert not seen & now
        seen |= now
        story.begin()


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_connection_that_was_cut_is_replaced_when_the_state_is_asked_for(store, story):
    before = store.database.state()
    with store.database.engine.connect() as other:
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        other.exec_driver_sql(f"{cut} AND pid <> pg_backend_pid()")
    assert store.database.state() != before
    story.begin()
