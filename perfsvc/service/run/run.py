"""One run: resolve the suite, compile, measure, judge, confirm the suspects, update the findings, explain.

The functions from ``judge_measured`` on read what they need from the store and store their results, so that a night can
repeat any of them.
"""

import contextlib
import platform
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

from perfsvc import judge, suite
from perfsvc.errors import NOTHING_MEASURED, DamagedError, DatabaseError, SuiteError
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.measure.host.pool import worker_servers
from perfsvc.model import (
    CaseExplanation,
    ChangeKind,
    Confirmation,
    DeviceInfo,
    Direction,
    Judgement,
    Measurement,
    OverBudget,
    Series,
    Status,
    Suspect,
    Verdict,
)
from perfsvc.process.fork_servers import ForkServers
from perfsvc.report.rows import Doubt
from perfsvc.service.cluster.lending import lent
from perfsvc.service.compare import compare
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.confirm.confirm import confirm_all, not_measured, with_causes
from perfsvc.service.confirm.earlier import earlier_answers
from perfsvc.service.confirm.pairs import PairSettings
from perfsvc.service.expect.gpus import require_gpu
from perfsvc.service.findings.suspects import ignored, suspects_of
from perfsvc.service.findings.update import update_findings
from perfsvc.service.prepare.targets import compile_units, helper_kernels_of
from perfsvc.service.profile.case_profiler import ProfilerSettings
from perfsvc.service.profile.regressions import explain_confirmed
from perfsvc.service.progress import Progress
from perfsvc.service.run import spool as spools
from perfsvc.service.run.measure import measure, sampling
from perfsvc.service.run.provenance import begin
from perfsvc.service.run.record import Recorder
from perfsvc.service.run.request import ResolvedRun, RunRequest, resolve
from perfsvc.store import RunState, Store


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What the store does not hold about a run that has just ended, and its exit code.

    Attributes:
        run: the number of the run.
        over_budget: cases that the budget had no time for, with the reasons.
        doubts: declared work that cannot be right.
        problems: what is wrong with selected benchmarks.
        warnings: what is wrong with other benchmarks.
        bad: the measurements that failed or gave a wrong result.
        judgements: the verdicts.
        confirmations: the confirmations of the suspects that were measured again.
        ignored_moves: the series and directions of ignored findings, which do not count as regressions.
    """

    run: int
    over_budget: tuple[OverBudget, ...]
    doubts: tuple[Doubt, ...]
    problems: tuple[SuiteError, ...]
    warnings: tuple[SuiteError, ...]
    bad: tuple[Measurement, ...]
    judgements: tuple[Judgement, ...]
    confirmations: tuple[Confirmation, ...]
    ignored_moves: AbstractSet[tuple[Series, Direction]] = frozenset()

    def exit_code(self, *, strict: bool) -> int:
        """Return the command's exit code."""
        failed = bool(self.problems or self.bad)
        return exit_code_of(
            self.judgements, self.confirmations, ignored_moves=self.ignored_moves, failed=failed, strict=strict
        )


