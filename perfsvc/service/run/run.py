"""One run: resolve the suite, compile, measure, store, judge."""

import contextlib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from perfsvc.errors import SuiteError
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.measure.plan.order import OverBudget
from perfsvc.model import (
    CaseExplanation,
    Confirmation,
    DeviceInfo,
    Direction,
    Judgement,
    Measurement,
    Noise,
    Peak,
    Series,
    Status,
)
from perfsvc.report.rows import Doubt, Key
from perfsvc.service.compare.code import SidesOf
from perfsvc.service.confirm.confirm import with_causes
from perfsvc.service.findings.suspects import doubts
from perfsvc.service.findings.update import ignored, update_findings
from perfsvc.service.profile.profile import Under
from perfsvc.service.progress import Progress, Silent
from perfsvc.service.run.judge import (
    confirm_suspects,
    exit_code_of,
    explain_regressed,
    judge_measured,
    means_of,
)
from perfsvc.service.run.measure import Workers, measure
from perfsvc.service.run.prepare import Resolved, compile_units, helper_kernels_of, resolve
from perfsvc.service.run.provenance import begin
from perfsvc.service.run.record import Levels, Recorder, levels
from perfsvc.service.run.request import RunRequest
from perfsvc.store import Store
from perfsvc.suite import CaseSpec


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What came of it.

    Attributes:
        run: its number.
        devices: those it measured on.
        measurements: all of them, as they came.
        noises: of times.
        peaks: by device UUID.
        over_budget: what there was no time for.
        doubts: declared work that cannot be right.
        judgements: the verdicts.
        confirmations: what came of the suspects that were measured again.
        explained: why those take longer that are confirmed to.
        problems: what is wrong with benchmarks that the selection reaches.
        warnings: what is wrong with the others.
        specs: the cases.
        unheard: the series that may move so, by findings that are ignored.
    """

    run: int
    devices: tuple[DeviceInfo, ...]
    measurements: tuple[Measurement, ...]
    noises: Mapping[Key, Noise]
    peaks: Mapping[str, Peak]
    over_budget: tuple[OverBudget, ...]
    doubts: tuple[Doubt, ...]
    judgements: tuple[Judgement, ...]
    confirmations: tuple[Confirmation, ...]
    explained: tuple[CaseExplanation, ...]
    problems: tuple[SuiteError, ...]
    warnings: tuple[SuiteError, ...]
    specs: Mapping[Key, CaseSpec]
    unheard: AbstractSet[tuple[Series, Direction]] = frozenset()

    @property
    def levels(self) -> Levels:
        """Of times and named metrics: worked out for whoever shows them, which a night does not."""
        return levels(self.measurements)

    @property
    def failed(self) -> bool:
        """A benchmark that was selected could not be used, or a case failed or gave a wrong result."""
        return bool(self.problems) or any(m.status in {Status.FAILED, Status.WRONG} for m in self.measurements)

    def exit_code(self, *, strict: bool) -> int:
        """The command's exit code."""
        return exit_code_of(
            self.judgements, self.confirmations, unheard=self.unheard, failed=self.failed, strict=strict
        )


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
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as ended:  # workers end while judging has begun
        workers = Workers(servers or ours.enter_context(ForkServers()), ended)
        return _run(request, progress or Silent(), workers)


def _run(request: RunRequest, progress: Progress, workers: Workers) -> RunOutcome:
    resolved = resolve(request, progress)
    with Store.open(request.database) as store:
        binaries = compile_units(resolved.targets, progress)
        recorder = measure(
            resolved, binaries, store=store, begun=begin(store, request), workers=workers, progress=progress
        )
        helper_kernels = helper_kernels_of(resolved.targets, binaries)
        sides_of = SidesOf(store)
        judgements = judge_measured(store, recorder.run, request, sides_of)
        told = store.verdicts(recorder.run)
        found = doubts(store, recorder.run, told, threshold=request.threshold, sides_of=sides_of)
        confirmations: list[Confirmation] = []
        explained: list[CaseExplanation] = []
        if request.confirm:
            workers.ended.close()  # a GPU has one worker at a time
            means = means_of(
                request,
                resolved.devices,
                helper_kernels,
                seed=recorder.begun.seed,
                servers=workers.servers,
                say=progress.say,
            )
            confirmations = confirm_suspects(store, recorder.run, means, progress, found=found, sides_of=sides_of)
            judgements = with_causes(judgements, confirmations)
        update_findings(store, recorder.run, threshold=request.threshold, found=found)
        unheard = ignored(store.findings())
        if request.profile:
            under = Under(resolved.devices, helper_kernels, say=progress.say)
            explained = explain_regressed(store, recorder.run, under, progress)
    return _outcome(resolved, recorder, (judgements, confirmations, explained), unheard)


def _outcome(
    resolved: Resolved,
    recorder: Recorder,
    judged: tuple[Sequence[Judgement], Sequence[Confirmation], Sequence[CaseExplanation]],
    unheard: AbstractSet[tuple[Series, Direction]],
) -> RunOutcome:
    judgements, confirmations, explained = judged
    problems, warnings = resolved.found.split_problems(resolved.request.selection)
    targets = resolved.targets
    specs = {(target.device.uuid, spec.case.id, spec.cache): spec for target in targets for spec in target.specs}
    place = {key: number for number, key in enumerate(specs)}
    return RunOutcome(
        run=recorder.run,
        devices=tuple(target.device for target in targets),
        measurements=tuple(recorder.measurements),
        noises={(device, case.id, cache): one for (device, case, cache), one in recorder.noises.items()},
        peaks=recorder.peaks.found,
        over_budget=tuple(sorted(recorder.over_budget, key=lambda one: place[one.device, one.case.id, one.cache])),
        doubts=tuple(recorder.doubts.values()),
        judgements=tuple(judgements),
        confirmations=tuple(confirmations),
        unheard=unheard,
        explained=tuple(explained),
        problems=problems,
        warnings=warnings,
        specs=specs,
    )
