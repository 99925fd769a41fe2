"""Profile a case of an earlier run from the database alone: perfsvc profile."""

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from perfsvc import suite
from perfsvc.device.find import find
from perfsvc.errors import LaunchError, NoProfilerError, NotMeasuredError, PerfsvcError, ProfileError, UsageError
from perfsvc.measure.host.lock import DeviceLock
from perfsvc.measure.protocol import profiling_folder
from perfsvc.measure.protocol.shared_arrays import Arrays
from perfsvc.model import Case, DeviceInfo, Launch, Profile, ProfileResult, Series
from perfsvc.profile import nsys
from perfsvc.profile.profiler import LIMIT_S, Profiler, profiler_for
from perfsvc.service import replay
from perfsvc.service.progress import Progress, Silent
from perfsvc.service.replay import StoredCase
from perfsvc.service.revisions import resolve
from perfsvc.service.run.prepare import compile_helper_kernels
from perfsvc.store import Store

LOOK_S = 0.2
"""Seconds between two looks at a GPU's lock that another run holds."""
SECTIONS = "full"
"""What a profile counts unless somebody asks for less: what tells most reasons apart."""


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """What cases are profiled with.

    Attributes:
        devices: those that can be had, by UUID.
        helper_kernels: the binaries that they work with, by UUID.
        sections: the set of sections to count.
        limit_s: seconds that a profile may take.
        say: is told what a person should know while waiting.
    """

    devices: Mapping[str, DeviceInfo]
    helper_kernels: Mapping[str, bytes]
    sections: str = SECTIONS
    limit_s: float = LIMIT_S
    say: Callable[[str], object] = lambda _: None


@dataclass(frozen=True, slots=True)
class Subject:
    """A case of a run, and where a profiler is to look at it.

    Attributes:
        binary: the number of its binary in the store.
        ran_on: the device that it ran on (UUID).
        device: the one that it is launched on now: that one, or another of the same kind.
    """

    case: Case
    run: int
    binary: int
    ran_on: str
    device: DeviceInfo


def subject_of(store: Store, case: str, run: int, devices: Mapping[str, DeviceInfo]) -> Subject:
    """Where a case of a run can be profiled: where it ran, or else on another device that its binary is made for.

    Args:
        store: holds the run.
        case: by its id.
        run: which.
        devices: those that can be had, by UUID, the preferred ones first.

    Raises:
        NotMeasuredError: the run has no binary of it, or none that runs on any of these devices.
    """
    built = {uuid: (found, one.binary) for (uuid, found, _), one in store.built(run).items() if found.id == case}
    have = {uuid: (found, binary) for uuid, (found, binary) in built.items() if binary is not None}
    if not have:
        raise NotMeasuredError(f"run {run} holds no binary of {case}", cure=f"perfsvc show '{case}'")
    known = store.devices()
    same = [(device, device.uuid) for device in devices.values() if device.uuid in have]
    alike = [(device, uuid) for device in devices.values() for uuid in have if known[uuid].target == device.target]
    for device, uuid in (*same, *alike):
        found, binary = have[uuid]
        return Subject(found, run, binary, uuid, device)
    where = ", ".join(f"{known[uuid].model} ({uuid})" for uuid in have)
    raise NotMeasuredError(
        f"run {run} has a binary of {case} for {where}, and none of the devices asked for can run it",
        cure="profile it where it was measured: --device",
    )


