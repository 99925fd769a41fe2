"""Fill a SQLite database with many cases and nights: the first night through the store, the others as copies in SQL."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from perfsvc.model import (
    ENERGY,
    TIME,
    Batch,
    Case,
    Cause,
    ChangeKind,
    Conditions,
    DeviceInfo,
    Direction,
    Environment,
    Estimate,
    Judgement,
    Measurement,
    Peak,
    Provenance,
    RootCause,
    Series,
    Status,
    Suspect,
    Verdict,
    Work,
)
from perfsvc.store import MeasurementEntry, RunState, Store

GPU = DeviceInfo(kind="cuda", spec="cuda:GPU-1", uuid="GPU-1", model="NVIDIA H100", target="sm_90")
REPLICAS, SAMPLES, KEPT_NIGHTS = 3, 100, 90
"""What a nightly run measures, and how many of the newest nights keep their samples."""

BEGAN = datetime(2025, 1, 1, 2, tzinfo=UTC)


@contextmanager
def filled(database: Path | None, cases: int, nights: int) -> Iterator[tuple[Path, Path]]:
    """Fill a database with nights, unless its file exists, and keep perfsvc's cache in a temporary folder.

    Args:
        database: the file; None for one in the temporary folder.
        cases: how many cases ``fill`` makes.
        nights: how many nights.

    Yields the file and the temporary folder, which is removed afterwards.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PERFSVC_CACHE"] = f"{folder}/cache"
        path = database or Path(folder) / "perfsvc.db"
        if not path.exists():
            with Store.open(path) as store:
                fill(store, cases, nights)
        yield path, Path(folder)


