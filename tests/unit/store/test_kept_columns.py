"""The columns of ended runs that are kept in files are always those that the database has."""

import json
import os
import shutil
import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select, update

from perfsvc.model import Environment, RunState, Status
from perfsvc.service.sync import sync
from perfsvc.store import Store, histories
from perfsvc.store.schema import kept_columns
from perfsvc.store.schema.all_tables import metadata
from perfsvc.store.schema.column_types import report_damaged
from perfsvc.store.schema.tables import Measurements
from tests.unit.store.conftest import ON_BOTH, QUIET, plain


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Keep even the columns of small runs, in a folder of the test."""
    monkeypatch.setattr(kept_columns, "LEAST_MEASUREMENTS", 1)
    monkeypatch.setenv("PERFSVC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / kept_columns.FOLDER


@pytest.fixture
def read(monkeypatch):
    """Return the runs that were read from the database, each time that histories were."""
    runs, original = [], histories._read_runs
    monkeypatch.setattr(histories, "_read_runs", lambda database, of: runs.append(of) or original(database, of))
    return runs


def everything(store):
    """Return all that is read from kept columns."""
    runs = [row.id for row in store.runs.list()]
    read = [store.series.histories(runs, errors=True), store.measurements.quantities(runs)]
    read += [store.series.histories_until(run, 100) for run in runs[:1]]
    read += store.series.levels_of_runs(runs).values()
    return repr([*(plain(each) for each in read), store.devices.conditions_of(runs)])


def is_fresh(store):
    """Return whether kept columns give what the database has, the first and the second time; keep them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_columns._Files, "of", lambda *_: None)
        fresh = everything(store)
    return everything(store) == everything(store) == fresh


def measured(story, **given):
    """Return a run with measurements of two cases, a metric, an error, and a case that is not ok."""
    run = story.begin(**given)
    for replica in range(2):
        story.put(run, story.tiled, replica=replica, metrics={"steps": run + replica}, max_error=run * 1e-7)
    story.put(run, story.naive, status=Status.WRONG, reason="it is wrong")
    story.store.runs.end(run, RunState.FINISHED)
    return run


@ON_BOTH
def test_a_later_process_reads_only_new_runs(story, store, place, read):
    runs = [measured(story) for _ in range(3)]
    assert is_fresh(store)
    read.clear()
    newest = measured(story)
    with Store.open(place) as later:
        later.series.histories([*runs, newest])
        assert read == [[newest]]
        later.series.histories([newest, runs[0]], errors=True)
        assert read == [[newest]]
        assert is_fresh(later)


def test_a_running_run_is_not_kept(story, store, cache):
    run = story.begin()
    for replica in range(2):
        story.put(run, story.tiled, replica=replica)
        assert is_fresh(store)
        assert not list(cache.iterdir())
    store.runs.end(run, RunState.INTERRUPTED)
    assert is_fresh(store)
    assert list(cache.iterdir())


@pytest.mark.parametrize(
    "change", ["resumed", "measured without being resumed", "excluded", "case excluded", "renamed"]
)
def test_a_changed_run_is_read_anew(story, store, change):
    run, other = measured(story), measured(story)
    assert is_fresh(store)
    before = everything(store)
    match change:
        case "resumed":
            store.runs.resume(run)
            store.runs.end(run, RunState.FINISHED)
            store.runs.resume(other)
            story.put(other, story.tiled, replica=2)
            assert is_fresh(store)
            store.runs.end(other, RunState.FINISHED)
        case "measured without being resumed":  # as when a spool is sent late
            story.put(run, story.tiled, replica=2)
        case "excluded":
            store.exclusions.exclude(run, None, reason="a hot GPU", by="me")
        case "case excluded":
            store.exclusions.exclude(run, [story.tiled], reason="a hot GPU", by="me")
        case "renamed":
            story.run(replace(story.tiled, variant="shared", formerly=("tiled",)))
    assert is_fresh(store)
    assert everything(store) != before


@pytest.mark.slow
@ON_BOTH
def test_a_deleted_run_is_gone_and_its_ids_may_be_used_again(story, store):
    runs = [measured(story) for _ in range(2)]
    assert is_fresh(store)
    store.exclusions.delete(runs[1], reason="a test", by="me")
    assert is_fresh(store)
    faster = replace(story, tiled=replace(story.tiled, variant="faster"))
    measured(faster)  # SQLite gives its measurements the ids of the deleted ones
    assert is_fresh(store)


def test_pruned_samples_change_no_columns(story, store, read):
    for _ in range(3):  # the first is a level, and the last stays too
        measured(story)
    assert is_fresh(store)
    read.clear()
    assert store.retention.samples(datetime(2030, 1, 1, tzinfo=UTC), [], dry_run=False).count
    everything(store)
    assert read == []
    assert is_fresh(store)