def run(request: RunRequest, progress: Progress, servers: ForkServers | None = None) -> RunOutcome:
    """Measure a suite on every requested device and judge it; each measurement is committed as it arrives.

    Args:
        request: the options.
        progress: receives messages and the number of steps done.
        servers: the servers that fork workers; None to start new servers.

    Raises:
        UsageError: a selection matches nothing, or the suite is empty.
        InfrastructureError: no device, no compiler or no database.
    """
    with contextlib.ExitStack() as stack:
        servers = servers or stack.enter_context(worker_servers())
        with _before_measuring():
            cluster_gpus = None
            if request.on:  # a mistyped selection must not wait until the cluster lends its GPUs
                suite.discover(request.suite).select(request.selection, request.points or "full")
                cluster_gpus = stack.enter_context(lent(request.on, request.devices, progress.report, request.slurm))
            resolved = resolve(request, progress, cluster_gpus.devices if cluster_gpus else ())
            store = stack.enter_context(Store.open(request.database))
            store.database.keys.signing()  # without a key, no binary can be stored
            send_spools(store, request, progress.report)
            require_gpu(store, platform.node(), request.devices, resolved.devices.values())
            binaries = compile_units(resolved.targets, progress, with_lines=request.profile)
        opened = begin(store, request, progress.report)
        store.series.register(spec.case for target in resolved.targets for spec in target.specs)
        recorder = measure(
            resolved, binaries, store=store, opened=opened, servers=servers, progress=progress, lent=cluster_gpus
        )
        helper_kernels = helper_kernels_of(resolved.targets, binaries)
        judgements = judge_measured(store, opened.run, request)
        confirmations: list[Confirmation] = []
        if request.confirm:
            settings = pair_settings(
                request, resolved.devices, helper_kernels, seed=opened.seed, servers=servers, report=progress.report
            )
            settings = replace(settings, measure=cluster_gpus.measure) if cluster_gpus else settings
            confirmations, _ = confirm_suspects(store, opened.run, settings, progress)
            judgements = with_causes(judgements, confirmations)
        update_findings(store, opened.run, threshold=request.threshold)
        ignored_moves = ignored(store.findings.active())
        if request.profile:
            profiling = ProfilerSettings(
                resolved.devices, helper_kernels, budget_s=request.profile_budget_s, report=progress.report
            )
            explain_regressed(store, opened.run, profiling, progress)
    return _outcome(resolved, recorder, judgements, confirmations, ignored_moves)


@contextlib.contextmanager
def _before_measuring() -> Iterator[None]:
    """If the block raises an exception, such as Ctrl-C, add the note that nothing was measured and there is no run."""
    try:
        yield
    except BaseException as error:
        error.add_note(NOTHING_MEASURED)
        raise


def _outcome(
    resolved: ResolvedRun,
    recorder: Recorder,
    judgements: Sequence[Judgement],
    confirmations: Sequence[Confirmation],
    ignored_moves: AbstractSet[tuple[Series, Direction]],
) -> RunOutcome:
    """Return the outcome of a run; cases over budget are in the order in which the suite lists them."""
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
        ignored_moves=ignored_moves,
    )


# --- stages that a night repeats -------------------------------------------------------------------------------------


def send_spools(store: Store, request: RunRequest, report: Callable[[str], object]) -> None:
    """Send every spool of a database to it; judge the finished runs among them that have no verdicts.

    A spool that a moved SQLite file has left at its old path is reported. A spool that another process uses is left
    alone. A spool that the database refuses is reported and stays. A spool that cannot be read is reported; it is
    renamed if it is damaged.

    Raises:
        DatabaseError: the database does not answer; the spool stays.
    """
    for file, number in spools.left_at_another_path(store):
        command = f"perfsvc sync {shlex.quote(str(file))} {shlex.quote(store.location)}"
        report(
            f"results of run {number} wait in the spool of a database at another path; if you moved that database, "
            f"send them, and then delete the spool: {command}"
        )
    for file in spools.waiting(store):
        with spools.locked(file) as lock:
            if lock is None:
                continue
            try:
                spool = spools.opened(file, lock)
            except DatabaseError as error:
                if isinstance(error, DamagedError):
                    report(f"the spool {file} cannot be read ({error.what}): it is kept as {spools.set_aside(file)}")
                else:
                    report(f"the spool {file} is left for later: {error.what}")
                continue
            try:
                uid = spool.store.runs.uid(spool.run)
                counts = spool.send(store)
            except DatabaseError as error:
                if error.again:
                    raise
                report(f"the spool {file} is left for later: {error.what}")
                continue
            finally:
                spool.close()
        run = store.runs.of_uid(uid)
        if run is None:
            report(f"the results that waited in {file} were dropped: their run was deleted")
            continue
        report(f"the results that waited in {file} were sent to the database: {counts} of run {run}")
        if store.runs.get(run).state is RunState.FINISHED and not store.verdicts.of_run(run):
            judge_measured(store, run, request)
            update_findings(store, run, threshold=request.threshold)


def judge_measured(store: Store, run: int, request: RunRequest) -> list[Judgement]:
    """Judge a run, replace its stored verdicts, and return the new ones."""
    against = compare.run_to_compare_with(store, request.against, run, request.suite)
    judgements = judge_run(store, run, threshold=request.threshold, against=against)
    store.verdicts.put(run, judgements)
    return judgements