class Profiling:
    """Has profilers look at cases of earlier runs, one after the other.

    Args:
        store: holds their binaries, and keeps what comes of them.
        under: what they are profiled with.
    """

    def __init__(self, store: Store, under: ProfileSettings) -> None:
        self._store = store
        self._under = under
        self._made: tuple[tuple[object, ...], Arrays] | None = None  # of the case before: a pair's sides share them

    def known(self, subject: Subject) -> ProfileResult | None:
        """The newest profile of a subject's binary that was made on its device with the same sections."""
        for one in self._store.profiles_of(subject.binary):
            if (one.device, one.sections) == (subject.device.uuid, self._under.sections):
                return one
        return None

    def profile(self, subject: Subject, like: ProfileResult | None = None) -> ProfileResult:
        """Profiles the longest launch of a case, and stores what comes of it.

        Args:
            subject: the case.
            like: another profile of the case: the launch of the same kernel at the same place is looked at, if there
                is one.

        Raises:
            NoProfilerError: no profiler looks at its device, or none can; nothing is stored of that.
            MissingPackageError: there is nothing to read reports with; likewise.
            PerfsvcError: there is no profile for another reason, which is stored.
        """
        profiler = profiler_for(subject.device, self._under.sections)
        self._store.put_device(subject.device)  # it may be one that never measured
        began = time.monotonic()
        asked = ProfileResult(
            subject.case,
            subject.run,
            subject.binary,
            subject.device.uuid,
            subject.device.model,
            profiler.name,
            self._under.sections,
        )
        report: bytes | None = None  # kept also where it cannot be read
        try:
            with self.shot(subject, like) as folder:
                told, file = self._count(folder, profiler)
                report = file.read_bytes()
                profile = profiler.read(file, told.kernel)
        except (PerfsvcError, OSError) as failure:
            error = failure if isinstance(failure, PerfsvcError) else _unwritable(failure)
            failed = replace(asked, reason=error.what, cure=error.cure, wall_s=time.monotonic() - began)
            self._store.put_profile(failed, report)
            raise error from failure
        seen = replace(asked, profile=profile, launch=told.launch, wall_s=time.monotonic() - began)
        return replace(seen, id=self._store.put_profile(seen, report))

    def _count(self, folder: Path, profiler: Profiler) -> tuple[profiling_folder.Told, Path]:
        """Has a profiler run a shot; what the shot told, and the profiler's report."""
        report = folder / f"report{profiler.suffix}"
        run_shot(
            folder,
            lambda: profiler.run(
                profiling_folder.command(folder),
                report,
                environment=profiling_folder.environment(),
                limit_s=self._under.limit_s,
            ),
        )
        told = profiling_folder.told(folder)
        if told is None:
            raise ProfileError("the profiled program ended before it launched anything", cure="report it")
        return told, report

    @contextlib.contextmanager
    def shot(self, subject: Subject, like: ProfileResult | None = None) -> Iterator[Path]:
        """The folder of a shot of a case, while its GPU is nobody else's; raises what keeps it from running."""
        series = Series(subject.case, subject.ran_on, "")
        stored = replay.stored_case(self._store, series, subject.run, subject.ran_on)
        with tempfile.TemporaryDirectory(prefix="perfsvc-shot-") as name, self._alone(subject.device.uuid):
            profiling_folder.put(
                Path(name),
                stored.record,
                subject.device,
                modules=stored.modules,
                helper_kernels=self._under.helper_kernels.get(subject.device.uuid, b""),
                inputs=self._inputs(stored),
                launch=_same_launch(stored, like),
            )
            yield Path(name)

    def _inputs(self, stored: StoredCase) -> Arrays:
        record = stored.record
        key = (record.bench, record.case.point, record.seed)
        if self._made is None or self._made[0] != key:
            file = suite.load_text(stored.bench, record.case.benchmark)
            self._made = (key, suite.replay_inputs(file, record.case.point, record.seed))
        return self._made[1]

    @contextlib.contextmanager
    def _alone(self, uuid: str) -> Iterator[None]:
        """Keeps other runs from measuring on a GPU meanwhile."""
        lock, said = DeviceLock(uuid), False
        while not lock.take():
            if not said:
                pid = lock.holder()
                who = "another perfsvc run" + (f" (pid {pid})" if pid else "")
                self._under.say(f"{uuid} is in use by {who}: waiting")
            said = True
            time.sleep(LOOK_S)
        try:
            yield
        finally:
            lock.release()


def counted(profiled: ProfileResult) -> Profile:
    """What was counted; raises ``ProfileError`` where nothing was."""
    if profiled.profile is None:
        raise ProfileError(f"{profiled.case.id} has no profile: {profiled.reason}", cure=profiled.cure)
    return profiled.profile


