"""Profile a case of an earlier run from the database alone: ``perfsvc profile``."""

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from perfsvc.device.find import find
from perfsvc.errors import (
    LaunchError,
    NoProfilerError,
    NotMeasuredError,
    PerfsvcError,
    ProfileError,
    UnsupportedError,
    UsageError,
)
from perfsvc.files import reporting, write, write_output
from perfsvc.measure.host.lock import DeviceLock
from perfsvc.measure.protocol import profiling_folder
from perfsvc.model import Call, Case, DeviceInfo, Kind, Launch, Profile, ProfileResult, Series
from perfsvc.process.shared_memory import Arrays
from perfsvc.profile.commands import TIMELINE_SUFFIX, run_nsys
from perfsvc.profile.profiler import Profiler, profiler_for
from perfsvc.service.confirm.pairs import StoredCase, stored_case
from perfsvc.service.progress import Progress
from perfsvc.service.revisions import resolve
from perfsvc.service.run.prepare import compile_helper_kernels
from perfsvc.store import Store
from perfsvc.suite import StoredBench, isolated
from perfsvc.temporary import temporary_folder

LOOK_S = 0.2
"""Seconds between two attempts to take the lock of a GPU that another run holds."""
SECTIONS = "full"
"""The default set of sections: it has the counters that most reasons need."""

_NOT_IN_FILE_NAMES = re.compile(r"[^\w.=-]+")


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """The options of ``perfsvc profile``.

    Attributes:
        case: the id of the case.
        run: the run whose binary is profiled: its number, its label, a git revision or the like.
        folder: where git revisions are looked up.
        devices: where the case may be launched; the device on which the run measured the case comes first.
        tool: ``ncu`` reads counters, ``nsys`` records a timeline.
        sections: the set of sections that ncu counts.
        output: the file for the tool's own report. None writes no file for ncu, and a file named after the case for
            nsys.
    """

    database: str
    case: str
    run: str
    folder: Path
    devices: tuple[str, ...] = ("auto",)
    tool: Literal["ncu", "nsys"] = "ncu"
    sections: str = SECTIONS
    output: Path | None = None


@dataclass(frozen=True, slots=True)
class ProfilerSettings:
    """How cases are profiled.

    Attributes:
        devices: the available devices, by UUID.
        helper_kernels: the helper kernels of the devices, by UUID.
        sections: the set of sections to count.
        report: receives messages for the user who waits.
    """

    devices: Mapping[str, DeviceInfo]
    helper_kernels: Mapping[str, bytes]
    sections: str = SECTIONS
    report: Callable[[str], object] = lambda _: None


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


def profile_case(request: ProfileRequest, progress: Progress) -> ProfileResult | Path:
    """Profile a case as it ran in a run; return the profile with counters, or the file with the timeline.

    Raises:
        UsageError: ``output`` cannot be written.
        NotMeasuredError: the run has no binary of the case that any of the devices can run.
        PerfsvcError: profiling failed for another reason.
    """
    if request.output:
        _require_writable(request.output)
    with Store.open(request.database, create=False) as store:
        run = resolve(request.run, store, request.folder).id
        devices = {device.uuid: device for device in find(request.devices)}
        subject = subject_of(store, request.case, run, devices)
        helper_kernels = compile_helper_kernels([subject.device], progress)
        settings = ProfilerSettings(devices, helper_kernels, request.sections, report=progress.report)
        progress.begin("profiling", 1)
        profiler = CaseProfiler(store, settings)
        if request.tool == "nsys":
            return _timeline(profiler, subject, request.output)
        result = profiler.profile(subject)
        if request.output and result.id is not None:
            write_output(request.output, store.profiles.report(result.id))
        return result


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
        raise NotMeasuredError(f"run {run} holds no binary of {case}", cure=f"perfsvc show '{case}'")
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


