"""Backing up a database, and finding the rows of it that cannot be read."""

import shutil
import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from perfsvc.errors import DatabaseError, UsageError
from perfsvc.model import TIME, Environment, Status, Verdict
from perfsvc.service.compare.compare import judge_run
from perfsvc.store import RunState, Store
from perfsvc.store.cases import case_of
from perfsvc.store.keeping.backup import back_up, vacuum
from perfsvc.store.keeping.damage import remove_unreadable, unreadable_rows
from perfsvc.store.schema.column_types import UNKNOWN_TIME, report_damaged
from tests.unit.store.conftest import ON_BOTH


@pytest.fixture(autouse=True)
def anew():
    """Let each test report damage that an earlier test has reported."""
    report_damaged.cache_clear()
    case_of.cache_clear()


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
    ("UPDATE measurements SET median_s = 'fast' WHERE id = 1", "measurements.median_s of id 1"),
    ("UPDATE runs SET packages = '{' WHERE id = 1", "runs.packages of id 1"),
    ("UPDATE runs SET started_at = 'yesterday' WHERE id = 1", "runs.started_at of id 1"),
    ("UPDATE runs SET label = x'ff' WHERE id = 1", "runs.label of id 1"),
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
    assert levels[story.series(story.tiled)].replicas == ((2e-3,),)  # the stored median
    assert len(levels[story.series(story.naive)].replicas[0]) == 3
    assert [len(each.samples_s) for each in store.measurements.of_run(run)] == [0, 3]
    assert [each.case for each in store.measurements.samples(run)] == [story.naive.id]
    assert list(store.series.samples([run])) == [story.series(story.naive)]
    assert store.measurements.columns()["median_s"] == [2e-3, 2e-3]
    assert f"a blob of samples of {story.tiled.id} is damaged" in caplog.text


def test_a_damaged_word_costs_only_its_row(story, store, place, caplog):
    first, second = story.run(story.tiled, story.naive), story.run()
    story.execute("UPDATE measurements SET status = 'gone' WHERE id = 1")
    story.execute("UPDATE runs SET state = 'lost' WHERE id = :id", id=second)
    assert [measured.status for measured in store.measurements.of_run(first)] == [Status.FAILED, Status.OK]
    assert [row.state for row in store.runs.list()] == [RunState.FAILED, RunState.FINISHED]
    assert "the Status 'gone' is damaged in the database (perfsvc db check)" in caplog.text
    assert "the RunState 'lost' is damaged" in caplog.text
    problems = " ".join(Store.check(place).problems)
    assert "measurements.status of id 1" in problems
    assert f"runs.state of id {second}" in problems


def test_damaged_packages_and_a_damaged_date_of_a_run_cost_only_themselves(full, caplog):
    raw(full, "UPDATE runs SET packages = '{broken', started_at = 'yesterday' WHERE id = 1")
    with Store.open(full) as store:
        assert not store.runs.get(1).provenance.packages
        assert store.runs.get(1).provenance.started == UNKNOWN_TIME
        assert len(store.runs.list()) > 1
    assert "{broken" in caplog.text
    assert "the date 'yesterday' is damaged" in caplog.text


def test_a_damaged_point_environment_or_kind_of_a_device_costs_only_itself(story, store, caplog):
    story = replace(story, environment=Environment("580.95", parts=(("gpu.ecc", "on"),)))
    runs = [story.run(story.tiled, story.naive) for _ in range(2)]
    before = judge_run(store, runs[1], threshold=None)
    story.execute("UPDATE devices SET kind = 'odd'")
    assert judge_run(store, runs[1], threshold=None) == before
    story.execute("UPDATE environments SET parts = '{broken parts'")
    history, *_ = store.series.histories(runs).values()
    assert store.devices.environments()[history[0].segment] == Environment("580.95")
    story.execute("UPDATE cases SET point = '{broken' WHERE variant = 'naive'")
    axes = store.measurements.columns(runs[:1])["axes"]
    assert axes == [dict(story.tiled.point), {"damaged": "{broken"}]
    for damage in ("the kind 'odd' of a device is damaged", "the environment '{broken parts' is damaged", "{broken"):
        assert damage in caplog.text


