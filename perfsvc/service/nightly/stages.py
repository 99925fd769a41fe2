"""The stages of a night, a function each. Each reads what it needs from the store, so that it can be repeated."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice

from perfsvc import units
from perfsvc.config import Settings
from perfsvc.errors import InfrastructureError, UntrustedError
from perfsvc.files import Folder, reporting
from perfsvc.measure.host.device_queue import Stopping
from perfsvc.model import (
    TIME,
    ChangeKind,
    Confirmation,
    DeviceInfo,
    Direction,
    ExpectedKind,
    FindingState,
    Judgement,
    Status,
    Verdict,
)
from perfsvc.process.fork_servers import ForkServers
from perfsvc.report.wording import NO_FINDING, OUTCOME_NOUNS, Judged, tally
from perfsvc.service import doctor as doctors
from perfsvc.service.check import check as checks
from perfsvc.service.check.check import CheckRequest
from perfsvc.service.confirm.confirm import refusals
from perfsvc.service.expect.gpus import DevicesHere, devices_here
from perfsvc.service.expect.night import check_night, clock_problem
from perfsvc.service.findings.suspects import ignored
from perfsvc.service.findings.update import update_findings
from perfsvc.service.nightly import retention
from perfsvc.service.nightly.begin import require_same_suite, run_request, suite_digest
from perfsvc.service.nightly.log import REPORT, NightLog
from perfsvc.service.prepare.targets import compile_helper_kernels, compile_units
from perfsvc.service.profile.case_profiler import ProfilerSettings
from perfsvc.service.run.measure import measure
from perfsvc.service.run.provenance import begin, resume, revision_of, scope_of
from perfsvc.service.run.request import ResolvedRun, RunRequest, resolve
from perfsvc.service.run.run import (
    confirm_suspects,
    exit_code_of,
    explain_regressed,
    judge_measured,
    pair_settings,
    send_spools,
)
from perfsvc.store import NightRow, RunState, Store
from perfsvc.text import label

FAILED = 4
"""The exit code if a case failed or a benchmark file cannot be used."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of a stage.

    Attributes:
        text: the result in a line.
        exit_code: the exit code of a command that does only this stage.
        skipped: there was nothing to do.
    """

    text: str
    exit_code: int = 0
    skipped: bool = False


DISABLED = StageResult("disabled in the settings", skipped=True)

NOT_COUNTED = "this night raises and resolves no finding, and moves no baseline"


class NightStoppedError(Exception):
    """A stage was stopped before its end, on request; a resumed night does it again."""


@dataclass(frozen=True, slots=True)
class Night:
    """A running night. Its stages pass each other nothing: they read and write the store.

    Attributes:
        number: the night's number.
        settings: the settings that the night began with.
        command_line: the command that began the night.
        lock: a sentence on how the night's lock was taken.
        stopping: returns whether to stop.
        lost: which night of this host the database lacks, in words; empty if it lacks none.
    """

    store: Store
    number: int
    settings: Settings
    command_line: str
    lock: str
    log: NightLog
    servers: ForkServers
    stopping: Stopping
    lost: str = ""

    @property
    def row(self) -> NightRow:
        """The night as it is stored now."""
        return self.store.nights.get(self.number)

    @property
    def run(self) -> int:
        """The number of the night's run; raises ``LookupError`` if the run has not begun."""
        run = self.row.run
        if run is None:
            raise LookupError(f"night {self.number} has no run")
        return run

    @property
    def request(self) -> RunRequest:
        """The request of the night's run."""
        return run_request(self.settings, self.command_line)

    @property
    def scope(self) -> str:
        """The scope of the night's run."""
        request = self.request
        return scope_of(request.suite, request.selection, request.points)

    def devices_here(self) -> DevicesHere:
        """Return the devices that the night's settings name; GPUs of earlier nights that are gone now are left out."""
        return devices_here(self.store, self.row.host, self.scope, self.settings.run.devices)

    def devices(self) -> Mapping[str, DeviceInfo]:
        """Return the devices that the night measures on, by UUID."""
        return {device.uuid: device for device in self.devices_here().devices}


# --- the stages, in their order --------------------------------------------------------------------------------------


def lock(night: Night) -> StageResult:
    """Report how the night's lock was taken, before the first stage, by ``nightly``."""
    return StageResult(night.lock)


