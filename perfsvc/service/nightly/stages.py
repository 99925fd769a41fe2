"""The stages of a night, a function each. Each reads what it needs from the store, so that it can be repeated."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from perfsvc import units
from perfsvc.config import Settings
from perfsvc.device.find import find
from perfsvc.errors import InfrastructureError
from perfsvc.measure.host.device_queue import Stopping
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.model import Confirmation, DeviceInfo, Judgement, Status, Verdict
from perfsvc.service import doctor as doctors
from perfsvc.service import retention
from perfsvc.service.check import check as checks
from perfsvc.service.check.check import CheckRequest
from perfsvc.service.findings.suspects import ignored
from perfsvc.service.findings.update import update_findings
from perfsvc.service.nightly.log import NightLog
from perfsvc.service.nightly.request import folder_of, log_of, run_request
from perfsvc.service.nightly.resume import refuse_changed, snapshot_of
from perfsvc.service.profile.profile import ProfileSettings
from perfsvc.service.run.judge import (
    confirm_suspects,
    exit_code_of,
    explain_regressed,
    judge_measured,
    pair_settings,
)
from perfsvc.service.run.measure import measure
from perfsvc.service.run.prepare import ResolvedRun, compile_helper_kernels, compile_units, resolve
from perfsvc.service.run.provenance import begin, resume
from perfsvc.service.run.request import RunRequest
from perfsvc.store import NightRow, RunState, Store


@dataclass(frozen=True, slots=True)
class Said:
    """What came of a stage.

    Attributes:
        text: in a line.
        exit_code: of a command that does no more than this.
        skipped: there was nothing for it to do.
    """

    text: str
    exit_code: int = 0
    skipped: bool = False


class ToldToStopError(Exception):
    """A stage left off before its end, for the night was told to stop; whoever goes on with it does it again."""


@dataclass(frozen=True, slots=True)
class Tonight:
    """A night that is under way; all that its stages know of each other is in the store.

    Attributes:
        number: of the night.
        settings: what it began with.
        command_line: the same.
        lock: what it took to get the lock, in words.
        stopping: whether it is to stop.
    """

    store: Store
    number: int
    settings: Settings
    command_line: str
    lock: str
    log: NightLog
    servers: ForkServers
    stopping: Stopping

    @property
    def row(self) -> NightRow:
        """The night as it is stored now."""
        return self.store.nights.get(self.number)

    @property
    def run(self) -> int:
        """The number of its run, for the stages that need one."""
        run = self.row.run
        if run is None:
            raise LookupError(f"night {self.number} has no run")
        return run

    @property
    def request(self) -> RunRequest:
        """What its run is asked for."""
        return run_request(self.settings, self.command_line)

    @property
    def folder(self) -> Path:
        """Where its files lie."""
        return folder_of(self.settings, self.number)

    @property
    def log_file(self) -> Path:
        """Its log."""
        return log_of(self.settings, self.number)

    def devices(self) -> Mapping[str, DeviceInfo]:
        """The devices that it measures on, by UUID; raises as ``perfsvc.device.find`` does."""
        return {device.uuid: device for device in find(self.settings.run.devices)}


REPORT = "report.html"
FAILED = 4
"""The exit code where a case failed or a benchmark file cannot be used."""


def lock(tonight: Tonight) -> Said:
    """Says how the lock was got, without which there would be no night."""
    return Said(tonight.lock)


def snapshot(tonight: Tonight) -> Said:
    """Remembers which suite is measured: its revision, and a digest of its files."""
    suite = tonight.settings.suite
    found = snapshot_of(suite)
    revision = found.revision
    tonight.store.nights.put_revision(tonight.number, commit=revision.commit, dirty=revision.dirty, digest=found.digest)
    if not revision.commit:
        return Said(f"{suite}, outside any repository")
    return Said(f"{suite} at {revision.commit[:10]}" + (", with uncommitted changes" if revision.dirty else ""))


def doctor(tonight: Tonight) -> Said:
    """Looks at all that perfsvc uses; fails where something is missing that it needs."""
    rows = doctors.checkup(None, tonight.settings.notify.targets)
    missing = [row for row in rows if row.ok is False]
    for row in missing:
        lacking = f"{row.check}: {row.found}"
        tonight.log.warning(lacking, cure=row.cure)
    if missing:
        what = "; ".join(f"{row.check}: {row.found}" for row in missing)
        raise InfrastructureError(what, cure=missing[0].cure)
    return Said(f"nothing is missing, {sum(row.ok is None for row in rows)} optional things are not here")


def check(tonight: Tonight) -> Said:
    """Checks the kernels' binaries against their baseline, for the architectures of the devices or those asked for."""
    asked = tonight.settings.check
    if not asked.enabled:
        return Said("the settings do not want it", skipped=True)
    targets = () if asked.architectures else (device.target for device in tonight.devices().values())
    architectures = asked.architectures or tuple(sorted({one for one in targets if one.startswith("sm_")}))
    if not architectures:
        return Said("no device here runs what nvcc makes", skipped=True)
    row, request = tonight.row, tonight.request
    tonight.store.checks.remove(row.host, row.command_line, row.started)
    outcome = checks.check(
        CheckRequest(
            tonight.settings.database,
            request.suite,
            architectures,
            request.selection,
            points=request.points or "full",
            command_line=row.command_line,
        ),
        tonight.log,
    )
    told = Counter(one.verdict for one in outcome.verdicts)
    return Said(f"check {outcome.check}: {_counted(told)}", outcome.exit_code(strict=False))


