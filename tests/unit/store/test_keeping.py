"""Backing up a database, and finding the rows of it that cannot be read."""

import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

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

DUMP = Path(__file__).parents[2] / "data" / "schemas" / "0001.sql"


@pytest.fixture(autouse=True)
def anew():
    """Let each test report damage that an earlier test has reported."""
    report_damaged.cache_clear()
    case_of.cache_clear()


@pytest.fixture
def full(tmp_path):
    """Return the path of a SQLite database with rows in every table."""
    path = tmp_path / "full.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(DUMP.read_text())
    return path


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


def test_a_server_is_backed_up_by_other_programs(tmp_path, place, kind):
    if kind == "sqlite":
        pytest.skip("about servers")
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


def test_an_undamaged_database_has_no_damage(full):
    assert Store.check(full).problems == ()


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
    ("UPDATE artifacts SET content = x'00'", "artifacts.content of sha256"),
    ("UPDATE profiles SET instructions = x'00' WHERE id = 1", "profiles.instructions of id 1"),
    ("PRAGMA foreign_keys = OFF; DELETE FROM devices", "refers to no devices"),
]


@pytest.mark.parametrize(("statement", "named"), DAMAGES)
def test_a_damaged_row_is_named(full, statement, named):
    with closing(sqlite3.connect(full)) as connection:
        connection.executescript(statement)
    state = Store.check(full)
    assert not state.ok
    assert any(named in problem for problem in state.problems), state.problems


def test_a_blob_that_differs_from_its_digest_is_named(full):
    with closing(sqlite3.connect(full)) as connection:
        connection.execute("UPDATE artifacts SET content = ?", (zlib.compress(b"another"),))
        connection.commit()
    assert any("differs from its digest" in problem for problem in Store.check(full).problems)


def test_damage_is_named_on_both_databases(place, new_story):
    with Store.open(place) as store:
        story = new_story(store)
        story.run()
        story.execute("UPDATE measurements SET samples = :blob", blob=b"\0")
    (problem,) = Store.check(place).problems
    assert "measurements.samples" in problem
    assert "costs the samples" in problem


def test_damaged_samples_cost_only_themselves(place, new_story, caplog):
    with Store.open(place) as store:
        story = new_story(store)
        run = story.run(story.tiled, story.naive)
        story.execute("UPDATE measurements SET samples = :blob, place_medians = :blob WHERE id = 1", blob=b"\0")
        levels = store.series.levels(run)
        assert levels[story.series(story.tiled)].replicas == ((2e-3,),)  # the stored median
        assert len(levels[story.series(story.naive)].replicas[0]) == 3
        assert [len(each.samples_s) for each in store.measurements.of_run(run)] == [0, 3]
        assert [each.case for each in store.measurements.samples(run)] == [story.naive.id]
        assert store.measurements.columns()["median_s"] == [2e-3, 2e-3]
    assert f"a blob of samples of {story.tiled.id} is damaged" in caplog.text


def test_a_damaged_point_costs_only_the_axes_of_its_case(place, new_story, caplog):
    with Store.open(place) as store:
        story = new_story(store)
        story.run(story.tiled, story.naive)
        story.execute("UPDATE cases SET point = '{broken' WHERE variant = 'naive'")
        axes = store.measurements.columns()["axes"]
        assert axes == [dict(story.tiled.point), {"damaged": "{broken"}]
    assert "{broken" in caplog.text


def test_damaged_packages_of_a_run_cost_only_themselves(full, caplog):
    with closing(sqlite3.connect(full)) as connection:
        connection.execute("UPDATE runs SET packages = '{broken' WHERE id = 1")
        connection.commit()
    with Store.open(full) as store:
        assert not store.runs.get(1).provenance.packages
        assert len(store.runs.list()) > 1
    assert "{broken" in caplog.text


def test_a_damaged_word_costs_only_its_row(place, new_story, caplog):
    with Store.open(place) as store:
        story = new_story(store)
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


def test_a_damaged_date_costs_only_itself(full, caplog):
    with closing(sqlite3.connect(full)) as connection:
        connection.execute("UPDATE runs SET started_at = 'yesterday' WHERE id = 1")
        connection.commit()
    with Store.open(full) as store:
        assert store.runs.get(1).provenance.started == UNKNOWN_TIME
        assert len(store.runs.list()) > 1
    assert "the date 'yesterday' is damaged" in caplog.text


