"""The pool: starts a worker for each device and replica, sends it cases, and minds it.

Nothing that a case does can cost more than that case: a worker that dies, hangs or loses its device is ended and
replaced, and the case that did it is not tried again in this run. Measurements are handed out as they arrive.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from perfsvc import codec
from perfsvc.errors import CaseError, CrashError, NoDeviceError, PerfsvcError, SuiteError, TimeLimitError
from perfsvc.measure import wire
from perfsvc.measure.job import Job, Measured, Ready, Refused, Reply
from perfsvc.measure.outcome import without_samples
from perfsvc.measure.plan import Plan, Task, devices
from perfsvc.model import DeviceInfo, Measurement, Status

START_LIMIT_S = 120.0
"""Seconds a worker may take to open its device."""
END_LIMIT_S = 10.0
"""Seconds a worker may take to end by itself before it is killed."""
SILENCE_LIMIT_S = 30.0
"""Seconds a message may take from its first byte to its last."""
SHOWN_BYTES = 200
"""How much of a message that cannot be understood is reported."""
TAIL_BYTES = 2000
"""How much of a dead worker's last words are reported."""


def measure(plan: Plan, found: dict[str, DeviceInfo]) -> Iterator[Measurement]:
    """Works off a plan, all devices at once, and yields each measurement as it arrives.

    Closing the iterator, or an exception in its consumer, ends every worker.

    Args:
        plan: what to measure.
        found: the devices of the plan by UUID.

    Raises:
        NoDeviceError: a device could not even be opened.
    """
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as ended:
        lanes = [Lane(plan, found[device], selector) for device in devices(plan.tasks)]
        for lane in lanes:
            ended.callback(lane.kill)
        while any(not lane.idle for lane in lanes):
            for lane in lanes:
                yield from lane.advance()
            wait = min((lane.deadline for lane in lanes if not lane.idle), default=0.0) - time.monotonic()
            for key, _ in selector.select(max(0.0, min(wait, 1.0))):
                yield from key.data.hear()
            for lane in lanes:
                yield from lane.enforce()
        for lane in lanes:
            lane.end()


@dataclass
class Worker:
    """A running worker process and what it is doing."""

    process: subprocess.Popen[bytes]
    pipe: socket.socket
    words: IO[bytes]
    replica: int
    deadline: float
    ready: bool = False
    task: Task | None = None
    since: float = 0.0


