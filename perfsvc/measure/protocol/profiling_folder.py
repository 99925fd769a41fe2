"""The folder of a profiling session: a fresh process launches cases, one after the other, for a profiler to look at.

The parent starts a profiler, which starts the process. Both use a folder, because not every profiler passes sockets and
file descriptors on to the program that it starts. The folder has

- a file with the device, and a file with the device's helper kernels;
- a folder for each launch: ``0``, ``1`` and so on. The parent adds the folder of the next launch when the process has
  written the report of the launch before, so that the parent can stop at any time, and few inputs are on the disk;
- the file ``end``, which the parent writes after the last launch.

The process runs ``perfsvc.measure.worker.profiling_launch``.
"""

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfsvc.model import Call, DeviceInfo, HostMetric, ReplayRecord, codec
from perfsvc.process.fork_servers import ONE_THREAD
from perfsvc.process.programs import python_module
from perfsvc.process.shared_memory import ArrayLocation, Arrays, map_arrays, share

SESSION, HELPER_KERNELS, END = "session.json", "helper_kernels", "end"
"""The files of the session."""
LAUNCH, STARTED, REPORT, ARRAYS, MODULE = "launch.json", "started", "report.json", "arrays", "module-{}"
"""The files of a launch. The process writes ``STARTED`` and ``REPORT``."""

LOOK_S = 0.005
"""Seconds between two looks for a file of the other process."""


@dataclass(frozen=True, slots=True)
class ProfilingSession:
    """What all launches of a session have in common.

    Attributes:
        device: a specification as ``perfsvc.device.find.open_device`` takes it.
        visible: the UUID of the only GPU that CUDA may use; empty for other kinds of device.
        limit_s: seconds after which a launch ends the process.
        parent: the number of the process that adds the launches.
    """

    device: str
    visible: str
    limit_s: float
    parent: int


@dataclass(frozen=True, slots=True)
class ProfilingLaunch:
    """What the process launches.

    Attributes:
        record: the case.
        range: the name of the NVTX range around the launch that the profiler examines.
        inputs: where the inputs of the case lie in the file of arrays.
        launch: the number of the launch that the profiler examines, from 0; None for the longest launch. A call of a
            Python function counts as a launch.
        bench: the text of the benchmark file if a step calls its functions.
        python_modules: names and texts of modules; the benchmark file imports them, and not today's files.
    """

    record: ReplayRecord
    range: str
    inputs: tuple[ArrayLocation, ...] = ()
    launch: int | None = None
    bench: str = ""
    python_modules: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """What the process reports: the launch that the profiler examined and its kernel, or an error and its cure.

    The kernel is empty for a call of a Python function: only the profiler sees which kernels the function launches.

    Attributes:
        symbol: the kernel's name in the binary, which the profiler reports.
        fatal: whether the error ended the context of the device, and so the process.
        wall_s: seconds that the launch took, with the work of the profiler.
    """

    launch: int | None = None
    kernel: str = ""
    symbol: str = ""
    what: str = ""
    cure: str = ""
    fatal: bool = False
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadedLaunch:
    """A profiling launch with its binaries and inputs."""

    launch: ProfilingLaunch
    modules: tuple[bytes, ...]
    inputs: Arrays


# --- the parent ------------------------------------------------------------------------------------------------------


def begin(folder: Path, device: DeviceInfo, helper_kernels: bytes, limit_s: float) -> None:
    """Write the files of a session into an empty folder."""
    visible = device.uuid if device.kind == "cuda" else ""
    (folder / HELPER_KERNELS).write_bytes(helper_kernels)
    (folder / SESSION).write_bytes(codec.encode(ProfilingSession(device.spec, visible, limit_s, os.getpid())))


