"""Plan a run and measure it."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from perfsvc.build import Binary
from perfsvc.errors import CaseError
from perfsvc.measure.host import pool
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.measure.plan import budget
from perfsvc.measure.plan.assignment import home_device, last_device, spread
from perfsvc.measure.plan.budget import BudgetKey
from perfsvc.measure.plan.order import Plan, Task
from perfsvc.measure.protocol.messages import Sampling, without_samples
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import Call, CostHistory, DeviceInfo, Environment, OverBudget, Status
from perfsvc.process.fork_servers import ForkServers
from perfsvc.process.shared_memory import share
from perfsvc.service import peaks
from perfsvc.service.cluster.lending import LentGpus
from perfsvc.service.prepare.full_environment import benches_of, full_environment
from perfsvc.service.prepare.targets import (
    Binaries,
    Target,
    arrays,
    default_sampling,
    helper_kernels_of,
    modules_of,
    replay_record,
)
from perfsvc.service.progress import Progress
from perfsvc.service.run.provenance import OpenRun
from perfsvc.service.run.record import Recorder
from perfsvc.service.run.request import ResolvedRun, RunRequest
from perfsvc.store import Store
from perfsvc.suite import CaseSpec

SAMPLING_SHARE = 0.5
"""The share of a case's time limit that sampling may take; the rest is for checks."""
RECOVERY_SHARE = 0.5
"""The share of a case's time limit that it may wait for a disturbed GPU, in addition to the limit."""


def measure(
    resolved: ResolvedRun,
    binaries: Binaries,
    *,
    store: Store,
    opened: OpenRun,
    servers: ForkServers,
    progress: Progress,
    stopping: Stopping = never,
    lent: LentGpus | None = None,
) -> Recorder:
    """Measure the cases that a run has not measured yet, and commit each measurement as it arrives.

    If ``stopping`` becomes true, the current cases are completed, no other case begins, and the run ends as
    interrupted. Otherwise it ends as finished. The GPUs that a cluster has lent measure (``lent``), else those of this
    host.

    Raises:
        InfrastructureError: no device can be opened, or helper kernels cannot be compiled.
    """
    environments = record_environments(store, opened.run, resolved, lent)
    report_new_environments(store, opened.run, resolved.targets, environments, progress.report)
    recorder = Recorder(store, opened, resolved.targets, environments, progress.report)
    with recorder.recording(stopping):
        run_plan = plan(resolved, binaries, store=store, recorder=recorder)
        progress.begin("measuring", sum(len(run_plan.order(uuid)) for uuid in resolved.devices))
        with contextlib.closing(
            (lent.measure if lent else pool.measure)(run_plan, resolved.devices, progress.report, servers, stopping)
        ) as measurements:
            for measurement in measurements:
                if isinstance(measurement, OverBudget):
                    recorder.over_budget.append(measurement)
                else:
                    recorder.put([measurement])
                    progress.step(measurement.case.id)
    return recorder


def plan(resolved: ResolvedRun, binaries: Binaries, *, store: Store, recorder: Recorder) -> Plan:
    """Store the binaries of a run's cases, and return the plan for measuring them.

    Cases that cannot run are recorded at once, each with the reason, and are not in the plan.

    A resumed run keeps its plan and skips the cases that it has already measured.

    Args:
        resolved: the request with its devices and cases.
        binaries: the compiled units.
        store: has the costs of the cases in earlier runs.
        recorder: stores binaries and failures, and collects the cases that are over budget.
    """
    request, targets = resolved.request, resolved.targets
    past = _past(resolved, store, recorder.run)
    known: dict[tuple[str, int], Task] = {}
    prepared = [
        case for target in targets for case in _prepared(resolved, target, binaries, recorder, past, known=known)
    ]
    recorder.put_binaries(prepared)
    tasks = [task for _, _, task in prepared]
    begun = [(old.device, (old.case, old.cache)) for old in recorder.opened.measurements if old.wall_s > 0]
    assigned = spread(tasks, [target.device for target in targets], request.spread, past, begun)
    affordable = _within_budget(request, assigned, past, recorder)
    failed = {(old.device, old.case, old.cache) for old in recorder.opened.measurements if old.status is not Status.OK}
    return Plan(
        tuple(task for task in affordable if (task.device, *task.key) not in failed),
        request.replicas,
        recorder.opened.seed,
        request.limit_s,
        first=_peak_tasks(request, targets, binaries, recorder),
        helper_kernels=helper_kernels_of(targets, binaries),
        spread=request.spread,
        budget_s=_remaining_s(request, recorder),
        measured=recorder.measured,
    )