class Lane:
    """One device's part of a plan: the cases still to measure, and the worker at it."""

    def __init__(self, plan: Plan, device: DeviceInfo, selector: selectors.BaseSelector) -> None:
        self._plan = plan
        self._device = device
        self._selector = selector
        self._waiting = deque(plan.order(device.uuid))
        self._worker: Worker | None = None

    @property
    def idle(self) -> bool:
        """Nothing left to do here."""
        return not self._waiting and (self._worker is None or self._worker.task is None)

    @property
    def deadline(self) -> float:
        """When the worker must have spoken next, on the monotonic clock."""
        return self._worker.deadline if self._worker else time.monotonic()

    def advance(self) -> Iterator[Measurement]:
        """Gives a worker that waits its next case; starts a fresh process for each replica."""
        while self._waiting and (self._worker is None or (self._worker.ready and self._worker.task is None)):
            replica, task = self._waiting[0]
            if self._worker and self._worker.replica != replica:
                self.end()
            if self._worker is None:
                self._worker = self._start(replica)
                return
            self._waiting.popleft()
            yield from self._send(self._worker, replica, task)

    def hear(self) -> Iterator[Measurement]:
        """Takes one message from the worker; a closed socket means that it died, and a garbled one that it must."""
        worker = self._worker
        if worker is None:
            return
        match self._said(worker):
            case CaseError() as error:
                yield from self._lost(error)
            case Ready():
                worker.ready, worker.deadline = True, float("inf")
            case Refused(what, cure):
                raise NoDeviceError(what, cure=cure)
            case Measured(measurement, usable):
                worker.task, worker.deadline = None, float("inf")
                if not usable:
                    self.end()
                yield self._passed_on(measurement)

    def _said(self, worker: Worker) -> Ready | Refused | Measured | CaseError:
        """What a worker's next message says, or why there is none."""
        try:
            frame = wire.receive(worker.pipe)
        except (OSError, EOFError):
            frame = None
        if frame is None:
            return self._crash(worker)
        try:
            return codec.decode(Reply, frame.text).body
        except ValueError:
            return CrashError(
                f"the worker process said what nobody understands: {frame.text[:SHOWN_BYTES]!r}",
                cure="the kernel may have written over the worker's memory: run it under compute-sanitizer",
            )

    def enforce(self) -> Iterator[Measurement]:
        """Kills a worker that is past its time limit."""
        worker = self._worker
        if worker is None or time.monotonic() < worker.deadline:
            return
        if not worker.ready:
            self.kill()
            raise NoDeviceError(
                f"{self._device.model} ({self._device.spec}) was not open within {START_LIMIT_S:g} s",
                cure="see what holds it: perfsvc doctor, nvidia-smi",
            )
        yield from self._lost(
            TimeLimitError(
                f"time limit: still running after {self._plan.limit_s:g} s, so its worker was killed",
                cure="look for an endless loop or a barrier that some threads never reach; a case that is merely slow "
                "needs a smaller point or a higher --limit",
            )
        )

    def kill(self) -> None:
        """Ends the worker at once, whatever it is doing."""
        if self._worker:
            self._worker.process.kill()
            self.end()

    def _start(self, replica: int) -> Worker:
        ours, theirs = socket.socketpair()
        words = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        with theirs:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "perfsvc.measure.worker"),
                    *(str(theirs.fileno()), self._device.spec, str(os.getpid())),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
            )
        ours.settimeout(SILENCE_LIMIT_S)
        self._selector.register(ours, selectors.EVENT_READ, self)
        return Worker(process, ours, words, replica, time.monotonic() + START_LIMIT_S)

    def _send(self, worker: Worker, replica: int, task: Task) -> Iterator[Measurement]:
        worker.since = time.monotonic()
        try:
            arrays = task.arrays()
        except SuiteError as error:
            yield self._passed_on(self._failure(task, replica, error))
            return
        job = Job(
            record=task.record,
            replica=replica,
            mode=task.mode,
            tolerance=task.tolerance,
            sampling=task.sampling,
            inputs=arrays.inputs,
            expected=arrays.expected,
            bench=task.bench,
        )
        worker.task, worker.since = task, time.monotonic()
        worker.deadline = worker.since + self._plan.limit_s
        try:
            wire.send(worker.pipe, codec.encode(job), task.modules, arrays.descriptor)
        except OSError:
            yield from self._lost(self._crash(worker))

    def _lost(self, error: CaseError) -> Iterator[Measurement]:
        """The worker is gone or must go: its case failed, the next one gets a new process."""
        worker = self._worker
        self.kill()
        if worker and worker.task:
            yield self._passed_on(self._failure(worker.task, worker.replica, error, since=worker.since))
        elif worker and not worker.ready:
            raise NoDeviceError(
                f"the worker for {self._device.spec} did not start: {error.what}",
                cure="see what this machine lacks: perfsvc doctor",
            )

    def _crash(self, worker: Worker) -> CrashError:
        try:
            status = worker.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            status = worker.process.wait()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        words = _tail(worker.words)
        return CrashError(
            f"the worker process died ({how})" + (f": {words}" if words else ""),
            cure="run the kernel under compute-sanitizer; SIGKILL may be the system's out-of-memory killer",
        )

    def _failure(self, task: Task, replica: int, error: PerfsvcError, *, since: float | None = None) -> Measurement:
        wall = time.monotonic() - since if since else 0.0
        return without_samples(task.record.case, self._device.uuid, replica, task.mode, error, wall_s=wall)

    def _passed_on(self, measurement: Measurement) -> Measurement:
        """A case without a right result is not tried in the replicas that follow."""
        if measurement.status is not Status.OK:
            self._waiting = deque(
                (replica, task) for replica, task in self._waiting if task.record.case != measurement.case
            )
        return measurement

    def end(self) -> None:
        """Hangs up and waits for the worker to end; kills it where it does not."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        self._selector.unregister(worker.pipe)
        worker.pipe.close()
        try:
            worker.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        worker.words.close()


def _tail(words: IO[bytes]) -> str:
    """The last lines that a worker printed."""
    size = words.seek(0, os.SEEK_END)
    words.seek(max(0, size - TAIL_BYTES))
    return words.read().decode(errors="replace").strip()
