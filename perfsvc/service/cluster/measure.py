"""Measure a plan on the GPUs of a cluster: the command plans and stores, and the agents measure.

The command passes on each result once, whatever an agent sends. When an agent is lost, what it has not delivered is
measured by another GPU of its model, or fails with the reason.
"""

import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from perfsvc.errors import NoDeviceError, PerfsvcError
from perfsvc.measure.host.device_queue import GRACE_S, Report, Stopping
from perfsvc.measure.host.pool import OnLoss
from perfsvc.measure.plan.assignment import hand_over
from perfsvc.measure.plan.order import MeasurementKey, Plan, Task, TaskKey
from perfsvc.measure.protocol.messages import without_samples
from perfsvc.model import DeviceInfo, Measurement, OverBudget, Status, codec
from perfsvc.service.cluster.messages import AgentNews, Cluster, ClusterGpu, Ended, LostError, Packet, share_of

POLL_S = 1.0
"""Seconds between two looks at whether the run must stop."""
STOP_S = GRACE_S + 10.0
"""Seconds that agents have for their current cases when the run must stop; then they are killed."""
MOST_MOVES = 2
"""How often a case moves to another GPU: a case that ends every host must not end all of them."""


class GpuQueue:
    """What one GPU of the cluster still has to measure.

    Args:
        plan: the plan.
        device: the GPU.
        gpu: its agent.
        sharing: how many GPUs of its host measure for the run.

    Attributes:
        refusal: why the GPU cannot be used any more.
        opened: whether the GPU has measured something.
    """

    def __init__(self, plan: Plan, device: DeviceInfo, gpu: ClusterGpu, sharing: int) -> None:
        self.device = device
        self.gpu = gpu
        self.refusal: NoDeviceError | None = None
        self.opened = False
        self._plan = plan
        self._sharing = sharing
        self._shares = [tuple(task for task in plan.tasks if task.device == device.uuid)]
        self._is_first = True
        self._began: float | None = None
        self._running: tuple[Task, ...] = ()
        self._expected: dict[MeasurementKey, Task] = {}
        self._dropped: set[int] = set()
        self._is_busy = False
        self._is_stopped = False

    @property
    def working(self) -> bool:
        """Whether the GPU measures, or can begin to."""
        return self.refusal is None and (self._is_busy or any(self._shares) or self._has_opening)

    @property
    def _has_opening(self) -> bool:
        return self._is_first and bool(self._plan.opening(self.device.uuid))

    @property
    def is_busy(self) -> bool:
        """Whether the agent measures a share."""
        return self._is_busy

    @property
    def left_s(self) -> float:
        """Seconds that the remaining cases probably take."""
        waiting = [task for share in self._shares for task in share]
        return sum(task.cost_s for task in (*self._expected.values(), *waiting))

    def begin_next(self) -> None:
        """Have the agent begin the next share, if there is one and the agent is idle."""
        if self._is_busy or self.refusal or not (any(self._shares) or self._has_opening):
            return
        self._began = self._began or time.monotonic()
        budget_s = self._plan.budget_s
        if budget_s is not None:
            budget_s = max(0.0, self._began + budget_s - time.monotonic())
        self._running = self._shares.pop(0) if self._shares else ()
        share, blobs = share_of(
            self._plan, self.device, self._running, budget_s, opening=self._is_first, sharing=self._sharing
        )
        order = self._plan.ordered(self._running, self.device.uuid)
        order += self._plan.opening(self.device.uuid) if self._is_first else []
        self._expected = {(self.device.uuid, *task.key, replica): task for replica, task in order}
        self._is_first, self._is_busy = False, True
        self._dropped.clear()
        try:
            self.gpu.begin(codec.encode(share), blobs)
        except LostError as error:
            self.lose(error)

    def receive(self, report: Report) -> Iterator[Measurement | OverBudget]:
        """Yield what the agent has measured since the last call."""
        try:
            packets = self.gpu.take()
        except LostError as error:
            self.lose(error)
            return
        for packet in packets:
            yield from self._read(packet, report)

    def _read(self, packet: Packet, report: Report) -> Iterator[Measurement | OverBudget]:
        text, files = packet
        try:
            news = codec.decode(AgentNews, text)
        except ValueError as error:
            self.lose(LostError(f"it sent a message that cannot be read: {error}"))
            return
        match news:
            case AgentNews(measurement=Measurement() as measurement):
                key = (measurement.device, measurement.case, measurement.cache, measurement.replica)
                if self._expected.pop(key, None) is None:
                    return  # it is here already: a message may arrive twice
                self.opened = True
                if measurement.status is not Status.OK:
                    self._forget(measurement.case, measurement.cache)
                yield replace(measurement, files=files)
            case AgentNews(over_budget=OverBudget() as case):
                yield case
            case AgentNews(ended=Ended(refusal, cure)):
                self._is_busy = False
                if not refusal and (forgotten := self._forgotten):
                    refusal = f"the agent on {self.gpu.place} ended before it had measured {forgotten} of its cases"
                if refusal:
                    self.refusal = NoDeviceError(refusal, cure=cure)
                else:
                    self._expected.clear()
            case AgentNews(text=line):
                report(line)

    @property
    def _forgotten(self) -> int:
        """How many cases an agent should have measured before it ended; those that the budget cuts off are unknown."""
        if self._is_stopped or self._plan.budget_s is not None:
            return 0
        return len({task.key for task in self._expected.values() if self._plan.needs(task)})

    def _forget(self, *key: object) -> None:
        """Expect no further replica of a failed case."""
        self._expected = {full: task for full, task in self._expected.items() if full[1:3] != key}

    def lose(self, error: PerfsvcError) -> None:
        """Mark the GPU as lost with its agent."""
        self._is_busy = False
        self.refusal = NoDeviceError(f"{self.gpu.place} was lost: {error.what}", cure=error.cure)

    def drop_decided(self) -> None:
        """Let the agent drop the tasks that the plan no longer needs."""
        if not self._is_busy:
            return
        decided = {position for position, task in enumerate(self._running) if not self._plan.needs(task)}
        if new := decided - self._dropped:
            self._dropped |= new
            try:
                self.gpu.drop(sorted(new))
            except LostError as error:
                self.lose(error)

    def adopt(self, tasks: Sequence[Task]) -> None:
        """Measure the tasks of a lost GPU too, from their first replica on."""
        self._shares.append(tuple(tasks))

    def give_up(self) -> list[tuple[int, Task]]:
        """Return each task that is left, with its next replica, and forget them."""
        left: dict[TaskKey, tuple[int, Task]] = {}
        for (_, _, _, replica), task in self._expected.items():
            left.setdefault(task.key, (replica, task))
        for task in (task for share in self._shares for task in share):
            left.setdefault(task.key, (0, task))
        if self._has_opening:
            left |= {task.key: (0, task) for _, task in self._plan.opening(self.device.uuid)}
        self._expected, self._shares, self._is_first = {}, [], False
        return list(left.values())

    def stop(self) -> None:
        """Begin nothing more; the agent ends its current case."""
        self._shares, self._is_first, self._is_stopped = [], False, True
        if self._is_busy:
            try:
                self.gpu.stop()
            except LostError as error:
                self.lose(error)


