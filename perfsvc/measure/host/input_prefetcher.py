"""Arrays made ahead: inputs and references are prepared while the devices are busy with other cases.

The supply knows what every lane will ask for and makes it in that order, as far as its budget goes; what is used again
soonest is kept, and what nobody will use any more is given back at once. Its methods are called from one thread, its
recipes run on several.
"""

import contextlib
import itertools
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import prod
from types import TracebackType
from typing import Self

import numpy as np

from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol import shared_arrays
from perfsvc.measure.protocol.shared_arrays import Lent, Recipe, SharedArrays, first_inputs, share
from perfsvc.model import DeviceInfo, Role

MOST_THREADS = 12
"""More would only wait for each other: what they do is to write memory."""
CORES_LEFT = 2
"""For the pool and a worker that queues launches."""
MOST_KEPT = 400
"""Each is an open file, of which a process has a limited number."""
HORIZON = 2000
"""How many tasks are looked ahead."""
EXPECTED_ITEM_BYTES = 8
"""A reference is computed in float64."""

Key = tuple[str, bool]
"""The name of arrays, and whether the fresh ones are meant."""

Coming = tuple[int, Task]
"""A replica, and the task that is measured in it."""


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The arrays of a task in a replica, ordered and perhaps still to be made."""

    task: Task
    replica: int
    made: tuple[Future[SharedArrays], ...]

    @property
    def ready(self) -> bool:
        """Whether they are made, or cannot be."""
        return all(made.done() for made in self.made)


class Supply:
    """Makes arrays on threads of its own, so that no worker's time limit waits for them, and keeps them.

    Args:
        coming: what each lane will order, in its order.
        threads: how many recipes are at work at once.
        budget_bytes: how much is made ahead and kept; orders are served whatever their size. A share of the machine's
            memory where it is not given.
    """

    def __init__(
        self, coming: Iterable[Sequence[Coming]] = (), *, threads: int = 1, budget_bytes: int | None = None
    ) -> None:
        self._lanes = [deque(lane) for lane in coming]
        self._budget = shared_arrays.budget_bytes() if budget_bytes is None else budget_bytes
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="perfsvc-supply")
        self._open: dict[Order, None] = {}
        self._shelf: dict[Key, Future[SharedArrays]] = {}
        self._uses: Counter[Key] | None = None  # of what is to come, once all of it is on the shelf
        self._arrange()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Gives back everything that was made; what is at work is waited for."""
        self._threads.shutdown(cancel_futures=True)
        for key in tuple(self._shelf):
            self._discard(key)

    def order(self, task: Task, replica: int) -> Order:
        """Asks for a task's arrays, the fresh ones with them in replica 0; the order has to be taken or forgotten."""
        for lane in self._lanes:
            if announced := next((one for one in lane if one[0] == replica and one[1] is task), None):
                lane.remove(announced)
                self._count_off(announced)
        keys = _keys((replica, task))
        self._make(keys, task.arrays)
        order = Order(task, replica, tuple(self._shelf[key] for key in keys))
        self._open[order] = None
        self._arrange()
        return order

    def has(self, task: Task, replica: int) -> bool:
        """Whether an order for a task's arrays would be ready at once."""
        made = (self._shelf.get(key) for key in _keys((replica, task)))
        return all(one is not None and one.done() for one in made)

    @contextlib.contextmanager
    def take(self, order: Order) -> Iterator[Lent]:
        """The arrays, while the block lasts; waits for them, and raises what kept them from being made."""
        try:
            first, *fresh = (made.result() for made in order.made)
            yield Lent(order.task.arrays.name, first, *(one for one in fresh if one.inputs))
        finally:
            self.forget(order)

    def forget(self, order: Order) -> None:
        """Gives up an order."""
        self._open.pop(order, None)
        self._arrange()

    def drop(self, task: Task) -> None:
        """Makes nothing ahead for a task any more, for no replica of it is to come."""
        self._lanes = [deque(coming for coming in lane if coming[1] is not task) for lane in self._lanes]
        self._uses = None
        self._arrange()

    def _arrange(self) -> None:
        """Has made what is wanted and still missing, and gives back what is not wanted.

        Once all that is to come is made, nothing can be missing, and what is wanted is what is used.
        """
        self._uses = self._uses or self._all_made()
        if self._uses is not None:
            if unused := [key for key in self._shelf if not self._uses[key]]:
                ordered = {key for order in self._open for key in _keys((order.replica, order.task))}
                for key in unused:
                    if key not in ordered:
                        self._discard(key)
            return
        wanted = self._wanted()
        for name, keys in itertools.groupby(wanted, key=lambda key: key[0]):
            self._make(tuple(keys), wanted[name, False])
        for key in sorted(self._shelf.keys() - wanted.keys(), key=lambda key: not key[1]):  # the fresh ones first
            if not self._is_looked_at(key[0]):
                self._discard(key)

    def _all_made(self) -> Counter[Key] | None:
        """How often each key is to come, where all of them are made and within the budget; else None."""
        if not all(made.done() for made in self._shelf.values()):
            return None
        coming = [one for lane in self._lanes for one in lane]
        if len(coming) > HORIZON:
            return None
        uses = Counter(key for one in coming for key in _keys(one))
        if not uses.keys() <= self._shelf.keys() or len(self._shelf) > MOST_KEPT:
            return None
        held = sum(0 if made.exception() else made.result().nbytes for made in self._shelf.values())
        return uses if held <= self._budget else None

    def _count_off(self, announced: Coming) -> None:
        if self._uses is not None:
            self._uses.subtract(_keys(announced))

    def _wanted(self) -> dict[Key, Recipe]:
        """What is to be on the shelf: all that is ordered, and of what comes next as much as the budget holds."""
        ordered = {key: order.task for order in self._open for key in _keys((order.replica, order.task))}
        wanted = {key: task.arrays for key, task in ordered.items()}
        room = self._budget - sum(self._bytes(key, task) for key, task in ordered.items())
        for coming in itertools.islice(_in_turn(self._lanes), HORIZON):
            for key in _keys(coming):
                name, fresh = key
                if key in wanted or (fresh and (name, False) not in wanted):
                    continue
                nbytes = self._bytes(key, coming[1])
                if nbytes <= room and len(wanted) < MOST_KEPT:
                    wanted[key] = coming[1].arrays
                    room -= nbytes
        return wanted

    def _bytes(self, key: Key, task: Task) -> int:
        """How much memory arrays take, or probably will."""
        made = self._shelf.get(key)
        if made is None or not made.done():
            return _guess(task, fresh=key[1])
        return 0 if made.exception() else made.result().nbytes

    def _make(self, keys: Sequence[Key], recipe: Recipe) -> None:
        """Gives to threads what is missing of one name: the first arrays before the fresh ones, which wait for them."""
        for key in keys:
            if key not in self._shelf:
                self._uses = None
                name, fresh = key
                made = self._shelf[key] = Future()
                make = partial(_fresh, recipe, self._shelf[name, False]) if fresh else partial(_first, recipe)
                self._threads.submit(_work, make, made)

    def _is_looked_at(self, name: str) -> bool:
        """Whether the fresh arrays of that name are being made, for which the first ones are looked at."""
        fresh = self._shelf.get((name, True))
        return fresh is not None and fresh.running()

    def _discard(self, key: Key) -> None:
        made = self._shelf.pop(key)
        if not made.cancel():
            made.add_done_callback(_close)


