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
from perfsvc.store.schema.engine import connect, resolve, transaction
from tests.unit.store.conftest import ON_BOTH


def refusal(ask):
    with pytest.raises(DatabaseError) as error:
        ask()
    assert error.value.cure
    return error.value


PLACES = {
    "perfsvc.db": "sqlite:///perfsvc.db",
    "/x/y.db": "sqlite:////x/y.db",
    "~/y.db": f"sqlite:///{Path.home()}/y.db",
    "sqlite:///y.db": "sqlite:///y.db",
    "postgresql://u@h/d": "postgresql+psycopg://u@h/d",
    "postgres://u@h/d": "postgresql+psycopg://u@h/d",
    "postgresql+psycopg://u@h/d": "postgresql+psycopg://u@h/d",
}


def test_a_path_or_a_url_names_a_database():
    assert {place: str(resolve(place)) for place in PLACES} == PLACES


REFUSED = {
    "~no-such-user/x.db": "the home folder ~no-such-user is unknown",
    "a\0.db": "holds the character NUL",
    "sqlite:///a\0.db": "holds the character NUL",
    "postgresql://u:secret@h:five/d": "the port in the database URL is no number",
}
NAME_ANOTHER = "name a file (perfsvc.db) or a server"
CURES = {
    "mysql://h/d": NAME_ANOTHER,
    "://": NAME_ANOTHER,
    "what://h/d": NAME_ANOTHER,
    "postgresql+nothing://h/d": "use sqlite:/// or postgresql://",
}


def test_a_place_that_no_database_can_have_is_refused():
    for place, what in REFUSED.items():
        error = refusal(lambda place=place: Store.open(place))
        assert what in error.what
        assert "secret" not in str(error)
    for place, cure in CURES.items():
        assert refusal(lambda place=place: Store.open(place)).cure.startswith(cure)


@ON_BOTH
def test_a_database_with_two_schema_revisions_is_refused(empty):
    with Store.open(empty) as store, transaction(store.database.engine, writes=True) as connection:
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('9999')")
    for act in (Store.open, Store.check, Store.upgrade):
        error = refusal(lambda act=act: act(empty))
        assert "2 schema revisions in its table alembic_version: 0001, 9999" in error.what
        assert error.cure.startswith("restore a backup")


READ = """
import sys
from datetime import UTC, datetime
from perfsvc.errors import DatabaseError
from perfsvc.store import Store

for path in sys.argv[1:]:
    with Store.open(path, create=False) as store:
        print(len(store.runs.list()), Store.check(path).ok)
        try:
            store.nights.begin(host="here", started=datetime.now(UTC), suite="", command_line="", settings={})
        except DatabaseError as error:
            print(error.cure)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write everywhere")
def test_a_database_in_a_folder_without_write_permission_can_be_read(tmp_path):
    paths = [tmp_path / "in use" / "one.db", tmp_path / "closed" / "one.db"]
    rights = "-dac_override,-dac_read_search"  # what lets root write in any folder
    as_user = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"] if os.geteuid() == 0 else []
    with contextlib.ExitStack() as stack:
        for path in paths:
            path.parent.mkdir()
            store = Store.open(path)
            if path == paths[0]:
                stack.enter_context(store)
                store.nights.list()
            else:
                store.close()
            path.parent.chmod(0o555)
            stack.callback(path.parent.chmod, 0o755)
        command = [*as_user, sys.executable, "-c", READ, *paths]
        read = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    lines = read.stdout.splitlines()
    assert lines[::2] == ["0 True"] * 2, read.stderr
    assert all(line.startswith("make the file and its folder writable") for line in lines[1::2])
    assert len(lines) == 4


@ON_BOTH
def test_a_database_is_created_with_its_tables_on_request_only(empty):
    error = refusal(lambda: Store.open(empty, create=False))
    assert "there is no database" in error.what or "is empty" in error.what
    assert "perfsvc run makes" in error.cure
    assert not Path(empty).exists()
    if "://" not in empty:
        Path(empty).touch()
    assert "is empty" in refusal(lambda: Store.open(empty, create=False, read_only=True)).what
    with Store.open(empty) as store:
        assert store.runs.list() == []
    assert Store.check(empty).ok
    Store.open(empty, create=False).close()


def test_two_stores_of_a_database_are_closed_independently(tmp_path):
    Store.open(tmp_path / "one.db").close()
    first, second = Store.open(tmp_path / "one.db"), Store.open(tmp_path / "one.db")
    first.close()
    assert second.runs.list() == []
    second.close()
    with Store.open(tmp_path / "one.db", create=False) as again:
        assert again.runs.list() == []


def test_databases_may_be_in_memory_and_are_two():
    with Store.open(":memory:") as first, Store.open(":memory:") as second:
        assert first.runs.list() == []
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


def test_a_relative_path_starts_at_the_current_folder_and_a_whole_path_needs_none(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Store.open("one.db").close()
        assert (tmp_path / name / "one.db").exists()
    shutil.rmtree(tmp_path / "there")
    for _ in range(2):
        with Store.open(tmp_path / "one.db") as store:
            assert store.runs.list() == []


def test_sqlite_waits_for_locks_and_keeps_foreign_keys(tmp_path):
    Store.open(tmp_path / "perfsvc.db").close()
    engine = connect(resolve(str(tmp_path / "perfsvc.db")))
    names = ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
    with engine.connect() as connection:
        pragmas = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names}
    engine.dispose()
    assert pragmas == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 60_000, "synchronous": 1}


def test_a_file_that_is_no_database_or_that_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("buy milk\n" * 1000)
    error = refusal(lambda: Store.open(path))
    assert "file is not a database" in error.what
    assert "--db" in error.cure
    assert path.read_text() == "buy milk\n" * 1000
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")
    before = path.read_bytes()
    for ask in (Store.open, Store.upgrade):
        assert "holds tables of another program" in refusal(lambda ask=ask: ask(path)).what
    assert "holds tables of another program" in Store.check(path).problems[0]
    assert path.read_bytes() == before


def test_a_missing_file_is_not_made_by_a_check_an_empty_one_stays_empty_and_a_folder_is_none(tmp_path):
    path = tmp_path / "perfsvc.db"
    assert "there is no database" in refusal(lambda: Store.check(path)).what
    assert not path.exists()
    path.touch()
    assert "is empty" in refusal(lambda: Store.open(path, create=False)).what
    assert path.stat().st_size == 0
    assert "is a folder" in refusal(lambda: Store.open(tmp_path)).what
    assert refusal(lambda: Store.open(tmp_path / "no" / "perfsvc.db")).cure == f"mkdir -p {tmp_path / 'no'}"


def test_the_error_for_an_unreachable_server_hides_the_password():
    error = refusal(lambda: Store.open("postgresql://ann:secret@127.0.0.1:1/perfsvc?connect_timeout=2"))
    assert "ann:***@127.0.0.1:1" in str(error)
    assert "secret" not in str(error)
    assert error.cure.startswith("check that the server runs")
    assert error.again
    assert not refusal(lambda: Store.open("nowhere/one.db")).again


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
    missing = refusal(lambda: Store.open(empty.replace("?", "_missing?")))
    assert not missing.again
    assert "createdb" in missing.cure


@ON_BOTH
def test_no_state_of_a_database_comes_again_with_new_connections(store, story):
    seen = set()
    for _ in range(3):
        first = store.database.state()
        store.database.close()
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
