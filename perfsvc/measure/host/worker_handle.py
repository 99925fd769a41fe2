"""One worker process as its parent sees it: start it, send it cases, and end it, however it behaves."""

import fcntl
import hashlib
import math
import os
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace

from perfsvc.errors import CrashError
from perfsvc.measure.host.fork_servers import END_LIMIT_S, ForkServer, tail
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol import messages
from perfsvc.measure.protocol.messages import (
    CaseJob,
    CheckedResult,
    Measured,
    Open,
    Ready,
    Refused,
    Reply,
    Request,
)
from perfsvc.measure.protocol.shared_arrays import JobArrays
from perfsvc.model import DeviceInfo, codec

MESSAGE_LIMIT_S = 30.0
"""Seconds a message may take from its first byte to its last."""
SHOWN_BYTES = 200
"""How many bytes of an unreadable message are reported."""
TAIL_BYTES = 2000
"""How many bytes of a dead worker's output are reported."""


class WorkerHandle:
    """A worker process and its private socket. The worker opens no device, and sees no GPU, until ``open``.

    Args:
        server: forks the worker.

    Attributes:
        died_with_server: whether the worker died because its fork server died; then no case is at fault.
    """

    def __init__(self, server: ForkServer) -> None:
        self.died_with_server = False
        self._server = server
        self._dismissed = math.inf
        self.socket, theirs = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        fcntl.fcntl(self._output, fcntl.F_SETFL, os.O_APPEND)  # so that it can be emptied between two cases
        with theirs:
            self._process = server.fork(theirs, self._output)
        self.socket.settimeout(MESSAGE_LIMIT_S)

    def open(self, device: DeviceInfo, helper_kernels: bytes) -> CrashError | None:
        """Send the request to open a device; return an error if the worker has died, else None.

        Args:
            device: what to open.
            helper_kernels: the binary of the device's helper kernels; empty if it needs none.
        """
        visible = device.uuid if device.kind == "cuda" else ""
        return self._send(Open(device.spec, visible), (helper_kernels,))

    def send(self, task: Task, replica: int, arrays: JobArrays, checked: CheckedResult | None) -> CrashError | None:
        """Send a case to measure; return an error if the worker has died, else None."""
        self._output.truncate(0)  # the output of earlier cases explains nothing about this one
        job = CaseJob(
            record=task.record,
            replica=replica,
            cache=task.cache,
            tolerance=task.tolerance,
            sampling=task.sampling,
            array_name=arrays.name,
            arrays=arrays.first.layout,
            fresh_arrays=arrays.fresh.layout if arrays.fresh else None,
            checked=checked,
            bench=task.bench,
            python_modules=task.python_modules,
        )
        return self._send(job, task.modules, arrays.descriptors)

    def receive(self) -> Ready | Refused | Measured | CrashError:
        """Return the worker's next message, or an error if the worker died or the message is unreadable."""
        try:
            frame = messages.receive(self.socket)
        except (OSError, EOFError):
            frame = None
        if frame is None:
            return self._crash()
        try:
            reply = codec.decode(Reply, frame.text).body
        except ValueError:
            return CrashError(
                f"the worker process sent a message that cannot be read: {frame.text[:SHOWN_BYTES]!r}",
                cure="the kernel may have written over the worker's memory: run it under compute-sanitizer",
            )
        if isinstance(reply, Measured) and frame.blobs:
            files = {hashlib.sha256(blob).hexdigest(): blob for blob in frame.blobs}
            reply = replace(reply, measurement=replace(reply.measurement, files=files))
        return reply

    def dismiss(self, *, kill: bool = False) -> None:
        """Close the socket, so that the worker ends by itself, or kill the worker; do not wait for its end."""
        if kill:
            self._process.kill()
        self.socket.close()
        self._dismissed = time.monotonic()

    def is_gone(self) -> bool:
        """Return whether the worker has ended since it was dismissed.

        A worker that takes too long to end is killed. If it survives the kill, it counts as ended all the same.
        """
        waited_s = time.monotonic() - self._dismissed
        if waited_s > END_LIMIT_S:
            self._process.kill()
        gone = self._process.wait(0.0) or waited_s > 2 * END_LIMIT_S
        if gone:
            self._close()
        return gone

    def end(self) -> None:
        """Dismiss the worker and wait until it is gone."""
        self.dismiss()
        self._wait()
        self._close()

    def _wait(self) -> bool:
        """Wait for the worker to end; return False if even a kill does not end it, because a driver call hangs."""
        if self._process.wait(END_LIMIT_S):
            return True
        self._process.kill()
        return self._process.wait(END_LIMIT_S)

    def _close(self) -> None:
        self._output.close()
        self._process.forget()

    def _send(self, body: Open | CaseJob, blobs: Sequence[bytes], descriptors: Sequence[int] = ()) -> CrashError | None:
        """Send a message with its blobs and file descriptors; return an error if the worker has died, else None."""
        try:
            messages.send(self.socket, codec.encode(Request(body)), blobs, descriptors)
        except OSError:
            return self._crash()
        return None

    def _crash(self) -> CrashError:
        """Return an error that describes how the process died, with the end of its output."""
        ended, status = self._wait(), self._process.status
        self.died_with_server = ended and status is None
        if self.died_with_server:
            ended, status = self._server.wait(END_LIMIT_S), self._server.status
        how, cure = _death(ended=ended, status=status)
        output = tail(self._output, TAIL_BYTES) or self._server.last_output(TAIL_BYTES)
        return CrashError(f"the worker process died ({how})" + (f": {output}" if output else ""), cure=cure)


def _death(*, ended: bool, status: int | None) -> tuple[str, str]:
    """Return how a process ended, and the cure."""
    if not ended or status is None:
        return "it cannot be killed", "see dmesg: the driver holds it; the machine may need a restart"
    if status >= 0:
        return f"exit status {status}", "see why the case, or a library that it calls, ended the process"
    name = signal.Signals(-status).name
    if -status == signal.SIGKILL:
        return f"killed by {name}", "see dmesg: the system's out-of-memory killer may have ended it"
    return f"killed by {name}", "run the kernel under compute-sanitizer: it may read or write outside its memory"
