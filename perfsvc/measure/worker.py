"""The worker process: opens one device, measures the jobs it is sent, and ends when the pool hangs up.

Run by ``perfsvc.measure.pool`` as ``python -m perfsvc.measure.worker SOCKET-DESCRIPTOR PARENT-PID``. It is told which
device to open when it may have it; what it imports, it has imported by then. Its standard output belongs to the code it
measures; all it has to say goes over the socket.
"""

import contextlib
import ctypes
import os
import signal
import socket
import sys
import traceback

from perfsvc import codec
from perfsvc.device.find import open_device
from perfsvc.device.protocol import Device
from perfsvc.errors import LaunchError, PerfsvcError
from perfsvc.measure import wire
from perfsvc.measure.case import measure
from perfsvc.measure.job import Job, Measured, Open, Ready, Refused, Reply, Request
from perfsvc.measure.outcome import without_samples
from perfsvc.measure.shared import Mapped
from perfsvc.measure.vault import Vault

PR_SET_PDEATHSIG = 1
KEPT_SHARE = 0.25
"""Of a device's memory: inputs and references that its cases share."""


def main(descriptor: int, parent: int) -> int:
    """Serves jobs until the pool hangs up; returns the process's exit status."""
    _die_with(parent)
    with socket.socket(fileno=descriptor) as pool:
        frame = wire.receive(pool)
        if frame is None:  # started ahead, and not needed
            return 0
        try:
            device = _open(frame)
        except PerfsvcError as error:
            _say(pool, Refused(error.what, error.cure))
            return error.exit_code
        with contextlib.closing(device):
            _say(pool, Ready(device.info))
            _serve(pool, device)
    return 0


def _open(frame: wire.Frame) -> Device:
    request = codec.decode(Request, frame.text).body
    if not isinstance(request, Open):
        raise LaunchError("the worker was sent a job before it had a device", cure="report it: perfsvc itself failed")
    return open_device(request.device, *frame.blobs)


def _serve(pool: socket.socket, device: Device) -> None:
    # A device on the host's own processors copies as fast from the host.
    vault = Vault(device, int(KEPT_SHARE * device.info.memory_bytes) if device.queue_depth else 0)
    while (frame := wire.receive(pool)) is not None:
        reply = _measured(device, vault, frame)
        _say(pool, reply)
        if not reply.usable:
            return


def _measured(device: Device, vault: Vault, frame: wire.Frame) -> Measured:
    job = codec.decode(Request, frame.text).body
    if not isinstance(job, Job):
        raise TypeError(type(job))
    try:
        arrays = Mapped(frame.descriptors, job)
    finally:
        for descriptor in frame.descriptors:
            os.close(descriptor)
    try:
        return measure(device, job, frame.blobs, arrays, vault)
    except Exception as error:  # noqa: BLE001 - a fault of ours costs its case as well, and is told
        traceback.print_exc()
        fault = LaunchError(
            f"perfsvc itself failed: {type(error).__name__}: {error}",
            cure="report it with the benchmark file; nothing else of the run is lost",
        )
        return Measured(without_samples(job.record.case, device.info.uuid, job.replica, job.mode, fault), usable=False)


def _say(pool: socket.socket, body: Ready | Refused | Measured) -> None:
    wire.send(pool, codec.encode(Reply(body)))


def _die_with(parent: int) -> None:
    """Has the kernel kill this process when the pool dies: a hung launch never sees the socket close."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("perfsvc's worker lost its parent while it started")


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # what is sent to the whole group is the pool's, which ends its workers
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
