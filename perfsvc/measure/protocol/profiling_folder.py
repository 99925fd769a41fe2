"""The folder of a profiling launch: a fresh process that launches a case once, for a profiler to look at.

The parent starts a profiler, which starts the process. The folder holds everything that the process needs, because not
every profiler passes sockets and file descriptors on to the program that it starts. The process runs
``perfsvc.measure.worker.profiling_launch``.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfsvc.measure.host.servers import ONE_THREAD
from perfsvc.model import Call, DeviceInfo, HostMetric, ReplayRecord, codec
from perfsvc.process.programs import python_module
from perfsvc.process.shared_memory import ArrayLocation, Arrays, map_arrays, share

LAUNCH, REPORT, ARRAYS, HELPER_KERNELS, MODULE = "launch.json", "report.json", "arrays", "helper_kernels", "module-{}"
"""The files of the folder."""


@dataclass(frozen=True, slots=True)
class ProfilingLaunch:
    """What the process launches.

    Attributes:
        record: the case.
        device: a specification as ``perfsvc.device.find.open_device`` takes it.
        visible: the UUID of the only GPU that CUDA may use; empty for other kinds of device.
        inputs: where the inputs of the case lie in the file of arrays.
        launch: the number of the launch that the profiler examines, from 0; None for the longest launch.
    """

    record: ReplayRecord
    device: str
    visible: str = ""
    inputs: tuple[ArrayLocation, ...] = ()
    launch: int | None = None


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """What the process reports: the launch that the profiler examined and its kernel, or an error and its cure."""

    launch: int | None = None
    kernel: str = ""
    what: str = ""
    cure: str = ""


@dataclass(frozen=True, slots=True)
class LoadedLaunch:
    """A profiling launch with its binaries and inputs."""

    launch: ProfilingLaunch
    modules: tuple[bytes, ...]
    helper_kernels: bytes
    inputs: Arrays


def write(
    folder: Path,
    record: ReplayRecord,
    device: DeviceInfo,
    *,
    modules: Sequence[bytes],
    helper_kernels: bytes,
    inputs: Arrays,
    launch: int | None = None,
) -> None:
    """Write what a profiling launch needs into a folder; leave out the case's Python steps and metrics."""
    steps = tuple(step for step in record.steps if not isinstance(step, Call | HostMetric))
    arrays = share(inputs, {})
    try:
        with (folder / ARRAYS).open("wb") as file, os.fdopen(os.dup(arrays.descriptor), "rb") as shared:
            shared.seek(0)
            shutil.copyfileobj(shared, file, 1 << 24)
    finally:
        arrays.close()
    for number, code in enumerate(modules):
        (folder / MODULE.format(number)).write_bytes(code)
    (folder / HELPER_KERNELS).write_bytes(helper_kernels)
    visible = device.uuid if device.kind == "cuda" else ""
    content = ProfilingLaunch(replace(record, steps=steps), device.spec, visible, arrays.layout.inputs, launch)
    (folder / LAUNCH).write_bytes(codec.encode(content))


def read(folder: Path) -> LoadedLaunch:
    """Return the launch that ``write`` stored in a folder."""
    launch = codec.decode(ProfilingLaunch, (folder / LAUNCH).read_bytes())
    with (folder / ARRAYS).open("rb") as file:
        inputs = map_arrays(file.fileno(), launch.inputs)
    return LoadedLaunch(
        launch,
        tuple((folder / MODULE.format(number)).read_bytes() for number in range(len(launch.record.modules))),
        (folder / HELPER_KERNELS).read_bytes(),
        inputs,
    )


def write_report(folder: Path, report: LaunchReport) -> None:
    """Write the report of the process into the folder."""
    (folder / REPORT).write_bytes(codec.encode(report))


def read_report(folder: Path) -> LaunchReport | None:
    """Return the report of the process; None if the process ended before it had written the report."""
    try:
        return codec.decode(LaunchReport, (folder / REPORT).read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def command(folder: Path) -> list[str]:
    """Return the command line of the process, without a profiler and with the full path of Python."""
    return [*python_module("perfsvc.measure.worker.profiling_launch"), str(folder)]


def environment() -> Mapping[str, str]:
    """Return the environment variables of the process, the same as those of a worker."""
    return {**ONE_THREAD, **os.environ}