class CaseProfiler:
    """Profiles cases of earlier runs, one after the other.

    Args:
        store: holds the binaries, and keeps the results.
        settings: how to profile.
    """

    def __init__(self, store: Store, settings: ProfilerSettings) -> None:
        self._store = store
        self._settings = settings
        self._last_inputs: tuple[tuple[object, ...], Arrays] | None = None  # both sides of a pair have the same inputs

    def stored_profile(self, subject: Subject) -> ProfileResult | None:
        """Return the newest stored profile of a subject's binary on the subject's device.

        Profiles with other sections than the settings name are ignored.
        """
        for result in self._store.profiles.of_binary(subject.binary):
            if (result.device, result.sections) == (subject.device.uuid, self._settings.sections):
                return result
        return None

    def profile(self, subject: Subject, like: ProfileResult | None = None) -> ProfileResult:
        """Profile the longest launch of a case, and store the result.

        Args:
            subject: the case.
            like: another profile of the case; if the case has a launch of the same kernel at the same position, that
                launch is profiled instead of the longest.

        Raises:
            NoProfilerError: no profiler supports the device, or the profiler does not work; nothing is stored.
            MissingPackageError: the package that reads reports is missing; nothing is stored.
            PerfsvcError: profiling failed for another reason, which is stored.
        """
        profiler = profiler_for(subject.device, self._settings.sections)
        self._store.devices.put(subject.device)  # no run may have stored this device yet
        began = time.monotonic()
        pending = ProfileResult(
            subject.case,
            subject.run,
            subject.binary,
            subject.device.uuid,
            subject.device.model,
            profiler.name,
            self._settings.sections,
        )
        report: bytes | None = None  # kept even if it cannot be read
        try:
            with self.launch_folder(subject, like) as folder:
                launch, file = self._count(folder, profiler)
                report = file.read_bytes()
                profile = profiler.read(file, launch.kernel)
        except (PerfsvcError, OSError) as failure:
            error = failure if isinstance(failure, PerfsvcError) else _no_room(failure)
            failed = replace(pending, reason=error.what, cure=error.cure, wall_s=time.monotonic() - began)
            self._store.profiles.put(failed, report)
            raise error from failure
        result = replace(pending, profile=profile, launch=launch.launch, wall_s=time.monotonic() - began)
        return replace(result, id=self._store.profiles.put(result, report))

    def _count(self, folder: Path, profiler: Profiler) -> tuple[profiling_folder.LaunchReport, Path]:
        """Run a profiler on a prepared folder; return what was launched, and the profiler's report."""
        report = folder / f"report{profiler.suffix}"
        run_profiler(
            folder,
            lambda: profiler.run(
                profiling_folder.command(folder),
                report,
                environment=profiling_folder.environment(),
            ),
        )
        launch = profiling_folder.read_report(folder)
        if launch is None:
            raise ProfileError("the profiled program ended before it launched anything", cure="report it")
        return launch, report

    @contextlib.contextmanager
    def launch_folder(self, subject: Subject, like: ProfileResult | None = None) -> Iterator[Path]:
        """Prepare a folder with everything that a profiling launch needs, and hold the GPU's lock during the block."""
        series = Series(subject.case, subject.ran_on, "")
        case = stored_case(self._store, series, subject.run, subject.ran_on)
        if case.record.kind is Kind.HOST or any(isinstance(step, Call) and step.timed for step in case.record.steps):
            raise UnsupportedError(
                f"{series.case.id} runs Python, and only kernels that perfsvc itself launches can be profiled",
                cure="profile the program that calls it: ncu python ...",
            )
        with temporary_folder() as folder, self._locked(subject.device.uuid):
            profiling_folder.write(
                folder,
                case.record,
                subject.device,
                modules=case.modules,
                helper_kernels=self._settings.helper_kernels.get(subject.device.uuid, b""),
                inputs=self._inputs(case),
                launch=_same_launch(case, like),
            )
            yield folder

    def _inputs(self, case: StoredCase) -> Arrays:
        """Return the inputs of a case; keep them for the next call, because both sides of a pair have equal inputs."""
        record = case.record
        key = (record.bench, record.case.point, record.seed)
        if self._last_inputs is None or self._last_inputs[0] != key:
            bench = StoredBench(case.bench, record.case.benchmark)
            self._last_inputs = (key, isolated.replay_inputs(bench, record.case.point, record.seed))
        return self._last_inputs[1]

    @contextlib.contextmanager
    def _locked(self, uuid: str) -> Iterator[None]:
        """Wait for a GPU's lock, and hold it during the block, so that no other run measures on the GPU."""
        lock, reported = DeviceLock(uuid), False
        while not lock.take():
            if not reported:
                pid = lock.holder()
                holder = "another perfsvc run" + (f" (pid {pid})" if pid else "")
                self._settings.report(f"{uuid} is in use by {holder}: waiting")
            reported = True
            time.sleep(LOOK_S)
        try:
            yield
        finally:
            lock.release()


def profile_of(result: ProfileResult) -> Profile:
    """Return the profile of a result; raise ``ProfileError`` if it has none."""
    if result.profile is None:
        raise ProfileError(f"{result.case.id} has no profile: {result.reason}", cure=result.cure)
    return result.profile


def run_profiler(folder: Path, run: Callable[[], None]) -> None:
    """Run a profiler; if it fails because the profiled program failed, raise the program's own error."""
    try:
        run()
    except ProfileError as error:
        launch = profiling_folder.read_report(folder)
        if launch and launch.what:
            raise LaunchError(launch.what, cure=launch.cure) from error
        raise


def _no_room(error: OSError) -> ProfileError:
    """Return the error for a folder or file that a profiler needs and perfsvc cannot write."""
    return ProfileError(
        f"what a profiler needs cannot be written: {error.strerror or error}",
        cure=f"make room in {tempfile.gettempdir()}, or set TMPDIR to a folder with more room",
    )


def _same_launch(case: StoredCase, like: ProfileResult | None) -> int | None:
    """Return the position of the launch that the profile ``like`` is about; None if the case has no such launch."""
    launches = [step for step in case.record.steps if isinstance(step, Launch)]
    if like is None or like.launch is None or like.profile is None or like.launch >= len(launches):
        return None
    return like.launch if launches[like.launch].entry == like.profile.kernel else None


def _timeline(profiler: CaseProfiler, subject: Subject, output: Path | None) -> Path:
    """Record a timeline of a case with Nsight Systems; return its file."""
    if subject.device.kind != "cuda":
        raise NoProfilerError(
            f"Nsight Systems profiles NVIDIA GPUs, and {subject.device.model} is not one", cure="profile a run on a GPU"
        )
    named_after_case = Path(_NOT_IN_FILE_NAMES.sub("-", subject.case.id).strip("-") + TIMELINE_SUFFIX)
    with profiler.launch_folder(subject) as folder:
        report = folder / f"report{TIMELINE_SUFFIX}"
        command, environment = profiling_folder.command(folder), profiling_folder.environment()
        run_profiler(folder, lambda: run_nsys(command, report, environment=environment))
        if output:
            write_output(output, report.read_bytes())
        else:  # the user did not choose this name, so a link of this name is replaced, not followed
            with reporting(named_after_case):
                write(named_after_case, report.read_bytes())
    return output or named_after_case


def _require_writable(output: Path) -> None:
    """Raise ``UsageError`` early, before minutes of profiling, if the folder of the output file does not exist."""
    if not os.path.isdir(output.parent):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        raise UsageError(
            f"{output} cannot be written: there is no folder {output.parent}",
            cure="name a file in a folder that exists",
        )