def _past(resolved: ResolvedRun, store: Store, run: int) -> dict[BudgetKey, CostHistory]:
    """Return the history of the cases before a run; empty if the plan does not depend on it."""
    request = resolved.request
    if request.budget_s is None and (request.spread == "each-device" or len(resolved.devices) == 1):
        return {}
    cases = {spec.case for target in resolved.targets for spec in target.specs}
    return store.measurements.costs(cases, resolved.devices, before=run)


def _prepared(
    resolved: ResolvedRun,
    target: Target,
    binaries: Binaries,
    recorder: Recorder,
    past: Mapping[BudgetKey, CostHistory],
    *,
    known: dict[tuple[str, int], Task],
) -> list[tuple[CaseSpec, tuple[Binary, ...], Task]]:
    """Return the cases that can run on a device, with binaries and tasks; record why each other case cannot run.

    ``known`` has the tasks of earlier devices, by compile target and identity of the case, and gets those of this one:
    the tasks of equal devices differ only in the device.
    """
    how = sampling(resolved.request, target.device)
    prepared, failed = [], []
    for spec in target.specs:
        match modules_of(target, spec, binaries):
            case CaseError() as error:
                is_recorded = (target.device.uuid, spec.case, spec.cache, 0) in recorder.measured
                if not is_recorded and _reports_failure(resolved, target.device, spec, past):
                    failed.append(without_samples(spec.case, target.device.uuid, 0, spec.cache, error))
            case modules:
                key = target.device.target, id(spec)
                if key not in known:
                    recipe = arrays(spec, resolved.request.limit_s)
                    known[key] = task(target.device, spec, modules, how, recipe)
                prepared.append((spec, modules, replace(known[key], device=target.device.uuid)))
    recorder.put(failed)
    return prepared


def _reports_failure(
    resolved: ResolvedRun, device: DeviceInfo, spec: CaseSpec, past: Mapping[BudgetKey, CostHistory]
) -> bool:
    """Return whether this device reports that it cannot run a case.

    If each case is measured on only one GPU of a model, one of these GPUs reports the failure for all: the GPU that has
    the history of the case.
    """
    key = spec.case, spec.cache
    uuids = [other.uuid for other in resolved.devices.values() if other.model == device.model]
    if resolved.request.spread == "each-device" or spec.gpus > 1:  # only the first GPU of a model has such a case
        return True
    return device.uuid == (last_device(key, uuids, past) or home_device(key, uuids))


def report_new_environments(
    store: Store,
    run: int,
    targets: Sequence[Target],
    environments: Mapping[str, Environment],
    report: Callable[[str], object],
) -> None:
    """Report each device whose environment differs from the environment of the last run of the target's cases.

    A run with uncommitted changes reports nothing, because it moves no baseline.
    """
    if store.runs.get(run).provenance.dirty:
        return
    for target in targets:
        device = target.device
        last = store.devices.environment_before(run, device.uuid, {spec.case for spec in target.specs})
        changes = last[1].changes_to(environments[device.uuid]) if last else ()
        if last and changes:
            report(
                f"{device.model} ({device.uuid}) has changed since run {last[0]}: {', '.join(changes)}; "
                f"perfsvc compares later runs only with run {run} and the runs after it"
            )


