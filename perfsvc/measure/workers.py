"""Workers as a lane sees them, whatever they are: forked processes, or the run itself where nights are simulated."""

import socket
from types import TracebackType
from typing import Protocol, Self

from perfsvc.errors import CrashError
from perfsvc.measure.job import Job, Known, Measured, Ready, Refused
from perfsvc.measure.plan import Task
from perfsvc.measure.shared import Lent
from perfsvc.model import DeviceInfo


class Worker(Protocol):
    """One that opens a device and measures on it, a case at a time."""

    @property
    def socket(self) -> socket.socket:
        """Readable when it has something to say."""
        ...

    @property
    def spoken(self) -> bool:
        """Whether it has something to say of which its socket does not tell, as where it answers while it is told."""
        ...

    @property
    def died_with_server(self) -> bool:
        """Whether it was found to have died because what began it did, which no case is to blame for."""
        ...

    def open(self, device: DeviceInfo, instruments: bytes) -> CrashError | None:
        """Has it open a device, with the binary of the device's instruments; returns why it could not be told."""
        ...

    def send(self, task: Task, replica: int, arrays: Lent, known: Known | None) -> CrashError | None:
        """Gives it a case to measure; returns why it could not, if so."""
        ...

    def hear(self) -> Ready | Refused | Measured | CrashError:
        """What its next message says, or why there is none."""
        ...

    def dismiss(self, *, kill: bool = False) -> None:
        """Has it end by itself or at once; does not wait for it."""
        ...

    def is_gone(self) -> bool:
        """Whether it has ended since it was dismissed."""
        ...

    def end(self, *, kill: bool = False) -> None:
        """Dismisses it and waits until it is gone."""
        ...


class Servers(Protocol):
    """What begins workers: a context manager, at whose end all of them have ended."""

    def begin(self, *, apart: bool = False) -> Worker:
        """Begins a worker.

        Args:
            apart: one that has no layout of addresses in common with any other.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


def job_of(task: Task, replica: int, arrays: Lent, known: Known | None) -> Job:
    """The job that a task is in a replica, with the arrays that it is lent."""
    return Job(
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
