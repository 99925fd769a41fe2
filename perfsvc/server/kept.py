"""Answers that are made once for many readers, and kept while they are right."""

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
from typing import TypeVar, cast

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

MAKERS = 2
"""How many answers are made at a time. Python runs one thread at a time, so more would only make each one late."""
OLDEST_S = 30.0
"""How old an answer may be, in seconds, while the server is busy with other answers."""
MOST_BYTES = 64 * 2**20
"""Bytes of all kept answers; the ones that were not asked for longest are dropped first."""
SMALLEST_TO_COMPRESS = 1000
LEVEL = 6
"""How hard gzip tries: the default of nginx and zlib."""

T = TypeVar("T")


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
        known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
        if known & {self.tag.removeprefix("W/"), "*"}:
            return Response(status_code=304, headers=headers)
        if self.packed:
            headers["Vary"] = "Accept-Encoding"
            if "gzip" in request.headers.get("accept-encoding", ""):
                headers["Content-Encoding"] = "gzip"
                return Response(self.packed, headers=headers, media_type=self.kind)
        return Response(self.body, headers=headers, media_type=self.kind)


@dataclass(frozen=True, slots=True)
class State:
    """A state of the database: its own text for it, and how often this server had changed something."""

    changes: int
    text: str


@dataclass(frozen=True, slots=True)
class _Made:
    """A content, or the one that is being made, as of the state and the moment in which the making began."""

    content: "Future[Content]"
    state: State
    began: float


class KeptAnswers:
    """Makes each answer once for all readers who wait for it, and keeps it until the database changes.

    A night changes the database every second, so a busy server would make every answer anew for every reader. While
    all its threads make answers, a reader gets the kept answer, unless it is older than ``OLDEST_S``. After a change
    through this server, such as a finding that someone accepted, every answer is made anew.

    Args:
        state: returns a text that changes with the database.
    """

    def __init__(self, state: Callable[[], str]) -> None:
        self._state = state
        self._changes = 0
        self._kept: OrderedDict[str, _Made] = OrderedDict()
        self._bytes = 0
        self._making: dict[str, _Made] = {}
        self._waiting = 0
        self._makers = ThreadPoolExecutor(MAKERS, "make an answer")
        self._lock = Lock()

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
            kept, making = self._kept.get(key), self._making.get(key)
            if kept and (kept.state == state or (self._is_usable(kept, state) and (making or self._is_busy))):
                self._kept.move_to_end(key)
                return kept.content.result()
            if making is None or making.state.changes < state.changes:
                making = self._begin(key, state, make)
        return await asyncio.shield(asyncio.wrap_future(making.content))

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of some work that is not kept, and that takes as long as making an answer."""
        with self._lock:
            self._waiting += 1

        def counted() -> T:
            try:
                return work()
            finally:
                with self._lock:
                    self._waiting -= 1

        return await asyncio.shield(asyncio.wrap_future(self._makers.submit(counted)))

    @property
    def _is_busy(self) -> bool:
        return self._waiting >= MAKERS

    def _is_usable(self, kept: _Made, state: State) -> bool:
        return kept.state.changes == state.changes and time.monotonic() - kept.began < OLDEST_S

    def _begin(self, key: str, state: State, make: Callable[[], Content]) -> _Made:
        """Let a thread make an answer, and keep the answer if that works."""
        self._waiting += 1
        making = _Made(Future(), state, time.monotonic())
        self._making[key] = making
        self._makers.submit(self._make, key, making, make)
        return making

    def _make(self, key: str, making: _Made, make: Callable[[], Content]) -> None:
        content, error = None, None
        try:
            content = make()
            content.packed, content.tag  # noqa: B018 - computed here, and not in the thread that serves all readers
        except BaseException as raised:  # noqa: BLE001 - those who wait for the answer get the error
            error = raised
        with self._lock:
            self._waiting -= 1
            if self._making.get(key) is making:
                del self._making[key]
            if content:
                making.content.set_result(content)
                self._keep(key, making, content)
        if error:
            making.content.set_exception(error)

    def _keep(self, key: str, made: _Made, content: Content) -> None:
        """Keep an answer instead of the one that was kept before, and drop the ones that no longer fit."""
        before = self._kept.pop(key, None)
        self._kept[key] = made
        self._bytes += content.size - (before.content.result().size if before else 0)
        while self._bytes > MOST_BYTES:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.content.result().size


def kept_answers(connection: HTTPConnection) -> KeptAnswers:
    """Return the answers that the server keeps."""
    return cast("KeptAnswers", connection.app.state.kept)