def run_shot(folder: Path, profile: Callable[[], None]) -> None:
    """Has a profiler run a shot; what the program itself says went wrong goes before what the profiler makes of it."""
    try:
        profile()
    except ProfileError as error:
        told = profiling_folder.told(folder)
        if told and told.what:
            raise LaunchError(told.what, cure=told.cure) from error
        raise


def _unwritable(error: OSError) -> ProfileError:
    return ProfileError(
        f"what a profiler needs cannot be written: {error.strerror or error}",
        cure=f"make room in {tempfile.gettempdir()}, or set TMPDIR to a folder with more",
    )


def _same_launch(stored: StoredCase, like: ProfileResult | None) -> int | None:
    """The launch of a case that another profile of it saw; None where it has no such launch."""
    launches = [step for step in stored.record.steps if isinstance(step, Launch)]
    if like is None or like.launch is None or like.profile is None or like.launch >= len(launches):
        return None
    return like.launch if launches[like.launch].entry == like.profile.kernel else None


_NO_NAME = re.compile(r"[^\w.=-]+")


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """The options of ``perfsvc profile``.

    Attributes:
        case: its id.
        run: whose binary, as ``perfsvc.service.revisions`` understands it.
        folder: where git revisions are looked up.
        devices: where it may be launched: where the run measured it, if that is among them.
        tool: ``ncu`` counts, ``nsys`` draws a timeline.
        sections: the set of sections that ncu counts.
        output: the file that gets the tool's own report; None for none of ncu's, and for a name made of the case of
            nsys's.
    """

    database: str
    case: str
    run: str
    folder: Path
    devices: tuple[str, ...] = ("auto",)
    tool: Literal["ncu", "nsys"] = "ncu"
    sections: str = SECTIONS
    output: Path | None = None


def profile_case(request: ProfileRequest, progress: Progress | None = None) -> ProfileResult | Path:
    """Profiles a case as it ran in a run; returns what was counted, or the file of the timeline.

    Raises:
        UsageError: ``output`` cannot be written.
        NotMeasuredError: the run has no binary of it that any of the devices runs.
        PerfsvcError: there is no profile for another reason.
    """
    if request.output:
        _require_writable(request.output)
    progress = progress or Silent()
    with Store.open(request.database, create=False) as store:
        run = resolve(request.run, store, request.folder).id
        devices = {device.uuid: device for device in find(request.devices)}
        subject = subject_of(store, request.case, run, devices)
        under = ProfileSettings(
            devices, compile_helper_kernels([subject.device], progress), request.sections, say=progress.say
        )
        progress.begin("profiling", 1)
        profiling = Profiling(store, under)
        if request.tool == "nsys":
            return _timeline(profiling, subject, request.output)
        found = profiling.profile(subject)
        if request.output and found.id is not None:
            _write(request.output, store.profile_report(found.id))
        return found


def _timeline(profiling: Profiling, subject: Subject, output: Path | None) -> Path:
    """Has Nsight Systems write a timeline of a case; returns its file."""
    if subject.device.kind != "cuda":
        raise NoProfilerError(
            f"Nsight Systems looks at NVIDIA's GPUs, and {subject.device.model} is none", cure="profile a run on a GPU"
        )
    output = output or Path(_NO_NAME.sub("-", subject.case.id).strip("-") + nsys.SUFFIX)
    with profiling.shot(subject) as folder:
        report = folder / f"report{nsys.SUFFIX}"
        run_shot(
            folder,
            lambda: nsys.run(profiling_folder.command(folder), report, environment=profiling_folder.environment()),
        )
        _write(output, report.read_bytes())
    return output


def _require_writable(output: Path) -> None:
    """Raises ``UsageError`` where no file of that name can be, before minutes are spent on what is to be in it."""
    if not os.path.isdir(output.parent):  # noqa: PTH112 - of a name that is too long Path's raises
        raise _not_writable(output, f"there is no folder {output.parent}")


def _write(output: Path, report: bytes) -> None:
    try:
        output.write_bytes(report)
    except OSError as error:
        raise _not_writable(output, error.strerror or str(error)) from error


def _not_writable(output: Path, why: str) -> UsageError:
    return UsageError(f"{output} cannot be written: {why}", cure="name a file in a folder that is there")
