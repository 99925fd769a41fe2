"""Measure how long pruning a large database takes.

    python tests/benchmarks/keeping.py [--nights 384] [--cases 1000] [--json keeping.json]

The database has one run a night; each run measures all cases in one replica on one GPU and has a verdict on each. One
commit in the middle made a tenth of the cases faster, which sets new levels. The claims: pruning takes seconds, and
its time grows with the number of nights, not with its square. Needs no GPU.
"""

import argparse
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert
from workbench import Claim, finish, table

from perfsvc.config.settings import RetentionSettings
from perfsvc.model import Case, DeviceInfo, Environment, Provenance, RunState, Status, Verdict
from perfsvc.service.nightly.retention import prune
from perfsvc.store import Store
from perfsvc.store.cases import case_ids, device_id
from perfsvc.store.devices import put_device
from perfsvc.store.runs import run_row
from perfsvc.store.schema.engine import new_id, transaction
from perfsvc.store.schema.environments import environment_id
from perfsvc.store.schema.judging_tables import Verdicts
from perfsvc.store.schema.samples import pack
from perfsvc.store.schema.tables import Measurements, NoiseOfCases, Runs

DAY_S = 86400.0
GPU = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H100", "sm_90", "9.0", 132)
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
LONGEST_PRUNE_S = 60.0
MEASURED = {
    "replica": 0,
    "cache": "cold",
    "status": Status.OK,
    "reason": "",
    "cure": "",
    "sample_count": 100,
    "median_s": 1e-3,
    "low_s": 1e-3,
    "high_s": 1.1e-3,
    "read_bytes": 1 << 20,
    "written_bytes": 1 << 20,
    "flops": 0,
    "stopped": "",
    "wall_s": 1.0,
}
GROWTH = 3.0
"""Pruning twice as many nights may take at most this many times as long."""


def fill(path: Path, nights: int, cases: int) -> None:
    """Write a database with a run for each night."""
    with Store.open(path) as store, transaction(store.database.engine, writes=True) as connection:
        put_device(connection, GPU)
        device = device_id(connection, GPU.uuid)
        environment = environment_id(connection, Environment("580.1", "nvcc 13.0", 700.0))
        names = [Case(f"bench_{number // 50}", "tiled", (("n", number),)) for number in range(cases)]
        ids = list(case_ids(connection, names).values())
        samples = pack([1e-3 * (1 + sample / 1e4) for sample in range(100)])
        shared: dict[str, Any] = {"device_id": device, "environment_id": environment, "samples": samples}
        for night in range(nights):
            _put_night(connection, night, shared, ids, faster=night == nights // 2)


def _put_night(
    connection: Connection, night: int, shared: dict[str, Any], cases: Sequence[int], *, faster: bool
) -> None:
    started = BEGIN + timedelta(days=night)
    provenance = Provenance(started=started, command_line="perfsvc nightly", suite="kernels", host="box", scope="all")
    row = run_row(provenance, RunState.FINISHED) | {"finished_at": started, "git_commit": f"{night:040x}"}
    run = new_id(connection, Runs, row)
    measured = [MEASURED | shared | {"run_id": run, "case_id": case, "measured_at": started} for case in cases]
    connection.execute(insert(Measurements), measured)
    key = {"run_id": run, "device_id": shared["device_id"], "cache": "cold"}
    noise = {"noise_within": 1e-3, "noise_between": 2e-3, "replicas": 1}
    connection.execute(insert(NoiseOfCases), [{**key, **noise, "case_id": case} for case in cases])
    metrics = "INSERT INTO metrics SELECT id, 'tokens_per_s', 1e6 FROM measurements WHERE run_id = ?"
    connection.exec_driver_sql(metrics, (run,))
    verdicts = [_verdict(key, case, night, faster=faster and case % 10 == 0) for case in cases]
    connection.execute(insert(Verdicts), verdicts)


def _verdict(key: dict[str, Any], case: int, night: int, *, faster: bool) -> dict[str, Any]:
    verdict = Verdict.NEW if night == 0 else Verdict.IMPROVEMENT if faster else Verdict.UNCHANGED
    return {
        **key,
        "case_id": case,
        "metric": "time",
        "verdict": verdict,
        "reason": "",
        "ratio": 1.0,
        "baseline_runs": 1,
    }


def timed(what: Callable[[], object]) -> float:
    """Return how many seconds of processor time a function takes; other processes do not lengthen it."""
    began = time.process_time()
    what()
    return time.process_time() - began


def pruned(path: Path, nights: int, *, dry_run: bool) -> None:
    """Prune the samples of all but the newest 30 nights."""
    with Store.open(path) as store:
        now = BEGIN + timedelta(days=nights)
        retention = RetentionSettings(samples=30 * DAY_S, binaries=30 * DAY_S, profiles=30 * DAY_S, nights=30 * DAY_S)
        prune(store, retention, now, force=not dry_run, dry_run=dry_run)


def with_samples(path: Path) -> int:
    """Return how many measurements still have samples."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM measurements WHERE samples IS NOT NULL").fetchone()[0])


def main() -> int:
    """Fill databases of two sizes, time each command, and check the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=384)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for nights in (options.nights // 2, options.nights):
            path = Path(folder) / f"{nights}.db"
            fill(path, nights, options.cases)
            rows.append(measure(path, nights))
    print(table(list(rows[0]), [[f"{value:.5g}" for value in row.values()] for row in rows]))
    half, whole = rows
    claims = [
        Claim("pruning", whole["prune_s"], LONGEST_PRUNE_S, " s of processor time"),
        Claim("pruning twice as many nights", whole["prune_s"] / half["prune_s"], GROWTH, " times as long"),
    ]
    return finish(claims, options.json, sizes=rows)


def measure(path: Path, nights: int) -> dict[str, float]:
    """Return how many seconds of processor time each command takes on a database."""
    return {
        "nights": nights,
        "size_mb": path.stat().st_size / 1e6,
        "dry_run_s": timed(lambda: pruned(path, nights, dry_run=True)),
        "prune_s": timed(lambda: pruned(path, nights, dry_run=False)),
        "kept": with_samples(path),
    }


if __name__ == "__main__":
    sys.exit(main())
