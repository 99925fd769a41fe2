"""One device's part of a plan: its lock, its workers, and the cases still to measure."""

import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from perfsvc.errors import CaseError, NoDeviceError, PerfsvcError, SuiteError, TimeLimitError
from perfsvc.measure.host.input_prefetcher import ArrayOrder, InputPrefetcher
from perfsvc.measure.host.lock import DeviceLocks
from perfsvc.measure.host.worker_handle import WorkerHandle
from perfsvc.measure.plan.order import NO_PYTHON, Plan, Task, TaskKey
from perfsvc.measure.protocol.messages import CheckedResult, Measured, Ready, Refused, without_samples
from perfsvc.model import DeviceInfo, Measurement, OverBudget, Status
from perfsvc.process.fork_servers import ForkServers

Report = Callable[[str], object]
"""Receives a message for the user who waits for a run."""
Stopping = Callable[[], bool]
"""Returns whether the run must stop. Once it has returned True, it always returns True."""


def never() -> bool:
    """Return False: the run is never asked to stop."""
    return False


START_LIMIT_S = 120.0
"""Seconds a worker may take to open its device."""
GRACE_S = 20.0
"""Seconds that the current case may still take when the run must stop. Service managers kill a process that does not
stop in time; Kubernetes is the quickest, after 30 s."""
POLL_S = 1.0
"""Seconds between two looks at a queue whose worker is busy and sends nothing."""
LOCK_POLL_S = 0.2
"""Seconds between two looks at a queue while another run measures on its device."""
SHORT_POLL_S = 0.001
"""Seconds between two looks at a queue that waits for arrays or for a worker to end. Both waits are short."""


