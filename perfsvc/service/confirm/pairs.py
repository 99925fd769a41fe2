"""Measure cases in A/B pairs, many of them in the same fresh processes, until the answer about each case is known.

A case of an earlier run comes from the database, without its files: see ``stored_case``.
"""

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfsvc import judge
from perfsvc.judge import Comparison
from perfsvc.measure.host import pool
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.measure.host.pool import Measure, OnLoss
from perfsvc.measure.plan.order import AlternatingPlan, Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import NO_ARRAYS
from perfsvc.model import (
    TIME,
    Call,
    DeviceInfo,
    Kind,
    Measurement,
    OverBudget,
    PythonCode,
    ReplayRecord,
    Series,
    Status,
    Step,
    Tolerance,
)
from perfsvc.process.fork_servers import ForkServers
from perfsvc.service.prepare.targets import replayed
from perfsvc.store import Store
from perfsvc.suite import StoredBench, isolated
from perfsvc.suite.isolated.requests import ReplayArrays

BUDGET_S = 600.0
"""Seconds on each device, for all suspects together. A suspect takes seconds, or a minute or two if it imports
PyTorch."""


@dataclass(frozen=True, slots=True)
class PairSettings:
    """How sides are measured in A/B pairs.

    Attributes:
        devices: the available devices, by UUID.
        sampling: returns how a device samples a case.
        helper_kernels: the helper kernels of the devices, by UUID.
        seed: decides the order of processes, and of the cases in a process.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of the kind of device.
        budget_s: seconds after which a device begins no further case.
        limit_s: seconds that a case may take in a process before the process is killed.
        servers: the processes that fork the workers; None to start new ones.
        report: receives messages for the user who waits.
        measure: measures a plan: on this host, or on a cluster.
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
    measure: Measure = pool.measure


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """A baseline and a candidate on one device, to be measured in A/B pairs.

    Attributes:
        baseline: the task that measures the baseline.
        candidate: the task that measures the candidate.
        threshold: the smallest relevant change, as a fraction.
        enough: returns True if no further pair is needed.
        metric: the metric that is compared.
        most_pairs: the largest number of pairs.
    """

    baseline: Task
    candidate: Task
    threshold: float
    enough: Callable[[Comparison], bool]
    metric: str = TIME
    most_pairs: int = judge.LOOKS[-1]

    @property
    def tasks(self) -> tuple[Task, Task]:
        """The tasks of both sides, as an ``AlternatingPlan`` needs them."""
        return replace(self.baseline, replicas=self.most_pairs), replace(self.candidate, replicas=self.most_pairs)


@dataclass(slots=True)
class PairResults:
    """The measurements of both sides so far, how often they were compared (``looks``), and the last comparison.

    ``decided`` is True once no further pair is needed or possible: the answer is known, a side has no correct result or
    lacks the metric, or all pairs are measured.
    """

    baseline: list[Measurement] = field(default_factory=list)
    candidate: list[Measurement] = field(default_factory=list)
    looks: int = 0
    comparison: Comparison | None = None
    decided: bool = False

    @property
    def pairs(self) -> int:
        """The number of complete pairs."""
        return min(len(self.baseline), len(self.candidate))

    @property
    def wall_s(self) -> float:
        """The seconds of all measurements."""
        return sum(run.wall_s for run in (*self.baseline, *self.candidate))

    @property
    def fault(self) -> tuple[str, str]:
        """The side without a correct result, and why; both empty if both sides are correct."""
        sides = {"baseline": self.baseline, "candidate": self.candidate}
        faults = [(name, run.reason) for name, runs in sides.items() for run in runs if run.status is not Status.OK]
        return faults[0] if faults else ("", "")


def measure_pairs(
    suspects: Sequence[Sides],
    settings: PairSettings,
    stopping: Stopping = never,
    on_loss: OnLoss | None = None,
) -> Generator[tuple[Sides, PairResults], None, None]:
    """Measure suspects in A/B pairs, and yield each with its results as soon as it is decided, then the undecided.

    A process measures one side of many suspects of a device, and the next process the other side. All devices work at
    the same time. After each number of pairs in ``judge.LOOKS``, the two sides of a suspect are compared. A decided
    suspect is not measured again. A suspect stays undecided if the budget is used up, if measuring must stop, or if its
    device is lost.

    Args:
        suspects: the sides to measure, the most urgent first.
        settings: how to measure.
        stopping: once it returns True, no further case is begun.
        on_loss: receives each device that cannot be used any more. By default the remaining cases fail.

    Raises:
        NoDeviceError: no device can be opened, and there is no ``on_loss``.
    """
    results = {sides: PairResults() for sides in suspects}
    of_task: dict[int, tuple[Sides, bool]] = {}
    tasks: list[Task] = []
    for sides in suspects:
        for task in sides.tasks:
            of_task[id(task)] = sides, len(tasks) % 2 == 0
            tasks.append(task)
    plan = AlternatingPlan(
        tuple(tasks),
        replicas=judge.LOOKS[-1],
        seed=settings.seed,
        limit_s=settings.limit_s,
        helper_kernels=settings.helper_kernels,
        budget_s=settings.budget_s,
        first_pairs=judge.LOOKS[0],
        is_decided=lambda task: results[of_task[id(task)][0]].decided,
    )
    devices = {uuid: settings.devices[uuid] for uuid in dict.fromkeys(task.device for task in tasks)}
    asked = {(uuid, replica, *task.key): of_task[id(task)] for uuid in devices for replica, task in plan.order(uuid)}
    measurements = settings.measure(plan, devices, settings.report, settings.servers, stopping, on_loss=on_loss)
    with contextlib.closing(measurements):
        for measurement in measurements:
            if isinstance(measurement, OverBudget):
                continue
            sides, is_baseline = asked[measurement.device, measurement.replica, measurement.case, measurement.cache]
            _add(sides, results[sides], measurement, is_baseline=is_baseline)
            if results[sides].decided:
                yield sides, results[sides]
    for sides, undecided in results.items():
        if not undecided.decided:
            if undecided.looks and undecided.pairs > judge.LOOKS[undecided.looks - 1]:
                _look(undecided, sides)  # measuring ended between two looks
            yield sides, undecided


def _add(sides: Sides, results: PairResults, measurement: Measurement, *, is_baseline: bool) -> None:
    """Add a measurement to the results of its suspect, and compare both sides if a look is due."""
    (results.baseline if is_baseline else results.candidate).append(measurement)
    if measurement.status is not Status.OK or not measurement.values_of(sides.metric):
        results.decided = True
        return
    is_complete = len(results.baseline) == len(results.candidate)
    if is_complete and results.pairs in judge.LOOKS:
        results.decided = sides.enough(_look(results, sides))
    if is_complete and results.pairs == sides.most_pairs:
        results.decided = True


def _look(results: PairResults, sides: Sides) -> Comparison:
    """Compare all pairs measured so far, count this look, and return the comparison.

    Each look judges all replicas so far, at an equal part of ``ALPHA``. So the chance that the interval of any look
    misses the true ratio is at most ``ALPHA``, whatever the rule for stopping. The number of replicas before a look may
    be any, but must not depend on their times.

    A smaller part for the early looks would find as many changes in the end, but later. On an H200, the first look,
    with three replicas on each side, already finds most changes. Looks share replicas; an interval that used this would
    be narrower by a few per cent, but would need the number of replicas at every look in advance.

    Source:
        S. J. Pocock (1977), Group sequential methods in the design and analysis of clinical trials, Biometrika 64(2):
        the same level at each look; the levels are added by Bonferroni's inequality.
    """
    results.looks += 1
    results.comparison = judge.compare(
        [run.values_of(sides.metric) for run in results.baseline],
        [run.values_of(sides.metric) for run in results.candidate],
        threshold=sides.threshold,
        alpha=judge.ALPHA / len(judge.LOOKS),
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
    python_modules: Mapping[str, str] = {}
    if record.calls:
        python_modules = store.binaries.python_modules(series.case.id, run, device=device)
    binaries = tuple(modules[name] for name in record.modules)
    if any(call.package for call in record.calls):
        record = as_tuned(record, store.binaries.python_code(series.case.id, run, device=device))
    return StoredCase(record, binaries, bench.decode(), tuple(sorted(python_modules.items())))


def as_tuned(record: ReplayRecord, python: PythonCode) -> ReplayRecord:
    """Return a record in which each tuned kernel has only the configuration that tuning chose in its run.

    The stored kernels have the values that they were compiled with. A kernel that is not stored keeps all of its
    configurations, and is tuned again.
    """

    def tuned(step: Step) -> Step:
        if not isinstance(step, Call) or step.package is None or len(step.package.configurations) == 1:
            return step
        for kernel in python.kernels:
            options = dict(kernel.options)
            for configuration in step.package.configurations:
                values = {name: str(value) for name, value in configuration.values if name in options}
                if kernel.name == step.function and values and values.items() <= options.items():
                    return replace(step, package=replace(step.package, configurations=(configuration,)))
        return step

    return replace(record, steps=tuple(map(tuned, record.steps)))


def replay_task(case: StoredCase, series: Series, sampling: Sampling) -> Task:
    """Return the task that measures a stored case again on its series' device.

    Raises:
        SuiteError: the case's benchmark file cannot be used.
    """
    record = case.record
    if record.kind is Kind.PROGRAM:
        return Task(
            series.device, record, case.modules, series.cache, sampling, Tolerance(max=0.0, mean=0.0), NO_ARRAYS
        )
    bench = StoredBench(case.bench, record.case.benchmark, case.python_modules)
    source = ReplayArrays(bench, record.case.point, record.seed, record.case.variant)
    return Task(
        device=series.device,
        record=record,
        modules=case.modules,
        cache=series.cache,
        sampling=sampling,
        tolerance=isolated.replay_tolerance(bench, record.case.point),
        arrays=replayed(f"{record.bench} {record.case.id} {record.seed}", source),
        bench=case.bench if record.calls else "",
        python_modules=case.python_modules,
    )
