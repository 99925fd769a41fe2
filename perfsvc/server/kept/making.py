"""A thread that makes answers: first those that readers wait for, then those that have grown old."""

import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Lock

from perfsvc.server.kept.content import Content

RESTS = 4.0
"""How long a thread rests before it renews an answer, compared with the time that the answer before took."""


@dataclass(frozen=True, slots=True, eq=False)
class Making:
    """An answer that is made once for everyone who waits for it.

    Attributes:
        key: names the answer; answers that a thread has to make at the same time have different keys.
        make: makes the answer.
        content: the answer, or the error of making it.
    """

    key: str
    make: Callable[[], Content]
    content: "Future[Content]" = field(default_factory=Future)


class MakingThread:
    """A thread that makes answers one after the other. Whoever calls a method holds the lock.

    Renewing takes at most a fifth of its time, which leaves most of the processor to the thread that answers readers.

    Args:
        name: names the thread.
        lock: guards what the thread has to do.
    """

    def __init__(self, name: str, lock: Lock) -> None:
        self._changed = Condition(lock)
        self._thread = ThreadPoolExecutor(1, name)
        self._awaited: OrderedDict[str, Making] = OrderedDict()
        self._to_renew: OrderedDict[str, Making] = OrderedDict()
        self._now: Making | None = None
        self._rests_until = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether there is an answer to make."""
        return bool(self._now or self._awaited or self._to_renew)

    def find(self, key: str) -> Making | None:
        """Return the answer with this key that is going to be made, or else is being made; None if there is none."""
        waiting = self._awaited.get(key) or self._to_renew.get(key)
        return waiting or (self._now if self._now and self._now.key == key else None)

    def want(self, making: Making) -> None:
        """Make an answer for readers who wait, after those that were wanted before. It may be one to renew."""
        if making is not self._now:
            self._run_if_idle()
            self._to_renew.pop(making.key, None)
            self._awaited[making.key] = making
            self._changed.notify()

    def renew(self, making: Making) -> None:
        """Make an answer when readers wait for no other one."""
        self._run_if_idle()
        self._to_renew[making.key] = making

    def disown(self) -> None:
        """Let nobody find the answer that is being made: it was begun too early."""
        self._now = None

    def close(self) -> None:
        """Make no more answers, and do not wait for the one that is being made."""
        for making in (*self._awaited.values(), *self._to_renew.values()):
            making.content.cancel()
        self._awaited.clear()
        self._to_renew.clear()
        self._changed.notify()
        self._thread.shutdown(wait=False)

    def _run_if_idle(self) -> None:
        if not self.is_busy:
            self._thread.submit(self._run)

    def _run(self) -> None:
        """Make answers until there is none to make."""
        while making := self._next():
            began = time.monotonic()
            try:
                content = making.make()
            except BaseException as error:  # noqa: BLE001 - those who wait for the answer get the error
                publish = partial(making.content.set_exception, error)
            else:
                publish = partial(making.content.set_result, content)
            self._end(began)
            publish()

    def _next(self) -> Making | None:
        """Return what to make next; None if there is nothing."""
        with self._changed:
            while self._to_renew and not self._awaited and (rest_s := self._rests_until - time.monotonic()) > 0:
                self._changed.wait(rest_s)
            if waiting := self._awaited or self._to_renew:
                _, self._now = waiting.popitem(last=False)
            return self._now

    def _end(self, began: float) -> None:
        """Note that an answer is made, before anyone has it: a reader who had to wait finds a thread that is idle."""
        with self._changed:
            self._now = None
            ended = time.monotonic()
            self._rests_until = ended + RESTS * (ended - began)
