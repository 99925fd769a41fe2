"""Plan a run and measure it."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from perfsvc import suite
from perfsvc.errors import CaseError
from perfsvc.measure.host import pool
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.measure.plan import budget
from perfsvc.measure.plan.order import OverBudget, Plan, Task, home_device, spread
from perfsvc.measure.protocol.messages import without_samples
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.measure.worker.sampling.sampler import Sampling
from perfsvc.model import Call, DeviceInfo, Measurement, Status
from perfsvc.service.progress import Progress
from perfsvc.service.run import peaks
from perfsvc.service.run.prepare import Binaries, Resolved, Runnable, Target, helper_kernels_of, prepare
from perfsvc.service.run.provenance import Begun
from perfsvc.service.run.record import Recorder
from perfsvc.service.run.request import RunRequest
from perfsvc.store import Store
from perfsvc.suite import CaseSpec, Inputs

GPU_SAMPLING = Sampling(least_s=0.06)
"""The median of a long kernel is known within the default precision after a few milliseconds; going on for some more
halves what is left of its noise, and costs a replica of ten cases no more time than its start."""
CPU_SAMPLING = Sampling(samples=20, seconds=0.15, least=20, recovery_s=0.0)
"""The CPU device's times are rough: a short look is enough, and no interval is worth chasing."""
SAMPLING_SHARE = 0.5
"""Of a case's time limit: what sampling takes at most, so that checks have the rest."""
RECOVERY_SHARE = 0.5
"""Of a case's time limit: what it waits at most for a disturbed GPU, beside the limit itself."""


def plan(
    request: RunRequest,
    targets: Sequence[Target],
    binaries: Binaries,
    *,
    inputs: Inputs,
    store: Store,
    recorder: Recorder,
) -> Plan:
    """Stores the binary of every case that can run and plans it; records at once why each other one cannot.

    Of a run that goes on the plan is the same, less what it holds.

    Args:
        request: what was asked for.
        targets: the devices and their cases.
        binaries: what became of their units.
        inputs: what was made of the cases' inputs already.
        store: tells what earlier runs know of them.
        recorder: takes binaries, failures, and what is left out.
    """
    tasks = []
    for target in targets:
        how = sampling(request, target.device)
        runnables = _runnables(request, targets, target, binaries, recorder)
        recorder.put_binaries(target.device.uuid, runnables)
        tasks += [task(target.device, one, how, arrays(one.spec, inputs)) for one in runnables]
    dealt = spread(tasks, [target.device for target in targets], request.spread)
    faults = {(one.device, one.case, one.cache) for one in recorder.begun.held if one.status is not Status.OK}
    within = _within_budget(request, dealt, store, recorder)
    return Plan(
        tuple(task for task in within if (task.device, *task.spec) not in faults),
        request.replicas,
        recorder.begun.seed,
        request.limit_s,
        first=_peaks(targets, binaries, recorder),
        helper_kernels=helper_kernels_of(targets, binaries),
        spread=request.spread,
        budget_s=_left_s(request, recorder),
        measured=recorder.measured,
    )


def _runnables(
    request: RunRequest, targets: Sequence[Target], target: Target, binaries: Binaries, recorder: Recorder
) -> list[Runnable]:
    """The cases that can run on a device; why another one cannot is recorded at once."""
    runnables, failed = [], []
    for spec in target.specs:
        match prepare(target, spec, binaries):
            case Runnable() as runnable:
                runnables.append(runnable)
            case CaseError() as error if _is_to_measure(request, targets, target.device, spec):
                if (target.device.uuid, spec.case, spec.cache, 0) not in recorder.measured:
                    failed.append(without_samples(spec.case, target.device.uuid, 0, spec.cache, error))
    recorder.put(failed)
    return runnables


def _is_to_measure(request: RunRequest, targets: Sequence[Target], device: DeviceInfo, spec: CaseSpec) -> bool:
    """Whether a case that no GPU of the model can run would have been this one's to measure."""
    boards = [target.device.uuid for target in targets if target.device.model == device.model]
    return request.spread == "each-device" or device.uuid == home_device((spec.case, spec.cache), boards)


def sampling(request: RunRequest, device: DeviceInfo) -> Sampling:
    """How cases are sampled on a device: as was asked for, and otherwise as suits its kind."""
    usual = usual_sampling(device)
    return replace(
        usual,
        precision=usual.precision if request.precision is None else request.precision,
        samples=usual.samples if request.samples is None else request.samples,
        seconds=min(usual.seconds if request.seconds is None else request.seconds, SAMPLING_SHARE * request.limit_s),
        energy=request.energy,
        recovery_s=min(usual.recovery_s, RECOVERY_SHARE * request.limit_s),
    )


