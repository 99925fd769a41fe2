"""What travels between the pool and its workers: jobs there, measurements back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from perfsvc.measure.sampler import Sampling
from perfsvc.model import Array, CacheState, DeviceInfo, Error, Measurement, ReplayRecord, Tolerance


@dataclass(frozen=True, slots=True)
class Placed:
    """An array and where it lies, in bytes, in the memory shared with the worker."""

    array: Array
    offset: int


@dataclass(frozen=True, slots=True)
class Known:
    """A result that was found right: the digest of each output buffer, and its error."""

    digests: Mapping[str, str]
    error: Error


@dataclass(frozen=True, slots=True)
class Open:
    """Opens the worker's device; the binary of its helper kernels follows as a blob, empty where it has none.

    Attributes:
        device: a specification as ``perfsvc.device.find.open_device`` takes it.
        visible: the UUID of the only GPU that CUDA may touch; empty where the device is none of CUDA's.
    """

    device: str
    visible: str = ""
    message: Literal["open"] = "open"


@dataclass(frozen=True, slots=True)
class Job:
    """One case to measure in one replica.

    Its binaries follow as blobs, in the order of ``record.modules``; its inputs and references lie in shared memory
    whose descriptor comes with it, and the fresh ones in a second one.

    Attributes:
        arrays: names what lies in the shared memory: equal for cases that have it in common, so that a device which
            holds it already need not be given it again.
        fresh_inputs: other inputs, for the check after timing; empty where that check takes the first ones again.
        fresh_expected: their reference; empty where only a change of the result is asked for.
        known: the right result by output buffer, as ``Device.digest``, and its error, where an earlier replica of the
            run has checked it; else None.
        bench: the benchmark file's text where a step calls into it.
    """

    record: ReplayRecord
    replica: int
    cache: CacheState
    tolerance: Tolerance
    sampling: Sampling
    arrays: str
    inputs: tuple[Placed, ...]
    expected: tuple[Placed, ...]
    fresh_inputs: tuple[Placed, ...] = ()
    fresh_expected: tuple[Placed, ...] = ()
    known: Known | None = None
    bench: str = ""
    message: Literal["job"] = "job"


@dataclass(frozen=True, slots=True)
class Request:
    """Whatever a worker is told."""

    body: Open | Job


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
    """A job is done; ``usable`` is false where the device context was lost with it and the worker ends.

    ``known`` is the result that was checked, for the replicas to come.
    """

    measurement: Measurement
    usable: bool
    known: Known | None = None
    message: Literal["measured"] = "measured"


@dataclass(frozen=True, slots=True)
class Reply:
    """Whatever a worker says."""

    body: Ready | Refused | Measured
