"""The worker process: opens one device, measures the jobs it is sent, and ends when the pool hangs up.

Run by ``perfsvc.measure.pool`` as ``python -m perfsvc.measure.worker SOCKET-DESCRIPTOR DEVICE``. Its standard output
belongs to the code it measures; all it has to say goes over the socket.
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
from perfsvc.measure.job import Job, Measured, Ready, Refused, Reply
from perfsvc.measure.outcome import without_samples
from perfsvc.measure.shared import Mapped

PR_SET_PDEATHSIG = 1


def main(descriptor: int, spec: str, parent: int) -> int:
    """Serves jobs until the pool hangs up; returns the process's exit status."""
    _die_with(parent)
    with socket.socket(fileno=descriptor) as pool:
        try:
            device = open_device(spec)
        except PerfsvcError as error:
            _say(pool, Refused(error.what, error.cure))
            return error.exit_code
        with contextlib.closing(device):
            _say(pool, Ready(device.info))
            while (frame := wire.receive(pool)) is not None:
                reply = _serve(device, frame)
                _say(pool, reply)
                if not reply.usable:
                    break
    return 0


def _serve(device: Device, frame: wire.Frame) -> Measured:
    job = codec.decode(Job, frame.text)
    try:
        arrays = Mapped(frame.descriptor, job.inputs, job.expected)
    finally:
        os.close(frame.descriptor)
    try:
        return measure(device, job, frame.blobs, arrays.inputs, arrays.expected)
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
    sys.exit(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