def test_damaged_samples_are_reported_each_time(story, store, caplog):
    run = measured(story)
    story.execute("UPDATE measurements SET samples = :samples WHERE replica = 1", samples=b"damaged")
    for _ in range(2):
        report_damaged.cache_clear()
        caplog.clear()
        assert is_fresh(store)
        assert [record.message for record in caplog.records if story.tiled.id in record.message]
    assert [len(replica) for replica in store.series.levels(run)[story.series(story.tiled)].replicas] == [3, 1]


DAMAGED = {
    "measurements.samples": b"damaged",
    "measurements.status": "odd",
    "measurements.precision": "odd",
    "measurements.median_s": "odd",
    "measurements.high_s": "odd",
    "measurements.max_error": "odd",
    "measurements.environment_id": "odd",
    "measurements.link_bytes": "odd",
    "metrics.value": "odd",
}


@pytest.mark.slow
def test_what_was_damaged_is_read_anew_after_a_repair(story, store, place, cache):
    measured(story)
    before = everything(store)
    for named, damage in DAMAGED.items():
        table, column = named.split(".")
        shutil.rmtree(cache)
        key = "measurement_id || name" if table == "metrics" else "id"
        (row, whole), *_ = story.execute(f"SELECT {key}, {column} FROM {table}")  # noqa: S608 - our own names
        for value in (damage, whole):
            with closing(sqlite3.connect(place)) as connection, connection:  # without our check of references
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (value, row))  # noqa: S608
            assert (everything(store) == before) is (value == whole), named
    assert is_fresh(store)


@pytest.mark.slow
def test_what_a_sync_adds_to_a_run_is_read(story, store, place, new_database, new_story):
    first = measured(story)
    target = new_database(False)
    with Store.open(target) as copy:
        other = new_story(copy)
        measured(other)
        assert is_fresh(copy)
        sync(place, target, QUIET)
        assert is_fresh(copy)
        before = everything(copy)
        # The target changes the run later than the source, so that a sync does not copy the end of the run again.
        story.put(first, story.tiled, replica=2)
        in_target = copy.runs.of_uid(store.runs.uid(first))
        copy.exclusions.exclude(in_target, [story.naive], reason="a hot GPU", by="me")
        ended = copy.runs.get(in_target).finished
        sync(place, target, QUIET)
        assert copy.runs.get(in_target).finished == ended
        assert is_fresh(copy)
        assert everything(copy) != before
        assert is_fresh(store)


SWAPPED = {"case": ("variant", "point"), "device": ("uuid",), "environment": ("driver",)}
"""What gives a row of a table another meaning, by the table."""


@pytest.mark.parametrize("table", SWAPPED)
def test_a_database_with_the_same_run_under_other_ids_has_its_own_columns(story, store, table):
    """A database may take the place of another: then a run may be the same, and the ids of its cases others."""
    run = story.begin()
    story.put(run, story.tiled)
    on_another = replace(story, environment=Environment("590.0", "nvcc 13.1", 700.0))
    on_another.put(run, story.naive, replica=1, device="GPU-2", samples=(5e-3,))
    store.runs.end(run, RunState.FINISHED)
    assert is_fresh(store)
    keys = _keys(store, run)
    for column in SWAPPED[table]:
        names = metadata().tables[f"{table}s"]
        with store.database.writing() as connection:
            values = connection.scalars(select(names.c[column]).order_by(names.c.id)).all()
            for number, value in ((1, "other"), (2, values[0]), (1, values[1])):
                connection.execute(update(names).where(names.c.id == number).values({column: value}))
    with store.database.writing() as connection:
        ids = getattr(Measurements, f"{table}_id")
        connection.execute(update(Measurements).values({ids: 3 - ids}))
    assert _keys(store, run) == keys
    assert is_fresh(store)


def _keys(store, run):
    with store.database.reading() as connection:
        return kept_columns._keys_of(connection, [run], None)


def test_a_run_that_changes_while_it_is_read_is_not_kept(story, store, monkeypatch):
    run = measured(story)
    original = histories._read_runs

    def slowly(database, runs):
        columns = original(database, runs)
        story.put(run, story.naive, replica=1)
        return columns

    with monkeypatch.context() as patch:
        patch.setattr(histories, "_read_runs", slowly)
        store.series.histories([run])
    assert is_fresh(store)


def with_head(content, head):
    """The content of a file with another header and the right checksum."""
    _, length = kept_columns._HEAD.unpack_from(content)
    rest = content[kept_columns._HEAD.size + length :]
    size = kept_columns._HEAD.pack(0, len(head))[4:]
    return kept_columns._HEAD.pack(zlib.crc32(size + head + rest), len(head)) + head + rest


def changed(content, **fields):
    """The content of a file whose header has other fields, with the right checksum."""
    _, length = kept_columns._HEAD.unpack_from(content)
    header = json.loads(content[kept_columns._HEAD.size : kept_columns._HEAD.size + length])
    return with_head(content, json.dumps(header | fields).encode())


