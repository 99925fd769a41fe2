"""What travels between the pool and its workers: jobs there, measurements back."""

from dataclasses import dataclass
from typing import Literal

from perfsvc.measure.sampler import Sampling
from perfsvc.model import Array, DeviceInfo, Measurement, Mode, ReplayRecord, Tolerance


@dataclass(frozen=True, slots=True)
class Placed:
    """An array and where it lies, in bytes, in the memory shared with the worker."""

    array: Array
    offset: int


@dataclass(frozen=True, slots=True)
class Job:
    """One case to measure in one replica.

    Its binaries follow as blobs, in the order of ``record.modules``; its inputs and references lie in the shared
    memory whose descriptor comes with it. ``bench`` is the benchmark file's text where a step calls into it.
    """

    record: ReplayRecord
    replica: int
    mode: Mode
    tolerance: Tolerance
    sampling: Sampling
    inputs: tuple[Placed, ...]
    expected: tuple[Placed, ...]
    bench: str = ""


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has opened its device."""

    device: DeviceInfo
    message: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True)
class Refused:
    """The worker could not open its device, and ends."""

    what: str
    cure: str
    message: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Measured:
    """A job is done; ``usable`` is false where the device context was lost with it and the worker ends."""

    measurement: Measurement
    usable: bool
    message: Literal["measured"] = "measured"


@dataclass(frozen=True, slots=True)
class Reply:
    """Whatever a worker says."""

    body: Ready | Refused | Measured
