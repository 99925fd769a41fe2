"""Measure two cases in A/B pairs on one device, each run in a fresh process, until the answer is known.

A case of an earlier run comes from the database, without its files: see ``stored_case``.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from perfsvc import judge
from perfsvc.judge import Comparison
from perfsvc.measure.host import pool
from perfsvc.measure.plan.order import AlternatingPlan, Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import TIME, Call, DeviceInfo, Measurement, OverBudget, ReplayRecord, Series, Status
from perfsvc.process.fork_servers import ForkServers
from perfsvc.store import Store
from perfsvc.suite import StoredBench, isolated

BUDGET_S = 20.0
"""Seconds for one answer at most. On a GPU that is enough for all pairs; opening the device takes most of the time."""


@dataclass(frozen=True, slots=True)
class PairSettings:
    """How two sides are measured in A/B pairs.

    Attributes:
        devices: the available devices, by UUID.
        sampling: returns how a device samples a case.
        helper_kernels: the helper kernels of the devices, by UUID.
        seed: decides the order of processes.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of the kind of device.
        budget_s: seconds for all pairs of one case.
        limit_s: seconds that a case may take in a process before the process is killed.
        servers: the processes that fork the workers; None to start new ones.
        report: receives messages for the user who waits.
    """

    devices: Mapping[str, DeviceInfo]
    sampling: Callable[[DeviceInfo], Sampling]
    helper_kernels: Mapping[str, bytes]
    seed: int
    threshold: judge.ThresholdOption = None
    budget_s: float = BUDGET_S
    limit_s: float = 60.0
    servers: ForkServers | None = None
    report: Callable[[str], object] = lambda _: None


@dataclass(slots=True)
class PairResults:
    """The measurements of both sides so far, how often they were compared (``looks``), and the last comparison."""

    baseline: list[Measurement] = field(default_factory=list)
    candidate: list[Measurement] = field(default_factory=list)
    looks: int = 0
    comparison: Comparison | None = None

    @property
    def pairs(self) -> int:
        """The number of complete pairs."""
        return min(len(self.baseline), len(self.candidate))

    @property
    def fault(self) -> tuple[str, str]:
        """The side without a correct result, and why; both empty if both sides are correct."""
        sides = {"baseline": self.baseline, "candidate": self.candidate}
        faults = [(name, run.reason) for name, runs in sides.items() for run in runs if run.status is not Status.OK]
        return faults[0] if faults else ("", "")


def measure_pairs(
    sides: tuple[Task, Task],
    settings: PairSettings,
    *,
    threshold: float,
    enough: Callable[[Comparison], bool],
    metric: str = TIME,
) -> PairResults:
    """Measure a baseline and a candidate in A/B pairs, and compare them after each number of pairs in ``judge.LOOKS``.

    Measuring stops if ``enough`` accepts a comparison, if a side has no correct result or lacks the metric, or if the
    budget is used up.

    Args:
        sides: the baseline and the candidate, both on one device.
        settings: how to measure.
        threshold: the smallest relevant change, as a fraction.
        enough: returns True if no further pair is needed.
        metric: the metric that is compared.

    Raises:
        NoDeviceError: the device cannot be opened.
    """
    device = settings.devices[sides[0].device]
    plan = AlternatingPlan(
        sides,
        replicas=judge.LOOKS[-1],
        seed=settings.seed,
        limit_s=settings.limit_s,
        helper_kernels=settings.helper_kernels,
        budget_s=settings.budget_s,
    )
    baseline_replicas = {replica for replica, task in plan.order(device.uuid) if task is sides[0]}
    results = PairResults()
    measurements = pool.measure(plan, {device.uuid: device}, settings.report, settings.servers)
    with contextlib.closing(measurements):
        for measurement in measurements:
            if isinstance(measurement, OverBudget):
                continue
            side = results.baseline if measurement.replica in baseline_replicas else results.candidate
            side.append(measurement)
            if measurement.status is not Status.OK or not measurement.values_of(metric):
                return results
            is_due = results.pairs == judge.LOOKS[results.looks]  # a comparison is due at this number of pairs
            if is_due and enough(_look(results, threshold, metric)):
                return results
    if results.looks and results.pairs > judge.LOOKS[results.looks - 1]:
        _look(results, threshold, metric)  # the budget ended between two looks
    return results


def _look(results: PairResults, threshold: float, metric: str) -> Comparison:
    """Compare all pairs measured so far, count this look, and return the comparison."""
    results.looks += 1
    results.comparison = judge.compare_at_look(
        [run.values_of(metric) for run in results.baseline],
        [run.values_of(metric) for run in results.candidate],
        look=results.looks,
        looks=len(judge.LOOKS),
        threshold=threshold,
    )
    return results.comparison


# --- cases of earlier runs -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredCase:
    """A case as it ran in a run.

    Attributes:
        modules: the case's binaries, in the order of ``record.modules``.
        bench: the text of the case's benchmark file.
        python_modules: the names and texts of the Python modules that the benchmark file imports, except modules of
            installed packages.
    """

    record: ReplayRecord
    modules: tuple[bytes, ...]
    bench: str
    python_modules: tuple[tuple[str, str], ...] = ()


def stored_case(store: Store, series: Series, run: int, device: str | None) -> StoredCase:
    """Return the case of a series as it ran in a run. The case's Python functions will run with today's packages.

    Args:
        store: holds the run.
        series: names the case.
        run: the number of the run.
        device: the UUID of the device on which the case ran; None for any device.

    Raises:
        NotMeasuredError: the run holds no binary of the case.
        UsageError: the run holds several binaries of the case, and ``device`` does not choose one.
    """
    record, modules, bench = store.binaries.replay(series.case.id, run, device=device)
    python_modules = store.binaries.python_modules(series.case.id, run, device=device) if calls_python(record) else {}
    return StoredCase(
        record, tuple(modules[name] for name in record.modules), bench.decode(), tuple(sorted(python_modules.items()))
    )


def calls_python(record: ReplayRecord) -> bool:
    """Return whether a step of the case is a Python function."""
    return any(isinstance(step, Call) for step in record.steps)


def replay_task(case: StoredCase, series: Series, sampling: Sampling) -> Task:
    """Return the task that measures a stored case again on its series' device.

    Raises:
        SuiteError: the case's benchmark file cannot be used.
    """
    record = case.record
    bench = StoredBench(case.bench, record.case.benchmark, case.python_modules)
    arrays = partial(isolated.replay_arrays, bench, record.case.point, record.seed, record.case.variant)
    return Task(
        device=series.device,
        record=record,
        modules=case.modules,
        cache=series.cache,
        sampling=sampling,
        tolerance=isolated.replay_tolerance(bench, record.case.point),
        arrays=Recipe(f"{record.bench} {record.case.id} {record.seed}", arrays, cancel=isolated.stop),
        bench=case.bench if calls_python(record) else "",
        python_modules=case.python_modules,
    )