@dataclass
class ActiveJob:
    """What a worker is doing: measuring a case or, without a task, opening its device.

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
        """Seconds left until the limit; 0 after the limit."""
        return max(0.0, self.since + self.limit_s - time.monotonic())


class DeviceQueue:
    """Measures a plan's cases on one device, with one worker at a time.

    The queue of a group takes the locks of all its GPUs, so it waits until their own queues are empty.

    The queue takes the device's lock before it starts a worker, and releases the lock when it has nothing left to do.
    Otherwise two runs could each keep the lock of one device and wait forever for the other device. A new worker is
    forked only after the previous one has ended, because a second context on the device would disturb the times.

    Args:
        plan: the plan.
        device: the device.
        selector: listens to the sockets of all workers; each socket is registered with its queue as data.
        prefetcher: makes the inputs and references.
        servers: the fork servers, which fork the workers.
        report: receives a message if another run holds the device, and if a stop waits for the current case.
        stopping: once it returns True, the queue begins no further case.

    Attributes:
        opened: whether a worker has opened the device.
        refusal: why the device cannot be used any more.
    """

    def __init__(
        self,
        plan: Plan,
        device: DeviceInfo,
        selector: selectors.BaseSelector,
        prefetcher: InputPrefetcher,
        *,
        servers: ForkServers,
        report: Report,
        stopping: Stopping,
    ) -> None:
        self.device = device
        self.opened = False
        self.refusal: NoDeviceError | None = None
        self._plan = plan
        self._selector = selector
        self._prefetcher = prefetcher
        self._servers = servers
        self._report = report
        self._stopping = stopping
        self._lock = DeviceLocks(device.members)
        self._worker: WorkerHandle | None = None
        self._dismissed: list[WorkerHandle] = []  # workers that may still be running
        self._waiting = deque(plan.order(device.uuid))
        self._opening = [] if self._waiting else plan.opening(device.uuid)
        self._replica = 0
        self._needs_checked = 0  # the replica before which the queue last asked the plan which tasks it still needs
        self._worker_has_measured = False
        self._worker_python: object = NO_PYTHON  # the source of the Python functions that the worker has called
        self._worker_runs_programs = False
        self._active: ActiveJob | None = None
        self._order: ArrayOrder | None = None
        self._checked: dict[TaskKey, CheckedResult] = {}
        self._measured = {(case, cache) for uuid, case, cache, _ in plan.measured if uuid == device.uuid}
        self._reported_lock = False
        self._server_death_excused = False
        self._budget_ends: float | None = None
        self._grace_ends: float | None = None

    @property
    def working(self) -> bool:
        """Whether the queue has work left that its device can still do."""
        return self._active is not None or (bool(self._waiting) and self.refusal is None)

    @property
    def ends_replica(self) -> bool:
        """Whether the next case belongs to another replica than the worker, or there is no further case."""
        return not self._waiting or self._waiting[0][0] != self._replica

    @property
    def left_s(self) -> float:
        """Seconds that the waiting cases probably take, in all their replicas."""
        return sum(task.cost_s for _, task in self._waiting)

    @property
    def patience_s(self) -> float:
        """Seconds after which ``advance`` must be called again if the worker sends nothing."""
        if self._active:
            return min(self._active.left_s, POLL_S)
        if self.working and not self._lock.held:
            return LOCK_POLL_S
        if self.working and self._worker and self._order is None:
            return 0.0
        return SHORT_POLL_S if self.working or self._lock.held else POLL_S

    # --- called by the pool, again and again -------------------------------------------------------------------------

    def advance(self) -> Iterator[Measurement | OverBudget]:
        """Do what is possible without waiting: take the lock, start the replica's worker, send the next case."""
        if self._stopping():
            self._drain()
        if self._active:
            return
        if self._budget_ends is not None and time.monotonic() >= self._budget_ends:
            yield from self._end_budget()
        self._drop_unneeded()
        if not self.working:
            self._rest()
        elif self._has_lock() and (worker := self._ready_worker()):
            yield from self._send_next(worker)

    def receive(self) -> Iterator[Measurement]:
        """Receive a message from the worker; yield the measurement in it, or a failure if the worker is unusable."""
        if self._worker is None:
            return
        match self._worker.receive():
            case CaseError() as error:
                yield from self._lose_worker(error)
            case Ready():
                self._active, self.opened = None, True
            case Refused(what, cure):
                self._give_up_device(NoDeviceError(what, cure=cure))
            case Measured(measurement, usable, checked):
                self._active, self._worker_has_measured = None, True
                if checked:
                    self._checked[measurement.case, measurement.cache] = checked
                if not usable:
                    self._dismiss()
                yield self._note(measurement)

    def enforce_limits(self) -> Iterator[Measurement]:
        """Limit the worker's output. Kill the worker if it has exceeded its time limit.

        Kill it too if it is still busy ``GRACE_S`` after the run had to stop.
        """
        active = self._active
        if self._worker:
            self._worker.limit_output()
        if active and not active.left_s:
            yield from self._exceed_limit(active)
        elif active and self._grace_ends is not None and time.monotonic() >= self._grace_ends:
            self._active = None
            self._dismiss(kill=True)

    # --- called when a device is lost, and at the end ----------------------------------------------------------------

    def adopt(self, tasks: Iterable[Task]) -> None:
        """Append the tasks of a lost device to this queue, from their first replica on."""
        opening, self._opening = self._opening, []
        self._waiting += opening + self._plan.ordered(list(tasks), self.device.uuid)

    def give_up(self) -> list[tuple[int, Task]]:
        """Empty the queue, and return each task that was waiting in it, with the task's next replica."""
        removed: dict[TaskKey, tuple[int, Task]] = {}
        for replica, task in self._waiting:
            removed.setdefault(task.key, (replica, task))
            self._prefetcher.drop(task)
        self._waiting.clear()
        if self._order:
            self._prefetcher.cancel(self._order)
            self._order = None
        return list(removed.values())

    def failed(self, unmeasured: Iterable[tuple[int, Task]], error: PerfsvcError) -> Iterator[Measurement]:
        """Yield a failed measurement with the error for each replica and task that will not be measured here."""
        for replica, task in unmeasured:
            yield self._failure(task, replica, error)

    def kill_workers(self) -> None:
        """Kill every worker, without waiting for them to end."""
        self._dismiss(kill=True)

    def end(self) -> None:
        """Wait for every worker to end, and release the device."""
        self._dismiss()
        while self._dismissed:
            self._dismissed.pop().end()
        self._lock.release()

    # --- the worker --------------------------------------------------------------------------------------------------

    def _ready_worker(self) -> WorkerHandle | None:
        """Return the worker for the next case, or start it and return None until it is ready."""
        replica, task = self._waiting[0]
        if self._worker and self._replica == replica and self._may_share_worker(task):
            return self._worker
        self._dismiss()
        if not self._is_worker_ending():
            self._start_worker(replica, programs=task.is_program)
        return None

    def _may_share_worker(self, task: Task) -> bool:
        """Return whether the worker may measure a task: it has called no Python function of another source.

        Such a function can change what the whole process uses, such as NumPy's settings or the precision of PyTorch.
        Results and times of other benchmarks would depend on it. A worker that runs programs measures nothing else,
        because it has not opened the device.
        """
        same_python = self._worker_python in {NO_PYTHON, task.python_source}
        return self._worker_runs_programs == task.is_program and same_python

    def _start_worker(self, replica: int, *, programs: bool) -> None:
        """Fork the next worker and have it open the device, unless it only runs ``programs``.

        Workers that one server forks share an address layout, which affects the times of the CPU device. On that device
        each worker comes from its own server, so that replicas differ.
        """
        self._replica, self._worker_has_measured, self._worker_python = replica, False, NO_PYTHON
        self._worker_runs_programs = programs
        self._active = ActiveJob(None, replica, time.monotonic(), START_LIMIT_S)
        self._worker = WorkerHandle(self._servers.take(unused=self.device.kind == "cpu" and not programs))
        self._selector.register(self._worker.socket, selectors.EVENT_READ, self)
        helper_kernels = self._plan.helper_kernels.get(self.device.uuid, b"")
        if crash := self._worker.open(self.device, helper_kernels, programs=programs):
            self._fail_to_start(crash)

    def _dismiss(self, *, kill: bool = False) -> None:
        """Tell the worker to end, without waiting. With ``kill``, kill it and all workers that are still ending."""
        for ending in self._dismissed if kill else ():
            ending.dismiss(kill=True)
        if self._worker:
            self._selector.unregister(self._worker.socket)
            self._worker.dismiss(kill=kill)
            self._dismissed.append(self._worker)
            self._worker = None

    def _is_worker_ending(self) -> bool:
        """Return whether a dismissed worker is still running."""
        self._dismissed = [worker for worker in self._dismissed if not worker.is_gone()]
        return bool(self._dismissed)

    def _lose_worker(self, error: CaseError) -> Iterator[Measurement]:
        """Replace a worker that died or must be killed, and yield the failure of its case."""
        active, self._active = self._active, None
        if active and active.task and self._worker_has_measured and self._worker and self._worker.spoilt:
            self._dismiss(kill=True)
            self._put_back(active.replica, active.task)
        elif active and active.task:
            self._dismiss(kill=True)
            wall_s = time.monotonic() - active.since
            yield self._note(self._failure(active.task, active.replica, error, wall_s=wall_s))
        elif self._worker_has_measured or self._may_start_again():  # no case is at fault
            self._dismiss(kill=True)
        else:
            self._fail_to_start(error)

    def _put_back(self, replica: int, task: Task) -> None:
        """Have a fresh worker measure a task next, because an earlier task may have spoilt the worker.

        If a worker is spoilt by its first task, that task fails. So no task is put back twice.
        """
        if self._order:  # these arrays are for a task that now comes later
            self._prefetcher.cancel(self._order)
            self._order = None
        self._waiting.appendleft((replica, task))

    def _may_start_again(self) -> bool:
        """Return whether the worker failed to start because its fork server died; True only once for each device."""
        excused = self._server_death_excused
        self._server_death_excused = excused or bool(self._worker and self._worker.died_with_server)
        return self._server_death_excused and not excused

    def _fail_to_start(self, error: CaseError) -> None:
        """Give the device up because its worker did not start."""
        what = f"the worker for {self.device.spec} did not start: {error.what}"
        self._give_up_device(NoDeviceError(what, cure="see what this machine lacks: perfsvc doctor"))

    def _give_up_device(self, error: NoDeviceError) -> None:
        """Kill the worker and mark the device as unusable."""
        self._active = None
        self._dismiss(kill=True)
        self.refusal = error

    # --- the next case -----------------------------------------------------------------------------------------------

    def _has_lock(self) -> bool:
        """Try to take the device's lock and return whether this process holds it; taking it starts the time budget."""
        if self._lock.held:
            return True
        try:
            taken = self._lock.take()
        except NoDeviceError as error:
            self._give_up_device(error)
            return False
        if taken and self._budget_ends is None and self._plan.budget_s is not None:
            self._budget_ends = time.monotonic() + self._plan.budget_s
        pid = None if taken else self._lock.holder()
        # A group waits for the queues of its GPUs, which belong to this process.
        if not taken and not self._reported_lock and pid != os.getpid():
            self._reported_lock = True
            holder = "another perfsvc run" + (f" (pid {pid})" if pid else "")
            self._report(f"{self.device.uuid} is in use by {holder}: waiting")
        return taken

    def _drop_unneeded(self) -> None:
        """At the beginning of each replica, drop the tasks that the plan no longer needs."""
        if not self._waiting or self._waiting[0][0] == self._needs_checked:
            return
        unneeded = {id(task): task for _, task in self._waiting if not self._plan.needs(task)}
        for task in unneeded.values():
            self._prefetcher.drop(task)
        self._waiting = deque(entry for entry in self._waiting if id(entry[1]) not in unneeded)
        if self._waiting:
            self._needs_checked = self._waiting[0][0]

    def _send_next(self, worker: WorkerHandle) -> Iterator[Measurement]:
        """Send the next case whose arrays are ready, if there is one.

        Yield the failure of a case whose arrays cannot be made.
        """
        order = self._ready_order()
        if order is None:
            return
        task, replica = order.task, order.replica
        self._waiting.remove((replica, task))
        try:
            with self._prefetcher.take(order) as arrays:
                limit_s, program_limit_s = self._plan.limits_s(task)
                self._active = ActiveJob(task, replica, time.monotonic(), limit_s)
                self._worker_python = task.python_source if task.bench else self._worker_python
                crash = worker.send(task, replica, arrays, self._checked.get(task.key), program_limit_s)
        except SuiteError as error:
            yield self._note(self._failure(task, replica, error))
            return
        if crash:
            yield from self._lose_worker(crash)

    def _ready_order(self) -> ArrayOrder | None:
        """Return the request of the replica's first case whose arrays are ready; None without such a case.

        The request of the queue's first task stays open until the arrays are ready, so that the memory budget cannot
        prevent them from being made.
        """
        replica, task = self._waiting[0]
        self._order = self._order or self._prefetcher.order(task, replica)
        if self._order.ready:
            ready, self._order = self._order, None
            return ready
        if task in self._plan.first:  # later tasks need the result of this task
            return None
        for later_replica, later in self._waiting:
            may_pass = later_replica == replica and later is not task and self._may_share_worker(later)
            if may_pass and self._prefetcher.is_ready(later, replica):
                return self._prefetcher.order(later, replica)
        return None

    def _exceed_limit(self, active: ActiveJob) -> Iterator[Measurement]:
        """Kill the worker and yield the failure of its case. If no case was sent yet, give the device up instead."""
        if active.task is None:
            self._give_up_device(
                NoDeviceError(
                    f"{self.device.model} ({self.device.spec}) was not open within {active.limit_s:g} s",
                    cure="see what holds it: perfsvc doctor, nvidia-smi",
                )
            )
            return
        yield from self._lose_worker(
            TimeLimitError(
                f"time limit: still running after {active.limit_s:g} s, so its worker was killed",
                cure="look for an endless loop or a barrier that some threads never reach; a case that is merely slow "
                "needs a smaller point or a higher --limit",
            )
        )

    def _failure(self, task: Task, replica: int, error: PerfsvcError, *, wall_s: float = 0.0) -> Measurement:
        return without_samples(task.record.case, self.device.uuid, replica, task.cache, error, wall_s=wall_s)

    def _note(self, measurement: Measurement) -> Measurement:
        """Note that a case was measured, and return its measurement. If the case failed, drop its later replicas."""
        key = measurement.case, measurement.cache
        self._measured.add(key)
        if measurement.status is not Status.OK:
            for task in {id(task): task for _, task in self._waiting if task.key == key}.values():
                self._prefetcher.drop(task)
            self._waiting = deque(entry for entry in self._waiting if entry[1].key != key)
        return measurement

    # --- ending ------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Give up all cases that have not begun. The current case may finish within ``GRACE_S``."""
        self._opening = []
        self.give_up()
        if self._grace_ends is not None or self._active is None:
            return
        if self._active.task is None:
            self._active = None
            self._dismiss()
            return
        self._grace_ends = time.monotonic() + GRACE_S
        self._report(f"stopping: waiting for {self._active.task.record.case.id} to finish")

    def _rest(self) -> None:
        """End the worker, and release the device once the worker is gone: another run may wait for it."""
        self._dismiss()
        if self._lock.held and not self._is_worker_ending():
            self._lock.release()
            self._reported_lock = False

    def _end_budget(self) -> Iterator[OverBudget]:
        """Empty the queue after the time budget is used up; yield each case that was not measured at all."""
        for _, task in self.give_up():
            if task.key not in self._measured and task not in self._plan.first:
                reason = f"the budget of {self._plan.budget_s:g} s was used up before the case was measured"
                yield OverBudget(self.device.uuid, *task.key, reason)
