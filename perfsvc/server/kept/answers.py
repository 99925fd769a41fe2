"""The answers that the server keeps for all readers."""

import asyncio
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import cast

from starlette.requests import HTTPConnection

from perfsvc.server.kept.content import Content
from perfsvc.server.kept.making import Making, MakingThread

OLDEST_S = 120.0
"""How old an answer may be, in seconds, while the server makes other answers."""
OLDEST_FACTOR = 20.0
"""How old it may be at most compared with the time that making it took, if that is longer than ``OLDEST_S``."""
MOST_KEPT = 2000
"""How many answers are kept; the ones that were not asked for longest are dropped first."""
MOST_BYTES = 64 * 2**20
"""Bytes of all kept answers."""


@dataclass(frozen=True, slots=True)
class State:
    """A state of the database: its own text for it, and how often this server had changed something."""

    changes: int
    text: str


@dataclass(frozen=True, slots=True)
class _Kept:
    """An answer as of the state of the database, and the moment on the monotonic clock, in which its making began."""

    content: Content
    state: State
    began: float
    took_s: float


class KeptAnswers:
    """Makes each answer once for all readers who wait for it, and keeps it until the database changes.

    A night changes the database every second, so a busy server would make every answer anew for every reader. While
    the server makes other answers, or makes this one already, a reader gets the kept answer at once, unless it is older
    than ``OLDEST_S``; the server renews it afterwards. After a change through this server, such as a finding that
    someone accepted, every answer is made anew.

    One thread makes the answers for which all series are read, and another one all others: a reader of Tonight does not
    wait for the list of all series. More threads would not be faster, because Python runs one thread at a time.

    Args:
        state: returns a text that changes with the database.
    """

    def __init__(self, state: Callable[[], str]) -> None:
        self._state = state
        self._changes = 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()
        self._thread = MakingThread("make an answer", self._lock)
        self._thread_of_all_series = MakingThread("make an answer of all series", self._lock)
        self._numbers = itertools.count()

    def close(self) -> None:
        """Make no answer any more, without waiting for the one that is being made."""
        with self._lock:
            self._thread.close()
            self._thread_of_all_series.close()

    def state(self) -> State:
        """Return the state of the database. It asks the database, so it must run in a thread."""
        return State(self._changes, self._state())

    def renew(self) -> None:
        """Use no answer that was begun before now: this server has changed something."""
        with self._lock:
            self._changes += 1
            self._thread.disown()
            self._thread_of_all_series.disown()

    async def get(self, key: str, state: State, make: Callable[[], Content], *, of_all_series: bool = False) -> Content:
        """Return an answer.

        Args:
            key: names the answer; equal keys have equal answers.
            state: the state of the database when the reader asked.
            make: makes the answer; it runs in a thread. Every reader who waits for the answer gets its error.
            of_all_series: whether making it reads all series.
        """
        thread = self._thread_of_all_series if of_all_series else self._thread
        with self._lock:
            kept, making = self._kept.get(key), thread.find(key)
            is_current = kept is not None and kept.state == state
            is_busy = self._thread.is_busy or self._thread_of_all_series.is_busy
            if kept and (is_current or (is_busy and _is_usable(kept, state))):
                if not is_current and not making:
                    thread.renew(Making(key, lambda: self._make(key, make)))
                self._kept.move_to_end(key)
                return kept.content
            making = making or Making(key, lambda: self._make(key, make))
            thread.want(making)
        return await asyncio.shield(asyncio.wrap_future(making.content))

    async def run(self, make: Callable[[], Content]) -> Content:
        """Return an answer that is not kept."""
        with self._lock:
            making = Making(f"number {next(self._numbers)}", make)
            self._thread.want(making)
        return await asyncio.shield(asyncio.wrap_future(making.content))

    def _make(self, key: str, make: Callable[[], Content]) -> Content:
        """Return an answer, and keep it instead of the one that was kept before."""
        began, state = time.monotonic(), self.state()
        content = make()
        content.packed, content.tag  # noqa: B018 - computed here, and not in the thread that serves all readers
        with self._lock:
            before = self._kept.pop(key, None)
            self._kept[key] = _Kept(content, state, began, time.monotonic() - began)
            self._bytes += content.size - (before.content.size if before else 0)
            while self._bytes > MOST_BYTES or len(self._kept) > MOST_KEPT:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= dropped.content.size
        return content


def _is_usable(kept: _Kept, state: State) -> bool:
    """Return whether a busy server may answer with a kept answer of an older state of the database."""
    oldest_s = max(OLDEST_S, OLDEST_FACTOR * kept.took_s)
    return kept.state.changes == state.changes and time.monotonic() - kept.began < oldest_s


def kept_answers(connection: HTTPConnection) -> KeptAnswers:
    """Return the answers that the server keeps."""
    return cast("KeptAnswers", connection.app.state.kept)