def run(tonight: Tonight) -> Said:
    """Measures the suite; a run that was cut short goes on under its number, with what it holds already."""
    refuse_changed(tonight.row, tonight.settings.suite)
    store, number = tonight.store, tonight.row.run
    resolved = resolve(tonight.request, tonight.log)
    if number is None or store.runs.get(number).state is not RunState.FINISHED:
        binaries = compile_units(resolved.targets, tonight.log)
        opened = begin(store, tonight.request, night=tonight.number) if number is None else resume(store, number)
        tonight.log.bind(run=opened.run)
        measure(
            resolved,
            binaries,
            store=store,
            opened=opened,
            servers=tonight.servers,
            progress=tonight.log,
            stopping=tonight.stopping,
        )
    if store.runs.get(tonight.run).state is not RunState.FINISHED:
        raise ToldToStopError
    return _measured(tonight, resolved)


def judge(tonight: Tonight) -> Said:
    """Compares each series of the run with its baseline."""
    judgements = judge_measured(tonight.store, tonight.run, tonight.request)
    return Said(_counted(Counter(one.verdict for one in judgements)), _exit_code(tonight, judgements, ()))


def confirm(tonight: Tonight) -> Said:
    """Measures the suspects of the run again, the baseline's binary and tonight's in turn."""
    settings, store, number = tonight.settings, tonight.store, tonight.run
    if not settings.confirm.enabled:
        return Said("the settings do not want it", skipped=True)
    devices = tonight.devices()
    means = pair_settings(
        tonight.request,
        devices,
        compile_helper_kernels(devices.values(), tonight.log),
        seed=store.runs.get(number).provenance.seed,
        servers=tonight.servers,
        say=tonight.log.say,
    )
    means = replace(means, budget_s=settings.confirm.budget)
    confirm_suspects(store, number, means, tonight.log, tonight.stopping)
    if tonight.stopping():
        raise ToldToStopError
    confirmations, verdicts = store.confirmations.of_run(number), store.verdicts.of_run(number)
    causes = Counter(str(one.cause) for one in confirmations)
    told = ", ".join(f"{count} {cause}" for cause, count in sorted(causes.items()))
    return Said(told or "there was no suspect", _exit_code(tonight, verdicts, confirmations))


