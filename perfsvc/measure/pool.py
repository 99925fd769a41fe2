"""The pool: a worker for each device and replica, one case after the other.

Nothing that a case does can cost more than that case: a worker that dies, hangs or loses its device is ended and
replaced, and the case that did it is not tried again in this run. A device that cannot be opened any more costs the
cases that were left for it. Measurements are handed out as they arrive.
"""

import contextlib
import selectors
import time
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from perfsvc.errors import CaseError, NoDeviceError, PerfsvcError, SuiteError, TimeLimitError
from perfsvc.measure.job import Measured, Ready, Refused
from perfsvc.measure.outcome import without_samples
from perfsvc.measure.plan import Plan, Task, devices
from perfsvc.measure.process import Process
from perfsvc.measure.supply import Order, Supply
from perfsvc.model import DeviceInfo, Measurement, Status

START_LIMIT_S = 120.0
"""Seconds a worker may take to open its device."""
LOOK_S = 1.0
"""Seconds between two looks at the lanes where nothing is heard."""
SUPPLY_LOOK_S = 0.01
"""The same while a worker waits for its arrays."""


def measure(plan: Plan, found: dict[str, DeviceInfo]) -> Generator[Measurement, None, None]:
    """Works off a plan, all devices at once, and yields each measurement as it arrives.

    Closing the iterator, or an exception in its consumer, ends every worker.

    Args:
        plan: what to measure.
        found: the devices of the plan by UUID.

    Raises:
        NoDeviceError: none of the devices could be opened.
    """
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as ended:
        supply = ended.enter_context(Supply())
        lanes = [Lane(plan, found[device], selector, supply) for device in devices(plan.tasks)]
        for lane in lanes:
            ended.callback(lane.end, kill=True)
        while any(lane.working for lane in lanes):
            for lane in lanes:
                yield from lane.advance()
            for key, _ in selector.select(min((lane.patience for lane in lanes if lane.working), default=0.0)):
                yield from key.data.hear()
            for lane in lanes:
                yield from lane.enforce()
        if lanes and not any(lane.opened for lane in lanes):
            raise next(lane.refusal for lane in lanes if lane.refusal)
        for lane in lanes:
            lane.end()
            yield from lane.left_undone()


@dataclass
class Turn:
    """What a worker is at: a case, or (without one) opening its device; ``deadline`` on the monotonic clock."""

    task: Task | None
    since: float
    deadline: float


class Lane:
    """One device's part of a plan: the cases still to measure, and the worker at it."""

    def __init__(self, plan: Plan, device: DeviceInfo, selector: selectors.BaseSelector, supply: Supply) -> None:
        self._limit_s = plan.limit_s
        self._device = device
        self._selector = selector
        self._supply = supply
        self._waiting = deque(plan.order(device.uuid))
        self._process: Process | None = None
        self._turn: Turn | None = None
        self._order: Order | None = None
        self.opened = False
        self.refusal: NoDeviceError | None = None

    @property
    def working(self) -> bool:
        """Whether there is anything left to do that this device can still do."""
        return self._turn is not None or (bool(self._waiting) and self.refusal is None)

    @property
    def patience(self) -> float:
        """Seconds that nothing need be looked at here, unless the worker speaks."""
        if self._turn is None:
            return SUPPLY_LOOK_S
        return max(0.0, min(self._turn.deadline - time.monotonic(), LOOK_S))

    def advance(self) -> Iterator[Measurement]:
        """Gives a worker that waits its next case; starts a fresh process for each replica."""
        while self.working and self._waiting:
            replica, task = self._waiting[0]
            order = self._ordered(task)  # also ahead of time, while the worker is at another case
            if self._turn:
                return
            if self._process and self._process.replica != replica:
                self.end()
            if self._process is None:
                self._start(replica)
                return
            if not order.ready:
                return
            self._waiting.popleft()
            self._order = None
            yield from self._send(self._process, task, order)

    def hear(self) -> Iterator[Measurement]:
        """Takes one message from the worker; a closed socket means that it died, and a garbled one that it must."""
        if self._process is None:
            return
        match self._process.hear():
            case CaseError() as error:
                yield from self._lost(error)
            case Ready():
                self._turn, self.opened = None, True
            case Refused(what, cure):
                self._refused(NoDeviceError(what, cure=cure))
            case Measured(measurement, usable):
                self._turn = None
                if not usable:
                    self.end()
                yield self._passed_on(measurement)

    def enforce(self) -> Iterator[Measurement]:
        """Kills a worker that is past its time limit."""
        turn = self._turn
        if turn is None or time.monotonic() < turn.deadline:
            return
        if turn.task is None:
            self._refused(
                NoDeviceError(
                    f"{self._device.model} ({self._device.spec}) was not open within {START_LIMIT_S:g} s",
                    cure="see what holds it: perfsvc doctor, nvidia-smi",
                )
            )
            return
        yield from self._lost(
            TimeLimitError(
                f"time limit: still running after {self._limit_s:g} s, so its worker was killed",
                cure="look for an endless loop or a barrier that some threads never reach; a case that is merely slow "
                "needs a smaller point or a higher --limit",
            )
        )

    def end(self, *, kill: bool = False) -> None:
        """Ends the worker: by hanging up, or at once."""
        process, self._process, self._turn = self._process, None, None
        if process:
            self._selector.unregister(process.socket)
            process.end(kill=kill)

    def left_undone(self) -> Iterator[Measurement]:
        """The cases that were left when the device could not be opened any more, each as failed."""
        while self._waiting and self.refusal:
            replica, task = self._waiting.popleft()
            yield self._passed_on(self._failure(task, replica, self.refusal))

    def _ordered(self, task: Task) -> Order:
        if self._order and self._order.task is not task:
            self._supply.forget(self._order)
            self._order = None
        self._order = self._order or self._supply.order(task)
        return self._order

    def _start(self, replica: int) -> None:
        self._process = Process(self._device.spec, replica)
        self._selector.register(self._process.socket, selectors.EVENT_READ, self)
        self._begin(None, START_LIMIT_S)

    def _begin(self, task: Task | None, limit_s: float) -> None:
        now = time.monotonic()
        self._turn = Turn(task, now, now + limit_s)

    def _send(self, process: Process, task: Task, order: Order) -> Iterator[Measurement]:
        try:
            with self._supply.take(order) as arrays:
                self._begin(task, self._limit_s)
                crash = process.send(task, arrays)
        except SuiteError as error:
            yield self._passed_on(self._failure(task, process.replica, error))
            return
        if crash:
            yield from self._lost(crash)

    def _lost(self, error: CaseError) -> Iterator[Measurement]:
        """The worker is gone or must go: its case failed, the next one gets a new process."""
        process, turn = self._process, self._turn
        self.end(kill=True)
        if turn and turn.task and process:
            yield self._passed_on(self._failure(turn.task, process.replica, error, since=turn.since))
        elif turn:
            self._refused(
                NoDeviceError(
                    f"the worker for {self._device.spec} did not start: {error.what}",
                    cure="see what this machine lacks: perfsvc doctor",
                )
            )

    def _refused(self, error: NoDeviceError) -> None:
        self.end(kill=True)
        self.refusal = error

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
