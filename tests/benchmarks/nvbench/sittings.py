"""Run one fresh process of either tool that measures every case once, and return its results and times."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsvc.measure.host.input_prefetcher import InputPrefetcher
from perfsvc.measure.host.worker_handle import WorkerHandle
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.messages import CheckedResult, Measured, Ready
from perfsvc.model import DeviceInfo, Measurement, Status
from perfsvc.process.fork_servers import ForkServers

CASES = Path(__file__).with_name("cases.py")
LIMIT_S = 120.0
"""Seconds that NVBench may take for all cases; on an H100 it took 23."""
MEDIAN, COLD, BATCH = "nv/cold/time/gpu/median", "nv/cold/walltime", "nv/batch/walltime"


class SittingError(Exception):
    """A process had no results."""


@dataclass(frozen=True)
class Sitting:
    """The results of one process.

    Attributes:
        medians_s: by case.
        wall_s: from the process's start to its last measurement, without checks.
        parts_s: where the time went.
        times_s: single samples, if the tool reports them.
        failed: why a case has no median, by case.
        notes: perfsvc's notes on a case's samples, by case, and why batches were rejected.
    """

    medians_s: Mapping[str, float]
    wall_s: float
    parts_s: Mapping[str, float] = field(default_factory=dict)
    times_s: tuple[float, ...] = field(default=(), repr=False)
    failed: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return everything except the samples."""
        return {
            "wall_s": self.wall_s,
            "parts_s": self.parts_s,
            "medians_s": self.medians_s,
            "failed": self.failed,
            "notes": self.notes,
        }


# --- NVBench ---------------------------------------------------------------------------------------------------------


def nvbench(bundle: Path, device: DeviceInfo) -> Sitting:
    """Run one process of NVBench with its defaults."""
    result = bundle / "result.json"
    result.unlink(missing_ok=True)
    visible = {"CUDA_VISIBLE_DEVICES": device.uuid} if device.kind == "cuda" else {}
    started = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, str(CASES), str(bundle), str(result)],
            env=os.environ | visible,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SittingError(f"NVBench did not end within {LIMIT_S:g} s") from error
    measured, _, ended = done.stdout.rpartition("ended ")
    if done.returncode or not measured:
        raise SittingError(f"NVBench ended with {done.returncode}: {done.stdout[-2000:]}")
    return read_nvbench(json.loads(result.read_text()), float(ended) - started)


def read_nvbench(document: Mapping[str, Any], wall_s: float) -> Sitting:
    """Return the medians and the times of its two passes that NVBench reports."""
    found = {benchmark["name"]: _summaries(benchmark) for benchmark in document["benchmarks"]}
    if len(found) != len(document["benchmarks"]):
        raise SittingError("NVBench measured a case twice: its wall time cannot be compared")
    cold, batch = (sum(values.get(tag, 0.0) for values in found.values()) for tag in (COLD, BATCH))
    parts = {"cold passes": cold, "batch passes": batch, "other": wall_s - cold - batch}
    medians = {name: values[MEDIAN] for name, values in found.items() if MEDIAN in values}
    failed = dict.fromkeys(found.keys() - medians.keys(), "NVBench has no median of it")
    return Sitting(medians, wall_s, parts, failed=failed)


def _summaries(benchmark: Mapping[str, Any]) -> dict[str, float]:
    (state,) = benchmark["states"]
    return {
        summary["tag"]: float(summary["data"][0]["value"])
        for summary in state["summaries"] or ()
        if summary["tag"] in {MEDIAN, COLD, BATCH}
    }


# --- perfsvc ---------------------------------------------------------------------------------------------------------


class Workers:
    """Forks fresh workers of perfsvc one after the other and feeds them, as a pool does.

    Args:
        device: the device of the workers.
        helper_kernels: the binary of the device's helper kernels.
        prefetcher: makes the arrays.
        servers: fork the workers, as in a run.
    """

    def __init__(
        self, device: DeviceInfo, helper_kernels: bytes, prefetcher: InputPrefetcher, servers: ForkServers
    ) -> None:
        self._device = device
        self._helper_kernels = helper_kernels
        self._prefetcher = prefetcher
        self._servers = servers
        self._checked: dict[Any, CheckedResult | None] = {}

    def sitting(self, replica: int, tasks: Iterable[Task]) -> Sitting:
        """Measure every task in a new process. A result that an earlier process checked in full is only compared."""
        started = time.monotonic()
        process = WorkerHandle(self._servers.take())
        try:
            crash = process.open(self._device, self._helper_kernels)
            answer = crash or process.receive()
            if not isinstance(answer, Ready):
                raise SittingError(f"perfsvc's worker did not open {self._device.spec}: {answer}")
            ready_s = time.monotonic() - started
            measured = [self._measured(process, replica, task) for task in tasks]
            return _sitting(time.monotonic() - started, ready_s, measured)
        finally:
            process.end()

    def _measured(self, process: WorkerHandle, replica: int, task: Task) -> tuple[float, Measurement]:
        """Return the seconds from the arrays to the measurement, and the measurement."""
        with self._prefetcher.take(self._prefetcher.order(task, replica)) as arrays:
            sent = time.monotonic()
            answer = process.send(task, replica, arrays, self._checked.get(task.key)) or process.receive()
        if not isinstance(answer, Measured) or not answer.usable:
            raise SittingError(f"perfsvc's worker was lost at {task.record.case}: {_reason(answer)}")
        self._checked[task.key] = answer.checked or self._checked.get(task.key)
        return time.monotonic() - sent, answer.measurement


def _reason(answer: Any) -> str:
    return answer.measurement.reason if isinstance(answer, Measured) else str(answer)


def _sitting(wall_s: float, ready_s: float, measured: list[tuple[float, Measurement]]) -> Sitting:
    measurements = [measurement for _, measurement in measured]
    checks, sampling, busy = (
        sum(getattr(measurement, name) for measurement in measurements) for name in ("check_s", "sampling_s", "busy_s")
    )
    cases = sum(seconds for seconds, _ in measured)
    return Sitting(
        medians_s={
            measurement.case.id: statistics.median(measurement.samples_s)
            for measurement in measurements
            if measurement.samples_s
        },
        wall_s=wall_s - checks,
        parts_s={
            "opening the device": ready_s,
            "sampling": sampling,
            "uploads and the rest of cases": cases - sampling - checks,
            "waiting for arrays": wall_s - ready_s - cases,
            "checks, not counted": checks,
            "device busy with samples": busy,
        },
        times_s=tuple(seconds for measurement in measurements for seconds in measurement.samples_s),
        notes={measurement.case.id: notes for measurement in measurements if (notes := _notes(measurement))},
        failed={
            measurement.case.id: measurement.reason
            for measurement in measurements
            if measurement.status is not Status.OK
        },
    )


def _notes(measurement: Measurement) -> str:
    rejected = dict.fromkeys(batch.rejected for batch in measurement.batches if batch.rejected)
    return "; ".join([*filter(None, [measurement.note]), *(f"rejected: {why}" for why in rejected)])
