"""Prepare inputs and references while the devices are busy with other cases.

The prefetcher knows which arrays every device will need, and prepares them in that order, within a memory budget. It
keeps the arrays that are needed again soonest, and frees arrays at once when no task needs them any more. Its methods
are called from one thread; the recipes run on several.
"""

import contextlib
import heapq
import itertools
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import prod
from operator import itemgetter
from types import TracebackType
from typing import Self

from perfsvc.device.memory import array_bytes
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol import shared_arrays
from perfsvc.measure.protocol.shared_arrays import JobArrays, Recipe
from perfsvc.model import DeviceInfo, Role
from perfsvc.process.shared_memory import SharedArrays, share

MOST_THREADS = 12
"""More threads would only wait for each other, because making arrays is limited by the speed of memory."""
CORES_LEFT = 2
"""Cores left for the pool and for a worker that queues launches."""
MOST_KEPT = 400
"""Sets of arrays kept at once. Each is an open file, and a process may have a limited number of open files."""
HORIZON = 2000
"""How many upcoming tasks are considered at a time."""
EXPECTED_ITEM_BYTES = 8
"""References are computed in float64."""

ArrayKey = tuple[str, bool]
"""The name of a recipe, and whether the key stands for its fresh arrays."""
Upcoming = tuple[int, Task]
"""A replica, and the task that is measured in it."""


@dataclass(frozen=True, slots=True, eq=False)
class ArrayOrder:
    """The arrays of a task in a replica, ordered and perhaps still being made."""

    task: Task
    replica: int
    arrays: tuple[Future[SharedArrays], ...]

    @property
    def ready(self) -> bool:
        """Whether the arrays are made, or making them has failed."""
        return all(arrays.done() for arrays in self.arrays)


class InputPrefetcher:
    """Makes arrays on its own threads, outside the time limits of workers, and keeps them while they are needed.

    Args:
        upcoming: for each device, the replicas and tasks whose arrays its queue will order, in that order.
        threads: how many recipes run at once.
        budget_bytes: the size of the arrays to prepare ahead and keep; by default a share of the machine's memory.
            Arrays that are ordered are made even if they exceed it.
    """

    def __init__(
        self, upcoming: Iterable[Sequence[Upcoming]] = (), *, threads: int = 1, budget_bytes: int | None = None
    ) -> None:
        self._upcoming = [deque(entries) for entries in upcoming]
        # By identity, because comparing tasks takes long; the task stays referenced, so its number is not used again.
        self._queues = {id(task): (task, entries) for entries in self._upcoming for _, task in entries}
        self._budget = shared_arrays.budget_bytes() if budget_bytes is None else budget_bytes
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="perfsvc-arrays")
        self._orders: dict[ArrayOrder, None] = {}
        self._arrays: dict[ArrayKey, Future[SharedArrays]] = {}
        self._cancels: set[Callable[[], object]] = set()
        self._update()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Cancel the recipes that run, and free all memory."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for cancel in self._cancels:
            cancel()
        self._threads.shutdown()
        for key in tuple(self._arrays):
            self._discard(key)

    def order(self, task: Task, replica: int) -> ArrayOrder:
        """Request the arrays of a task. The caller must take or cancel the order.

        In replica 0, the fresh arrays are requested too: other inputs, for the check after timing.
        """
        entries = self._entries_of(task)
        at = next((at for at, entry in enumerate(entries) if entry[0] == replica and entry[1] is task), None)
        if at is not None:
            del entries[at]
        keys = _keys((replica, task))
        self._make(keys, task.arrays)
        order = ArrayOrder(task, replica, tuple(self._arrays[key] for key in keys))
        self._orders[order] = None
        self._update()
        return order

    def is_ready(self, task: Task, replica: int) -> bool:
        """Return whether an order for a task's arrays would be ready at once."""
        arrays = [self._arrays.get(key) for key in _keys((replica, task))]
        return all(future is not None and future.done() for future in arrays)

    @contextlib.contextmanager
    def take(self, order: ArrayOrder) -> Iterator[JobArrays]:
        """Wait for the arrays and keep them until the block ends; raise the recipe's error if they were not made."""
        try:
            first, *fresh = (arrays.result() for arrays in order.arrays)
            yield JobArrays(order.task.arrays.name, first, *(arrays for arrays in fresh if arrays.layout.inputs))
        finally:
            self.cancel(order)

    def cancel(self, order: ArrayOrder) -> None:
        """Give up an order."""
        self._orders.pop(order, None)
        self._update()

    def drop(self, task: Task) -> None:
        """Stop preparing arrays for a task, because no further replica of the task will be measured."""
        entries = self._entries_of(task)
        kept = [entry for entry in entries if entry[1] is not task]
        entries.clear()
        entries.extend(kept)
        self._update()

    def _entries_of(self, task: Task) -> deque[Upcoming]:
        """Return the upcoming entries of a task's device; none if no device has the task."""
        _, entries = self._queues.get(id(task), (task, deque[Upcoming]()))
        return entries

    def _update(self) -> None:
        """Start making the arrays that are wanted and missing, and discard those that are not wanted."""
        wanted = self._wanted()
        for name, keys in itertools.groupby(wanted, key=lambda key: key[0]):
            self._make(tuple(keys), wanted[name, False])
        for key in sorted(self._arrays.keys() - wanted.keys(), key=lambda key: not key[1]):  # fresh arrays first
            if not self._is_read(key[0]):
                self._discard(key)

    def _wanted(self) -> dict[ArrayKey, Recipe]:
        """Return the arrays to have in memory: all ordered arrays, and as many upcoming ones as the budget allows."""
        ordered = {key: order.task for order in self._orders for key in _keys((order.replica, order.task))}
        wanted = {key: task.arrays for key, task in ordered.items()}
        room = self._budget - sum(self._bytes(key, task) for key, task in ordered.items())
        for replica, task in itertools.islice(_by_time(self._upcoming), HORIZON):
            if len(wanted) >= MOST_KEPT:
                break
            for key in _keys((replica, task)):
                name, fresh = key
                if key in wanted or (fresh and (name, False) not in wanted):
                    continue
                nbytes = self._bytes(key, task)
                if nbytes <= room and len(wanted) < MOST_KEPT:
                    wanted[key] = task.arrays
                    room -= nbytes
        return wanted

    def _bytes(self, key: ArrayKey, task: Task) -> int:
        """Return the bytes that arrays take, or an estimate before they are made."""
        arrays = self._arrays.get(key)
        if arrays is None or not arrays.done():
            return _estimated_bytes(task, fresh=key[1])
        return 0 if arrays.exception() else arrays.result().nbytes

    def _make(self, keys: Sequence[ArrayKey], recipe: Recipe) -> None:
        """Start making a recipe's missing arrays; fresh arrays come last, because they wait for the first arrays."""
        self._cancels.add(recipe.cancel)
        for key in keys:
            if key not in self._arrays:
                name, fresh = key
                arrays = self._arrays[key] = Future()
                make = partial(_make_fresh, recipe, self._arrays[name, False]) if fresh else recipe.make
                self._threads.submit(_fulfil, arrays, make)

    def _is_read(self, name: str) -> bool:
        """Return whether a thread may be reading a recipe's first arrays now, to make its fresh arrays."""
        fresh = self._arrays.get((name, True))
        return fresh is not None and fresh.running()

    def _discard(self, key: ArrayKey) -> None:
        arrays = self._arrays.pop(key)
        if not arrays.cancel():
            arrays.add_done_callback(_close)