def fill(store: Store, cases: int, nights: int) -> None:
    """Store so many nights of so many cases: times, energies and clock cycles, with noise, steps, verdicts, findings.

    Every seventh case has a step in the middle of the year; half of these got a finding, which is still open.
    """
    first = _first_night(store, cases_of(cases))
    for night in range(1, nights):
        add_night(store, first, first + night, keeps_samples=night >= nights - KEPT_NIGHTS)
    store.devices.put_peaks(first + nights - 1, {GPU.uuid: Peak(2.9e12, 3.0e12)})
    stepped = [_case(number) for number in range(3, min(cases, 280), 14)]
    for at in range(0, len(stepped), 4):
        suspects = tuple(
            Suspect(
                Judgement(
                    Series(case, GPU.uuid, GPU.model),
                    Verdict.REGRESSION,
                    ratio=1.05,
                    low=1.049,
                    high=1.051,
                    baseline_run=first,
                    candidate_run=first + nights // 2,
                    baseline_s=1e-4,
                    candidate_s=1.05e-4,
                    cause=Cause.KERNEL,
                ),
                ChangeKind.REGRESSION,
                Direction.SLOWER,
            )
            for case in stepped[at : at + 4]
        )
        store.findings.update(first + nights // 2, [], [RootCause("", f"+5.0 % in {8 + at} pairs", suspects)])


def add_night(store: Store, first: int, run: int, *, keeps_samples: bool = True) -> None:
    """Store a copy of the first night as run ``run``, with other noise and with the steps of the year."""
    moved = "(1 + 0.003 * (random() / 9.3e18)) * (CASE WHEN m.case_id % 7 = 4 AND :night > 180 THEN 1.05 ELSE 1 END)"
    at = BEGAN + timedelta(days=run - first)
    given = {"first": first, "run": run, "night": run - first, "at": at.replace(tzinfo=None).isoformat(" ")}
    other = {
        "runs": {
            "id": ":run",
            "uid": "lower(hex(randomblob(16)))",
            "started_at": ":at",
            "finished_at": ":at",
            "git_commit": "printf('%040x', 7919 * :run)",
        },
        "measurements": {
            "id": "NULL",
            "run_id": ":run",
            "median_s": f"m.median_s * {moved}",
            "low_s": "m.median_s * 0.999",
            "high_s": "m.median_s * 1.001",
            "samples": "m.samples" if keeps_samples else "NULL",
            "measured_at": ":at",
        },
        "noise": {"run_id": ":run"},
        "verdicts": {
            "run_id": ":run",
            "ratio": "m.ratio * (1 + 0.003 * (random() / 9.3e18))",
            "verdict": "CASE WHEN m.case_id % 50 = 4 THEN 'regression' ELSE 'unchanged' END",
            "baseline_run_id": ":first",
        },
    }
    with store.database.writing() as connection:
        for table, columns in other.items():
            names = [row[1] for row in connection.exec_driver_sql(f"PRAGMA table_info({table})")]
            where = "id = :first" if table == "runs" else "run_id = :first"
            values = ", ".join(columns.get(name, f"m.{name}") for name in names)
            connection.exec_driver_sql(f"INSERT INTO {table} SELECT {values} FROM {table} m WHERE {where}", given)  # noqa: S608
        connection.exec_driver_sql(
            "INSERT INTO metrics SELECT new.id, x.name, x.value * (1 + 0.003 * (random() / 9.3e18)) FROM metrics x "
            "JOIN measurements m ON m.id = x.measurement_id JOIN measurements new ON new.run_id = :run "
            "AND new.case_id = m.case_id AND new.device_id = m.device_id AND new.replica = m.replica "
            "AND new.cache = m.cache WHERE m.run_id = :first",
            given,
        )


def _case(number: int) -> Case:
    return Case(f"kernel_{number // 40}", f"variant_{number % 8}", (("n", 1024 << (number // 8 % 5)), ("dtype", "f16")))


def cases_of(number: int) -> list[Case]:
    """Return so many cases."""
    return [_case(each) for each in range(number)]


def entries_of(cases: list[Case]) -> list[MeasurementEntry]:
    """Return what a run stores of cases: three replicas of each, with samples, energy and clock cycles."""
    noise = np.random.default_rng(1)
    environment = Environment("580.1", "nvcc 13.0", 700.0)
    entries = []
    for number, case in enumerate(cases):
        for replica in range(REPLICAS):
            time = 1e-6 * (10 + number) * (1 + 0.002 * noise.standard_normal())
            samples = tuple((time * (1 + 0.004 * noise.standard_normal(SAMPLES))).tolist())
            measurement = Measurement(
                case,
                GPU.uuid,
                replica,
                Status.OK,
                samples_s=samples,
                max_error=1e-7,
                metrics={ENERGY: 300 * time, "sm_cycles": 1.7e9 * time},
                batches=(Batch(samples, conditions=Conditions(1.7e9, temperature_c=61.0, power_w=400.0)),),
            )
            estimate = Estimate(time, 0.999 * time, 1.001 * time, SAMPLES)
            entries.append(MeasurementEntry(measurement, environment, Work(4000, 2000), estimate))
    return entries


def _first_night(store: Store, cases: list[Case]) -> int:
    """Measure each case once in the store, judge it, and return the run."""
    run = store.runs.begin(
        Provenance(BEGAN, "perfsvc run", "kernels", f"{7919:040x}", dirty=False, host="gpu-7", label="nightly")
    )
    store.devices.put(GPU)
    store.measurements.put(run, entries_of(cases))
    judged = [
        Judgement(
            Series(case, GPU.uuid, GPU.model, metric),
            Verdict.UNCHANGED,
            reason="within the threshold of 1 %",
            ratio=1.0,
            low=0.998,
            high=1.002,
            baseline_run=run,
            candidate_run=run,
            baseline_s=1e-4,
            candidate_s=1e-4,
            smallest=0.01,
            baseline_replicas=3,
            candidate_replicas=3,
        )
        for case in cases
        for metric in (TIME, ENERGY)
    ]
    store.verdicts.put(run, judged)
    store.runs.end(run, RunState.FINISHED)
    return run
