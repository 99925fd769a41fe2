"""One run: resolve the suite, compile, measure, store, judge."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from perfsvc import build, judge, suite
from perfsvc.device.find import find, why_no_gpu
from perfsvc.errors import SuiteError
from perfsvc.measure import pool, shared
from perfsvc.measure.forks import ForkServers
from perfsvc.measure.plan import LeftOut, Plan
from perfsvc.measure.supply import MOST_THREADS
from perfsvc.model import (
    Confirmation,
    DeviceInfo,
    Explained,
    Judgement,
    Measurement,
    Noise,
    Provenance,
    Roof,
    Status,
    Verdict,
)
from perfsvc.report.rows import Doubt, Key
from perfsvc.service.confirming.confirm_all import confirm_all, with_causes
from perfsvc.service.confirming.turns import Means
from perfsvc.service.judging import findings
from perfsvc.service.judging.compare import judge_run
from perfsvc.service.profiling.profile import Under
from perfsvc.service.profiling.why import explain_confirmed
from perfsvc.service.progress import Progress, Silent
from perfsvc.service.running import provenance
from perfsvc.service.running.levels import Levels, levels, noises
from perfsvc.service.running.planning import plan, sampling
from perfsvc.service.running.record import Recorder
from perfsvc.service.running.request import RunRequest, seed_of
from perfsvc.service.running.targets import Target, choose, compile_units
from perfsvc.store import Store
from perfsvc.suite import CaseSpec, Inputs, KnownShapes


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What came of it.

    Attributes:
        run: its number.
        devices: those it measured on.
        measurements: all of them, as they came.
        levels: of times and named metrics.
        noises: of times.
        roofs: by device UUID.
        left_out: what there was no time for.
        doubts: declared work that cannot be right.
        judgements: the verdicts.
        confirmations: what came of the suspects that were measured again.
        explained: why those take longer that are confirmed to.
        problems: what is wrong with benchmarks that the selection reaches.
        warnings: what is wrong with the others.
        specs: the cases.
    """

    run: int
    devices: tuple[DeviceInfo, ...]
    measurements: tuple[Measurement, ...]
    levels: Levels
    noises: Mapping[Key, Noise]
    roofs: Mapping[str, Roof]
    left_out: tuple[LeftOut, ...]
    doubts: tuple[Doubt, ...]
    judgements: tuple[Judgement, ...]
    confirmations: tuple[Confirmation, ...]
    explained: tuple[Explained, ...]
    problems: tuple[SuiteError, ...]
    warnings: tuple[SuiteError, ...]
    specs: Mapping[Key, CaseSpec]

    @property
    def failed(self) -> bool:
        """A benchmark that was selected could not be used, or a case failed or gave a wrong result."""
        return bool(self.problems) or any(m.status in {Status.FAILED, Status.WRONG} for m in self.measurements)

    def exit_code(self, *, strict: bool) -> int:
        """The command's exit code.

        What was cleared by measuring it again is no regression; what was confirmed is one, even by its history alone.
        """
        cleared = {one.suspect.series for one in self.confirmations if one.cleared}
        standing = [judgement for judgement in self.judgements if judgement.series not in cleared]
        confirmed = [one.suspect.judgement for one in self.confirmations if one.regressed]
        regressed = [replace(one, verdict=Verdict.REGRESSION) for one in confirmed]
        return judge.exit_code([*standing, *regressed], failed=self.failed, strict=strict)


def run(request: RunRequest, progress: Progress | None = None, servers: ForkServers | None = None) -> RunOutcome:
    """Measures a suite on every device asked for and judges it; each measurement is committed as it arrives.

    Args:
        request: what is asked for.
        progress: is told how far it is.
        servers: where workers are forked; ours where none have started yet.

    Raises:
        UsageError: a selection matches nothing, or the suite is empty.
        InfrastructureError: no device, no compiler or no database.
    """
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as workers:  # the last end while judging has begun
        servers = servers or ours.enter_context(ForkServers())
        return _run(request, progress or Silent(), workers, servers)


