"""The processes that run benchmark files: new ones, busy ones, and idle ones that wait for the next request."""

import atexit
import contextlib
import threading
import time
from collections.abc import Iterator

from perfsvc.process import fork_servers
from perfsvc.process.child import Child
from perfsvc.process.fork_servers import ForkServer

MOST_IDLE = 16
"""Processes kept for the next requests."""


class Processes:
    """The processes that run benchmark files. A process that has answered is kept for the next request of its file.

    A request whose file has only busy processes waits for one of them, but no longer than a new process takes for its
    first answer. So a file that imports PyTorch for seconds and makes small arrays gets one process, and a file that
    makes large arrays gets several.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[tuple[str, Child]] = []  # the process that was used last is the last one
        self._busy: dict[Child, str] = {}
        self._startup_s: dict[str, float] = {}
        self._registered = False

    def start(self) -> ForkServer:
        """Return the running server; start it if there is none."""
        with self._changed:
            if not self._registered:
                self._registered = True
                atexit.register(self.end)
            return fork_servers.shared(fork_servers.SUITE).take()

    @contextlib.contextmanager
    def process(self, path: str) -> Iterator[Child]:
        """Lend a process for a request of a benchmark file; kill it if the block raises, else keep it idle."""
        server = self.start()
        with self._changed:
            child = self._take_idle(path)
            if child is None and path in self._busy.values():
                self._changed.wait_for(lambda: self._may_proceed(path), self._startup_s.get(path, 0.0))
                child = self._take_idle(path)
            is_new = child is None
            child = child or Child(server)
            self._busy[child] = path
        began = time.monotonic()
        try:
            yield child
        except BaseException:
            with self._changed:
                del self._busy[child]
                self._changed.notify_all()
            child.end(kill=True)
            raise
        took_s = time.monotonic() - began
        with self._changed:
            del self._busy[child]
            if is_new:
                self._startup_s[path] = min(took_s, self._startup_s.get(path, took_s))
            self._idle.append((path, child))
            surplus, self._idle = self._idle[:-MOST_IDLE], self._idle[-MOST_IDLE:]
            self._changed.notify_all()
        for _, idle in surplus:
            idle.end(kill=True)

    def _may_proceed(self, path: str) -> bool:
        """Return whether a process of a file is idle, or none is busy any more."""
        return any(idle_path == path for idle_path, _ in self._idle) or path not in self._busy.values()

    def _take_idle(self, path: str) -> Child | None:
        """Return a live process of a file, taken from the idle processes; None if there is no such process."""
        for entry in [entry for entry in self._idle if entry[0] == path]:
            self._idle.remove(entry)
            if entry[1].is_alive():
                return entry[1]
            entry[1].end()
        return None

    def stop(self) -> None:
        """Interrupt the busy processes; the threads that wait for these processes then kill them."""
        with self._changed:
            for child in self._busy:
                child.interrupt()

    def end(self) -> None:
        """Kill all processes and their server."""
        self.stop()
        with self._changed:
            idle, self._idle = self._idle, []
        for _, child in idle:
            child.end(kill=True)
        fork_servers.end_shared(fork_servers.SUITE)
