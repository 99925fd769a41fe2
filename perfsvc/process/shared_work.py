"""Work that several processes share: forked children, which inherit everything that the work needs.

Nothing is sent to a child. A child writes its results to a file in memory. If a child is killed, stopped or fails, its
parent does the missing parts itself, so that an error appears in the parent.
"""

import contextlib
import gc
import os
import signal
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Self

MOST_PROCESSES = 4
"""More processes than this gain little: the parent has work of its own."""

MOST_PORTIONS = 1024
"""The smallest pipe, one page of memory, holds the numbers of so many portions."""

LEAST_PORTION = 8
"""How many parts a process takes at once, at least."""

STOPPED_S = 5.0
"""Seconds that a child may be stopped while its parent waits for it; then the parent kills it and does its parts. A
child that is slow is not stopped. Ctrl-Z stops parent and child, and both go on together."""
LOOK_S = 0.1
"""Seconds between two looks at a stopped child."""

_ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_PORTION = struct.Struct("<I")
_RESULT = struct.Struct("<IQ")


class SharedWork:
    """Parts of some work, done by this process and its children; a context manager that begins and ends the children.

    Args:
        parts: how many parts the work has.
        do: does the part with an index, and returns its result. It must not use open connections of the parent.
        processes: how many processes do the work; None for as many as there are processors, and at most
            ``MOST_PROCESSES``. If this process has several Python threads, it does the work alone: one of them may hold
            a lock, which nothing would release in a child.
        portion: how many parts a process takes at once, at least; None for as many as suit parts that take
            milliseconds.
    """

    def __init__(
        self, parts: int, do: Callable[[int], bytes], processes: int | None = None, *, portion: int | None = None
    ) -> None:
        self._parts = parts
        self._do = do
        processes = processes or min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
        self._portion = max(portion or LEAST_PORTION, -(-parts // MOST_PORTIONS))
        portions = -(-parts // self._portion)
        self._processes = min(processes, portions) if threading.active_count() == 1 else 1
        self._queue = -1
        self._children: dict[int, int] = {}

    def __enter__(self) -> Self:
        self._queue, entrance = os.pipe()
        with os.fdopen(entrance, "wb") as file:
            file.write(b"".join(_PORTION.pack(first) for first in range(0, self._parts, self._portion)))
        parent = os.getpid()
        # Until a child has its own handlers, a signal would make it go on as if it were its parent.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        gc.freeze()  # else collecting garbage would copy the pages of memory that the processes share
        try:
            for _ in range(self._processes - 1):
                self._fork(parent)
        except OSError:
            pass  # this user may start no more processes: fewer do the work
        finally:
            gc.unfreeze()
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            except BaseException:  # a signal that had to wait
                self.__exit__()
                raise
        return self

    def _fork(self, parent: int) -> None:
        """Start a child."""
        file = os.memfd_create("perfsvc-shared-work", os.MFD_CLOEXEC)
        try:
            with warnings.catch_warnings():
                # Python warns about threads, such as those of numpy's libraries, which can be forked.
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
        except OSError:
            os.close(file)
            raise
        if not child:
            self._be_child(file, parent)
        self._children[child] = file

    def __exit__(self, *_: object) -> None:
        for child, file in self._children.items():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            _wait_for(child)
            os.close(file)
        os.close(self._queue)

    def results(self) -> list[bytes]:
        """Take part in the work, wait for the children, and return the result of each part, in order."""
        results = {part: self._do(part) for part in self._taken()}
        for child, file in list(self._children.items()):
            _wait_for(child)
            del self._children[child]
            with os.fdopen(file, "rb") as written:
                written.seek(0)
                while len(header := written.read(_RESULT.size)) == _RESULT.size:
                    part, size = _RESULT.unpack(header)
                    content = written.read(size)
                    if len(content) == size:
                        results[part] = content
        return [results[part] if part in results else self._do(part) for part in range(self._parts)]

    def _taken(self) -> Iterator[int]:
        """Yield the parts that this process takes from the queue, until the queue is empty."""
        while number := os.read(self._queue, _PORTION.size):
            (first,) = _PORTION.unpack(number)
            yield from range(first, min(first + self._portion, self._parts))

    def _be_child(self, file: int, parent: int) -> None:
        """Work until the queue is empty or the parent has ended; never return."""
        status = 1
        try:
            for number in _ENDING:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            with os.fdopen(file, "wb") as results:
                for part in self._taken():
                    if os.getppid() != parent:
                        break
                    content = self._do(part)
                    results.write(_RESULT.pack(part, len(content)))
                    results.write(content)
            status = 0
        except BaseException:  # noqa: BLE001, S110 - the parent does this part again, and reports its error
            pass
        finally:
            os._exit(status)


def _wait_for(child: int) -> None:
    """Wait until a child has ended; kill it if it stays stopped, as by SIGSTOP."""
    kill_at: float | None = None
    with contextlib.suppress(ChildProcessError):  # the parent of this process made it ignore SIGCHLD
        while True:
            changes = os.WUNTRACED | os.WCONTINUED
            changed, status = os.waitpid(child, changes if kill_at is None else changes | os.WNOHANG)
            if changed and os.WIFSTOPPED(status):
                kill_at = time.monotonic() + STOPPED_S
            elif changed and os.WIFCONTINUED(status):
                kill_at = None
            elif changed:
                return
            elif kill_at is not None and time.monotonic() >= kill_at:
                os.kill(child, signal.SIGKILL)
                kill_at = None
            else:
                time.sleep(LOOK_S)
