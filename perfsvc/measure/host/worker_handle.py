"""One worker process as its parent sees it."""

import fcntl
import math
import os
import selectors
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from typing import IO

from perfsvc.errors import CrashError
from perfsvc.measure.host.fork_servers import ForkServer, ForkServers
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol import messages
from perfsvc.measure.protocol.messages import Job, Known, Measured, Open, Ready, Refused, Reply, Request
from perfsvc.measure.protocol.shared_arrays import Lent
from perfsvc.model import DeviceInfo, codec

END_LIMIT_S = 10.0
"""Seconds a worker may take to end by itself before it is killed."""
SILENCE_LIMIT_S = 30.0
"""Seconds a message may take from its first byte to its last."""
SHOWN_BYTES = 200
"""How much of a message that cannot be understood is reported."""
TAIL_BYTES = 2000
"""How much of a dead worker's last words are reported."""


class Process:
    """A worker process, with its private socket.

    It opens no device, and sees no GPU, before it is told which.

    Args:
        server: forks it.

    Attributes:
        died_with_server: whether it was found to have died because its fork server did, which no case is to blame for.
    """

    def __init__(self, server: ForkServer) -> None:
        self.died_with_server = False
        self._dismissed = math.inf
        self._server = server
        self.socket, theirs = socket.socketpair()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        fcntl.fcntl(self._words, fcntl.F_SETFL, os.O_APPEND)  # so that it can be emptied between two cases
        with theirs:
            self._fork = server.fork(theirs, self._words)
        self.socket.settimeout(SILENCE_LIMIT_S)

    def open(self, device: DeviceInfo, helper_kernels: bytes) -> CrashError | None:
        """Has it open a device, with the binary of the device's helper kernels; returns why it could not be told."""
        visible = device.uuid if device.kind == "cuda" else ""
        return self._tell(Open(device.spec, visible), (helper_kernels,))

    def send(self, task: Task, replica: int, arrays: Lent, known: Known | None) -> CrashError | None:
        """Sends a case to measure; returns why it could not, if so."""
        self._words.truncate(0)  # what earlier cases printed explains nothing of this one
        return self._tell(_job_of(task, replica, arrays, known), task.modules, arrays.descriptors)

    def hear(self) -> Ready | Refused | Measured | CrashError:
        """What its next message says, or why there is none."""
        try:
            frame = messages.receive(self.socket)
        except (OSError, EOFError):
            frame = None
        if frame is None:
            return self._crash()
        try:
            return codec.decode(Reply, frame.text).body
        except ValueError:
            return CrashError(
                f"the worker process said what nobody understands: {frame.text[:SHOWN_BYTES]!r}",
                cure="the kernel may have written over the worker's memory: run it under compute-sanitizer",
            )

    def dismiss(self, *, kill: bool = False) -> None:
        """Hangs up, so that it ends by itself, or kills it; does not wait for it."""
        if kill:
            self._fork.kill()
        self.socket.close()
        self._dismissed = time.monotonic()

    def is_gone(self) -> bool:
        """Whether it has ended since it was dismissed.

        It is killed where it takes too long, and given up where even that does not help.
        """
        waited_s = time.monotonic() - self._dismissed
        if waited_s > END_LIMIT_S:
            self._fork.kill()
        gone = self._fork.wait(0.0) or waited_s > 2 * END_LIMIT_S
        if gone:
            self._words.close()
            self._fork.forget()
        return gone

    def end(self, *, kill: bool = False) -> None:
        """Dismisses it and waits until it is gone."""
        self.dismiss(kill=kill)
        self._wait()
        self._words.close()
        self._fork.forget()

    def _wait(self) -> bool:
        """Waits for its end. False where even a kill does not end it: a driver call that never returns holds it."""
        if self._fork.wait(END_LIMIT_S):
            return True
        self._fork.kill()
        return self._fork.wait(END_LIMIT_S)

    def _tell(self, body: Open | Job, blobs: Sequence[bytes], descriptors: Sequence[int] = ()) -> CrashError | None:
        try:
            messages.send(self.socket, codec.encode(Request(body)), blobs, descriptors)
        except OSError:
            return self._crash()
        return None

    def _crash(self) -> CrashError:
        ended, status = self._wait(), self._fork.status
        self.died_with_server = ended and status is None
        if self.died_with_server:
            ended, status = self._server.wait(END_LIMIT_S), self._server.status
        how, cure = _death(ended=ended, status=status)
        words = _tail(self._words) or self._server.last_words(TAIL_BYTES)
        return CrashError(f"the worker process died ({how})" + (f": {words}" if words else ""), cure=cure)