def record_environments(
    store: Store, run: int, resolved: ResolvedRun, lent: LentGpus | None = None
) -> dict[str, Environment]:
    """Store the full environment of a run, and return the environment in which each device measures, by UUID.

    The full environment of a resumed run is the one in which it was resumed. The cases of a GPU whose host did not
    answer can only fail. They fail in the environment that the GPU had last, so that it does not seem to have changed.
    """
    request, targets = resolved.request, resolved.targets
    known = {target.device.uuid: environment(request, target) for target in targets}
    full = full_environment(targets, known, lent.parts(benches_of(targets)) if lent else None)
    store.devices.put_full_environment(run, full)
    environments = {}
    for target in targets:
        uuid = target.device.uuid
        parts = full.chosen(uuid, request.segment_parts)
        if uuid not in full.devices:
            last = store.devices.environment_before(run, uuid, {spec.case for spec in target.specs})
            parts = last[1].parts if last else ()
        environments[uuid] = replace(known[uuid], parts=parts)
    return environments


def environment(request: RunRequest, target: Target) -> Environment:
    """Return the environment in which a device measures, without the parts that the settings add.

    The times of one environment form one segment of a series.
    """
    device = target.device
    return Environment(device.driver, target.toolchain.version, device.power_limit_w, sampling(request, device).places)


def sampling(request: RunRequest, device: DeviceInfo) -> Sampling:
    """Return how cases are sampled on a device: the request's options, else the defaults of the kind of device."""
    default = default_sampling(device)
    return replace(
        default,
        precision=default.precision if request.precision is None else request.precision,
        samples=default.samples if request.samples is None else request.samples,
        seconds=min(default.seconds if request.seconds is None else request.seconds, SAMPLING_SHARE * request.limit_s),
        places=default.places if request.places is None else request.places,
        energy=request.energy,
        recovery_s=min(default.recovery_s, RECOVERY_SHARE * request.limit_s),
    )


def task(device: DeviceInfo, spec: CaseSpec, modules: Sequence[Binary], how: Sampling, recipe: Recipe) -> Task:
    """Return the task that measures a case on a device."""
    calls_python = any(isinstance(step, Call) for step in spec.steps)
    return Task(
        device=device.uuid,
        record=replay_record(spec, modules),
        modules=tuple(module.code for module in modules),
        cache=spec.cache,
        sampling=how,
        tolerance=spec.tolerance,
        arrays=recipe,
        bench=spec.bench_text if calls_python else "",
    )


def _peak_tasks(
    request: RunRequest, targets: Sequence[Target], binaries: Binaries, recorder: Recorder
) -> tuple[Task, ...]:
    """Return the tasks that measure the peaks that are still unknown; report a peak kernel that cannot be built."""
    tasks = []
    for target in targets:
        for spec in recorder.peaks.unknown(target.device.uuid):
            match modules_of(target, spec, binaries):
                case CaseError() as error:
                    recorder.peaks.fail(target.device.uuid, spec.case.variant, error.what)
                case modules:
                    recipe = Recipe(spec.arrays, partial(share, {}, {}))
                    how = peaks.sampling(spec, min(SAMPLING_SHARE, RECOVERY_SHARE) * request.limit_s)
                    tasks.append(task(target.device, spec, modules, how, recipe))
    return tuple(tasks)


def _within_budget(
    request: RunRequest, tasks: tuple[Task, ...], past: Mapping[BudgetKey, CostHistory], recorder: Recorder
) -> tuple[Task, ...]:
    """Return the tasks that fit the budget; record the other tasks as over budget."""
    if request.budget_s is None:
        return tasks
    division = budget.divide(tasks, past, request.budget_s, request.replicas, recorder.opened.started)
    recorder.over_budget += division.over_budget
    return division.tasks


def _remaining_s(request: RunRequest, recorder: Recorder) -> float | None:
    """Return the seconds of the budget that the busiest device has left; None if the run has no budget."""
    if request.budget_s is None:
        return None
    spent: dict[str, float] = defaultdict(float)
    for measurement in recorder.opened.measurements:
        spent[measurement.device] += measurement.wall_s
    return max(0.0, request.budget_s - max(spent.values(), default=0.0))
