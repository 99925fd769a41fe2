"""The worker: opens one device, measures the jobs it is sent, and ends when the pool hangs up.

It is forked by ``perfsvc.measure.forkserver``. Its standard output belongs to the code it measures; all it has to say
goes over its socket.
"""

import gc
import os
import socket
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from perfsvc import codec
from perfsvc.device import VISIBLE
from perfsvc.device.find import open_device
from perfsvc.device.protocol import Device
from perfsvc.errors import LaunchError, PerfsvcError
from perfsvc.measure import wire
from perfsvc.measure.case import measure
from perfsvc.measure.job import Job, Measured, Open, Ready, Refused, Reply, Request
from perfsvc.measure.outcome import without_samples
from perfsvc.measure.shared import Mapped
from perfsvc.measure.vault import Vault

KEPT_SHARE = 0.25
"""Of a device's memory: inputs and references that its cases share."""


def prepare() -> None:
    """Makes what every worker needs, once for all of them."""
    codec.prepare(Request, Reply)


class Bench:
    """Where a worker measures: its open device, with what that keeps from case to case.

    A context manager, which closes the device.

    Args:
        device: an open device.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        # A device on the host's own processors copies as fast from the host.
        self._vault = Vault(device, int(KEPT_SHARE * device.info.memory_bytes) if device.queue_depth else 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.device.close()

    def measured(self, job: Job, modules: Sequence[bytes], descriptors: Sequence[int]) -> Measured:
        """Measures a case with arrays in the memory of some descriptors; a fault of ours costs its case as well."""
        try:
            return measure(self.device, job, modules, Mapped(descriptors, job), self._vault)
        except Exception as error:  # noqa: BLE001 - it is told
            traceback.print_exc()
            fault = LaunchError(
                f"perfsvc itself failed: {type(error).__name__}: {error}",
                cure="report it with the benchmark file; nothing else of the run is lost",
            )
            case, uuid = job.record.case, self.device.info.uuid
            return Measured(without_samples(case, uuid, job.replica, job.cache, fault), usable=False)


def serve(pool: socket.socket) -> int:
    """Opens the device that the first message names and measures until the pool hangs up; returns the exit status."""
    opening = wire.receive(pool)
    if opening is None:  # nobody needs it any more
        return 0
    try:
        device = _open(opening)
    except PerfsvcError as error:
        _say(pool, Refused(error.what, error.cure))
        return error.exit_code
    with Bench(device) as bench:
        gc.freeze()  # what lives as long as the worker need not be looked through before each case
        _say(pool, Ready(device.info))
        while (frame := wire.receive(pool)) is not None:
            reply = _measured(bench, frame)
            _say(pool, reply)
            if not reply.usable:
                break
            # What its Python functions kept goes with the case; a library that they imported stays, and need not be
            # looked through from now on before each case.
            gc.collect()
            gc.freeze()
    return 0


def _open(frame: wire.Frame) -> Device:
    request = codec.decode(Request, frame.text).body
    if not isinstance(request, Open):
        raise LaunchError("the worker was sent a job before it had a device", cure="report it: perfsvc itself failed")
    if request.visible:
        os.environ[VISIBLE] = request.visible  # the driver looks there when it starts, which it has not yet
    (helper_kernels,) = frame.blobs
    return open_device(request.device, helper_kernels)


def _measured(bench: Bench, frame: wire.Frame) -> Measured:
    try:
        job = codec.decode(Request, frame.text).body
        if not isinstance(job, Job):
            raise TypeError(type(job))
        return bench.measured(job, frame.blobs, frame.descriptors)
    finally:
        for descriptor in frame.descriptors:
            os.close(descriptor)


def _say(pool: socket.socket, body: Ready | Refused | Measured) -> None:
    wire.send(pool, codec.encode(Reply(body)))