FORGED = {
    "truncated": lambda content: content[:-9],
    "empty": lambda content: b"",
    "cut in the head": lambda content: content[:5],
    "flipped": lambda content: content[:-20] + bytes([content[-20] ^ 1]) + content[-19:],
    "foreign": lambda content: b"nothing of perfsvc" * 100,
    "no text": lambda content: with_head(content, b"\xff\xfe{"),
    "a list": lambda content: with_head(content, b"[]"),
    "a number": lambda content: with_head(content, b"5"),
    "deep": lambda content: with_head(content, b"[" * 100_000),
    "no ids": lambda content: changed(content, newest=None),
    "fewer ids": lambda content: changed(content, newest=[]),
    "no columns": lambda content: changed(content, columns=7),
    "objects": lambda content: changed(content, columns=[["|O", 1]]),
    "no type": lambda content: changed(content, columns=[["odd", 1]]),
    "no length": lambda content: changed(content, columns=[["<i8", "x"]]),
    "too long": lambda content: changed(content, columns=[["<i8", 10**9]]),
    "no number": lambda content: changed(content, columns=[["<i8", 10**30]]),
    "negative": lambda content: changed(content, columns=[["<i8", -1]]),
}


@pytest.mark.slow
def test_files_are_private_and_a_damaged_or_forged_one_is_replaced(story, store, cache):
    measured(story)
    assert is_fresh(store)
    whole = {file: file.read_bytes() for file in cache.iterdir()}
    assert len(whole) == 4  # of one run
    assert cache.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in whole} == {0o600}
    fresh = everything(store)
    for name, change in FORGED.items():
        for file, content in whole.items():
            file.write_bytes(change(content))
        assert everything(store) == fresh, name
        assert {file: file.read_bytes() for file in cache.iterdir()} == whole, name


@pytest.mark.parametrize("obstacle", ["a file", "a link", "a folder of others", "a full disk"])
def test_without_files_all_is_read_from_the_database(story, store, cache, request, obstacle):
    measured(story)
    cache.parent.mkdir(mode=0o700)
    match obstacle:
        case "a file":
            cache.touch()
        case "a link":
            cache.symlink_to("nowhere")
        case "a folder of others":
            cache.mkdir()
            cache.chmod(0o777)
        case "a full disk":
            request.getfixturevalue("full_disk")
    assert is_fresh(store)
    assert not (cache.is_dir() and list(cache.iterdir()))


@pytest.mark.slow
def test_a_link_in_place_of_a_file_is_not_followed(story, store, cache, tmp_path):
    measured(story)
    assert is_fresh(store)
    for file in cache.iterdir():
        target = tmp_path / file.name
        file.rename(target)
        file.symlink_to(target)
        content = target.read_bytes()
        assert is_fresh(store)
        assert target.read_bytes() == content
        assert not file.is_symlink()


def test_files_that_were_not_used_for_longest_are_removed(story, store, cache, monkeypatch):
    runs = [measured(story) for _ in range(4)]
    store.series.histories(runs)
    files = {file: file.stat().st_size for file in cache.iterdir()}
    for file in files:
        os.utime(file, (1e9, 1e9))
    store.series.histories(runs[1:3])
    used = {file for file in cache.iterdir() if file.stat().st_mtime > 1e9}
    assert len(used) == 2
    monkeypatch.setattr(kept_columns, "MOST_BYTES", sum(files.values()))
    store.series.histories([measured(story)])
    assert used < set(cache.iterdir())
    assert 3 <= len(list(cache.iterdir())) <= 4
    assert is_fresh(store)


def test_a_database_in_memory_has_no_files(new_story, cache):
    with Store.open(":memory:") as store:
        measured(new_story(store))
        assert is_fresh(store)
    assert not cache.exists()


def test_another_file_at_the_same_path_is_another_database(story, store, place):
    run = measured(story)
    assert is_fresh(store)
    store.close()
    copy = Path(f"{place}.copy")
    shutil.copy(place, copy)
    with Store.open(copy) as other:
        with other.database.writing() as connection:
            connection.exec_driver_sql("UPDATE measurements SET median_s = 2 * median_s")
        assert is_fresh(other)
        expected = everything(other)
    copy.rename(place)
    with Store.open(place) as other:
        assert everything(other) == expected
        assert other.runs.get(run)


def test_integers_of_every_size_are_kept():
    values = [np.array(each, np.int64) for each in ([], [-1, 5], [0, 255], [-129, 127], [2**40, -(2**52)])]
    columns = [*values, np.array([np.nan, 0.1, -np.inf]), np.frombuffer(b'["a"]', np.uint8)]

    class Names:
        columns = ()

        def of(self, newest):
            return ""

    loaded = kept_columns._decoded(kept_columns._encoded(columns, "key", Names()), "key", Names())
    assert [column.tolist() for column in loaded[:5]] == [column.tolist() for column in values]
    assert [each.tobytes() for each in loaded[5:]] == [each.tobytes() for each in columns[5:]]
    assert kept_columns._decoded(kept_columns._encoded(columns, "key", Names()), "other", Names()) is None