def usual_sampling(device: DeviceInfo) -> Sampling:
    """How cases are sampled on a device unless somebody asks for something else."""
    return {"cpu": CPU_SAMPLING, "cuda": GPU_SAMPLING}.get(device.kind, Sampling())


def task(device: DeviceInfo, runnable: Runnable, how: Sampling, recipe: Recipe) -> Task:
    """What measures a case on a device."""
    spec = runnable.spec
    calls = any(isinstance(step, Call) for step in spec.steps)
    return Task(
        device=device.uuid,
        record=runnable.record,
        modules=tuple(module.code for module in runnable.modules),
        cache=spec.cache,
        sampling=how,
        tolerance=spec.tolerance,
        arrays=recipe,
        bench=spec.bench_text if calls else "",
    )


def arrays(spec: CaseSpec, inputs: Inputs) -> Recipe:
    """How a case's inputs and references are made, unless they were made already."""
    return Recipe(spec.arrays, partial(suite.make_arrays, spec, inputs), partial(suite.make_fresh, spec))


def _peaks(targets: Sequence[Target], binaries: Binaries, recorder: Recorder) -> tuple[Task, ...]:
    """The tasks that measure each device's measured peak; where they cannot be built, there is none."""
    tasks = []
    for target in (one for one in targets if one.device.uuid not in recorder.peaks.found):
        for spec in target.peaks:
            match prepare(target, spec, binaries):
                case Runnable() as runnable:
                    tasks.append(task(target.device, runnable, peaks.SAMPLING, Recipe(spec.arrays, lambda: ({}, {}))))
                case CaseError() as error:
                    recorder.peaks.fail(target.device.uuid, error.what)
                    break
    return tuple(tasks)


def _within_budget(request: RunRequest, tasks: tuple[Task, ...], store: Store, recorder: Recorder) -> tuple[Task, ...]:
    """The tasks there is time for; the others are recorded as left out."""
    if request.budget_s is None:
        return tasks
    known = store.past({task.record.case for task in tasks}, before=recorder.run)
    past = {key: budget.CostHistory(one.cost_s, one.between, one.last) for key, one in known.items()}
    division = budget.divide(tasks, past, request.budget_s, request.replicas, recorder.begun.started)
    for over_budget in division.over_budget:
        recorder.leave_over_budget(over_budget)
    return division.tasks


def _left_s(request: RunRequest, recorder: Recorder) -> float | None:
    """What is left of the budget: devices measure at once, so the busiest one tells what was spent."""
    if request.budget_s is None:
        return None
    spent: dict[str, float] = defaultdict(float)
    for one in recorder.begun.held:
        spent[one.device] += one.wall_s
    return max(0.0, request.budget_s - max(spent.values(), default=0.0))


@dataclass(frozen=True, slots=True)
class Workers:
    """What a run is measured with.

    Attributes:
        servers: where workers are forked.
        ended: closing it waits for the workers, which end while something else may have begun.
        stopping: whether the run is to stop; the cases in hand are measured then, and nothing else is begun.
    """

    servers: ForkServers
    ended: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    stopping: Stopping = never


def measure(
    resolved: Resolved, binaries: Binaries, *, store: Store, begun: Begun, workers: Workers, progress: Progress
) -> Recorder:
    """Measures what a run does not hold yet; measurements are committed as they arrive.

    The run ends as finished, or as interrupted where it was told to stop.

    Raises:
        InfrastructureError: no device can be opened, or there is no compiler for what one works with.
    """
    recorder = Recorder(store, begun, resolved.targets, progress.say)
    with recorder.recording(workers.stopping):
        planned = plan(
            resolved.request, resolved.targets, binaries, inputs=resolved.inputs, store=store, recorder=recorder
        )
        progress.begin("measuring", sum(len(planned.order(uuid)) for uuid in resolved.devices))
        measured = workers.ended.enter_context(
            pool.measuring(planned, resolved.devices, progress.say, workers.servers, workers.stopping)
        )
        _record(measured, recorder, progress)
    return recorder


def _record(arriving: Iterable[Measurement | OverBudget], recorder: Recorder, progress: Progress) -> None:
    """Commit each measurement as it arrives."""
    for arrived in arriving:
        if isinstance(arrived, OverBudget):
            recorder.leave_over_budget(arrived)
        else:
            recorder.put([arrived])
            progress.step(arrived.case.id)