def array_threads(devices: Iterable[DeviceInfo]) -> int:
    """Return how many threads may make arrays while these devices measure; 1 if one of them is the CPU device."""
    if any(device.kind == "cpu" for device in devices):
        return 1
    return max(1, min(MOST_THREADS, len(os.sched_getaffinity(0)) - CORES_LEFT))


def _keys(upcoming: Upcoming) -> tuple[ArrayKey, ...]:
    """Return the keys of the arrays that a task needs in a replica: the fresh arrays only in replica 0."""
    replica, task = upcoming
    name, fresh = task.arrays.name, replica == 0 and task.arrays.make_fresh is not None
    return ((name, False), (name, True)) if fresh else ((name, False),)


def _by_time(upcoming: Iterable[Collection[Upcoming]]) -> Iterator[Upcoming]:
    """Yield the entries of all devices in the order in which the devices will probably reach them."""
    starts = (itertools.accumulate((task.cost_s for _, task in entries), initial=0.0) for entries in upcoming)
    timed = (zip(times, entries, strict=False) for times, entries in zip(starts, upcoming, strict=True))
    return (entry for _, entry in heapq.merge(*timed, key=itemgetter(0)))


def _estimated_bytes(task: Task, *, fresh: bool) -> int:
    """Estimate the bytes of a task's inputs and references from its buffers; fresh inputs mostly have no references."""
    total = 0
    for buffer in task.record.buffers:
        if buffer.role in {Role.INPUT, Role.INOUT}:
            total += array_bytes(buffer.array)
        if buffer.role in {Role.OUTPUT, Role.INOUT} and not fresh:
            total += prod(buffer.array.shape) * EXPECTED_ITEM_BYTES
    return total


def _fulfil(arrays: Future[SharedArrays], make: Callable[[], SharedArrays]) -> None:
    """Set a future's result or exception, unless it was cancelled."""
    if arrays.set_running_or_notify_cancel():
        try:
            arrays.set_result(make())
        except BaseException as error:  # noqa: BLE001 - raised again where the arrays are taken
            arrays.set_exception(error)


def _make_fresh(recipe: Recipe, first: Future[SharedArrays]) -> SharedArrays:
    """Make a recipe's fresh arrays; the recipe waits for the first arrays when it needs them."""
    return recipe.make_fresh(first.result) if recipe.make_fresh else share({}, {})


def _close(arrays: Future[SharedArrays]) -> None:
    if arrays.exception() is None:
        arrays.result().close()
