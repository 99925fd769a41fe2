"""One run: resolve the suite, compile, measure, store, judge."""

import contextlib
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from perfsvc.errors import SuiteError
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.model import (
    Confirmation,
    Direction,
    Judgement,
    Measurement,
    OverBudget,
    Series,
    Status,
)
from perfsvc.report.rows import Doubt
from perfsvc.service.confirm.confirm import with_causes
from perfsvc.service.findings.suspects import ignored
from perfsvc.service.findings.update import update_findings
from perfsvc.service.profile.profile import ProfilerSettings
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
from perfsvc.service.run.record import Recorder
from perfsvc.service.run.request import RunRequest
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What the store does not hold about a run that has just ended, and its exit code.

    Attributes:
        run: its number.
        over_budget: cases that the budget had no time for, with the reasons.
        doubts: declared work that cannot be right.
        problems: what is wrong with selected benchmarks.
        warnings: what is wrong with other benchmarks.
        bad: the measurements that failed or gave a wrong result.
        judgements: the verdicts.
        confirmations: of the suspects that were measured again.
        unheard: the series and directions of ignored findings, which do not count as regressions.
    """

    run: int
    over_budget: tuple[OverBudget, ...]
    doubts: tuple[Doubt, ...]
    problems: tuple[SuiteError, ...]
    warnings: tuple[SuiteError, ...]
    bad: tuple[Measurement, ...]
    judgements: tuple[Judgement, ...]
    confirmations: tuple[Confirmation, ...]
    unheard: AbstractSet[tuple[Series, Direction]] = frozenset()

    def exit_code(self, *, strict: bool) -> int:
        """Return the command's exit code."""
        failed = bool(self.problems or self.bad)
        return exit_code_of(self.judgements, self.confirmations, unheard=self.unheard, failed=failed, strict=strict)


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
        if request.confirm:
            settings = pair_settings(
                request, resolved.devices, helper_kernels, seed=opened.seed, servers=servers, report=progress.report
            )
            confirmations = confirm_suspects(store, opened.run, settings, progress)
            judgements = with_causes(judgements, confirmations)
        update_findings(store, opened.run, threshold=request.threshold)
        unheard = ignored(store.findings.active())
        if request.profile:
            profiling = ProfilerSettings(resolved.devices, helper_kernels, report=progress.report)
            explain_regressed(store, opened.run, profiling, progress)
    return _outcome(resolved, recorder, judgements, confirmations, unheard)


def _outcome(
    resolved: ResolvedRun,
    recorder: Recorder,
    judgements: Sequence[Judgement],
    confirmations: Sequence[Confirmation],
    unheard: AbstractSet[tuple[Series, Direction]],
) -> RunOutcome:
    problems, warnings = resolved.suite.split_problems(resolved.request.selection)
    specs = ((target.device.uuid, spec) for target in resolved.targets for spec in target.specs)
    order = {(device, spec.case.id, spec.cache): index for index, (device, spec) in enumerate(specs)}
    bad = {Status.FAILED, Status.WRONG}
    return RunOutcome(
        run=recorder.run,
        over_budget=tuple(sorted(recorder.over_budget, key=lambda case: order[case.device, case.case.id, case.cache])),
        doubts=tuple(recorder.doubts.values()),
        problems=problems,
        warnings=warnings,
        bad=tuple(measurement for measurement in recorder.measurements if measurement.status in bad),
        judgements=tuple(judgements),
        confirmations=tuple(confirmations),
        unheard=unheard,
    )