def measure(
    plan: Plan,
    devices: Mapping[str, DeviceInfo],
    report: Report,
    stopping: Stopping,
    *,
    on_loss: OnLoss | None,
    cluster: Cluster,
    gpus: Mapping[str, ClusterGpu],
    hosts: Mapping[str, str],
) -> Generator[Measurement | OverBudget, None, None]:
    """Measure a plan on the GPUs of a cluster; the arguments and the results are those of ``pool.measure``.

    Closing the iterator, or an exception in its consumer, kills the agents.

    Args:
        plan: what to measure.
        devices: the devices of the plan by UUID.
        report: receives messages for the user.
        stopping: once it returns True, no further case is begun.
        on_loss: receives each GPU that cannot be used any more; without it, the remaining cases of the GPU fail.
        cluster: the cluster.
        gpus: the agents of all GPUs, by UUID.
        hosts: the hosts of all GPUs, by UUID.

    Raises:
        NoDeviceError: none of the GPUs could be used, and there is no ``on_loss``.
    """
    on_host = Counter(hosts[uuid] for uuid in devices)
    queues = [GpuQueue(plan, device, gpus[uuid], on_host[hosts[uuid]]) for uuid, device in devices.items()]
    try:
        yield from _work(cluster, plan, queues, report, stopping)
        yield from _unmeasured(queues, stopping, on_loss)
    finally:
        for queue in queues:
            if queue.is_busy:
                queue.gpu.end()


