"""Arrays made ahead: the next case's inputs and references are prepared while the device is busy with another."""

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from perfsvc.measure.plan import Task
from perfsvc.measure.shared import SharedArrays


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The arrays of a task, ordered and perhaps still to be made."""

    task: Task
    made: Future[SharedArrays]

    @property
    def ready(self) -> bool:
        """Whether they are made, or cannot be."""
        return self.made.done()


class Supply:
    """Makes arrays on a thread of its own, one set after the other, so that no worker's time limit waits for them."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="perfsvc-supply")
        self._open: set[Order] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Forgets what was ordered and not taken."""
        for order in set(self._open):
            self.forget(order)
        self._thread.shutdown(cancel_futures=True)

    def order(self, task: Task) -> Order:
        """Asks for a task's arrays; the order has to be taken or forgotten."""
        order = Order(task, self._thread.submit(_lend, task))
        self._open.add(order)
        return order

    @contextlib.contextmanager
    def take(self, order: Order) -> Iterator[SharedArrays]:
        """The arrays, while the block lasts; waits for them, and raises what kept them from being made."""
        self._open.discard(order)
        arrays = order.made.result()
        try:
            yield arrays
        finally:
            arrays.close()

    def forget(self, order: Order) -> None:
        """Gives up an order: what is made of it is closed."""
        self._open.discard(order)
        if not order.made.cancel():
            order.made.add_done_callback(_close)


def _lend(task: Task) -> SharedArrays:
    """The task's arrays under a descriptor of their own: the shelf may forget its one at any time."""
    arrays = task.arrays()
    return replace(arrays, descriptor=os.dup(arrays.descriptor))


def _close(made: Future[SharedArrays]) -> None:
    if made.exception() is None:
        made.result().close()