def revision(night: Night) -> StageResult:
    """Store the revision of the suite, and a digest of its files."""
    suite = night.settings.suite
    current = revision_of(suite)
    night.store.nights.put_revision(
        night.number, commit=current.commit, dirty=current.dirty, digest=suite_digest(suite)
    )
    if current.unknown:
        return StageResult(
            f"{suite}, whose repository git cannot read ({current.unknown}), with uncommitted changes: {NOT_COUNTED}"
        )
    if not current.commit:
        return StageResult(f"{suite}, outside any repository")
    files = units.some([label(path) for path in current.changed])
    uncommitted = f", with uncommitted changes in {files}: {NOT_COUNTED}" if current.dirty else ""
    return StageResult(f"{suite} at {current.commit[:10]}{uncommitted}")


def doctor(night: Night) -> StageResult:
    """Check everything that perfsvc uses, and fail if something necessary is missing.

    If earlier nights had GPUs, missing GPUs do not count here: the stage ``expect`` reports them by name.
    """
    settings = night.settings
    rows = doctors.checkup(None, settings.notify.targets, settings.nightly.heartbeat, settings.suite)
    if any(row.kind is ExpectedKind.GPU for row in night.store.expectations.of_host(night.row.host)):
        rows = [row for row in rows if row.check != doctors.GPUS]
    missing = {f"{row.check}: {row.found}": row.cure for row in rows if row.ok is False}
    for what, cure in missing.items():
        night.log.warning(what, cure=cure)
    if missing:
        raise InfrastructureError("; ".join(missing), cure=next(iter(missing.values())))
    optional = sum(row.ok is None for row in rows)
    missing_parts = units.count(optional, "optional part")
    listed = f"; missing: {missing_parts} (perfsvc doctor lists them)" if optional else ""
    return StageResult(f"all required parts are here{listed}")


def check(night: Night) -> StageResult:
    """Check the static facts of the kernels' binaries, for the architectures in the settings, else of the devices."""
    if not night.settings.check.enabled:
        return DISABLED
    architectures = night.settings.check.architectures
    if not architectures:
        targets = {device.target for device in night.devices().values()}
        architectures = tuple(sorted(target for target in targets if target.startswith("sm_")))
    if not architectures:
        return StageResult("no device here runs what nvcc makes", skipped=True)
    row, request = night.row, night.request
    night.store.checks.remove(row.host, row.command_line, row.started)  # a check of this stage before it was killed
    outcome = checks.check(
        CheckRequest(
            night.settings.database,
            request.suite,
            architectures,
            request.selection,
            points=request.points or "full",
            command_line=row.command_line,
        ),
        night.log,
    )
    return StageResult(f"check {outcome.check}: {_counts(outcome.verdicts)}", outcome.exit_code(strict=False))


def run(night: Night) -> StageResult:
    """Measure the suite; an interrupted run is resumed, and keeps what it has measured."""
    require_same_suite(night.row, night.settings.suite)
    send_spools(night.store, night.request, night.log.report)
    store, number = night.store, night.row.run
    request = replace(night.request, devices=night.devices_here().specs)
    resolved = resolve(request, night.log)
    if number is None or store.runs.get(number).state is not RunState.FINISHED:
        binaries = compile_units(resolved.targets, night.log, with_lines=night.settings.profile.enabled)
        opened = resume(store, number) if number else begin(store, request, night.log.report, night=night.number)
        night.log.bind(run=opened.run)
        measure(
            resolved,
            binaries,
            store=store,
            opened=opened,
            servers=night.servers,
            progress=night.log,
            stopping=night.stopping,
        )
    if store.runs.get(night.run).state is not RunState.FINISHED:
        raise NightStoppedError
    return _measured(night, resolved)


def judge(night: Night) -> StageResult:
    """Compare each series of the run with its baseline."""
    judgements = judge_measured(night.store, night.run, night.request)
    return StageResult(_counts(judgements), _exit_code(night, judgements, ()))