def _work(
    cluster: Cluster, plan: Plan, queues: Sequence[GpuQueue], report: Report, stopping: Stopping
) -> Iterator[Measurement | OverBudget]:
    """Have all GPUs measure, and yield each result, until all have ended or a stopped run has waited long enough."""
    stop_ends: float | None = None
    moves: Counter[TaskKey] = Counter()
    while any(queue.working for queue in queues):
        if stopping() and stop_ends is None:
            stop_ends = time.monotonic() + STOP_S
            for queue in queues:
                queue.stop()
        if stop_ends is not None and time.monotonic() >= stop_ends:
            return
        for queue in queues:
            queue.begin_next()
        if busy := [queue.gpu for queue in queues if queue.is_busy]:
            cluster.wait(busy, POLL_S)
        for queue in queues:
            if queue.is_busy:
                yield from queue.receive(report)
                queue.drop_decided()
        if plan.spread == "each-model" and stop_ends is None:
            yield from _move_from_lost_gpus(plan, queues, moves, report)


def _move_from_lost_gpus(
    plan: Plan, queues: Sequence[GpuQueue], moves: Counter[TaskKey], report: Report
) -> Iterator[Measurement]:
    """Move what is left on lost GPUs to other GPUs of the model; yield a failure for each case that cannot move.

    All replicas of a moved case are measured anew, because replicas of two devices do not share one level.
    """
    for lost in queues:
        heirs = {queue.device.uuid: queue for queue in queues if _can_inherit(queue, lost)}
        if not (lost.refusal and heirs):
            continue
        stay: list[tuple[int, Task]] = []
        move: list[tuple[int, Task]] = []
        for replica, task in lost.give_up():
            moves[task.key] += 1
            can_move = task not in plan.first and moves[task.key] <= MOST_MOVES
            (move if can_move else stay).append((replica, task))
        yield from failures(lost, stay, lost.refusal)
        loads = {uuid: queue.left_s / plan.replicas for uuid, queue in heirs.items()}
        for uuid, tasks in hand_over((task for _, task in move), loads).items():
            heirs[uuid].adopt(tasks)
            report(f"{lost.device.uuid} is lost ({lost.refusal.what}): {uuid} measures {len(tasks)} of its cases")


def _can_inherit(queue: GpuQueue, lost: GpuQueue) -> bool:
    return queue is not lost and queue.refusal is None and queue.device.model == lost.device.model


def _unmeasured(queues: Sequence[GpuQueue], stopping: Stopping, on_loss: OnLoss | None) -> Iterator[Measurement]:
    """Pass each lost GPU to ``on_loss``; without it, yield a failure for each case left on a lost GPU.

    A run that must stop yields no failures: nothing is known of the cases that it did not measure.
    """
    lost = [(queue, queue.refusal) for queue in queues if queue.refusal]
    if lost and on_loss is None and not any(queue.opened for queue in queues) and not stopping():
        raise lost[0][1]
    for queue, refusal in lost:
        if on_loss is None and stopping():
            continue
        if on_loss is None:
            yield from failures(queue, queue.give_up(), refusal)
        else:
            on_loss(queue.device, refusal)


def failures(queue: GpuQueue, left: Sequence[tuple[int, Task]], error: PerfsvcError) -> Iterator[Measurement]:
    """Yield a failure for each task that a GPU will not measure, at the task's next replica."""
    for replica, task in left:
        yield without_samples(task.record.case, queue.device.uuid, replica, task.cache, error)
