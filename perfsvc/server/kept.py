"""Answers that are made once for many readers, and kept while they are right."""

import asyncio
import gzip
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import TypeVar, cast

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

OLDEST_S = 30.0
"""How old an answer may be, in seconds, while the server is busy with other answers."""
OLDEST_FACTOR = 10.0
"""How old it may be at most compared with the time that making it took, if that is longer than ``OLDEST_S``."""
MOST_KEPT = 2000
"""How many answers are kept; the ones that were not asked for longest are dropped first."""
MOST_BYTES = 64 * 2**20
"""Bytes of all kept answers."""
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
        accepted = _accepts_gzip(request.headers.get("accept-encoding", ""))
        known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
        if known & {self.tag.removeprefix("W/"), "*"}:
            return Response(status_code=304, headers=headers | {"Vary": "Accept-Encoding"})
        if self.packed and accepted:
            headers |= {"Vary": "Accept-Encoding", "Content-Encoding": "gzip"}
            return Response(self.packed, headers=headers, media_type=self.kind)
        return Response(self.body, headers=headers, media_type=self.kind)  # the middleware adds Vary


def _accepts_gzip(accepted: str) -> bool:
    """Return whether the header Accept-Encoding allows gzip; a weight of 0 forbids it."""
    for each in accepted.lower().replace(" ", "").split(","):
        coding, _, weight = each.partition(";q=")
        if coding in {"gzip", "*"}:
            return weight.strip("0.") != "" or not weight
    return False


@dataclass(frozen=True, slots=True)
class State:
    """A state of the database: its own text for it, and how often this server had changed something."""

    changes: int
    text: str


@dataclass(frozen=True, slots=True)
class _Made:
    """A content, or the one that is being made, as of the state and the moment in which the making began.

    Attributes:
        content: the content.
        state: the state of the database before the making began.
        began: when the making began, on the monotonic clock.
        took_s: how long it took; 0 while it lasts.
    """

    content: "Future[Content]"
    state: State
    began: float
    took_s: float = 0.0


class _MakingThread:
    """A thread that makes answers, one after the other; ``waiting`` is how many it has to make."""

    def __init__(self, name: str) -> None:
        self.thread = ThreadPoolExecutor(1, name)
        self.waiting = 0


class KeptAnswers:
    """Makes each answer once for all readers who wait for it, and keeps it until the database changes.

    A night changes the database every second, so a busy server would make every answer anew for every reader. While
    the server makes other answers, or makes this one already, a reader gets the kept answer, unless it is older than
    ``OLDEST_S``. After a change through this server, such as a finding that someone accepted, every answer is made
    anew.

    One thread makes the answers for which all series are read, and another one all others: a reader of Tonight does not
    wait for the list of all series. More threads would not be faster, because Python runs one thread at a time.

    Args:
        state: returns a text that changes with the database.
    """

    def __init__(self, state: Callable[[], str]) -> None:
        self._state = state
        self._changes = 0
        self._kept: OrderedDict[str, _Made] = OrderedDict()
        self._bytes = 0
        self._making: dict[str, _Made] = {}
        self._makers = {False: _MakingThread("make an answer"), True: _MakingThread("make an answer of all series")}
        self._lock = Lock()

    def close(self) -> None:
        """Make no answer any more, without waiting for the one that is being made."""
        for maker in self._makers.values():
            maker.thread.shutdown(wait=False, cancel_futures=True)

    def state(self) -> State:
        """Return the state of the database. It asks the database, so it must run in a thread."""
        return State(self._changes, self._state())

    def renew(self) -> None:
        """Use no answer that was begun before now: this server has changed something."""
        with self._lock:
            self._changes += 1

    async def get(self, key: str, state: State, make: Callable[[], Content], *, of_all_series: bool = False) -> Content:
        """Return an answer.

        Args:
            key: names the answer; equal keys have equal answers.
            state: the state of the database when the reader asked.
            make: makes the answer; it runs in a thread. Every reader who waits for the answer gets its error.
            of_all_series: whether making it reads all series.
        """
        with self._lock:
            kept, making = self._kept.get(key), self._making.get(key)
            maker = self._makers[of_all_series]
            if kept and (kept.state == state or (_is_usable(kept, state) and (making or maker.waiting))):
                self._kept.move_to_end(key)
                return kept.content.result()
            if making is None or making.state.changes < state.changes:
                making = self._begin(maker, key, state, make)
        return await asyncio.shield(asyncio.wrap_future(making.content))

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of some work that is not kept, and that takes as long as making an answer."""
        maker = self._makers[False]
        with self._lock:
            maker.waiting += 1

        def counted() -> T:
            try:
                return work()
            finally:
                with self._lock:
                    maker.waiting -= 1

        return await asyncio.shield(asyncio.wrap_future(maker.thread.submit(counted)))

    def _begin(self, maker: _MakingThread, key: str, state: State, make: Callable[[], Content]) -> _Made:
        """Let a thread make an answer, and keep the answer if that works."""
        making = _Made(Future(), state, time.monotonic())
        self._making[key] = making
        maker.waiting += 1
        maker.thread.submit(self._make, maker, key, making, make)
        return making

    def _make(self, maker: _MakingThread, key: str, making: _Made, make: Callable[[], Content]) -> None:
        content, error, began = None, None, time.monotonic()
        try:
            content = make()
            content.packed, content.tag  # noqa: B018 - computed here, and not in the thread that serves all readers
        except BaseException as raised:  # noqa: BLE001 - those who wait for the answer get the error
            content, error = None, raised
        with self._lock:
            maker.waiting -= 1
            if self._making.get(key) is making:
                del self._making[key]
            if content:
                making.content.set_result(content)
                self._keep(key, replace(making, took_s=time.monotonic() - began), content)
        if error:
            making.content.set_exception(error)

    def _keep(self, key: str, made: _Made, content: Content) -> None:
        """Keep an answer instead of the one that was kept before, and drop the ones that no longer fit."""
        before = self._kept.pop(key, None)
        self._kept[key] = made
        self._bytes += content.size - (before.content.result().size if before else 0)
        while self._bytes > MOST_BYTES or len(self._kept) > MOST_KEPT:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.content.result().size


def _is_usable(kept: _Made, state: State) -> bool:
    """Return whether a busy server may answer with a kept answer of an older state of the database."""
    oldest_s = max(OLDEST_S, OLDEST_FACTOR * kept.took_s)
    return kept.state.changes == state.changes and time.monotonic() - kept.began < oldest_s


def kept_answers(connection: HTTPConnection) -> KeptAnswers:
    """Return the answers that the server keeps."""
    return cast("KeptAnswers", connection.app.state.kept)
