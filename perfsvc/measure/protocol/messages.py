"""Messages between the parent and its workers, and how they travel over the private socket."""

import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from perfsvc.errors import CaseError, PerfsvcError, ResultError, UnsupportedError
from perfsvc.measure.worker.sampling.sampler import Sampling
from perfsvc.model import Array, CacheState, Case, DeviceInfo, Error, Measurement, ReplayRecord, Status, Tolerance


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


def status_of(error: PerfsvcError) -> Status:
    """Wrong for a result, skipped for what the device cannot run, failed for everything else."""
    if isinstance(error, ResultError):
        return Status.WRONG
    if isinstance(error, UnsupportedError):
        return Status.SKIPPED
    return Status.FAILED


def without_samples(
    case: Case, device: str, replica: int, cache: CacheState, error: CaseError | PerfsvcError, *, wall_s: float = 0.0
) -> Measurement:
    """The measurement of a case that has no times, because of ``error``."""
    return Measurement(
        case=case,
        device=device,
        replica=replica,
        cache=cache,
        status=status_of(error),
        reason=error.what,
        cure=error.cure,
        wall_s=wall_s,
    )


MOST_DESCRIPTORS = 2
"""How many file descriptors a message can bear."""
_COUNT = struct.Struct("!I")
_SIZE = struct.Struct("!Q")


@dataclass(frozen=True, slots=True)
class Frame:
    """One message as it came: JSON text, blobs, and descriptors that the receiver must close."""

    text: bytes
    blobs: tuple[bytes, ...]
    descriptors: tuple[int, ...]


def send(peer: socket.socket, text: bytes, blobs: Sequence[bytes] = (), descriptors: Sequence[int] = ()) -> None:
    """Sends one message; raises ``OSError`` where the peer is gone."""
    if descriptors:
        socket.send_fds(peer, [b"D"], descriptors)
    else:
        peer.sendall(b"-")
    sizes = [_SIZE.pack(len(part)) for part in (text, *blobs)]
    peer.sendall(_COUNT.pack(len(sizes)) + b"".join(sizes) + text)
    for blob in blobs:
        peer.sendall(blob)


def receive(peer: socket.socket) -> Frame | None:
    """Receives one message, or ``None`` where the peer has closed; ``EOFError`` where it died within a message."""
    mark, descriptors, _, _ = socket.recv_fds(peer, 1, MOST_DESCRIPTORS)
    if not mark:
        return None
    try:
        count = _COUNT.unpack(_exactly(peer, _COUNT.size))[0]
        sizes = [_SIZE.unpack(_exactly(peer, _SIZE.size))[0] for _ in range(count)]
        text, *blobs = (_exactly(peer, size) for size in sizes)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return Frame(text, tuple(blobs), tuple(descriptors))


def _exactly(peer: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        received = peer.recv_into(view)
        if not received:
            message = "the peer closed within a message"
            raise EOFError(message)
        view = view[received:]
    return bytes(buffer)