def confirm(night: Night) -> StageResult:
    """Measure the suspects of the run again: the baseline's binary and the run's binary, in A/B pairs."""
    if not night.settings.confirm.enabled:
        return DISABLED
    store, number = night.store, night.run
    devices = night.devices()
    settings = pair_settings(
        night.request,
        devices,
        compile_helper_kernels(devices.values(), night.log),
        seed=store.runs.get(number).provenance.seed,
        servers=night.servers,
        report=night.log.report,
    )
    _, over_budget = confirm_suspects(store, number, settings, night.log, night.stopping)
    if night.stopping():
        raise NightStoppedError
    confirmations = store.confirmations.of_run(number)
    if refused := refusals(confirmations):
        raise UntrustedError(
            f"stored code of {units.count(len(refused), 'suspect')} was refused: {refused[0]}",
            cure="perfsvc key list shows the keys that you trust (docs/security.md)",
        )
    # A series that moved again was measured twice: against its baseline, and against the level before this step.
    of_series = [answer for answer in confirmations if answer.suspect.change is not ChangeKind.AGAIN]
    causes = Counter(str(answer.cause) for answer in of_series)
    judgements = store.verdicts.of_run(number)
    answers = [f"{count} {cause}" for cause, count in sorted(causes.items())]
    if over_budget:
        answers.append(f"{len(over_budget)} over budget")
    return StageResult(", ".join(answers) or "there was no suspect", _exit_code(night, judgements, confirmations))


def profile(night: Night) -> StageResult:
    """Explain the confirmed regressions with Nsight Compute, if it is installed."""
    if not night.settings.profile.enabled:
        return DISABLED
    store, number = night.store, night.run
    suspects = [answer.suspect for answer in store.confirmations.of_run(number) if answer.regressed]
    if not suspects:
        return StageResult("no regression is confirmed", skipped=True)
    messages: list[str] = []
    devices = night.devices()
    helper_kernels = compile_helper_kernels(devices.values(), night.log)
    settings = ProfilerSettings(devices, helper_kernels, budget_s=night.settings.profile.budget, report=messages.append)
    explain_regressed(store, number, settings, night.log)
    for message in messages:
        night.log.report(message)
    explanations = store.profiles.explanations(number)
    if messages and not explanations:
        return StageResult(messages[-1], skipped=True)
    explained = sum(bool(explanation.sentence) for explanation in explanations)
    regressions = {
        (suspect.series.device, suspect.series.case) for suspect in suspects if suspect.series.metric == TIME
    }
    unprofiled = len(regressions) - len(explanations)
    left = f", {unprofiled} not profiled" if unprofiled > 0 else ""
    return StageResult(f"{explained} of {units.count(len(regressions), 'regression')} explained{left}")


def findings(night: Night) -> StageResult:
    """Update the findings from the run's stored verdicts and confirmations; count what changed.

    A finding that stays unsolved gives the night its exit code. The verdicts may not: after a change of the
    environment, the slower level is the first of a new segment.

    A run with uncommitted changes changes no finding. If two nights in a row have such runs, this stage fails, so that
    a person notices.
    """
    updates = update_findings(night.store, night.run, threshold=night.request.threshold)
    changes = {
        "raised": updates.raised,
        "moved again": updates.stepped,
        "with more cases": updates.joined,
        "reopened": updates.reopened,
        "resolved": updates.resolved,
    }
    changed = [f"{len(numbers)} {change}" for change, numbers in changes.items() if numbers]
    is_dirty = night.store.runs.get(night.run).provenance.dirty
    if is_dirty and _is_dirty_again(night):
        raise InfrastructureError(
            "uncommitted changes in two nights in a row: such nights raise no finding about their cases",
            cure=f"commit or discard the changes: git -C {shlex.quote(str(night.settings.suite))} status",
        )
    if is_dirty:
        return StageResult(NO_FINDING)
    unsolved = _unsolved(night.store, night.run)
    if old := unsolved.difference(*changes.values()):
        changed.append(f"{len(old)} unsolved")
    return StageResult(", ".join(changed) or "nothing new", 1 if unsolved else 0)


def _unsolved(store: Store, run: int) -> set[int]:
    """Return the findings whose cases became slower, and which a run measured at the slower level."""
    judgements = store.verdicts.of_run(run)
    measured = {judgement.series for judgement in judgements if judgement.verdict is not Verdict.MISSING}
    return {
        finding.id
        for finding in store.findings.active()
        if finding.state is not FindingState.IGNORED
        for moved in finding.standing
        if moved.direction is Direction.SLOWER and moved.series in measured
    }