def test_a_verdict_on_a_case_that_does_not_exist_costs_only_itself(story, store, place, caplog):
    run = story.run(story.tiled, story.naive)
    store.verdicts.put(run, [story.judgement(case, Verdict.REGRESSION) for case in (story.tiled, story.naive)])
    raw(place, "UPDATE verdicts SET case_id = 77 WHERE case_id = 1")
    report_damaged.cache_clear()
    assert [series.case for series in store.verdicts.events([run])] == [story.naive]
    assert "the case 77 of a row" in caplog.text


DAMAGED_NUMBERS = {
    "measurements SET median_s = 'odd', samples = NULL": "the number 'odd'",
    "measurements SET low_s = 'odd'": "the number 'odd'",
    "measurements SET max_error = 'odd'": "the number 'odd'",
    "measurements SET read_bytes = 'odd'": "the number 'odd'",
    "measurements SET sm_clock_hz = 'odd'": "the number 'odd'",
    "metrics SET value = 'odd'": "the number 'odd'",
    "measurements SET median_s = 'inf', samples = NULL": "the number 'inf'",
    "metrics SET value = 'inf'": "the number 'inf'",
    "measurements SET replica = 'odd'": "a row of measurements",
    "measurements SET device_id = 'odd'": "a row of measurements",
    "measurements SET sample_count = 'odd'": "the number 'odd'",
    "measurements SET environment_id = 'odd'": "a row of measurements",
    "measurements SET cache = 'odd'": "a row of measurements",
    "measurements SET device_id = 77": "77 of a row",
    "measurements SET environment_id = 77": "77 of a row",
}
"""What is set in a row to what is no number, and what the report of the damage names."""


@pytest.mark.parametrize("damage", DAMAGED_NUMBERS)
def test_a_damaged_number_costs_only_its_row(story, store, place, caplog, damage):
    runs = [story.begin() for _ in range(2)]
    for run in runs:
        for case in (story.tiled, story.naive):
            for replica in range(2):
                story.put(run, case, replica=replica, max_error=1e-6, metrics={"overlap": 0.5})
        story.store.runs.end(run, RunState.FINISHED)
    whole = store.series.histories(runs, errors=True), store.series.levels(runs[0])
    raw(place, f"UPDATE {damage} WHERE {'measurement_id' if damage.startswith('metrics') else 'id'} = 1")
    report_damaged.cache_clear()
    environments = store.devices.environments()
    for series, history in store.series.histories(runs, errors=True).items():
        assert history.runs.tolist() == runs
        assert {environments[int(segment)] for segment in history.segments} <= {story.environment, Environment()}
        lost = np.count_nonzero(np.isnan(history.values) & ~np.isnan(whole[0][series].values))
        assert lost <= (series.case == story.tiled)
    assert store.series.histories(runs, errors=True).keys() == whole[0].keys()
    levels = store.series.levels(runs[0])
    assert levels.series == whole[1].series
    for series in levels.series:
        assert len(whole[1][series].replicas) - len(levels[series].replicas) <= (series.case == story.tiled)
    store.measurements.quantities(runs)
    store.devices.conditions_of(runs)
    if "cache" not in damage:
        verdicts = {judged.verdict for judged in judge_run(store, runs[1], threshold=None)}
        assert verdicts <= {Verdict.UNCHANGED, Verdict.INCONCLUSIVE}
        assert len(store.measurements.columns()["median_s"]) >= 7  # a row without its environment is left out
        assert len(store.series.case_history(story.naive.id)) == 2
        assert [run.cases for run in store.runs.list()] == [2, 2]
        assert store.series.measured(runs[0]) >= {series for series in levels.series if series.metric == TIME}
        assert len(store.series.samples(runs)) == 2
    assert DAMAGED_NUMBERS[damage] in caplog.text


