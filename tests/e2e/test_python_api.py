"""The frames of the Python API: they hold what the commands print, and reading them changes nothing."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import perfsvc as package
from perfsvc.errors import DatabaseError, NotMeasuredError, UsageError
from perfsvc.report.export import schema
from perfsvc.store import Store

USUAL = {"seconds": 1e-4}
SLOW = {"seconds": 1.2e-4}
BETA = "scale/beta[n=100]"


def prepare(workplace):
    """Two runs of three cases; in the second, one case is 20 % slower."""
    suite = workplace.own("scale")
    workplace.play({"*": USUAL})
    workplace.fake("--replicas", "2", "--label", "before", suite=suite, code=0)
    workplace.rebuild(suite)
    workplace.play({"*": USUAL, BETA: SLOW})
    workplace.fake("--replicas", "2", "--label", "after", suite=suite, code=1)


def prepare_finding(workplace):
    suite = workplace.own("scale")
    for speed in (USUAL, SLOW):
        workplace.play({"*": speed})
        workplace.fake("--points", "full", suite=suite, code=0)


@pytest.fixture
def measured(prepared):
    return prepared(prepare)


@pytest.fixture
def results(measured):
    with contextlib.chdir(measured.folder), package.open(measured.database) as opened:
        yield opened


def dtypes(columns):
    return {column.name: column.dtype for column in columns}


def fixed(table, columns):
    """The dtypes of the columns of a frame that every such frame has."""
    return {name: str(dtype) for name, dtype in list(table.dtypes.items())[: len(columns)]}


def copy_row(connection, table, number, changes):
    """Insert a copy of a row with these changes."""
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    (row,) = connection.execute(f"SELECT * FROM {table} WHERE id = ?", [number])  # noqa: S608 - a table of the test
    values = [changes.get(name, value) for name, value in zip(names, row, strict=True)]
    connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", values)  # noqa: S608 - likewise


# --- comparisons and samples -----------------------------------------------------------------------------------------


def test_a_comparison_takes_a_threshold_and_otherwise_those_of_the_settings(measured, results):
    for threshold, verdict in ((None, "regression"), (0.5, "unchanged")):
        table = results.compare("before", "after", threshold=threshold).set_index("case")
        assert (len(table), table.loc[BETA, "verdict"]) == (3, verdict)
        assert table.loc[BETA, "ratio"] == pytest.approx(1.2, rel=1e-6)
    uuid = results.measurements()["device"].iloc[0]
    assert results.compare(1, 2, select="scale/beta", device=uuid)["case"].tolist() == [BETA]
    (measured.folder / "perfsvc.toml").write_text('[[thresholds]]\ncases = "scale/*"\nchange = 0.5\n')
    with contextlib.chdir(measured.folder), package.open("perfsvc.db") as configured:
        counts = configured.compare(1, 2)["verdict"].value_counts().to_dict()
    assert counts == measured("compare", "1", "2", "--format", "json", code=0).json["counts"] == {"unchanged": 3}


def test_a_comparison_with_the_baselines_has_the_verdicts_of_the_run(results):
    stored = results.verdicts(runs=2).set_index(["case", "metric"]).sort_index()
    compared = results.compare("@baseline", "latest").set_index(["case", "metric"]).sort_index()
    pd.testing.assert_frame_equal(stored, compared)
    assert stored.loc[(BETA, "time"), "verdict"] == "regression"


def test_samples_are_those_of_the_measurements(results):
    table = results.samples()
    keys = ["run", "case", "device", "cache", "replica"]
    of_samples = table.groupby(keys, observed=True)["time_s"].agg(["count", "median"])
    measurements = results.measurements().set_index(keys)
    assert len(of_samples) == len(measurements)
    assert of_samples["count"].tolist() == measurements.loc[of_samples.index, "samples"].tolist()
    medians = measurements.loc[of_samples.index, "median_s"]
    assert np.allclose(of_samples["median"], medians, rtol=1e-6)  # samples are stored as float32
    first = table[(table["run"] == 1) & (table["replica"] == 0) & (table["case"] == BETA)]
    assert first["sample"].tolist() == list(range(len(first)))


# --- filters ---------------------------------------------------------------------------------------------------------


def test_every_table_takes_the_same_filters(results):
    uuid = results.measurements()["device"].iloc[0]
    model = results.measurements()["device_model"].iloc[0]
    for read in ("measurements", "summary", "samples", "verdicts"):
        table = getattr(results, read)
        assert set(table()["run"]) == {1, 2}, read
        assert set(table(runs=2)["run"]) == set(table(runs="latest")["run"]) == set(table(runs=["after"])["run"]) == {2}
        assert set(table(select=["scale/beta", "scale/alpha"])["case"]) == {BETA, "scale/alpha[n=100]"}
        assert len(table(device=uuid)) == len(table(device=[model])) == len(table())
        assert set(table(since=results.runs()["started_at"].iloc[1])["run"]) == {2}
        assert table(since=datetime.now(UTC) + timedelta(days=1)).empty


def test_the_series_of_findings_take_a_selection(prepared):
    """Six cases are slower, although their code is the same: by the environment."""
    with package.open(prepared(prepare_finding).database) as results:
        assert set(results.finding_series()["n"]) == {1000, 4000}
        beta = results.finding_series(select="scale/beta[n=1000]")
    assert beta["case"].tolist() == ["scale/beta[n=1000]"]


def test_a_part_holds_whole_runs_and_the_parts_are_all_measurements_or_samples(results):
    parts = list(results.measurement_parts(rows=7))
    assert [set(part["run"]) for part in parts] == [{1}, {2}]
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), results.measurements())
    assert len(list(results.measurement_parts(rows=12))) == 1
    parts = list(results.sample_parts())
    assert len(parts) == 2
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), results.samples())
    with pytest.raises(UsageError, match="a part cannot have 0 rows"):
        next(results.measurement_parts(rows=0))


@pytest.mark.quick
def test_what_the_database_does_not_hold_is_an_error(measured, results):
    for what, arguments in {
        "there is no run 9": {"runs": 9},
        "selects no measured case": {"select": "scale/betta"},
        "was ever measured": {"device": "fake H100"},
    }.items():
        with pytest.raises(NotMeasuredError, match=what) as raised:
            results.measurements(**arguments)
        assert raised.value.cure
        assert "select" not in arguments or BETA in raised.value.cure
    for since in ("yesterday-ish", float("nan"), None.__class__):
        with pytest.raises(UsageError, match="no date"):
            results.runs(since=since)
    with sqlite3.connect(measured.database) as connection:
        copy_row(connection, "devices", 1, {"id": 2, "uuid": "other"})
    with pytest.raises(NotMeasuredError, match="was never measured on other"):
        results.history(BETA, device="other")


# --- columns and dtypes ----------------------------------------------------------------------------------------------

FRAMES = {
    "runs": schema.RUNS,
    "measurements": schema.MEASUREMENTS,
    "summary": schema.SUMMARY,
    "samples": schema.SAMPLES,
    "verdicts": schema.VERDICTS,
    "findings": schema.FINDINGS,
    "finding_series": schema.FINDING_SERIES,
}


def test_a_frame_has_the_documented_columns_and_dtypes_with_rows_and_without(results, tmp_path):
    Store.open(tmp_path / "empty.db").close()
    with package.open(tmp_path / "empty.db") as empty:
        for read, columns in FRAMES.items():
            without = getattr(empty, read)()
            assert without.empty
            assert fixed(without, columns) == dtypes(columns)
            assert list(without) == [column.name for column in columns]
            assert fixed(getattr(results, read)(), columns) == dtypes(columns)
    assert fixed(results.compare(1, 2), schema.VERDICTS) == dtypes(schema.VERDICTS)
    assert fixed(results.history("beta"), schema.HISTORY) == dtypes(schema.HISTORY)


# --- opening ---------------------------------------------------------------------------------------------------------


def test_reading_everything_leaves_the_file_as_it_was(measured):
    with sqlite3.connect(measured.database) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # as a copied database may be; opening to write changes it
    before = measured.database.read_bytes()
    with package.open(measured.database) as results:
        for read in FRAMES:
            getattr(results, read)()
        results.compare("@baseline", 2)
        results.history("beta")
    assert measured.database.read_bytes() == before


def test_a_missing_database_is_not_made(tmp_path):
    with pytest.raises(DatabaseError, match=r"there is no database .*nights\.db") as raised:
        package.open(tmp_path / "nights.db")
    assert "--db" in raised.value.cure or "perfsvc.open" in raised.value.cure
    assert not list(tmp_path.iterdir())


def test_an_older_database_is_not_upgraded(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "old.db")) as connection, connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        connection.execute("INSERT INTO alembic_version VALUES ('0000')")
    before = (tmp_path / "old.db").read_bytes()
    with pytest.raises(DatabaseError, match="schema revision"):
        package.open(tmp_path / "old.db")
    assert (tmp_path / "old.db").read_bytes() == before


def test_without_a_name_the_database_of_the_settings_is_opened(measured):
    (measured.folder / "perfsvc.toml").write_text('database = "perfsvc.db"\n')
    (measured.folder / "deep").mkdir()
    without = {name: value for name, value in os.environ.items() if name != "PERFSVC_DB"}
    with (
        contextlib.chdir(measured.folder / "deep"),
        mock.patch.dict(os.environ, without, clear=True),
        package.open() as results,
    ):
        assert len(results.runs()) == 2
        assert results.location == str(measured.database)


def test_importing_perfsvc_imports_neither_pandas_nor_sqlalchemy():
    program = "import json, sys, perfsvc; print(json.dumps(sorted(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    imported = {name.partition(".")[0] for name in json.loads(ended.stdout)}
    assert not imported & {"pandas", "sqlalchemy", "numpy", "click"}
