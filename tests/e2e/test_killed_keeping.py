"""A sync, a backup or a prune that is killed leaves a sound database, and the next one finishes its work."""

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert

from perfsvc.model import Case, DeviceInfo, Environment, Provenance, RunState, Status
from perfsvc.store import Store
from perfsvc.store.cases import case_ids, device_id
from perfsvc.store.devices import put_device
from perfsvc.store.runs import run_row
from perfsvc.store.schema.engine import new_id
from perfsvc.store.schema.environments import environment_id
from perfsvc.store.schema.samples import pack
from perfsvc.store.schema.tables import Measurements, Runs

RUNS, CASES, KILLS = 30, 100, 2
MEASURED = {
    "replica": 0,
    "cache": "cold",
    "status": Status.OK,
    "reason": "",
    "cure": "",
    "samples": pack([1e-3, 2e-3, 3e-3]),
    "sample_count": 3,
    "median_s": 2e-3,
    "read_bytes": 1,
    "written_bytes": 1,
    "flops": 0,
    "stopped": "",
    "wall_s": 1.0,
}


@pytest.fixture
def source(tmp_path):
    """Return the path of a database with many runs."""
    path = tmp_path / "source.db"
    gpu = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H100", "sm_90", "9.0", 132)
    with Store.open(path) as store, store.database.writing() as connection:
        put_device(connection, gpu)
        shared = {
            "device_id": device_id(connection, gpu.uuid),
            "environment_id": environment_id(connection, Environment("580.1", "nvcc 13.0", 700.0)),
        }
        cases = list(case_ids(connection, [Case("b", "v", (("n", n),)) for n in range(CASES)]).values())
        for number in range(RUNS):
            at = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=number)
            provenance = Provenance(started=at, command_line="", suite="s", host="h", scope="s")
            run = new_id(connection, Runs, run_row(provenance, RunState.FINISHED) | {"finished_at": at})
            rows = [{**MEASURED, **shared, "run_id": run, "case_id": case, "measured_at": at} for case in cases]
            connection.execute(insert(Measurements), rows)
    with Store.open(path) as store:
        store.series.rebuild()
    return path


def perfsvc(*arguments, **options):
    command = [sys.executable, "-m", "perfsvc", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


def killed(seed, *arguments):
    """Start a command again and again, and kill it at a random moment of the time that it takes."""
    chance = random.Random(seed)
    for _ in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-m", "perfsvc", *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(chance.uniform(0.3, 3.0))
        process.kill()
        process.wait()
        yield


def count(path, what="measurements"):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT count(*) FROM {what}").fetchone()[0]  # noqa: S608 - our own texts


def test_a_killed_sync_has_whole_runs_and_is_continued(source, tmp_path):
    target = tmp_path / "target.db"
    Store.open(target).close()
    stored = 0
    for _ in killed(1, "sync", source, target):
        assert Store.check(target).ok
        runs = count(target, "runs")
        assert runs >= stored
        assert count(target) == CASES * runs
        stored = runs
    perfsvc("sync", source, target)
    assert (count(target, "runs"), count(target)) == (RUNS, CASES * RUNS)
    assert count(target, "(SELECT DISTINCT uid FROM runs)") == RUNS


def test_a_killed_backup_leaves_a_whole_file_or_none(source, tmp_path):
    target = tmp_path / "backup.db"
    for _ in killed(2, "db", "backup", target, "--db", source):
        if target.exists():
            assert count(target) == CASES * RUNS
            assert Store.check(target).ok
            target.unlink()
    perfsvc("db", "backup", target, "--db", source)
    assert count(target) == CASES * RUNS
    assert [path.name for path in tmp_path.glob(".perfsvc-new*")] == []


def test_a_killed_prune_loses_nothing_but_old_samples(source):
    prune = ("db", "prune", "--samples", "5d", "--force", "--db", source)
    for _ in killed(3, *prune):
        assert Store.check(source).ok
        assert count(source) == CASES * RUNS
    perfsvc(*prune)
    assert count(source, "measurements WHERE samples IS NOT NULL") == 0
    assert count(source, "measurements WHERE median_s IS NULL") == 0
