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
from perfsvc.service.confirm.confirm import with_causes
from perfsvc.service.findings.suspects import ignored
from perfsvc.service.findings.update import update_findings
from perfsvc.service.profile.profile import ProfileSettings
from perfsvc.service.progress import Progress, Silent
from perfsvc.service.run.judge import (
    confirm_suspects,
    exit_code_of,
    explain_regressed,
    judge_measured,
    pair_settings,
)
from perfsvc.service.run.measure import measure
from perfsvc.service.run.prepare import ResolvedRun, compile_units, helper_kernels_of, resolve
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
    """Measure a suite on every requested device and judge it; each measurement is committed as it arrives.

    Args:
        request: the options.
        progress: receives messages and the number of steps done.
        servers: where workers are forked; None to start some.

    Raises:
        UsageError: a selection matches nothing, or the suite is empty.
        InfrastructureError: no device, no compiler or no database.
    """
    progress = progress or Silent()
    with contextlib.ExitStack() as stack:
        servers = servers or stack.enter_context(ForkServers())
        resolved = resolve(request, progress)
        store = stack.enter_context(Store.open(request.database))
        binaries = compile_units(resolved.targets, progress)
        opened = begin(store, request)
        recorder = measure(resolved, binaries, store=store, opened=opened, servers=servers, progress=progress)
        helper_kernels = helper_kernels_of(resolved.targets, binaries)
        judgements = judge_measured(store, opened.run, request)
        confirmations: list[Confirmation] = []
        explanations: list[CaseExplanation] = []
        if request.confirm:
            settings = pair_settings(
                request, resolved.devices, helper_kernels, seed=opened.seed, servers=servers, say=progress.say
            )
            confirmations = confirm_suspects(store, opened.run, settings, progress)
            judgements = with_causes(judgements, confirmations)
        update_findings(store, opened.run, threshold=request.threshold)
        unheard = ignored(store.findings.list())
        if request.profile:
            profiling = ProfileSettings(resolved.devices, helper_kernels, say=progress.say)
            explanations = explain_regressed(store, opened.run, profiling, progress)
    return _outcome(resolved, recorder, (judgements, confirmations, explanations), unheard)


def _outcome(
    resolved: ResolvedRun,
    recorder: Recorder,
    judged: tuple[Sequence[Judgement], Sequence[Confirmation], Sequence[CaseExplanation]],
    unheard: AbstractSet[tuple[Series, Direction]],
) -> RunOutcome:
    judgements, confirmations, explained = judged
    problems, warnings = resolved.suite.split_problems(resolved.request.selection)
    targets = resolved.targets
    specs = {(target.device.uuid, spec.case.id, spec.cache): spec for target in targets for spec in target.specs}
    place = {key: number for number, key in enumerate(specs)}
    return RunOutcome(
        run=recorder.run,
        devices=tuple(target.device for target in targets),
        measurements=tuple(recorder.measurements),
        noises={(device, case.id, cache): one for (device, case, cache), one in recorder.noises.items()},
        peaks=recorder.peaks.peaks,
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