def pair_settings(
    request: RunRequest,
    devices: Mapping[str, DeviceInfo],
    helper_kernels: Mapping[str, bytes],
    *,
    seed: int,
    servers: ForkServers,
    report: Callable[[str], object],
) -> PairSettings:
    """Return settings for measuring a run's suspects again in A/B pairs, with the options of that run."""
    return PairSettings(
        devices,
        partial(sampling, request),
        helper_kernels,
        seed,
        threshold=request.threshold,
        budget_s=request.confirm_budget_s,
        limit_s=request.limit_s,
        servers=servers,
        report=report,
    )


def confirm_suspects(
    store: Store, run: int, settings: PairSettings, progress: Progress, stopping: Stopping = never
) -> tuple[list[Confirmation], list[Suspect]]:
    """Measure the suspects of a run again, and store the confirmations.

    Return the confirmations, and the suspects for which the budget left no time.

    A suspect is not measured if the run already has a confirmation of it. If a confirmation of an earlier night still
    holds, the suspect is not measured either: the run gets a copy of the confirmation. The run's stored verdicts get
    the causes that the confirmations found. Nothing begins once ``stopping`` is true.
    """
    suspects = suspects_of(store, run, threshold=settings.threshold)
    carried_over = earlier_answers(store, suspects, settings)
    for confirmation in carried_over:
        store.confirmations.put(confirmation)
    answered = {confirmation.suspect for confirmation in carried_over}
    unanswered = [suspect for suspect in suspects if suspect not in answered]
    measured, over_budget = confirm_all(store, unanswered, settings, progress, stopping)
    if over_budget:
        they = "it is a suspect" if len(over_budget) == 1 else "they are suspects"
        progress.report(
            f"{not_measured(over_budget)}: the budget of {settings.budget_s:g} s ended; {they} again the next night"
        )
    if confirmations := store.confirmations.of_run(run):  # a resumed night has earlier confirmations, too
        store.verdicts.put(run, with_causes(store.verdicts.of_run(run), confirmations))
    return [*carried_over, *measured], over_budget


def exit_code_of(
    judgements: Iterable[Judgement],
    confirmations: Sequence[Confirmation],
    *,
    ignored_moves: Container[tuple[Series, Direction]],
    failed: bool,
    strict: bool = False,
) -> int:
    """Return the exit code of a judged and confirmed run.

    A suspect is no regression if its confirmation cleared it. A confirmed suspect is a regression, whatever its verdict
    is. Moves of series in ignored findings (``ignored_moves``) do not count. A run that measured nothing, because every
    case was over budget or could not run here, has failed.
    """
    judgements = list(judgements)
    measured_nothing = all(judgement.verdict is Verdict.MISSING for judgement in judgements)
    cleared = {
        confirmation.suspect.series
        for confirmation in confirmations
        if confirmation.cleared and confirmation.suspect.change is not ChangeKind.AGAIN
    }

    def is_ignored(judgement: Judgement) -> bool:
        direction = judge.MOVES.get(judgement.verdict)
        return direction is not None and (judgement.series, direction) in ignored_moves

    standing = [judgement for judgement in judgements if judgement.series not in cleared and not is_ignored(judgement)]
    regressed = [
        replace(confirmation.suspect.judgement, verdict=Verdict.REGRESSION)
        for confirmation in confirmations
        if confirmation.regressed
    ]
    return judge.exit_code([*standing, *regressed], failed=failed or measured_nothing, strict=strict)


def explain_regressed(store: Store, run: int, settings: ProfilerSettings, progress: Progress) -> list[CaseExplanation]:
    """Profile and explain a run's confirmed regressions that have no explanation yet; return the new explanations."""
    settings = replace(settings, profiled=lambda case: progress.step(case.id))
    explained = {(explanation.device, explanation.case) for explanation in store.profiles.explanations(run)}
    unexplained = [
        confirmation
        for confirmation in store.confirmations.of_run(run)
        if (confirmation.suspect.series.device, confirmation.suspect.series.case) not in explained
    ]
    return explain_confirmed(store, unexplained, settings, progress)