@ON_BOTH
def test_a_damaged_cache_state_is_an_error_until_its_row_is_removed(story, store, place):
    run = story.run(story.tiled, story.naive)
    story.execute("UPDATE measurements SET cache = 'gone' WHERE id = 1")
    with pytest.raises(DatabaseError, match="gone") as error:
        store.measurements.columns()
    assert "perfsvc db check --remove" in error.value.cure
    assert remove_unreadable(store.database) == {"measurements": 1}
    assert [measured.case for measured in store.measurements.of_run(run)] == [story.naive]
    assert remove_unreadable(store.database) == {}
    assert Store.check(place).ok


def test_parts_of_a_measurement_that_does_not_exist_are_named_and_removed(full):
    whole = raw(full, "SELECT * FROM metrics")
    raw(full, "INSERT INTO metrics VALUES (9999, 'overlap', 0.5), (9999, 'steps_s', 0.5)")
    assert Store.check(full).problems == ("2 rows of metrics refer to no measurements",)
    with Store.open(full) as store:
        assert unreadable_rows(store.database) == remove_unreadable(store.database) == {"metrics": 2}
    assert Store.check(full).ok
    assert raw(full, "SELECT * FROM metrics") == whole


@pytest.mark.parametrize("column", ["benchmark", "variant", "point", "name"])
def test_a_blob_in_place_of_a_name_is_read_as_text(story, store, place, caplog, column):
    runs = [story.run(story.tiled, story.naive) for _ in range(2)]
    raw(place, f"UPDATE cases SET {column} = CAST({column} || x'ff' AS BLOB) WHERE variant = 'tiled'")  # noqa: S608
    assert len(store.series.histories(runs)) == 2
    assert len(store.series.levels(runs[0]).series) == 2
    assert len(store.measurements.columns()["median_s"]) == 4
    assert len({measured.case for measured in store.measurements.of_run(runs[0])}) == 2
    judge_run(store, runs[1], threshold=None)
    assert len(store.runs.list()) == 2
    assert r"\xff" in caplog.text
    assert any(f"cases.{column}" in problem for problem in Store.check(place).problems)


@pytest.mark.parametrize("column", ["measurements.cache", "verdicts.cache", "pins.cache", "expectations.kind"])
@pytest.mark.parametrize("damage", ["'gone'", "x'636f6c64'"])  # a blob of the word is damage too
def test_a_row_with_a_damaged_word_is_removed_with_what_belongs_to_it(full, column, damage):
    table, name = column.split(".")
    ((rows,),) = raw(full, count := f"SELECT count(*) FROM {table}")  # noqa: S608 - our own names
    raw(full, f"UPDATE {table} SET {name} = {damage} WHERE rowid = (SELECT min(rowid) FROM {table})")  # noqa: S608
    with Store.open(full) as store:
        assert remove_unreadable(store.database) == {table: 1}
    assert raw(full, count) == [(rows - 1,)]
    assert Store.check(full).ok


def test_an_exclusion_of_a_damaged_case_does_not_exclude_the_whole_run(story, store, place, caplog):
    report_damaged.cache_clear()
    run = story.begin()
    for case, status in ((story.tiled, Status.FAILED), (story.naive, Status.OK)):
        story.put(run, case, status=status, reason="it crashed")
    store.runs.end(run, RunState.FINISHED)
    store.exclusions.exclude(run, {story.naive}, by="me", reason="a hot GPU")
    raw(place, "UPDATE exclusions SET case_id = 'odd'")
    assert store.series.levels(run)[story.series(story.tiled)].status is Status.FAILED
    assert [history[0].excluded for history in store.series.histories([run]).values()] == ["", ""]
    assert [row.why_excluded for row in store.runs.list()] == [""]
    assert store.exclusions.all() == []
    assert "the number 'odd' is damaged" in caplog.text
