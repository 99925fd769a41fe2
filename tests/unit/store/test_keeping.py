"""Backing up a database, and finding the rows of it that cannot be read."""

import shutil
import sqlite3
import zlib
from contextlib import closing

import pytest

from perfsvc.errors import DatabaseError, UsageError
from perfsvc.store import Store
from perfsvc.store.cases import axes_of, case_of
from perfsvc.store.keeping.backup import back_up, vacuum
from perfsvc.store.schema.column_types import report_damaged
from perfsvc.store.schema.environments import _pairs
from tests.unit.store.conftest import ON_BOTH


@pytest.fixture(autouse=True)
def anew():
    """Let each test report damage that an earlier test has reported, and read what an earlier test has read."""
    for cached in (report_damaged, case_of, axes_of, _pairs):
        cached.cache_clear()


def raw(path, *statements):
    """Execute SQL without our check of references, and return the rows of the last statement."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows


def test_a_backup_holds_what_is_committed_while_a_writer_is_open(tmp_path, full):
    target = tmp_path / "backup.db"
    with closing(sqlite3.connect(full, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE runs SET label = 'committed' WHERE id = 1")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE runs SET label = 'uncommitted' WHERE id = 1")
        with Store.open(full, create=False, read_only=True) as store:
            assert back_up(store.database, target) == target.stat().st_size
    with Store.open(target) as store:
        assert store.runs.get(1).provenance.label == "committed"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_backup_replaces_no_file(tmp_path, full):
    target = tmp_path / "backup.db"
    target.write_text("mine")
    with Store.open(full) as store, pytest.raises(UsageError, match="exists already"):
        back_up(store.database, target)
    assert target.read_text() == "mine"


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_server_is_backed_up_by_other_programs(tmp_path, place, kind):
    with Store.open(place) as store, pytest.raises(UsageError, match="is not a file") as error:
        back_up(store.database, tmp_path / "backup.db")
    assert "pg_dump" in error.value.cure
    assert "perfsvc sync" in error.value.cure


def test_vacuum_returns_the_space_of_removed_rows(tmp_path, full):
    with Store.open(full) as store:
        with store.database.writing() as connection:
            connection.exec_driver_sql("CREATE TABLE much AS SELECT randomblob(1000000) AS content")
            connection.exec_driver_sql("DROP TABLE much")
        before, after = vacuum(store.database)
    assert before - after > 900_000
    assert Store.check(full).ok


DAMAGES = [
    ("UPDATE measurements SET samples = x'00' WHERE id = 1", "measurements.samples of id 1"),
    ("UPDATE measurements SET status = 'gone' WHERE id = 1", "measurements.status of id 1"),
    ("UPDATE runs SET packages = '{' WHERE id = 1", "runs.packages of id 1"),
    ("UPDATE runs SET started_at = 'yesterday' WHERE id = 1", "runs.started_at of id 1"),
    ("UPDATE cases SET point = '[]' WHERE id = 1", "cases.point of id 1"),
    ("UPDATE devices SET kind = 'odd' WHERE id = 1", "devices.kind of id 1"),
    ("UPDATE environments SET parts = '{' WHERE id = 1", "environments.parts of id 1"),
    ("UPDATE binaries SET record = '{}' WHERE id = 1", "binaries.record of id 1"),
    ("UPDATE explanations SET reasons = '[1]' WHERE id = 1", "explanations.reasons of id 1"),
    ("UPDATE profiles SET instructions = x'00' WHERE id = 1", "profiles.instructions of id 1"),
    ("UPDATE artifacts SET content = x'00'", "artifacts.content of sha256"),
]
FURTHER = [
    (f"UPDATE artifacts SET content = x'{zlib.compress(b'another').hex()}'", "differs from its digest"),  # noqa: S608
    ("PRAGMA foreign_keys = OFF; DELETE FROM devices", "refers to no devices"),
]
"""Damages that hide others."""


def test_each_damaged_row_is_named(full, tmp_path):
    assert Store.check(full).problems == ()
    for damages in (DAMAGES, *([each] for each in FURTHER)):
        path = shutil.copy(full, tmp_path / "damaged.db")
        for statement, _ in damages:
            raw(path, *statement.split("; "))
        problems = Store.check(path).problems
        assert [named for _, named in damages if not any(named in problem for problem in problems)] == []


@ON_BOTH
def test_damage_is_named_on_both_databases(story, place):
    story.run()
    story.execute("UPDATE measurements SET samples = :blob", blob=b"\0")
    (problem,) = Store.check(place).problems
    assert "measurements.samples" in problem
    assert "costs the samples" in problem


@ON_BOTH
def test_damaged_samples_cost_only_themselves(story, store, caplog):
    run = story.run(story.tiled, story.naive)
    story.execute("UPDATE measurements SET samples = :blob, place_medians = :blob WHERE id = 1", blob=b"\0")
    levels = store.series.levels(run)
    assert [list(levels[story.series(case)].medians) for case in (story.tiled, story.naive)] == [[2e-3], [2e-3]]
    assert [len(each.samples_s) for each in store.measurements.of_run(run)] == [0, 3]
    assert [each.case for each in store.measurements.samples(run)] == [story.naive.id]
    assert list(store.series.samples([run])) == [story.series(story.naive)]
    assert store.measurements.columns()["median_s"] == [2e-3, 2e-3]
    assert f"a blob of samples of {story.tiled.id} is damaged" in caplog.text
    assert store.series.rebuild() == []  # a level keeps what only the samples showed


DAMAGED = {
    "measurements SET status = 'gone'": lambda store: store.measurements.of_run(1),
    "runs SET state = 'lost'": lambda store: store.runs.list(),
    "runs SET packages = '{broken'": lambda store: store.runs.list(),
    "runs SET started_at = 'yesterday'": lambda store: store.runs.get(1),
    "environments SET parts = '{broken parts'": lambda store: store.devices.environments(),
    "cases SET point = '{broken'": lambda store: store.series.case_names(),
    "levels SET status = 'gone'": lambda store: store.series.levels(1),
    "levels SET medians = X'0011'": lambda store: store.series.levels(1),
}
"""What is set in a row to what nothing can stand for, and what reads it."""


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_content_is_one_error_with_a_cure_and_check_names_the_row(full, damage):
    raw(full, f"UPDATE {damage}")
    with Store.open(full) as store, pytest.raises(DatabaseError, match="is damaged in the database") as error:
        DAMAGED[damage](store)
    assert "perfsvc db check" in error.value.cure
    assert "restore a backup" in error.value.cure
    table, column = damage.split(" SET ")[0], damage.split()[2]
    assert any(f"{table}.{column}" in problem for problem in Store.check(full).problems)


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 37), reason="this SQLite has no strict tables")
@pytest.mark.parametrize("column", ["median_s", "replica", "case_id", "reason"])
def test_sqlite_refuses_values_of_another_type(full, column):
    with pytest.raises(sqlite3.IntegrityError, match="cannot store"):
        raw(full, f"UPDATE measurements SET {column} = x'00'")  # noqa: S608 - our own
