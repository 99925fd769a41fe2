"""Fill a SQLite database with many cases and nights: the first night through the store, the others as copies in SQL."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from simulated.grown import copy_night, noise
from sqlalchemy import case as when
from sqlalchemy import literal, null

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
from perfsvc.store.schema.tables import Levels, Measurements, Metrics, Runs

GPU = DeviceInfo(kind="cuda", spec="cuda:GPU-1", uuid="GPU-1", model="NVIDIA H100", target="sm_90")
REPLICAS, SAMPLES, KEPT_NIGHTS = 3, 100, 90
"""What a nightly run measures, and how many of the newest nights keep their samples."""

BEGAN = datetime(2025, 1, 1, 2, tzinfo=UTC)
STEP_NIGHT = 180


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
    middle = first + nights // 2
    for at in range(0, len(stepped), 4):
        judgements = [_judged(case, TIME, Verdict.REGRESSION, 1.05, first, middle) for case in stepped[at : at + 4]]
        suspects = tuple(Suspect(each, ChangeKind.REGRESSION, Direction.SLOWER) for each in judgements)
        store.findings.update(middle, [], [RootCause("", f"+5.0 % in {8 + at} pairs", suspects)])


def add_night(store: Store, first: int, run: int, *, keeps_samples: bool = True) -> None:
    """Store a copy of the first night as run ``run``, with other noise and with the steps of the year."""
    with store.database.writing() as connection:
        other = noise(connection, 0.003)
        stepped = when((Measurements.case_id % 7 == 4, 1.05 if run - first > STEP_NIGHT else 1.0), else_=1.0)
        measured = {
            "median_s": Measurements.median_s * other * stepped,
            "low_s": Measurements.median_s * 0.999,
            "high_s": Measurements.median_s * 1.001,
            **({} if keeps_samples else {"samples": null()}),
        }
        judged = {
            "ratio": Levels.ratio * other,
            "verdict": when(
                (Levels.verdict.is_(None), null()), (Levels.series_id % 50 == 4, "regression"), else_="unchanged"
            ),
            "baseline_run_id": literal(first),
        }
        changed = {Measurements: measured, Metrics: {"value": Metrics.value * other}, Levels: judged}
        copy_night(connection, first, run, {Runs: {"git_commit": literal(f"{7919 * run:040x}")}, **changed})


def _case(number: int) -> Case:
    return Case(f"kernel_{number // 40}", f"variant_{number % 8}", (("n", 1024 << (number // 8 % 5)), ("dtype", "f16")))


def cases_of(number: int) -> list[Case]:
    """Return so many cases."""
    return [_case(each) for each in range(number)]


def entries_of(cases: list[Case], seed: int = 1) -> list[MeasurementEntry]:
    """Return what a run stores of cases: three replicas of each, with samples, energy and clock cycles."""
    random = np.random.default_rng(seed)
    environment = Environment("580.1", "nvcc 13.0", 700.0)
    entries = []
    for number, case in enumerate(cases):
        for replica in range(REPLICAS):
            time = 1e-6 * (10 + number) * (1 + 0.002 * random.standard_normal())
            samples = tuple((time * (1 + 0.004 * random.standard_normal(SAMPLES))).tolist())
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


def _judged(case: Case, metric: str, verdict: Verdict, ratio: float, *runs: int) -> Judgement:
    """Return a judgement with three replicas on both sides, which are the two ``runs``."""
    reason, cause = "within the threshold of 1 %", None
    if verdict is Verdict.REGRESSION:
        reason, cause = "", Cause.KERNEL
    interval = (ratio, ratio - 0.002, ratio + 0.002)
    sides = (*runs, 1e-4, 1e-4 * ratio, 0.01, 3, 3)
    return Judgement(Series(case, GPU.uuid, GPU.model, metric), verdict, reason, *interval, *sides, cause=cause)


def _first_night(store: Store, cases: list[Case]) -> int:
    """Measure each case once in the store, judge it, and return the run."""
    run = store.runs.begin(
        Provenance(BEGAN, "perfsvc run", "kernels", f"{7919:040x}", dirty=False, host="gpu-7", label="nightly")
    )
    store.devices.put(GPU)
    store.measurements.put(run, entries_of(cases))
    series = [(case, metric) for case in cases for metric in (TIME, ENERGY)]
    judged = [_judged(case, metric, Verdict.UNCHANGED, 1.0, run, run) for case, metric in series]
    store.verdicts.put(run, judged)
    store.runs.end(run, RunState.FINISHED)
    return run
