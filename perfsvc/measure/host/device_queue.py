"""One device's part of a plan: its lock, its workers, and the cases still to measure."""

import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from perfsvc.errors import CaseError, NoDeviceError, PerfsvcError, SuiteError, TimeLimitError
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.measure.host.input_prefetcher import Order, Supply
from perfsvc.measure.host.lock import DeviceLock
from perfsvc.measure.host.worker_handle import Process, Relay
from perfsvc.measure.plan.order import OverBudget, Plan, Task
from perfsvc.measure.protocol.messages import Known, Measured, Ready, Refused, without_samples
from perfsvc.model import CacheState, Case, DeviceInfo, Measurement, Status

Say = Callable[[str], object]
"""Tells whoever waits for a run what keeps it."""
Stopping = Callable[[], bool]
"""Whether somebody asked the run to stop; once true, it stays so."""


def never() -> bool:
    """For whoever is not told to stop."""
    return False


START_LIMIT_S = 120.0
"""Seconds a worker may take to open its device."""
LOOK_S = 1.0
"""Seconds between two looks at a lane whose worker is busy and says nothing."""
GRACE_S = 20.0
"""Seconds that a case in hand may take to finish when the run is to stop: less than what Kubernetes, whose 30 s are the
shortest of those who stop services, waits before it kills."""
LOCK_LOOK_S = 0.2
"""The same while another run measures on the GPU."""
STEP_S = 0.001
"""The same while the lane waits for what takes moments: arrays, or the end of a worker."""


@dataclass
class Turn:
    """What a worker is at: a case, or (without one) opening its device.

    Attributes:
        since: when it began, on the monotonic clock.
        limit_s: seconds it may take.
    """

    task: Task | None
    replica: int
    since: float
    limit_s: float

    @property
    def left_s(self) -> float:
        """Seconds until it is past its limit, or 0."""
        return max(0.0, self.since + self.limit_s - time.monotonic())