def test_a_damaged_environment_costs_only_its_parts(kind, place, new_story, caplog):
    content = f"{{broken on {kind}"  # what was read before is not read again
    with Store.open(place) as store:
        story = replace(new_story(store), environment=Environment("580.95", parts=(("gpu.ecc", "on"),)))
        run = story.run()
        story.execute("UPDATE environments SET parts = :parts", parts=content)
        (history,) = store.series.histories([run]).values()
        assert store.devices.environments()[history[0].segment] == Environment("580.95")
    assert f"the environment {content!r} is damaged" in caplog.text


@pytest.mark.parametrize("kind", ["sqlite"])  # PostgreSQL refuses such values
@pytest.mark.parametrize(
    ("damage", "reported"),
    [
        ("UPDATE measurements SET median_s = 'odd', samples = NULL WHERE id = 1", "the number 'odd'"),
        ("UPDATE measurements SET low_s = 'odd' WHERE id = 1", "the number 'odd'"),
        ("UPDATE measurements SET max_error = 'odd' WHERE id = 1", "the number 'odd'"),
        ("UPDATE measurements SET read_bytes = 'odd' WHERE id = 1", "the number 'odd'"),
        ("UPDATE measurements SET sm_clock_hz = 'odd' WHERE id = 1", "the number 'odd'"),
        ("UPDATE metrics SET value = 'odd' WHERE measurement_id = 1", "the number 'odd'"),
        ("UPDATE measurements SET median_s = 'inf', samples = NULL WHERE id = 1", "the number 'inf'"),
        ("UPDATE metrics SET value = 'inf' WHERE measurement_id = 1", "the number 'inf'"),
        ("UPDATE measurements SET replica = 'odd' WHERE id = 1", "a row of measurements"),
        ("UPDATE measurements SET device_id = 'odd' WHERE id = 1", "a row of measurements"),
        ("UPDATE measurements SET sample_count = 'odd' WHERE id = 1", "the number 'odd'"),
        ("UPDATE measurements SET environment_id = 'odd' WHERE id = 1", "a row of measurements"),
        ("UPDATE measurements SET cache = 'odd' WHERE id = 1", "a row of measurements"),
    ],
)
def test_a_damaged_number_costs_only_its_row(place, new_story, caplog, damage, reported):
    with Store.open(place) as store:
        story = new_story(store)
        runs = [story.begin() for _ in range(2)]
        for run in runs:
            for case in (story.tiled, story.naive):
                for replica in range(2):
                    story.put(run, case, replica=replica, max_error=1e-6, metrics={"overlap": 0.5})
            story.store.runs.end(run, RunState.FINISHED)
        whole = store.series.histories(runs, errors=True), store.series.levels(runs[0])
        with closing(sqlite3.connect(place)) as connection, connection:  # without our check of references
            connection.execute(damage)
        report_damaged.cache_clear()
        for series, history in store.series.histories(runs, errors=True).items():
            assert history.runs.tolist() == runs
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
    assert reported in caplog.text


def test_a_damaged_cache_state_is_an_error_until_its_row_is_removed(place, new_story):
    with Store.open(place) as store:
        story = new_story(store)
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
    with closing(sqlite3.connect(full)) as connection, connection:
        whole = connection.execute("SELECT * FROM metrics").fetchall()
        connection.execute("INSERT INTO metrics VALUES (9999, 'overlap', 0.5), (9999, 'steps_s', 0.5)")
    assert Store.check(full).problems == ("2 rows of metrics refer to no measurements",)
    with Store.open(full) as store:
        assert unreadable_rows(store.database) == remove_unreadable(store.database) == {"metrics": 2}
    assert Store.check(full).ok
    with closing(sqlite3.connect(full)) as connection:
        assert connection.execute("SELECT * FROM metrics").fetchall() == whole


