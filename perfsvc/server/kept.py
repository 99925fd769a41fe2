"""Answers that are made once for many readers, and kept until the database changes."""

import asyncio
import gzip
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import cast

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

OLDEST_S = 60.0
"""How old an answer may be, in seconds, while the server is busy."""
BUSY_SHARE, BUSY_S = 0.5, 2.0
"""A server is busy if making answers has lately taken more than this share of the time, by more than these seconds."""
THREADS = 3
"""How many answers are made at a time: a reader of Tonight need not wait for the list of all series."""
MOST_KEPT = 2000
"""How many answers are kept; the ones that were not asked for longest are dropped first."""
MOST_BYTES = 64 * 2**20
"""Bytes of all kept answers."""
SMALLEST_TO_COMPRESS = 1000
LEVEL = 6
"""How hard gzip tries: the default of nginx and zlib."""


@dataclass(frozen=True)
class Content:
    """The body of an answer with its media type."""

    body: bytes
    kind: str

    @cached_property
    def packed(self) -> bytes:
        """The body, compressed with gzip; empty if it is too short for that."""
        return gzip.compress(self.body, LEVEL, mtime=0) if len(self.body) >= SMALLEST_TO_COMPRESS else b""

    @cached_property
    def tag(self) -> str:
        """The ETag: a digest of the body. It is weak, because compressing changes the bytes."""
        return f'W/"{hashlib.sha256(self.body).hexdigest()[:32]}"'

    @property
    def size(self) -> int:
        """The bytes that the content takes in memory."""
        return len(self.body) + len(self.packed)

    def answer(self, request: Request) -> Response:
        """Return the content, or only "not modified" if the browser has it."""
        headers = {"ETag": self.tag, "Cache-Control": "no-cache"}
        accepted = _accepts_gzip(request.headers.get("accept-encoding", ""))
        known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
        if known & {self.tag.removeprefix("W/"), "*"}:
            return Response(status_code=304, headers=headers | {"Vary": "Accept-Encoding"})
        if self.packed and accepted:
            headers |= {"Vary": "Accept-Encoding", "Content-Encoding": "gzip"}
            return Response(self.packed, headers=headers, media_type=self.kind)
        return Response(self.body, headers=headers, media_type=self.kind)  # the middleware adds Vary


@dataclass(frozen=True, slots=True)
class State:
    """A state of the database: its own text for it, and how often this server had changed something."""

    changes: int
    text: str


@dataclass(frozen=True, slots=True)
class _Kept:
    """An answer that is made or being made, the state of the database that it shows, and when its making was wanted."""

    answer: Future[Content]
    state: State
    began: float

    @property
    def has_failed(self) -> bool:
        """Whether making the answer failed; only for one that is made."""
        return self.answer.cancelled() or self.answer.exception() is not None

    @property
    def size(self) -> int:
        """The bytes of an answer that is made; 0 if making it failed."""
        return 0 if self.has_failed else self.answer.result().size

    def is_right(self, state: State, *, busy: bool) -> bool:
        """Return whether a reader who found the database in a state may have the answer."""
        if not self.answer.done():
            return self.state.changes == state.changes
        if self.has_failed:
            return False
        is_young = self.state.changes == state.changes and time.monotonic() - self.began < OLDEST_S
        return self.state == state or (busy and is_young)


class KeptAnswers:
    """Makes each answer once for all readers who wait for it, and keeps it until the database changes.

    A night changes the database every second, and a server with many readers would make every answer anew for each of
    them. While the server makes other answers, or if making them takes too much of its time, a reader therefore gets
    one that is up to ``OLDEST_S`` old. After a change through this server, such as a finding that someone accepted,
    every answer is made anew.

    Args:
        state: returns a text that changes with the database.
    """

    def __init__(self, state: Callable[[], str]) -> None:
        self._state = state
        self._changes = 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._making = 0
        self._over_s, self._since = 0.0, time.monotonic()
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(THREADS, "make an answer")

    def close(self) -> None:
        """Make no answer any more, without waiting for those that are being made."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def state(self) -> State:
        """Return the state of the database. It asks the database, so it must run in a thread."""
        return State(self._changes, self._state())

    def renew(self) -> None:
        """Use no answer that was begun before now: this server has changed something."""
        with self._lock:
            self._changes += 1

    async def get(self, key: str, state: State, make: Callable[[], Content]) -> Content:
        """Return an answer.

        Args:
            key: names the answer; equal keys have equal answers.
            state: the state of the database when the reader asked.
            make: makes the answer; it runs in a thread. Every reader who waits for the answer gets its error.
        """
        with self._lock:
            kept = self._kept.pop(key, None)
            if kept is None or not kept.is_right(state, busy=self._making > 0 or self._over(0.0) > BUSY_S):
                self._making += 1
                kept = _Kept(self._threads.submit(self._make, make), state, time.monotonic())
            self._kept[key] = kept
        return await asyncio.shield(asyncio.wrap_future(kept.answer))

    async def run(self, make: Callable[[], Content]) -> Content:
        """Return an answer that is not kept."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, make)

    def _over(self, spent_s: float) -> float:
        """Note time spent, and return how much more than ``BUSY_SHARE`` of the time was spent lately, in seconds."""
        now = time.monotonic()
        self._over_s = max(self._over_s - BUSY_SHARE * (now - self._since), 0.0) + spent_s
        self._since = now
        return self._over_s

    def _make(self, make: Callable[[], Content]) -> Content:
        """Return an answer, and drop others: those that failed, and more if all take too much memory."""
        size, began = 0, time.monotonic()
        try:
            content = make()
            content.packed, content.tag  # noqa: B018 - computed here, and not in the thread that serves all readers
            size = content.size
            return content
        finally:
            with self._lock:
                self._making -= 1
                self._over(time.monotonic() - began)
                self._drop(size)

    def _drop(self, size: int) -> None:
        """Make room for an answer of a size; whoever calls this holds the lock."""
        made = {key: kept for key, kept in self._kept.items() if kept.answer.done()}
        size += sum(kept.size for kept in made.values())
        left = len(made)
        for key, kept in sorted(made.items(), key=lambda of: not of[1].has_failed):  # else in order
            if kept.has_failed or size > MOST_BYTES or left >= MOST_KEPT:
                size, left = size - kept.size, left - 1
                del self._kept[key]


def kept_answers(connection: HTTPConnection) -> KeptAnswers:
    """Return the answers that the server keeps."""
    return cast("KeptAnswers", connection.app.state.kept)


def _accepts_gzip(accepted: str) -> bool:
    """Return whether the header Accept-Encoding allows gzip; a weight of 0 forbids it."""
    for each in accepted.lower().replace(" ", "").split(","):
        coding, _, weight = each.partition(";q=")
        if coding in {"gzip", "*"}:
            return weight.strip("0.") != "" or not weight
    return False
