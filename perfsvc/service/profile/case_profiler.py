"""Profile cases of earlier runs from the database alone, all cases of a device in one session."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from perfsvc.build.lines import LineTable
from perfsvc.errors import (
    CountersError,
    MissingPackageError,
    NoProfilerError,
    NotMeasuredError,
    PerfsvcError,
    ProfileError,
    UnsupportedError,
)
from perfsvc.measure.host.lock import DeviceLock
from perfsvc.measure.protocol import profiling_folder
from perfsvc.measure.protocol.profiling_folder import LaunchReport
from perfsvc.model import Case, DeviceInfo, Explanation, Kind, Profile, ProfileResult, Series, codec
from perfsvc.profile.explain import explain
from perfsvc.profile.find import profiler_for
from perfsvc.profile.profiler import LIMIT_S, OWN, Profiler
from perfsvc.profile.source_changes import Sources, with_source_text, with_stored_names
from perfsvc.service.confirm.pairs import StoredCase, stored_case
from perfsvc.service.profile.session import (
    InputCache,
    SessionCase,
    SessionOutcome,
    SessionSettings,
    launch_error,
    run_session,
)
from perfsvc.store import Store
from perfsvc.suite.benchfile import FILE_NAME
from perfsvc.temporary import temporary_folder

LOOK_S = 0.2
"""Seconds between two attempts to take the lock of a GPU that another run holds."""
MOST_FRUITLESS = 3
"""After so many sessions in a row in which no launch was profiled, no further session begins."""
LINES = "lines"
"""The role of the line tables among the files of a binary."""
OF_THE_GPU = (CountersError, NoProfilerError, MissingPackageError)
"""Errors that hold for every case on a GPU."""


@dataclass(frozen=True, slots=True)
class ProfilerSettings:
    """How cases are profiled.

    Attributes:
        devices: the available devices, by UUID.
        helper_kernels: the helper kernels of the devices, by UUID.
        sections: the set of sections to count.
        budget_s: seconds after which no launch begins.
        limit_s: seconds after which a launch is killed.
        report: receives messages for the user who waits.
        profiled: called with each case whose launch has been profiled, from another thread.
    """

    devices: Mapping[str, DeviceInfo]
    helper_kernels: Mapping[str, bytes]
    sections: str = OWN
    budget_s: float = math.inf
    limit_s: float = LIMIT_S
    report: Callable[[str], object] = lambda _: None
    profiled: Callable[[Case], object] = lambda _: None


@dataclass(frozen=True, slots=True)
class Subject:
    """A case of a run, and the device to profile it on.

    Attributes:
        binary: the number of the case's binary in the store.
        ran_on: the UUID of the device on which the case ran.
        device: the device that launches the case now: the same device, or another one that runs the same binary.
    """

    case: Case
    run: int
    binary: int
    ran_on: str
    device: DeviceInfo


@dataclass(frozen=True, slots=True, eq=False)
class ProfilingTask:
    """A case to profile.

    Attributes:
        like: an earlier task or a stored profile of the case; if the case has a launch of the same kernel at the same
            position, that launch is profiled instead of the longest. If the earlier task fails, so does this one.
    """

    subject: Subject
    like: "ProfileResult | ProfilingTask | None" = None


Answers = Mapping[ProfilingTask, ProfileResult | PerfsvcError]
"""The profile of each task, or why there is none. A task for which no time was left is absent."""


def subject_of(store: Store, case: str, run: int, devices: Mapping[str, DeviceInfo]) -> Subject:
    """Return a case of a run with a device to profile it on: the device where it ran, else one with the same target.

    Args:
        store: holds the run.
        case: the id of the case.
        run: the number of the run.
        devices: the available devices by UUID, the preferred ones first.

    Raises:
        NotMeasuredError: the run has no binary of the case, or none that runs on any of these devices.
    """
    built = {
        uuid: (measured, build.binary)
        for (uuid, measured, _), build in store.binaries.of_run(run).items()
        if measured.id == case and build.binary is not None
    }
    if not built:
        known = store.series.case_names()
        near = [] if case in known else get_close_matches(case, known, n=3)
        cure = f"did you mean {' or '.join(near)}?" if near else f"perfsvc show '{case}'"
        raise NotMeasuredError(f"run {run} holds no binary of {case}", cure=cure)
    stored_devices = store.devices.all()
    same_device = [(device, device.uuid) for device in devices.values() if device.uuid in built]
    same_target = [
        (device, uuid) for device in devices.values() for uuid in built if stored_devices[uuid].target == device.target
    ]
    if usable := [*same_device, *same_target]:
        device, uuid = usable[0]
        subject_case, binary = built[uuid]
        return Subject(subject_case, run, binary, uuid, device)
    where = ", ".join(f"{stored_devices[uuid].model} ({uuid})" for uuid in built)
    raise NotMeasuredError(
        f"run {run} has a binary of {case} for {where}, and none of the devices asked for can run it",
        cure="profile it where it was measured: --device",
    )


def stored_profiles(store: Store, case: str, run: int) -> Iterator[ProfileResult]:
    """Yield the stored profiles of the binaries that a case has in a run, made on any device, newest first."""
    binaries = {build.binary for (_, measured, _), build in store.binaries.of_run(run).items() if measured.id == case}
    results = [result for binary in binaries if binary is not None for result in store.profiles.of_binary(binary)]
    yield from sorted(results, key=lambda result: result.id or 0, reverse=True)


class CaseProfiler:
    """Profiles cases of earlier runs.

    Args:
        store: holds the binaries, and keeps the results.
        settings: how to profile.
    """

    def __init__(self, store: Store, settings: ProfilerSettings) -> None:
        self._store = store
        self._settings = settings
        self._inputs = InputCache()

    def stored_profile(self, subject: Subject) -> ProfileResult | None:
        """Return the newest stored profile of a subject's binary on the subject's device.

        Profiles with other sections than the settings name are ignored.
        """
        for result in self._store.profiles.of_binary(subject.binary):
            if (result.device, result.sections) == (subject.device.uuid, self._settings.sections):
                return result
        return None

    def profile(self, *tasks: ProfilingTask) -> list[ProfileResult]:
        """Profile cases and return their profiles; raise the error of the first case that has no profile."""
        answers = self.profile_all(tasks)
        for answer in answers.values():
            if isinstance(answer, PerfsvcError):
                raise answer
        return [answer for task in tasks if isinstance(answer := answers[task], ProfileResult)]

    def profile_all(self, tasks: Sequence[ProfilingTask], deadline: float = math.inf) -> Answers:
        """Profile the longest launch of each case, the first case first, and store the results.

        All cases are profiled in one session. If a launch crashes or hangs, only its case fails: another session
        profiles the cases after it.

        Args:
            tasks: the cases, all on one device.
            deadline: no launch begins after this time of ``time.monotonic``, and waiting for a GPU in use ends.

        Raises:
            NoProfilerError: no profiler supports the device, or the profiler does not work.
            MissingPackageError: the package that reads reports is missing.
            CountersError: the counters of the device cannot be read.
        """
        device = tasks[0].subject.device
        profiler = profiler_for(device, self._settings.sections)
        self._store.devices.put(device)  # no run may have stored this device yet
        sessions = _DeviceSessions(self._store, self._settings, profiler, device)
        cases: dict[ProfilingTask, StoredCase] = {}
        for task in tasks:
            try:
                cases[task] = self.stored_case(task.subject)
            except PerfsvcError as error:
                sessions.store_failures({task: error})
        waiting, fruitless = sessions.waiting(cases), 0
        with self.locked(device.uuid, deadline):
            while waiting and not sessions.over(deadline) and fruitless < MOST_FRUITLESS:
                is_fruitful = sessions.run_session({task: cases[task] for task in waiting}, self._inputs, deadline)
                waiting, fruitless = sessions.waiting(cases), 0 if is_fruitful else fruitless + 1
        if waiting and fruitless >= MOST_FRUITLESS:
            sessions.give_up(waiting)
        return sessions.answers

    def stored_case(self, subject: Subject) -> StoredCase:
        """Return the stored case of a subject; raise ``UnsupportedError`` if it cannot be profiled."""
        series = Series(subject.case, subject.ran_on, "")
        case = stored_case(self._store, series, subject.run, subject.ran_on)
        if case.record.kind is Kind.PROGRAM:
            raise UnsupportedError(
                f"{series.case.id} is a program, and only kernels that perfsvc itself launches can be profiled",
                cure="profile the program: ncu ./bench ...",
            )
        if case.record.gpus > 1:
            raise UnsupportedError(
                f"{series.case.id} uses {case.record.gpus} GPUs, and only cases on one GPU can be profiled",
                cure="profile a program that does the same: nsys profile ./program",
            )
        if case.record.kind is Kind.HOST:
            raise UnsupportedError(
                f"{series.case.id} measures itself, and only what perfsvc times can be profiled",
                cure="profile the program that calls it: ncu python ...",
            )
        return case

    def run_once(self, subject: Subject, folder: Path, run: Callable[[], None]) -> None:
        """Launch a subject in a session of its own in an empty folder; ``run`` runs any tool on the session's command.

        Raises:
            PerfsvcError: the launch or the tool failed.
        """
        case = SessionCase(self.stored_case(subject), subject.case.id)
        settings = session_settings(self._settings, subject.device, math.inf)
        with self.locked(subject.device.uuid):
            outcome = run_session(folder, [case], settings, self._inputs, run)
        report = outcome.reports.get(case)
        if failure := outcome.failures.get(case) or (launch_error(report) if report and report.what else outcome.error):
            raise failure

    @contextlib.contextmanager
    def locked(self, uuid: str, deadline: float = math.inf) -> Iterator[None]:
        """Wait for a GPU's lock, and hold it during the block, so that no other run measures on the GPU.

        The block begins without the lock once ``deadline`` is over.
        """
        lock, reported = DeviceLock(uuid), False
        while not lock.take() and time.monotonic() <= deadline:
            if not reported:
                pid = lock.holder()
                holder = "another perfsvc run" + (f" (pid {pid})" if pid else "")
                self._settings.report(f"{uuid} is in use by {holder}: waiting")
            reported = True
            time.sleep(max(0.0, min(LOOK_S, deadline - time.monotonic())))
        try:
            yield
        finally:
            lock.release()


def session_settings(settings: ProfilerSettings, device: DeviceInfo, deadline: float) -> SessionSettings:
    """Return the settings of a session on a device."""
    return SessionSettings(
        device,
        settings.helper_kernels.get(device.uuid, b""),
        settings.limit_s,
        deadline,
        launched=lambda case: settings.profiled(case.case.record.case),
    )


@dataclass(slots=True)
class _DeviceSessions:
    """The sessions on one device.

    Attributes:
        answers: the answers so far.
        stopped: whether the deadline has ended the last session.
    """

    store: Store
    settings: ProfilerSettings
    profiler: Profiler
    device: DeviceInfo
    answers: dict[ProfilingTask, ProfileResult | PerfsvcError] = field(default_factory=dict)
    stopped: bool = False

    def over(self, deadline: float) -> bool:
        """Return whether the deadline is over, or has ended the last session."""
        return self.stopped or time.monotonic() > deadline

    def waiting(self, tasks: Mapping[ProfilingTask, object]) -> list[ProfilingTask]:
        """Return the tasks without an answer, except tasks that follow a failed task."""

        def is_open(task: ProfilingTask) -> bool:
            like = self.answers.get(task.like) if isinstance(task.like, ProfilingTask) else None
            return task not in self.answers and not isinstance(like, PerfsvcError)

        return [task for task in tasks if is_open(task)]

    def run_session(self, waiting: Mapping[ProfilingTask, StoredCase], inputs: InputCache, deadline: float) -> bool:
        """Run a session and store its results; return whether a launch ended well.

        At least one task is answered, unless the deadline is over.

        Raises:
            CountersError, NoProfilerError, MissingPackageError: the profiler cannot be used on this device.
        """
        cases: dict[ProfilingTask, SessionCase] = {}
        for task, case in waiting.items():
            cases[task] = SessionCase(case, self._pending(task).range, self._like(task, cases))
        settings = session_settings(self.settings, self.device, deadline)
        limit_s = min(settings.limit_s * (len(cases) + 1), deadline - time.monotonic() + settings.limit_s)
        with temporary_folder() as folder:
            file, launches = folder / f"report{self.profiler.suffix}", folder / "launches"
            launches.mkdir()

            def run() -> None:
                command, environment = profiling_folder.command(launches), profiling_folder.environment()
                self.profiler.run(command, file, environment=environment, limit_s=limit_s)

            outcome = run_session(launches, list(cases.values()), settings, inputs, run)
            try:
                if isinstance(outcome.error, OF_THE_GPU):
                    raise outcome.error
                return self._store_outcome(cases, outcome, file)
            except OF_THE_GPU as error:
                self.store_failures({next(iter(cases)): error})
                raise

    def _like(
        self, task: ProfilingTask, cases: Mapping[ProfilingTask, SessionCase]
    ) -> LaunchReport | SessionCase | None:
        """Return the launch that a task follows: a case of the same session, or the launch of a profile."""
        like = task.like
        if isinstance(like, ProfilingTask):
            if like in cases:
                return cases[like]
            like = answer if isinstance(answer := self.answers.get(like), ProfileResult) else None
        return LaunchReport(like.launch, like.profile.kernel) if like and like.profile else None

    def _store_outcome(self, cases: Mapping[ProfilingTask, SessionCase], outcome: SessionOutcome, file: Path) -> bool:
        """Store the results of a session and keep them as answers; return whether a launch ended well."""
        self.stopped = outcome.over
        reports = {task: outcome.reports[case] for task, case in cases.items() if case in outcome.reports}
        failures = {task: outcome.failures[case] for task, case in cases.items() if case in outcome.failures}
        failures |= {task: launch_error(report) for task, report in reports.items() if report.what}
        launched = {task: report for task, report in reports.items() if not report.what}
        if launched:
            self._store_profiles(launched, outcome, file)
        elif not failures and outcome.error and not outcome.over:
            failures[next(iter(cases))] = outcome.error
        self.store_failures(failures)
        return bool(launched)

    def _store_profiles(
        self, launched: Mapping[ProfilingTask, LaunchReport], outcome: SessionOutcome, file: Path
    ) -> None:
        """Read the profiles of launches from the profiler's report, and store both.

        If the report lacks a launch because a later launch crashed, another session profiles it again.
        """
        kernels = {self._pending(task).range: report.symbol for task, report in launched.items()}
        found = self._read(file, kernels, outcome.error)
        results: dict[ProfilingTask, ProfileResult] = {}
        for task, report in launched.items():
            pending = replace(self._pending(task), wall_s=report.wall_s)
            profile = found[pending.range]
            if isinstance(profile, Profile):
                named = replace(profile, kernel=report.kernel or profile.kernel)
                located = with_source_lines(
                    named, report.symbol or profile.kernel, self.store.binaries.files(task.subject.binary, LINES)
                )
                if not report.kernel:  # of a Python file
                    located = with_stored_names(located, self.store.binaries.files(task.subject.binary, "source"))
                results[task] = replace(pending, profile=located, launch=report.launch)
            elif not outcome.crashed:
                results[task] = replace(pending, reason=profile.what, cure=profile.cure)
                self.answers[task] = profile
        content = file.read_bytes() if file.is_file() else None  # kept even if it cannot be read
        numbers = self.store.profiles.put(list(results.values()), content)
        for (task, result), number in zip(results.items(), numbers, strict=True):
            self.answers.setdefault(task, replace(result, id=number))

    def _read(
        self, file: Path, kernels: Mapping[str, str], error: PerfsvcError | None
    ) -> Mapping[str, Profile | PerfsvcError]:
        """Return the profile in each range of a report, or why there is none: ``error`` if there is no report."""
        if not file.is_file():
            return dict.fromkeys(kernels, error or ProfileError("the profiler wrote no report", cure="report it"))
        try:
            return self.profiler.read(file, kernels)
        except MissingPackageError:
            raise
        except PerfsvcError as unreadable:
            return dict.fromkeys(kernels, unreadable)

    def store_failures(self, failures: Mapping[ProfilingTask, PerfsvcError]) -> None:
        """Store why cases have no profile, and keep the errors as answers."""
        self.answers |= failures
        self.store.profiles.put(
            [replace(self._pending(task), reason=error.what, cure=error.cure) for task, error in failures.items()]
        )

    def give_up(self, waiting: Sequence[ProfilingTask]) -> None:
        """Answer the remaining tasks with the last error: the profiler does not work here at all."""
        last = next(answer for answer in reversed(self.answers.values()) if isinstance(answer, PerfsvcError))
        why = f"nothing could be profiled in {MOST_FRUITLESS} sessions in a row, the last time because {last.what}"
        self.answers |= dict.fromkeys(waiting, ProfileError(why, cure=last.cure))

    def _pending(self, task: ProfilingTask) -> ProfileResult:
        """Return the result of a task before it is profiled."""
        subject = task.subject
        return ProfileResult(
            subject.case,
            subject.run,
            subject.binary,
            self.device.uuid,
            self.device.model,
            self.profiler.name,
            self.settings.sections,
        )


def with_source_lines(profile: Profile, kernel: str, tables: Mapping[str, bytes]) -> Profile:
    """Return a profile with the source line of each instruction, if exactly one module of the case has the kernel.

    Args:
        profile: the profile of a launch.
        kernel: the symbol of the kernel; a kernel of a Python function has no lines here.
        tables: the encoded line tables of the case's modules.
    """
    try:
        decoded = [codec.decode(LineTable, table) for table in tables.values()]
    except ValueError:  # written by another version of perfsvc, or by a stranger: the profile is good without lines
        return profile
    having = [table for table in decoded if kernel in table.kernels]
    if len(having) != 1:
        return profile
    instructions = tuple(
        replace(instruction, source=having[0].line(kernel, instruction.offset) or instruction.source)
        for instruction in profile.instructions
    )
    return replace(profile, instructions=instructions)


def explain_results(store: Store, before: ProfileResult, after: ProfileResult) -> Explanation:
    """Return why one launch takes longer than another, with the source lines that carry the reasons and what changed.

    If all sources are equal, a change of the benchmark file is named: it has the options of the compiler.

    Raises:
        ProfileError: a result has no profile.
        ReportError: a profile has no duration.
    """
    explanation = explain(profile_of(before), profile_of(after))
    return with_source_text(explanation, *sources_of(store, before, after))


def sources_of(store: Store, before: ProfileResult, after: ProfileResult) -> tuple[Sources, Sources]:
    """Return the sources of two binaries, without those that are no longer stored.

    If all sources are equal, the benchmark file is among them: it has the options of the compiler.
    """
    old, new = (_files(store, result, "source") for result in (before, after))
    if old == new:
        old, new = ({**old, **_benchmark_file(store, result)} for result in (before, after))
    return old, new


def _benchmark_file(store: Store, result: ProfileResult) -> dict[str, bytes]:
    stored = list(_files(store, result, "bench").values())
    return {FILE_NAME: stored[0]} if stored else {}


def _files(store: Store, result: ProfileResult, role: str) -> Mapping[str, bytes]:
    """Return the files that a result's binary has in a role, by name; none if the binary is no longer stored."""
    return {} if result.binary is None else store.binaries.files(result.binary, role)


def profile_of(result: ProfileResult) -> Profile:
    """Return the profile of a result; raise ``ProfileError`` if it has none."""
    if result.profile is None:
        raise ProfileError(f"{result.case.id} has no profile: {result.reason}", cure=result.cure)
    return result.profile