@pytest.mark.parametrize("kind", ["sqlite"])  # PostgreSQL refuses such values
@pytest.mark.parametrize(("column", "lost"), [("device_id", 1), ("environment_id", 0)])
def test_an_id_that_names_nothing_costs_only_its_row(place, new_story, caplog, column, lost):
    with Store.open(place) as store:
        story = new_story(store)
        runs = [story.run(story.tiled, story.naive) for _ in range(2)]
        with closing(sqlite3.connect(place)) as connection, connection:
            connection.execute(f"UPDATE measurements SET {column} = 77 WHERE id = 3")  # noqa: S608 - our own names
        report_damaged.cache_clear()
        levels = store.series.levels(runs[1])
        assert len(levels.series) == 2 - lost
        histories = store.series.histories(runs)
        assert sum(len(history.runs) for history in histories.values()) == 4 - lost
        environments = store.devices.environments()
        for history in histories.values():
            assert {environments[int(segment)] for segment in history.segments} <= {story.environment, Environment()}
        assert len(store.measurements.quantities(runs)) == 2
        assert len(store.series.samples(runs)) == 2
        assert [each.measured for each in store.devices.conditions(runs[1])] == [2 - lost]
        verdicts = {judged.series.case: judged.verdict for judged in judge_run(store, runs[1], threshold=None)}
        assert verdicts[story.naive] in {Verdict.UNCHANGED, Verdict.INCONCLUSIVE}
    assert " 77 of a row is damaged" in caplog.text


def test_a_damaged_kind_of_a_device_changes_no_verdict(place, new_story, caplog):
    with Store.open(place) as store:
        story = new_story(store)
        runs = [story.run(story.tiled, story.naive) for _ in range(2)]
        before = judge_run(store, runs[1], threshold=None)
        story.execute("UPDATE devices SET kind = 'odd'")
        assert judge_run(store, runs[1], threshold=None) == before
    assert "the kind 'odd' of a device is damaged" in caplog.text


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("column", ["benchmark", "variant", "point", "name"])
def test_a_blob_in_place_of_a_name_is_read_as_text(place, new_story, caplog, column):
    with Store.open(place) as store:
        story = new_story(store)
        runs = [story.run(story.tiled, story.naive) for _ in range(2)]
        with closing(sqlite3.connect(place)) as connection, connection:
            connection.execute(f"UPDATE cases SET {column} = CAST({column} || x'ff' AS BLOB) WHERE variant = 'tiled'")  # noqa: S608
        assert len(store.series.histories(runs)) == 2
        assert len(store.series.levels(runs[0]).series) == 2
        assert len(store.measurements.columns()["median_s"]) == 4
        assert len({measured.case for measured in store.measurements.of_run(runs[0])}) == 2
        judge_run(store, runs[1], threshold=None)
        assert len(store.runs.list()) == 2
    assert r"\xff" in caplog.text
    assert any(f"cases.{column}" in problem for problem in Store.check(place).problems)


@pytest.mark.parametrize("column", ["measurements.cache", "verdicts.cache", "pins.cache", "expectations.kind"])
def test_what_belongs_to_a_removed_row_is_removed_too(full, column):
    table, name = column.split(".")
    with closing(sqlite3.connect(full)) as connection, connection:
        (rows,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - our own names
        connection.execute(f"UPDATE {table} SET {name} = 'gone' WHERE rowid = (SELECT min(rowid) FROM {table})")  # noqa: S608
    with Store.open(full) as store:
        assert remove_unreadable(store.database) == {table: 1}
    with closing(sqlite3.connect(full)) as connection:
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (rows - 1,)  # noqa: S608
    assert Store.check(full).ok


def test_a_blob_in_place_of_a_word_is_removed(full):
    with closing(sqlite3.connect(full)) as connection, connection:
        connection.execute("UPDATE measurements SET cache = x'636f6c64' WHERE id = 1")  # the bytes of cold
    with Store.open(full) as store:
        assert remove_unreadable(store.database) == {"measurements": 1}
    assert Store.check(full).ok


@pytest.mark.parametrize("kind", ["sqlite"])
def test_an_exclusion_of_a_damaged_case_does_not_exclude_the_whole_run(place, new_story, caplog):
    report_damaged.cache_clear()
    with Store.open(place) as store:
        story = new_story(store)
        run = story.begin()
        for case, status in ((story.tiled, Status.FAILED), (story.naive, Status.OK)):
            story.put(run, case, status=status, reason="it crashed")
        store.runs.end(run, RunState.FINISHED)
        store.exclusions.exclude(run, {story.naive}, by="me", reason="a hot GPU")
        with closing(sqlite3.connect(place)) as connection, connection:
            connection.execute("UPDATE exclusions SET case_id = 'odd'")
        assert store.series.levels(run)[story.series(story.tiled)].status is Status.FAILED
        assert [history[0].excluded for history in store.series.histories([run]).values()] == ["", ""]
        assert [row.why_excluded for row in store.runs.list()] == [""]
        assert store.exclusions.all() == []
    assert "the number 'odd' is damaged" in caplog.text