def threads_beside(devices: Iterable[DeviceInfo]) -> int:
    """How many threads may make arrays while these devices measure: one beside the CPU device, which they slow down."""
    if any(device.kind == "cpu" for device in devices):
        return 1
    return max(1, min(MOST_THREADS, len(os.sched_getaffinity(0)) - CORES_LEFT))


def _keys(coming: Coming) -> tuple[Key, ...]:
    """What a task needs in a replica: the fresh arrays in the first one alone."""
    replica, task = coming
    name, fresh = task.arrays.name, replica == 0 and task.arrays.make_fresh is not None
    return ((name, False), (name, True)) if fresh else ((name, False),)


def _in_turn(lanes: Iterable[Iterable[Coming]]) -> Iterator[Coming]:
    """What all lanes ask for next, then what they ask for after that, and so on."""
    return (coming for level in itertools.zip_longest(*lanes) for coming in level if coming is not None)


def _guess(task: Task, *, fresh: bool) -> int:
    """The bytes of a task's inputs and references by its buffers; fresh inputs have mostly no reference."""
    total = 0
    for buffer in task.record.buffers:
        if buffer.role in {Role.INPUT, Role.INOUT}:
            total += prod(buffer.array.shape) * np.dtype(buffer.array.dtype).itemsize
        if buffer.role in {Role.OUTPUT, Role.INOUT} and not fresh:
            total += prod(buffer.array.shape) * EXPECTED_ITEM_BYTES
    return total


def _work(make: Callable[[], SharedArrays], made: Future[SharedArrays]) -> None:
    if made.set_running_or_notify_cancel():
        try:
            made.set_result(make())
        except BaseException as error:  # noqa: BLE001 - whoever takes them raises it
            made.set_exception(error)


def _first(recipe: Recipe) -> SharedArrays:
    return share(*recipe.make())


def _fresh(recipe: Recipe, first: Future[SharedArrays]) -> SharedArrays:
    return share(*recipe.make_fresh(lambda: first_inputs(first.result()))) if recipe.make_fresh else share({}, {})


def _close(made: Future[SharedArrays]) -> None:
    if made.exception() is None:
        made.result().close()