def profile(tonight: Tonight) -> Said:
    """Has Nsight Compute say why those cases take longer that are confirmed to, where it is there."""
    store, number = tonight.store, tonight.run
    if not tonight.settings.profile.enabled:
        return Said("the settings do not want it", skipped=True)
    if not any(one.regressed for one in store.confirmations.of_run(number)):
        return Said("nothing is confirmed to take longer", skipped=True)
    said: list[str] = []
    devices = tonight.devices()
    under = ProfileSettings(devices, compile_helper_kernels(devices.values(), tonight.log), say=said.append)
    explain_regressed(store, number, under, tonight.log)
    explained = store.profiles.explanations(number)
    for line in said:
        tonight.log.say(line)
    if said and not explained:
        return Said(said[0], skipped=True)
    told = sum(bool(one.sentence) for one in explained)
    return Said(f"{told} of {units.count(len(explained), 'regression')} explained")


def findings(tonight: Tonight) -> Said:
    """Brings the findings up to date: raises what is new, resolves what is over."""
    updates = update_findings(tonight.store, tonight.run, threshold=tonight.request.threshold)
    told = {"raised": updates.raised, "opened again": updates.reopened, "resolved": updates.resolved}
    return Said(", ".join(f"{len(numbers)} {what}" for what, numbers in told.items() if numbers) or "nothing new")


def report(tonight: Tonight) -> Said:
    """Writes what was measured as a page of its own."""
    from perfsvc.report.export import files, frames

    destination = tonight.folder / REPORT
    destination.parent.mkdir(parents=True, exist_ok=True)
    aside = destination.with_name(f".{REPORT}.new")
    files.write(frames.frame(tonight.store.measurements.columns([tonight.run])), "html", aside)
    aside.replace(destination)
    return Said(str(destination))


def page(tonight: Tonight) -> Said:
    """Builds the site."""
    from perfsvc.service.dashboard import build

    wanted = tonight.settings.dashboard
    if not wanted.enabled:
        return Said("the settings do not want it", skipped=True)
    pages = build(tonight.store, wanted.folder)
    return Said(f"{units.count(len(pages), 'page')} in {wanted.folder}")


def notify(tonight: Tonight) -> Said:
    """Tells people what is new."""
    from perfsvc.service.notify import notify as tell

    return Said(tell(tonight.store, tonight.number, tonight.settings, tonight.log.say))


def prune(tonight: Tonight) -> Said:
    """Removes what nobody wants to keep any more and nothing needs."""
    settings = tonight.settings
    pruned = retention.prune(
        tonight.store,
        settings.retention,
        datetime.now(UTC),
        nights=settings.nightly.folder,
        against=settings.baseline.against,
        suite=settings.suite,
    )
    return Said(pruned.said)


def _measured(tonight: Tonight, resolved: ResolvedRun) -> Said:
    """What a run holds, in a line; and what is wrong with the suite."""
    held = tonight.store.runs.get(tonight.run)
    parts = [
        f"run {held.id}: {units.count(held.cases, 'case')} on {units.count(len(held.devices), 'device')}",
        *(f"{count} {status}" for status, count in sorted(held.counts.items()) if status is not Status.OK),
    ]
    if over_budget := len(tonight.store.runs.over_budget(held.id)):
        parts.append(f"{over_budget} left out")
    problems, _ = resolved.suite.split_problems(resolved.request.selection)
    for problem in problems:
        tonight.log.warning(problem.what, cure=problem.cure, path=problem.path)
    if problems:
        parts.append(f"{units.count(len(problems), 'fault')} in benchmark files: {problems[0].what}")
    return Said(", ".join(parts), FAILED if problems or _has_failed(tonight) else 0)


def _exit_code(tonight: Tonight, judgements: Sequence[Judgement], confirmations: Sequence[Confirmation]) -> int:
    unheard = ignored(tonight.store.findings.active())
    return exit_code_of(judgements, confirmations, unheard=unheard, failed=_has_failed(tonight))


def _has_failed(tonight: Tonight) -> bool:
    return bool({Status.FAILED, Status.WRONG} & tonight.store.runs.get(tonight.run).counts.keys())


def _counted(told: Counter[Verdict]) -> str:
    return ", ".join(f"{told[verdict]} {verdict}" for verdict in Verdict if told[verdict]) or "nothing to judge"
