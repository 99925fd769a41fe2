"""One worker process as its parent sees it: start it, send it cases, and end it, however it behaves."""

import hashlib
import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import replace

from perfsvc.errors import CrashError
from perfsvc.measure.host import replies
from perfsvc.measure.host.replies import Asked
from perfsvc.measure.plan.order import Task
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
from perfsvc.model import DeviceInfo, Measurement, PythonCode, Status, codec
from perfsvc.process import frames
from perfsvc.process.child import Child, Death
from perfsvc.process.fork_servers import ForkServer
from perfsvc.process.frames import FrameError
from perfsvc.process.shared_memory import SharedArrays

MESSAGE_LIMIT_S = 30.0
"""Seconds a message may take from its first byte to its last."""
MOST_TEXT_BYTES = 1 << 26
"""How many bytes the JSON text of an answer can have: a million samples and more. Decoding takes far more memory."""
SHOWN_BYTES = 200
"""How many bytes of an unreadable message are reported."""


class WorkerHandle:
    """A worker process and its private socket. The worker opens no device, and sees no GPU, until ``open``.

    Args:
        server: forks the worker.

    Attributes:
        died_with_server: whether the worker died because its fork server died; then no case is at fault.
        spoilt: whether it sent a message that cannot be read or was not asked, or died before it had received its case.
            An earlier case may have caused this.
    """

    def __init__(self, server: ForkServer) -> None:
        self.died_with_server = False
        self.spoilt = False
        self._asked: DeviceInfo | Asked | None = None
        self._arrays: SharedArrays | None = None
        self._calls_python = False
        self._child = Child(server)

    @property
    def socket(self) -> socket.socket:
        """The private socket; readable when the worker has sent something or has died."""
        return self._child.socket

    def open(self, device: DeviceInfo, helper_kernels: bytes, *, programs: bool = False) -> CrashError | None:
        """Send the request to open a device; return an error if the worker has died, else None.

        Args:
            device: what to open.
            helper_kernels: the binary of the device's helper kernels; empty if it needs none.
            programs: the worker will only run programs, and need not open the device.
        """
        self._asked = device
        visible = ",".join(device.members) if device.kind == "cuda" else ""
        if programs:
            environment = {frames.as_text(name): frames.as_text(value) for name, value in os.environ.items()}
            return self._send(Open(device.spec, visible, device, environment), (b"",))
        return self._send(Open(device.spec, visible), (helper_kernels,))

    def send(
        self,
        task: Task,
        replica: int,
        arrays: JobArrays,
        checked: CheckedResult | None,
        program_limit_s: float = 0.0,
    ) -> CrashError | None:
        """Send a case to measure; return an error if the worker has died, else None."""
        self._child.take_output()  # the output of earlier cases explains nothing about this one
        self._arrays, self._calls_python = arrays.first, bool(task.record.calls)
        self._asked = Asked(task.record.case, task.record.kind, task.device, replica, task.cache, task.sampling.places)
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
            limit_s=program_limit_s,
        )
        return self._send(job, task.modules, arrays.descriptors)

    def receive(self) -> Ready | Refused | Measured | CrashError:
        """Return the worker's answer to what it was asked last; an error if it died, or sent anything else."""
        try:
            frame = self._child.receive(MESSAGE_LIMIT_S, message_limit_s=MESSAGE_LIMIT_S)
        except (FrameError, TimeoutError) as error:
            return self._unreadable(str(error))
        if isinstance(frame, Death):
            return self._crash(frame)
        for descriptor in frame.descriptors:  # a worker has none to send
            os.close(descriptor)
        if len(frame.text) > MOST_TEXT_BYTES:
            return self._unreadable(f"a text of {len(frame.text)} bytes")
        try:
            reply = codec.decode(Reply, frame.text).body
        except ValueError:
            return self._unreadable(repr(frame.text[:SHOWN_BYTES]))
        asked, self._asked = self._asked, None
        files = {hashlib.sha256(blob).hexdigest(): blob for blob in frame.blobs}
        if problem := replies.problem(reply, files, asked):
            return self._unreadable(problem)
        if isinstance(reply, Measured):
            reply = replace(reply, measurement=self._with_inputs(replace(reply.measurement, files=files)))
        return reply

    def _with_inputs(self, measurement: Measurement) -> Measurement:
        """Return a measurement with the checksums of its inputs and what they were made from."""
        arrays, is_unknown = self._arrays, measurement.python is None and self._calls_python
        if arrays is None or not arrays.inputs or measurement.status is not Status.OK or is_unknown:
            return measurement
        python = replace(measurement.python or PythonCode(), inputs=arrays.inputs, inputs_from=arrays.made_from)
        return replace(measurement, python=python)

    def limit_output(self) -> None:
        """Empty the file of the worker's output if it is too large; see ``Child.limit_output``."""
        self._child.limit_output()

    def dismiss(self, *, kill: bool = False) -> None:
        """Close the socket, so that the worker ends by itself, or kill the worker; do not wait for its end."""
        self._child.dismiss(kill=kill)

    def is_gone(self) -> bool:
        """Return whether the worker has ended since it was dismissed; see ``Child.is_gone``."""
        return self._child.is_gone()

    def end(self) -> None:
        """Dismiss the worker and wait until it is gone."""
        self._child.end()

    def _send(self, body: Open | CaseJob, blobs: Sequence[bytes], descriptors: Sequence[int] = ()) -> CrashError | None:
        """Send a message with its blobs and file descriptors; return an error if the worker has died, else None."""
        try:
            death = self._child.send(codec.encode(Request(body)), blobs, descriptors, MESSAGE_LIMIT_S)
        except TimeoutError:
            death = self._child.death()
        return self._crash(death) if death else None

    def _unreadable(self, what: str) -> CrashError:
        """Mark the worker as spoilt, and return the error for a message that cannot be read."""
        self.spoilt = True
        return CrashError(
            f"the worker process sent a message that cannot be read: {what}",
            cure="the kernel may have written over the worker's memory: run it under compute-sanitizer",
        )

    def _crash(self, death: Death) -> CrashError:
        """Return an error that describes how the worker died, with the end of its output."""
        self.died_with_server = death.with_server
        self.spoilt = death.unread
        output = f": {death.output}" if death.output else ""
        return CrashError(f"the worker process died ({death.how}){output}", cure=_cure(death))


def _cure(death: Death) -> str:
    """Return what to do about a worker that died."""
    status = death.status
    if death.closed:
        return "see why the case, or a library that it calls, closes files that it did not open, or stops answering"
    if status is None:
        return "see dmesg: the driver keeps the process from ending; the machine may need a restart"
    if status >= 0:
        return "see why the case, or a library that it calls, ended the process"
    if -status == signal.SIGKILL:
        return "see dmesg: the system's out-of-memory killer may have ended it"
    return "run the kernel under compute-sanitizer: it may read or write outside its memory"
