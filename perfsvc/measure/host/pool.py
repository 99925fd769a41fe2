"""The pool: measures a plan on all its devices at once, one case after the other on each.

A fault costs only the case that caused it. A worker that dies, hangs or loses its device is ended and replaced, and the
case that it was measuring is not tried again in this run. If a device cannot be opened any more, its remaining cases
fail, or another device of the same model measures them. Each measurement is yielded as it arrives.
"""

import contextlib
import selectors
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from perfsvc.device import VISIBLE
from perfsvc.errors import NoDeviceError
from perfsvc.measure.host.device_queue import DeviceQueue, Report, Stopping, never
from perfsvc.measure.host.input_prefetcher import InputPrefetcher, array_threads
from perfsvc.measure.plan.assignment import hand_over
from perfsvc.measure.plan.order import Plan
from perfsvc.measure.protocol.shared_arrays import budget_bytes
from perfsvc.model import DeviceInfo, Measurement, OverBudget
from perfsvc.process.fork_servers import ONE_THREAD, ForkServer, ForkServers


def worker_servers() -> ForkServers:
    """Start a fork server whose children are workers, which see no GPU until they open one."""
    return ForkServers(partial(ForkServer, "perfsvc.measure.worker.main", {**ONE_THREAD, VISIBLE: ""}))


OnLoss = Callable[[DeviceInfo, NoDeviceError], object]
"""Receives a device that cannot be used any more, and why."""


class Measure(Protocol):
    """Measures a plan and yields the results as they arrive, as ``measure`` does on this host."""

    def __call__(
        self,
        plan: Plan,
        devices: Mapping[str, DeviceInfo],
        report: Report,
        servers: ForkServers | None,
        stopping: Stopping,
        *,
        on_loss: OnLoss | None = None,
    ) -> Generator[Measurement | OverBudget, None, None]:
        """Measure a plan; see ``measure``."""


def _silent(_: str) -> None:
    """Report nothing."""


def measure(
    plan: Plan,
    devices: Mapping[str, DeviceInfo],
    report: Report = _silent,
    servers: ForkServers | None = None,
    stopping: Stopping = never,
    *,
    on_loss: OnLoss | None = None,
    sharing: int = 1,
) -> Generator[Measurement | OverBudget, None, None]:
    """Measure a plan, and yield each measurement as it arrives.

    If the plan's time budget leaves no time for a case, an ``OverBudget`` is yielded for the case. Workers are
    dismissed after the last measurement, and the iterator ends when all workers have ended. Closing the iterator, or an
    exception in its consumer, kills the workers.

    Args:
        plan: what to measure.
        devices: the devices of the plan by UUID.
        report: receives messages for the user.
        servers: the fork servers, which the caller ends. By default this function starts servers and ends them.
        stopping: once it returns True, no further case is begun, and the iterator ends when the current cases are
            measured. The rest of the plan is neither measured nor reported.
        on_loss: receives each device that cannot be used any more; its remaining cases are not reported. By default a
            failure is yielded for each of them.
        sharing: how many processes measure on this host for one run, each on a GPU of its own. They divide the
            processors and the memory for inputs.

    Raises:
        NoDeviceError: none of the devices could be opened, and there is no ``on_loss``.
    """
    upcoming = [plan.order(uuid) for uuid in devices]
    with (
        selectors.DefaultSelector() as selector,
        InputPrefetcher(
            upcoming,
            threads=max(1, array_threads(devices.values()) // sharing),
            budget_bytes=budget_bytes() // sharing,
        ) as prefetcher,
        contextlib.ExitStack() as exits,
    ):
        servers = servers or exits.enter_context(worker_servers())
        queues = [
            DeviceQueue(plan, device, selector, prefetcher, servers=servers, report=report, stopping=stopping)
            for device in devices.values()
        ]
        # The callbacks run in reverse order, so that all workers are killed before the first wait.
        for end in (DeviceQueue.end, DeviceQueue.kill_workers):
            for queue in queues:
                exits.callback(end, queue)
        yield from _work(plan, queues, selector, report)
        yield from _unmeasured(queues, stopping, on_loss)
        for queue in queues:
            queue.end()


def _work(
    plan: Plan, queues: Sequence[DeviceQueue], selector: selectors.BaseSelector, report: Report
) -> Iterator[Measurement | OverBudget]:
    """Advance all queues until all are done, and yield each result."""
    while any(queue.working for queue in queues):
        for queue in queues:
            yield from queue.advance()
        for key, _ in selector.select(min(queue.patience_s for queue in queues)):
            yield from _receive(key.data)
        for queue in queues:
            yield from queue.enforce_limits()
        if plan.spread == "each-model":
            yield from _move_from_lost_devices(plan, queues, report)


def _unmeasured(queues: Sequence[DeviceQueue], stopping: Stopping, on_loss: OnLoss | None) -> Iterator[Measurement]:
    """Pass each lost device to ``on_loss``; without it, yield a failure for each case left in a lost device's queue.

    Raises:
        NoDeviceError: none of the devices could be opened, and there is no ``on_loss``.
    """
    lost = [(queue, queue.refusal) for queue in queues if queue.refusal]
    if lost and on_loss is None and not any(queue.opened for queue in queues) and not stopping():
        raise lost[0][1]
    for queue, refusal in lost:
        if on_loss is None:
            yield from queue.failed(queue.give_up(), refusal)
        else:
            on_loss(queue.device, refusal)


def _receive(queue: DeviceQueue) -> list[Measurement | OverBudget]:
    """Receive a measurement and send the worker its next case before returning, so that the device does not idle.

    Between two replicas the consumer first sees the measurement, because it may decide which cases come next.
    """
    received = queue.receive()
    return [*received] if queue.ends_replica else [*received, *queue.advance()]


def _move_from_lost_devices(plan: Plan, queues: Sequence[DeviceQueue], report: Report) -> Iterator[Measurement]:
    """Move the cases left on a lost device to other devices of its model; yield a failure for each unmoved case.

    All replicas of a moved case are measured anew, because replicas of two devices do not share one level. The case
    that was active when the device was lost has failed and does not move: it may be the cause.
    """
    for lost in queues:
        heirs = {queue.device.uuid: queue for queue in queues if _can_inherit(queue, lost)}
        if not (lost.refusal and heirs):
            continue
        remaining = lost.give_up()
        # The first tasks measure the device itself, so another device cannot take them over.
        yield from lost.failed(((replica, task) for replica, task in remaining if task in plan.first), lost.refusal)
        loads = {uuid: queue.left_s / plan.replicas for uuid, queue in heirs.items()}
        moved = hand_over((task for _, task in remaining if task not in plan.first), loads)
        for uuid, tasks in moved.items():
            heirs[uuid].adopt(tasks)
            report(f"{lost.device.uuid} is lost ({lost.refusal.what}): {uuid} measures {len(tasks)} of its cases")


def _can_inherit(queue: DeviceQueue, lost: DeviceQueue) -> bool:
    """Return whether a queue can take over the cases of a lost device: another usable device of its model."""
    return queue is not lost and queue.refusal is None and queue.device.model == lost.device.model