def _run(request: RunRequest, progress: Progress, workers: contextlib.ExitStack, servers: ForkServers) -> RunOutcome:
    devices = find(request.devices)
    if "auto" in request.devices and (reason := why_no_gpu()):
        progress.say(f"measuring on the CPU device, for there is no GPU to use: {reason}")
    found = suite.discover(request.suite)
    known = KnownShapes(build.default_folder() / "shapes")
    inputs = Inputs(keep_bytes=shared.budget_bytes(), threads=MOST_THREADS, known=known)
    targets = choose(found, devices, request.selection, request.points, inputs)
    with Store.open(request.database) as store:
        binaries = compile_units(targets, progress)
        recorder = Recorder(store, _origin(request), targets, progress.say)
        with recorder.recording():
            planned = plan(request, targets, binaries, inputs=inputs, store=store, recorder=recorder)
            progress.begin("measuring", len(planned.first) + sum(map(planned.replicas_of, planned.tasks)))
            by_uuid = {device.uuid: device for device in devices}
            measured = workers.enter_context(pool.measuring(planned, by_uuid, progress.say, servers))
            _record(measured, recorder, progress)
        judgements = judge_run(store, recorder.run, threshold=request.threshold)
        store.put_verdicts(recorder.run, judgements)
        confirmations: list[Confirmation] = []
        explained: list[Explained] = []
        if request.confirm:
            workers.close()  # a board has one worker at a time
            means = _means(request, by_uuid, planned, recorder, servers=servers, say=progress.say)
            confirmations = confirm_all(store, findings.suspects_of(store, recorder.run), means, progress)
            judgements = with_causes(judgements, confirmations)
            store.put_verdicts(recorder.run, judgements)
        findings.settle(store, recorder.run)
        if request.profile:
            under = Under(by_uuid, planned.instruments, say=progress.say)
            explained = explain_confirmed(store, confirmations, under, progress)
    judged = (judgements, confirmations, explained)
    return _outcome(request, found, targets, recorder, judged)


def _outcome(
    request: RunRequest,
    found: suite.Suite,
    targets: Sequence[Target],
    recorder: Recorder,
    judged: tuple[Sequence[Judgement], Sequence[Confirmation], Sequence[Explained]],
) -> RunOutcome:
    judgements, confirmations, explained = judged
    problems, warnings = found.split_problems(request.selection)
    specs = {(target.device.uuid, spec.case.id, spec.mode): spec for target in targets for spec in target.specs}
    place = {key: number for number, key in enumerate(specs)}
    return RunOutcome(
        run=recorder.run,
        devices=tuple(target.device for target in targets),
        measurements=tuple(recorder.measurements),
        levels=levels(recorder.measurements),
        noises={(device, case.id, mode): one for (device, case, mode), one in noises(recorder.measurements).items()},
        roofs=recorder.roofs.found,
        left_out=tuple(sorted(recorder.left_out, key=lambda one: place[one.device, one.case.id, one.mode])),
        doubts=tuple(recorder.doubts.values()),
        judgements=tuple(judgements),
        confirmations=tuple(confirmations),
        explained=tuple(explained),
        problems=problems,
        warnings=warnings,
        specs=specs,
    )


def _record(measured: Iterable[Measurement | LeftOut], recorder: Recorder, progress: Progress) -> None:
    """Commits each measurement as it arrives."""
    for one in measured:
        if isinstance(one, LeftOut):
            recorder.leave_out(one)
        else:
            recorder.put(one)
            progress.step(one.case.id)


def _means(
    request: RunRequest,
    devices: Mapping[str, DeviceInfo],
    planned: Plan,
    recorder: Recorder,
    *,
    servers: ForkServers,
    say: Callable[[str], object],
) -> Means:
    """What suspects are measured again with: all that the run itself was measured with."""
    return Means(
        devices,
        partial(sampling, request),
        planned.instruments,
        recorder.seed,
        threshold=request.threshold,
        limit_s=request.limit_s,
        servers=servers,
        say=say,
    )


def _origin(request: RunRequest) -> Provenance:
    return provenance.collect(
        request.suite,
        command_line=request.command_line,
        label=request.label,
        scope=provenance.scope_of(request.suite, request.selection, request.points),
        seed=seed_of(request.seed),
        replicas=request.replicas,
    )
