"""A shot: a fresh process that launches a case once, for a profiler to look at, and the folder it is told by.

The folder holds all that the process needs, since a profiler stands between it and us: sockets and descriptors do not
reach through every one of them.
"""

import mmap
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from perfsvc.build.process import python_module
from perfsvc.measure.host.fork_servers import QUIET
from perfsvc.measure.protocol.messages import Placed
from perfsvc.measure.protocol.shared_arrays import Arrays, share
from perfsvc.model import Call, DeviceInfo, HostMetric, ReplayRecord, codec

SHOT, TOLD, ARRAYS, HELPER_KERNELS, MODULE = "shot.json", "told.json", "arrays", "helper_kernels", "module-{}"
"""The files of the folder."""


@dataclass(frozen=True, slots=True)
class Shot:
    """What the process is to do.

    Attributes:
        record: the case.
        device: as ``perfsvc.device.find.open_device`` takes it.
        visible: the UUID of the only GPU that CUDA may touch; empty where the device is none of CUDA's.
        inputs: where its inputs lie in the file of arrays.
        launch: which of its launches the profiler is to see, from 0; None for the longest.
    """

    record: ReplayRecord
    device: str
    visible: str = ""
    inputs: tuple[Placed, ...] = ()
    launch: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What the process says: which launch the profiler saw and of which kernel, or what went wrong and the cure."""

    launch: int | None = None
    kernel: str = ""
    what: str = ""
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A shot with the bytes that belong to it."""

    shot: Shot
    modules: tuple[bytes, ...]
    helper_kernels: bytes
    inputs: Arrays


def put(
    folder: Path,
    record: ReplayRecord,
    device: DeviceInfo,
    *,
    modules: Sequence[bytes],
    helper_kernels: bytes,
    inputs: Arrays,
    launch: int | None = None,
) -> None:
    """Writes the folder of a shot; what of the case is no work of its samples is left out."""
    steps = tuple(step for step in record.steps if not isinstance(step, Call | HostMetric))
    arrays = share(inputs, {})
    try:
        with (folder / ARRAYS).open("wb") as file, os.fdopen(os.dup(arrays.descriptor), "rb") as made:
            made.seek(0)
            shutil.copyfileobj(made, file, 1 << 24)
    finally:
        arrays.close()
    for number, code in enumerate(modules):
        (folder / MODULE.format(number)).write_bytes(code)
    (folder / HELPER_KERNELS).write_bytes(helper_kernels)
    visible = device.uuid if device.kind == "cuda" else ""
    shot = Shot(replace(record, steps=steps), device.spec, visible, arrays.inputs, launch)
    (folder / SHOT).write_bytes(codec.encode(shot))


def load(folder: Path) -> Loaded:
    """Reads what ``put`` wrote."""
    shot = codec.decode(Shot, (folder / SHOT).read_bytes())
    with (folder / ARRAYS).open("rb") as file:
        nbytes = os.fstat(file.fileno()).st_size
        memory = mmap.mmap(file.fileno(), nbytes, prot=mmap.PROT_READ) if nbytes else b""
    return Loaded(
        shot,
        tuple((folder / MODULE.format(number)).read_bytes() for number in range(len(shot.record.modules))),
        (folder / HELPER_KERNELS).read_bytes(),
        {one.array.name: np.ndarray(one.array.shape, one.array.dtype, memory, one.offset) for one in shot.inputs},
    )


def tell(folder: Path, told: Told) -> None:
    """Writes what the process has to say."""
    (folder / TOLD).write_bytes(codec.encode(told))


def told(folder: Path) -> Told | None:
    """What the process said; None where it ended before it could."""
    try:
        return codec.decode(Told, (folder / TOLD).read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def command(folder: Path) -> list[str]:
    """The command line of the process, without any profiler's: Python by its full path."""
    return [*python_module("perfsvc.measure.worker.profiling_launch"), str(folder)]


def environment() -> Mapping[str, str]:
    """Its environment variables: a worker's."""
    return {**QUIET, **os.environ}
