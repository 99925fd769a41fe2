"""Workers that are the run itself: for the fake device, where nothing but the machinery takes time.

They measure a case when they are given it, without the way to a process and back. Nobody can kill them, and a script
whose fault ends its process ends the run. So they open the fake device alone.
"""

import contextlib
import gc
import socket
from collections import deque
from types import TracebackType
from typing import Self

from perfsvc.device.find import open_device
from perfsvc.device.protocol import Device
from perfsvc.errors import NoDeviceError, PerfsvcError
from perfsvc.measure.job import Known, Measured, Ready, Refused
from perfsvc.measure.plan import Task
from perfsvc.measure.shared import Lent
from perfsvc.measure.worker import Bench
from perfsvc.measure.workers import job_of
from perfsvc.model import DeviceInfo

FAKE = "fake"
"""The kind of device that they open."""


class InProcess:
    """``perfsvc.measure.workers.Servers`` without any process: what a run is given to have its workers be itself."""

    def begin(self, *, apart: bool = False) -> "InProcessWorker":  # noqa: ARG002 - its devices have no addresses
        """A worker."""
        return InProcessWorker()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing is to be ended: each worker ends when it is dismissed."""


class InProcessWorker:
    """A ``perfsvc.measure.workers.Worker`` that does in its methods what a process does between its messages.

    Attributes:
        socket: never tells of anything, for what it says it has said by then.
        died_with_server: False, for there is nothing that could die but the run.
    """

    def __init__(self) -> None:
        self.died_with_server = False
        self.socket, self._silent = socket.socketpair()
        self._said: deque[Ready | Refused | Measured] = deque()
        self._bench: Bench | None = None
        self._held = contextlib.ExitStack()

    @property
    def spoken(self) -> bool:
        """Whether there is a message that was not heard yet."""
        return bool(self._said)

    def open(self, device: DeviceInfo, instruments: bytes) -> None:
        """Opens a fake device."""
        try:
            self._bench = self._held.enter_context(Bench(_open_fake(device, instruments)))
        except PerfsvcError as error:
            self._said.append(Refused(error.what, error.cure))
        else:
            self._said.append(Ready(self._bench.device.info))

    def send(self, task: Task, replica: int, arrays: Lent, known: Known | None) -> None:
        """Measures a case."""
        assert self._bench is not None  # noqa: S101 - a lane sends nothing to a worker that is not ready
        job = job_of(task, replica, arrays, known)
        gc.freeze()  # the collection before sampling need not look through all that the run holds
        self._said.append(self._bench.measured(job, task.modules, arrays.descriptors))

    def hear(self) -> Ready | Refused | Measured:
        """What it said first of all that was not heard yet."""
        return self._said.popleft()

    def dismiss(self, *, kill: bool = False) -> None:  # noqa: ARG002 - it is at nothing that could be cut short
        """Closes its device; what it put out of the collector's sight belongs to a process that goes on."""
        self._held.close()
        gc.unfreeze()
        self.socket.close()
        self._silent.close()

    def is_gone(self) -> bool:
        """Whether it was dismissed, for it is gone at once."""
        return self.socket.fileno() < 0

    def end(self, *, kill: bool = False) -> None:
        """Dismisses it."""
        self.dismiss(kill=kill)


def _open_fake(device: DeviceInfo, instruments: bytes) -> Device:
    if device.kind != FAKE:
        raise NoDeviceError(
            f"{device.spec} is not opened within perfsvc itself, which what it runs could end",
            cure="have its workers forked: ForkServers in the place of InProcess",
        )
    return open_device(device.spec, instruments)