class Lane:
    """Measures a plan's cases on one device.

    It takes the GPU's lock before its first worker, and gives it back when it has nothing left to do: lanes that
    waited for one lock while they held another could wait for each other.

    Args:
        plan: the plan.
        device: the device.
        selector: hears the workers of all lanes; its data is the lane to call ``hear`` of.
        supply: makes the arrays.
        servers: where its workers are forked.
        say: told once where another run holds the GPU, and which case is finished when the run is to stop.
        stopping: from when it is true on nothing is begun.
    """

    def __init__(
        self,
        plan: Plan,
        device: DeviceInfo,
        selector: selectors.BaseSelector,
        supply: Supply,
        *,
        servers: ForkServers,
        say: Say,
        stopping: Stopping,
    ) -> None:
        self.device = device
        self.opened = False
        self.refusal: NoDeviceError | None = None
        self._plan = plan
        self._supply = supply
        self._say = say
        self._stopping = stopping
        self._lock = DeviceLock(device.uuid)
        self._relay = Relay(device, plan.helper_kernels.get(device.uuid, b""), selector, self, servers)
        self._waiting = deque(plan.order(device.uuid))
        self._opening = [] if self._waiting else plan.opening(device.uuid)
        self._replica = 0
        self._served = False  # the present worker has measured a case
        self._turn: Turn | None = None
        self._order: Order | None = None
        self._known: dict[tuple[Case, CacheState], Known] = {}
        self._measured = {(case, cache) for uuid, case, cache, _ in plan.measured if uuid == device.uuid}
        self._said = False
        self._spared = False  # a fork server's death was not held against the device
        self._ends: float | None = None
        self._patient_until: float | None = None

    @property
    def working(self) -> bool:
        """Whether there is anything left to do that this device can still do."""
        return self._turn is not None or (bool(self._waiting) and self.refusal is None)

    @property
    def patience(self) -> float:
        """Seconds that nothing need be looked at here, unless the worker speaks."""
        if self._turn:
            return min(self._turn.left_s, LOOK_S)
        if self.working and not self._lock.held:
            return LOCK_LOOK_S
        if self.working and self._relay.present and self._order is None:
            return 0.0
        return STEP_S if self.working or self._lock.held else LOOK_S

    def advance(self) -> Iterator[Measurement | OverBudget]:
        """Goes as far as it can without waiting: the GPU's lock, a worker for the replica, the next case."""
        if self._stopping():
            self._drain()
        if self._turn:
            return
        if self._ends is not None and time.monotonic() >= self._ends:
            yield from self._leave_out()
        if not self.working:
            self._rest()
        elif self._has_board() and (worker := self._worker()):
            yield from self._next_case(worker)

    def hear(self) -> Iterator[Measurement]:
        """Takes one message from the worker; a closed socket means that it died, and a garbled one that it must."""
        if self._relay.present is None:
            return
        match self._relay.present.hear():
            case CaseError() as error:
                yield from self._lost(error)
            case Ready():
                self._turn, self.opened = None, True
            case Refused(what, cure):
                self._refused(NoDeviceError(what, cure=cure))
            case Measured(measurement, usable, known):
                self._turn, self._served = None, True
                if known:
                    self._known[measurement.case, measurement.cache] = known
                if not usable:
                    self._relay.dismiss()
                yield self._passed_on(measurement)

    def enforce(self) -> Iterator[Measurement]:
        """Kills a worker that is past its time limit, or at a case that does not finish when the run is to stop."""
        turn = self._turn
        if turn and not turn.left_s:
            yield from self._past_limit(turn)
        elif turn and self._patient_until is not None and time.monotonic() >= self._patient_until:
            self._turn = None
            self._relay.dismiss(kill=True)

    def adopt(self, tasks: Iterable[Task]) -> None:
        """Takes over the tasks of a GPU that was lost, from their first replica on, after what it has to do."""
        opening, self._opening = self._opening, []
        self._waiting += opening + self._plan.ordered(list(tasks), self.device.uuid)

    def give_up(self) -> list[tuple[int, Task]]:
        """What is left to do, each task with the next replica; it is not this lane's any more."""
        left: dict[tuple[Case, CacheState], tuple[int, Task]] = {}
        for replica, task in self._waiting:
            left.setdefault(task.spec, (replica, task))
            self._supply.drop(task)
        self._waiting.clear()
        self._forget_order()
        return list(left.values())

    def failed(self, left: Iterable[tuple[int, Task]], error: PerfsvcError) -> Iterator[Measurement]:
        """Tasks that nothing will measure on this device any more."""
        for replica, task in left:
            yield self._failure(task, replica, error)

    def dismiss(self) -> None:
        """Kills every worker, without waiting for any."""
        self._relay.dismiss(kill=True)

    def end(self) -> None:
        """Waits for the end of every worker, and gives the GPU back."""
        self._relay.dismiss()
        self._relay.end()
        self._lock.release()

    def _drain(self) -> None:
        """Gives up all that is not begun; the case in hand is finished, but not waited for without end."""
        self._opening = []
        self.give_up()
        if self._patient_until is not None or self._turn is None:
            return
        if self._turn.task is None:
            self._turn = None
            self._relay.dismiss()
            return
        self._patient_until = time.monotonic() + GRACE_S
        self._say(f"told to stop: {self._turn.task.record.case.id} is finished first")

    def _has_board(self) -> bool:
        if self._lock.held:
            return True
        try:
            taken = self._lock.take()
        except NoDeviceError as error:
            self._refused(error)
            return False
        if taken and self._ends is None and self._plan.budget_s is not None:
            self._ends = time.monotonic() + self._plan.budget_s
        if not taken and not self._said:
            self._said = True
            pid = self._lock.holder()
            who = "another perfsvc run" + (f" (pid {pid})" if pid else "")
            self._say(f"{self.device.uuid} is in use by {who}: waiting")
        return taken

    def _worker(self) -> Process | None:
        """The worker of the next case's replica, a fresh process for each; None while there is none that is ready."""
        replica, _ = self._waiting[0]
        present = self._relay.present
        if present and self._replica == replica:
            return present
        self._relay.dismiss()
        if not self._relay.is_ending():
            self._replica, self._served = replica, False
            self._turn = Turn(None, replica, time.monotonic(), START_LIMIT_S)
            if crash := self._relay.begin():
                self._did_not_start(crash)
        return None

    def _next_case(self, worker: Process) -> Iterator[Measurement]:
        order = self._ready_order()
        if order is None:
            return
        task, replica = order.task, order.replica
        self._waiting.remove((replica, task))
        try:
            with self._supply.take(order) as arrays:
                self._turn = Turn(task, replica, time.monotonic(), self._plan.limit_s + task.sampling.recovery_s)
                crash = worker.send(task, replica, arrays, self._known.get(task.spec))
        except SuiteError as error:
            yield self._passed_on(self._failure(task, replica, error))
            return
        if crash:
            yield from self._lost(crash)

    def _ready_order(self) -> Order | None:
        """The first one of the replica whose arrays are there; None where all of them are still being made.

        While it has to wait for the first of all, that one stays ordered, so that it is made whatever the budget.
        """
        replica, task = self._waiting[0]
        self._order = self._order or self._supply.order(task, replica)
        if self._order.ready:
            ready, self._order = self._order, None
            return ready
        if task in self._plan.first:  # what it finds is wanted when the others are
            return None
        others = (one for one in self._waiting if one[0] == replica and one[1] is not task)
        return next((self._supply.order(one, replica) for _, one in others if self._supply.has(one, replica)), None)

    def _past_limit(self, turn: Turn) -> Iterator[Measurement]:
        if turn.task is None:
            self._refused(
                NoDeviceError(
                    f"{self.device.model} ({self.device.spec}) was not open within {turn.limit_s:g} s",
                    cure="see what holds it: perfsvc doctor, nvidia-smi",
                )
            )
            return
        yield from self._lost(
            TimeLimitError(
                f"time limit: still running after {turn.limit_s:g} s, so its worker was killed",
                cure="look for an endless loop or a barrier that some threads never reach; a case that is merely slow "
                "needs a smaller point or a higher --limit",
            )
        )

    def _lost(self, error: CaseError) -> Iterator[Measurement]:
        """The worker is gone or must go: its case failed, the next one gets a new process."""
        turn, self._turn = self._turn, None
        if turn and turn.task:
            self._relay.dismiss(kill=True)
            wall_s = time.monotonic() - turn.since
            yield self._passed_on(self._failure(turn.task, turn.replica, error, wall_s=wall_s))
        elif self._served or self._may_start_again():  # it died between two cases: none of them is to blame
            self._relay.dismiss(kill=True)
        else:
            self._did_not_start(error)

    def _may_start_again(self) -> bool:
        """Whether the worker that did not start died with its fork server, for the first time."""
        present, spared = self._relay.present, self._spared
        self._spared = spared or bool(present and present.died_with_server)
        return self._spared and not spared

    def _did_not_start(self, error: CaseError) -> None:
        what = f"the worker for {self.device.spec} did not start: {error.what}"
        self._refused(NoDeviceError(what, cure="see what this machine lacks: perfsvc doctor"))

    def _refused(self, error: NoDeviceError) -> None:
        self._turn = None
        self._relay.dismiss(kill=True)
        self.refusal = error

    def _rest(self) -> None:
        """Nothing is left to do: lets the workers go and then the GPU, which another run may be waiting for."""
        self._relay.dismiss()
        if self._lock.held and not self._relay.is_ending():
            self._lock.release()
            self._said = False

    def _leave_out(self) -> Iterator[OverBudget]:
        """The budget is over: gives up what is left, and tells what no replica measured."""
        for _, task in self.give_up():
            if task.spec not in self._measured and task not in self._plan.first:
                reason = f"the budget of {self._plan.budget_s:g} s was over before its turn came"
                yield OverBudget(self.device.uuid, *task.spec, reason)

    def _failure(self, task: Task, replica: int, error: PerfsvcError, *, wall_s: float = 0.0) -> Measurement:
        return without_samples(task.record.case, self.device.uuid, replica, task.cache, error, wall_s=wall_s)

    def _passed_on(self, measurement: Measurement) -> Measurement:
        """Keeps that a case was measured; without a right result it is not tried in the replicas that follow."""
        spec = measurement.case, measurement.cache
        self._measured.add(spec)
        if measurement.status is not Status.OK:
            for task in {id(task): task for _, task in self._waiting if task.spec == spec}.values():
                self._supply.drop(task)
            self._waiting = deque(pair for pair in self._waiting if pair[1].spec != spec)
        return measurement

    def _forget_order(self) -> None:
        if self._order:
            self._supply.forget(self._order)
            self._order = None
