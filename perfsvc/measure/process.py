"""One worker process as its parent sees it: started, spoken to, and ended, however it behaves."""

import contextlib
import fcntl
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from perfsvc import codec
from perfsvc.device.instances import VISIBLE
from perfsvc.errors import CrashError
from perfsvc.measure import wire
from perfsvc.measure.job import Job, Known, Measured, Open, Ready, Refused, Reply, Request
from perfsvc.measure.plan import Task
from perfsvc.measure.shared import Lent
from perfsvc.model import DeviceInfo

QUIET = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A worker's libraries start no threads of their own, which would keep it from launching in time."""
END_LIMIT_S = 10.0
"""Seconds a worker may take to end by itself before it is killed."""
SILENCE_LIMIT_S = 30.0
"""Seconds a message may take from its first byte to its last."""
SHOWN_BYTES = 200
"""How much of a message that cannot be understood is reported."""
TAIL_BYTES = 2000
"""How much of a dead worker's last words are reported."""


class Process:
    """A worker process with its private socket; it opens no device, and sees no board, before it is told which."""

    def __init__(self) -> None:
        self._dismissed = math.inf
        self.socket, theirs = socket.socketpair()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        fcntl.fcntl(self._words, fcntl.F_SETFL, os.O_APPEND)  # so that it can be emptied between two cases
        with theirs:
            arguments = (str(theirs.fileno()), str(os.getpid()))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "perfsvc.measure.worker", *arguments],
                pass_fds=[theirs.fileno()],
                env={**QUIET, VISIBLE: "", **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=subprocess.STDOUT,
            )
        self.socket.settimeout(SILENCE_LIMIT_S)

    def open(self, device: DeviceInfo, instruments: bytes) -> CrashError | None:
        """Has it open a device, with the binary of the device's instruments; returns why it could not be told."""
        visible = device.uuid if device.kind == "cuda" else ""
        return self._tell(Open(device.spec, visible), (instruments,))

    def send(self, task: Task, replica: int, arrays: Lent, known: Known | None) -> CrashError | None:
        """Sends a case to measure; returns why it could not, if so."""
        job = Job(
            record=task.record,
            replica=replica,
            mode=task.mode,
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
        self._words.truncate(0)  # what earlier cases printed explains nothing of this one
        return self._tell(job, task.modules, arrays.descriptors)

    def hear(self) -> Ready | Refused | Measured | CrashError:
        """What its next message says, or why there is none."""
        try:
            frame = wire.receive(self.socket)
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
            self._process.kill()
        self.socket.close()
        self._dismissed = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def is_gone(self) -> bool:
        """Whether it has ended since it was dismissed.

        It is killed where it takes too long, and given up where even that does not help.
        """
        waited_s = time.monotonic() - self._dismissed
        if waited_s > END_LIMIT_S:
            self._process.kill()
        gone = not self.alive or waited_s > 2 * END_LIMIT_S
        if gone:
            self._words.close()
        return gone

    def end(self, *, kill: bool = False) -> None:
        """Dismisses it and waits until it is gone."""
        self.dismiss(kill=kill)
        self._wait()
        self._words.close()

    def _wait(self) -> int | None:
        """Its exit status. None where even a kill does not end it: a driver call that never returns holds it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(END_LIMIT_S)
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(END_LIMIT_S)
        return None

    def _tell(self, body: Open | Job, blobs: Sequence[bytes], descriptors: Sequence[int] = ()) -> CrashError | None:
        try:
            wire.send(self.socket, codec.encode(Request(body)), blobs, descriptors)
        except OSError:
            return self._crash()
        return None

    def _crash(self) -> CrashError:
        how, cure = _death(self._wait())
        words = self._last_words()
        return CrashError(f"the worker process died ({how})" + (f": {words}" if words else ""), cure=cure)

    def _last_words(self) -> str:
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, size - TAIL_BYTES))
        return self._words.read().decode(errors="replace").strip()


def _death(status: int | None) -> tuple[str, str]:
    """How a process ended, and what to do about it."""
    if status is None:
        return "it cannot be killed", "see dmesg: the driver holds it; the machine may need a restart"
    if status >= 0:
        return f"exit status {status}", "see what the case itself, or a library that it calls, ended the process for"
    name = signal.Signals(-status).name
    if -status == signal.SIGKILL:
        return f"killed by {name}", "see dmesg: the system's out-of-memory killer may have ended it"
    return f"killed by {name}", "run the kernel under compute-sanitizer: it reads or writes outside its memory"