def _job_of(task: Task, replica: int, arrays: Lent, known: Known | None) -> Job:
    """The job that a task is in a replica, with the arrays that it is lent."""
    return Job(
        record=task.record,
        replica=replica,
        cache=task.cache,
        tolerance=task.tolerance,
        sampling=task.sampling,
        arrays=arrays.name,
        inputs=arrays.inputs,
        expected=arrays.expected,
        fresh_inputs=arrays.fresh_inputs,
        fresh_expected=arrays.fresh_expected,
        known=known,
        bench=task.bench,
    )


def _tail(words: IO[bytes]) -> str:
    words.seek(max(0, words.seek(0, os.SEEK_END) - TAIL_BYTES))
    return words.read().decode(errors="replace").strip()


def _death(*, ended: bool, status: int | None) -> tuple[str, str]:
    """How a process ended, and what to do about it."""
    if not ended or status is None:
        return "it cannot be killed", "see dmesg: the driver holds it; the machine may need a restart"
    if status >= 0:
        return f"exit status {status}", "see what the case itself, or a library that it calls, ended the process for"
    name = signal.Signals(-status).name
    if -status == signal.SIGKILL:
        return f"killed by {name}", "see dmesg: the system's out-of-memory killer may have ended it"
    return f"killed by {name}", "run the kernel under compute-sanitizer: it reads or writes outside its memory"


class Relay:
    """Starts and ends the workers of one device.

    Args:
        device: what they open.
        helper_kernels: the binary that the device works with, empty where it needs none.
        selector: is told of the socket of the worker whose turn it is.
        listener: the data that the selector gives back with that socket.
        servers: where they are forked.
    """

    def __init__(
        self,
        device: DeviceInfo,
        helper_kernels: bytes,
        selector: selectors.BaseSelector,
        listener: object,
        servers: ForkServers,
    ) -> None:
        self._device = device
        self._helper_kernels = helper_kernels
        self._selector = selector
        self._listener = listener
        self._servers = servers
        self._ending: list[Process] = []
        self.present: Process | None = None

    def begin(self) -> CrashError | None:
        """Forks the next worker and has it open the device; returns why it could not be told.

        The one before must be gone. What runs on the host's own processors depends on where it lies in memory, and
        forks of one server lie alike: there each worker, being a replica of its own, comes from a server of its own.
        """
        self.present = self._servers.begin(apart=self._device.kind == "cpu")
        self._selector.register(self.present.socket, selectors.EVENT_READ, self._listener)
        return self.present.open(self._device, self._helper_kernels)

    def dismiss(self, *, kill: bool = False) -> None:
        """Ends the present worker, by hanging up or at once, without waiting for it; kills as well who still ends."""
        for process in self._ending if kill else ():
            process.dismiss(kill=True)
        if self.present:
            self._selector.unregister(self.present.socket)
            self.present.dismiss(kill=kill)
            self._ending.append(self.present)
            self.present = None

    def is_ending(self) -> bool:
        """Whether a worker that was dismissed is not gone yet."""
        self._ending = [process for process in self._ending if not process.is_gone()]
        return bool(self._ending)

    def end(self) -> None:
        """Waits until every worker that was dismissed is gone."""
        while self._ending:
            self._ending.pop().end()