def expect(night: Night) -> StageResult:
    """Look for the GPUs, the cases and the history that earlier nights had, and for hosts whose night is overdue."""
    outcome = check_night(
        night.store,
        night.row,
        scope=night.scope,
        specs=night.settings.run.devices,
        suite_folder=night.settings.suite,
        every_s=night.settings.expect.every,
    )
    cures = {
        night.lost: "restore the newest backup; later nights continue with what is there",
        clock_problem(night.store, night.row): "let NTP set the clock; perfsvc orders nights by their numbers",
    }
    if problems := [problem for problem in cures if problem]:
        raise InfrastructureError("; ".join([*problems, outcome.text]), cure=cures[problems[0]])
    return StageResult(outcome.text, outcome.exit_code)


def report(night: Night) -> StageResult:
    """Write the measurements of the run to an HTML page in the night's folder."""
    from perfsvc.report.export import files, frames

    nights, name = night.settings.nightly.folder, f"{night.number}/{REPORT}"
    page = files.content(frames.frame(night.store.measurements.columns([night.run])), "html")
    with reporting(nights / name), Folder.open(nights, make=True) as folder:
        folder.write(name, page)
    return StageResult(str(nights / name))


def page(night: Night) -> StageResult:
    """Build the site."""
    from perfsvc.service.dashboard.build import build

    dashboard = night.settings.dashboard
    if not dashboard.enabled:
        return DISABLED
    pages = build(night.store, dashboard.folder, threshold=night.request.threshold)
    return StageResult(f"{units.count(len(pages), 'page')} in {dashboard.folder}")


def notify(night: Night) -> StageResult:
    """Send messages about what is new."""
    from perfsvc.service.notify.notify import notify as send

    return StageResult(send(night.store, night.number, night.settings, night.log.report))


def prune(night: Night) -> StageResult:
    """Remove stored data that is older than the retention settings allow and that nothing needs any more."""
    settings = night.settings
    pruned = retention.prune(
        night.store,
        settings.retention,
        datetime.now(UTC),
        nights=settings.nightly.folder,
        against=settings.baseline.against,
        suite=settings.suite,
    )
    return StageResult(pruned.text)


# --- what they share -------------------------------------------------------------------------------------------------


def _measured(night: Night, resolved: ResolvedRun) -> StageResult:
    """Summarise a run, and report problems of the suite."""
    row = night.store.runs.get(night.run)
    parts = [
        f"run {row.id}: {units.count(row.cases, 'case')} on {units.count(len(row.devices), 'device')}",
        *(f"{count} {status}" for status, count in sorted(row.counts.items()) if status is not Status.OK),
    ]
    if over_budget := len(night.store.runs.over_budget(row.id)):
        parts.append(f"{over_budget} over budget")
    problems, _ = resolved.suite.split_problems(resolved.request.selection)
    for problem in problems:
        night.log.warning(problem.what, cure=problem.cure, path=problem.path)
    if problems:
        parts.append(f"{units.count(len(problems), 'fault')} in benchmark files: {problems[0].what}")
    return StageResult(", ".join(parts), FAILED if problems or _has_failed(night) else 0)


def _is_dirty_again(night: Night) -> bool:
    """Return whether the previous night of this host measured the suite with uncommitted changes."""
    before = (
        other
        for other in night.store.nights.list()
        if other.id < night.number
        and other.host == night.row.host
        and other.suite == night.row.suite
        and other.run is not None
    )
    return any(other.dirty for other in islice(before, 1))


def _exit_code(night: Night, judgements: Sequence[Judgement], confirmations: Sequence[Confirmation]) -> int:
    ignored_series = ignored(night.store.findings.active())
    return exit_code_of(judgements, confirmations, ignored_moves=ignored_series, failed=_has_failed(night))


def _has_failed(night: Night) -> bool:
    return bool({Status.FAILED, Status.WRONG} & night.store.runs.get(night.run).counts.keys())


def _counts(judgements: Sequence[Judged]) -> str:
    """Return how often each outcome occurs, in words; outcomes that do not occur are left out."""
    occurring = [units.count(number, *OUTCOME_NOUNS[word]) for word, number in tally(judgements).items() if number]
    return ", ".join(occurring) or "nothing to judge"