def prepare(folder: Path, modules: Sequence[bytes], inputs: Arrays) -> tuple[ArrayLocation, ...]:
    """Write the binaries and inputs of the next launch; return where the inputs lie in the file of arrays."""
    new = folder / "next"
    shutil.rmtree(new, ignore_errors=True)  # a launch that was prepared and not added
    new.mkdir()
    arrays = share(inputs, {})
    try:
        with (new / ARRAYS).open("wb") as file, os.fdopen(os.dup(arrays.descriptor), "rb") as shared:
            shared.seek(0)
            shutil.copyfileobj(shared, file, 1 << 24)
    finally:
        arrays.close()
    for number, code in enumerate(modules):
        (new / MODULE.format(number)).write_bytes(code)
    return arrays.layout.inputs


def add(folder: Path, number: int, launch: ProfilingLaunch) -> None:
    """Add the launch whose binaries and inputs are prepared; leave out steps that no sample has, and metrics."""
    steps = tuple(
        step
        for step in launch.record.steps
        if not isinstance(step, HostMetric) and not (isinstance(step, Call) and not step.timed)
    )
    content = replace(launch, record=replace(launch.record, steps=steps))
    (folder / "next" / LAUNCH).write_bytes(codec.encode(content))
    (folder / "next").rename(folder / str(number))


def end(folder: Path) -> None:
    """Let the process end after the launches that were added."""
    (folder / END).touch()


def read_report(folder: Path, number: int | None = None) -> LaunchReport | None:
    """Return the report of a launch, or of the session if it failed as a whole; None if there is no report (yet)."""
    file = folder / ("" if number is None else str(number)) / REPORT
    try:
        return codec.decode(LaunchReport, file.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def started(folder: Path, number: int) -> float | None:
    """Return when the process began a launch, as ``time.time`` returns it; None if the process did not begin it."""
    try:
        return (folder / str(number) / STARTED).stat().st_mtime
    except FileNotFoundError:
        return None


def drop_inputs(folder: Path, number: int) -> None:
    """Delete the inputs of a launch that has ended."""
    (folder / str(number) / ARRAYS).unlink(missing_ok=True)


def command(folder: Path) -> list[str]:
    """Return the command line of the process, without a profiler and with the full path of Python."""
    return [*python_module("perfsvc.measure.worker.profiling_launch"), str(folder)]


def environment() -> Mapping[str, str]:
    """Return the environment variables of the process, the same as those of a worker."""
    return {**ONE_THREAD, **os.environ}


# --- the process -----------------------------------------------------------------------------------------------------


def read_session(folder: Path) -> tuple[ProfilingSession, bytes]:
    """Return what ``begin`` stored: the session, and the helper kernels of its device."""
    return codec.decode(ProfilingSession, (folder / SESSION).read_bytes()), (folder / HELPER_KERNELS).read_bytes()


def launches(folder: Path, parent: int) -> Iterator[Path]:
    """Yield the folder of each launch as the parent adds it, until the parent ends the session or dies."""
    for number in itertools.count():
        launch = folder / str(number)
        while True:
            is_last = (folder / END).exists() or not _is_alive(parent)
            if launch.exists():  # looked up after the end: a launch that was added before the end is not missed
                break
            if is_last:
                return
            time.sleep(LOOK_S)
        (launch / STARTED).touch()
        yield launch


def _is_alive(process: int) -> bool:
    with contextlib.suppress(PermissionError):  # it is alive, and of another user
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True


def read(folder: Path) -> LoadedLaunch:
    """Return the launch in a folder."""
    launch = codec.decode(ProfilingLaunch, (folder / LAUNCH).read_bytes())
    with (folder / ARRAYS).open("rb") as file:
        inputs = map_arrays(file.fileno(), launch.inputs)
    modules = tuple((folder / MODULE.format(number)).read_bytes() for number in range(len(launch.record.modules)))
    return LoadedLaunch(launch, modules, inputs)


def write_report(folder: Path, report: LaunchReport) -> None:
    """Write the report of a launch, or of the session, into its folder; the parent never sees a part of a report."""
    (folder / "writing").write_bytes(codec.encode(report))
    (folder / "writing").rename(folder / REPORT)
