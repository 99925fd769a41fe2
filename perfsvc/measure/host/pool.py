"""The pool: a worker for each device and replica, one case after the other.

Nothing that a case does can cost more than that case: a worker that dies, hangs or loses its device is ended and
replaced, and the case that did it is not tried again in this run. A device that cannot be opened any more costs the
cases that were left for it, or leaves them to another GPU of its model. Measurements are handed out as they arrive.
"""

import contextlib
import selectors
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from perfsvc.measure.host.device_queue import Lane, Say, Stopping, never
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.measure.host.input_prefetcher import Supply, threads_beside
from perfsvc.measure.plan.order import OverBudget, Plan, Task, home_device
from perfsvc.model import DeviceInfo, Measurement


def _say_nothing(_: str) -> None:
    """For whoever waits for nothing."""


def measure(
    plan: Plan,
    found: Mapping[str, DeviceInfo],
    say: Say = _say_nothing,
    servers: ForkServers | None = None,
    stopping: Stopping = never,
) -> Generator[Measurement | OverBudget, None, None]:
    """Works off a plan, all devices at once, and yields each measurement as it arrives; see ``measuring``.

    The iterator is at its end when all workers are. Closing it, or an exception in its consumer, ends them too.
    """
    with measuring(plan, found, say, servers, stopping) as arriving:
        yield from arriving


@contextlib.contextmanager
def measuring(
    plan: Plan,
    found: Mapping[str, DeviceInfo],
    say: Say = _say_nothing,
    servers: ForkServers | None = None,
    stopping: Stopping = never,
) -> Iterator[Iterator[Measurement | OverBudget]]:
    """Gives what working off a plan yields, all devices at once: each measurement as it arrives.

    Where the plan has a budget, what it left no time for comes among the measurements. The end of the block waits for
    the workers, which are told to end after the last measurement; an exception in the block kills them.

    Args:
        plan: what to measure.
        found: the devices of the plan by UUID.
        say: is told what a person should know while waiting.
        servers: where workers are forked; its owner ends them. Ours where there are none yet.
        stopping: whether the run is to stop. From then on no case is begun, and the iterator is at its end when those
            in hand are measured: what is left of the plan is neither measured nor told.

    Raises:
        NoDeviceError: by the iterator, where none of the devices could be opened.
    """
    coming = [plan.order(uuid) for uuid in found]
    with (
        selectors.DefaultSelector() as selector,
        Supply(coming, threads=threads_beside(found.values())) as supply,
        contextlib.ExitStack() as ended,
    ):
        servers = servers or ended.enter_context(ForkServers())
        lanes = [
            Lane(plan, device, selector, supply, servers=servers, say=say, stopping=stopping)
            for device in found.values()
        ]
        for end in (Lane.end, Lane.dismiss):  # the last one first: all are killed before one is waited for
            for lane in lanes:
                ended.callback(end, lane)
        yield _work(plan, lanes, selector, say, stopping)
        for lane in lanes:
            lane.end()


def _work(
    plan: Plan, lanes: Sequence[Lane], selector: selectors.BaseSelector, say: Say, stopping: Stopping
) -> Iterator[Measurement | OverBudget]:
    """Until no lane has anything to do that it can do; then what that leaves undone."""
    while any(lane.working for lane in lanes):
        for lane in lanes:
            yield from lane.advance()
        for key, _ in selector.select(min(lane.patience for lane in lanes)):
            yield from _heard(key.data)
        for lane in lanes:
            yield from lane.enforce()
        if plan.spread == "each-model":
            yield from _move_from_lost_boards(plan, lanes, say)
    refusals = [lane.refusal for lane in lanes if lane.refusal]
    if refusals and not any(lane.opened for lane in lanes) and not stopping():
        raise refusals[0]
    for lane in lanes:
        yield from _left_undone(lane)


def _heard(lane: Lane) -> list[Measurement | OverBudget]:
    """What a worker says. It has its next case before anything is made of that: its GPU need not wait meanwhile."""
    return [*lane.hear(), *lane.advance()]


def _left_undone(lane: Lane) -> Iterator[Measurement]:
    """What was left when a device could not be opened any more, each case as failed."""
    if lane.refusal:
        yield from lane.failed(lane.give_up(), lane.refusal)


def _move_from_lost_boards(plan: Plan, lanes: Sequence[Lane], say: Say) -> Iterator[Measurement]:
    """Has other GPUs of the model measure what was left for a GPU that cannot be opened any more.

    A case with replicas from the lost GPU is measured anew in full, for replicas of two GPUs tell nothing of one
    level. The case that the GPU was lost with has failed and moves nowhere: it may be what broke the GPU.
    """
    for lost in lanes:
        heirs = {lane.device.uuid: lane for lane in lanes if _can_inherit(lane, lost)}
        if not (lost.refusal and heirs):
            continue
        left = lost.give_up()
        yield from lost.failed(((replica, task) for replica, task in left if task in plan.first), lost.refusal)
        dealt: dict[str, list[Task]] = {}
        for task in (task for _, task in left if task not in plan.first):
            board = home_device(task.spec, heirs)
            dealt.setdefault(board, []).append(replace(task, device=board))
        for board, tasks in dealt.items():
            heirs[board].adopt(tasks)
            say(f"{lost.device.uuid} is lost ({lost.refusal.what}): {board} measures {len(tasks)} of its cases")


def _can_inherit(lane: Lane, lost: Lane) -> bool:
    return lane is not lost and lane.refusal is None and lane.device.model == lost.device.model
