"""Fork servers and the processes that they fork, as the parent sees them.

``multiprocessing``'s fork server does not suit: each of its children imports the parent's main module, which is the
command line, and it cannot distinguish the death of the server from the death of a worker.
"""

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import IO, Self

from perfsvc.process.fork_server import STATUS
from perfsvc.process.programs import python_module

SUITE = "perfsvc.suite.isolated.child"
"""The module whose children run benchmark files. Commands start its server before they import the suite."""
END_LIMIT_S = 10.0
"""Seconds a process may take to end by itself before it is killed."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment variables of a worker. They keep libraries from starting threads, which would delay launches."""


class ForkedProcess:
    """A child of the fork server, which reports its process id and its exit status.

    Args:
        status_socket: receives the process id, then the exit status.

    Attributes:
        status: the exit status, negative for a signal; None until the process ends, and None if its server died.
    """

    def __init__(self, status_socket: socket.socket) -> None:
        self._socket = status_socket
        self._pid: int | None = None
        self._ended = False
        self.status: int | None = None

    def wait(self, limit_s: float) -> bool:
        """Wait for the end of the process; return whether it has ended."""
        while not self._ended and self._receive(limit_s):
            pass
        return self._ended

    def kill(self) -> None:
        """Kill the process and its process group, even if the process has ended and only others of the group remain.

        If the process is not forked yet, it ends by itself later, because its private socket is closed.
        """
        while self._pid is None and not self._ended and self._receive(0.0):
            pass
        if not self._pid:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        if not self.wait(0.0):  # it may not have made its group yet
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def forget(self) -> None:
        """Close the status socket."""
        self._socket.close()

    def _receive(self, limit_s: float) -> bool:
        """Receive the next number, the process id or the exit status; returns False if none came in time."""
        self._socket.settimeout(limit_s)
        try:
            number = self._socket.recv(STATUS.size, socket.MSG_WAITALL)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            number = b""
        if len(number) < STATUS.size:  # the server died, and its children with it
            self._ended = True
        elif self._pid is None:
            (self._pid,) = STATUS.unpack(number)
        else:
            (self.status,) = STATUS.unpack(number)
            self._ended = True
        return True


class ForkServer:
    """A process that has imported what its children need and forks them; see ``perfsvc.process.fork_server``.

    Args:
        module: the module whose ``serve`` the children run.
        environment: variables to set for the server and its children, unless perfsvc's own environment sets them.
    """

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self.forked = False
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*python_module("perfsvc.process.fork_server"), str(theirs.fileno()), str(os.getpid()), module],
                pass_fds=[theirs.fileno()],
                env={**environment, **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
            )

    def fork(self, theirs: socket.socket, output: IO[bytes]) -> ForkedProcess:
        """Request a child, without waiting for the fork. If the server is gone, the child counts as ended.

        Args:
            theirs: the child's end of its private socket.
            output: the file for its standard output and error.
        """
        self.forked = True
        ours, status_socket = socket.socketpair()
        with status_socket, contextlib.suppress(OSError):  # the server is gone: ``wait`` sees the closed socket
            socket.send_fds(self._socket, [b"f"], [theirs.fileno(), output.fileno(), status_socket.fileno()])
        return ForkedProcess(ours)

    @property
    def status(self) -> int | None:
        """The exit status once the server has ended, negative for a signal."""
        return self._process.poll()

    def wait(self, limit_s: float) -> bool:
        """Wait for the end of the server; returns whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)
        return self.status is not None

    def last_output(self, size: int) -> str:
        """Return the last ``size`` bytes that the server printed, such as its error at start; empty after ``end``."""
        return "" if self._output.closed else tail(self._output, size)

    def dismiss(self) -> None:
        """Close the connection, so that the server ends after its last child has ended."""
        self._socket.close()

    def end(self) -> None:
        """Dismiss the server and wait for its end; kill the server and its children if they take too long.

        A server that has forked no child is killed at once, because it may still be importing.
        """
        self.dismiss()
        if not (self.forked and self.wait(END_LIMIT_S)):
            self._process.kill()
            self.wait(END_LIMIT_S)  # gives up if the server hangs in a driver call
        self._output.close()


def tail(output: IO[bytes], size: int) -> str:
    """Return the last ``size`` bytes of a file as text, without surrounding white space."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - size))
    return output.read().decode(errors="replace").strip()


class ForkServers:
    """The fork servers of a module: one for most children, a new one for each child with its own address layout.

    A context manager that ends all servers. The first server starts at once, so that it imports early.

    Args:
        start: starts a server.
    """

    def __init__(self, start: Callable[[], ForkServer]) -> None:
        self._start = start
        self._servers = [start()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for server in self._servers:
            server.dismiss()
        while self._servers:
            self._servers.pop().end()

    def take(self, *, unused: bool = False) -> ForkServer:
        """Return a running server; ``ForkServers`` ends the server later.

        Args:
            unused: return a server that has forked no child yet.
        """
        newest = self._servers[-1]
        if newest.status is not None or (unused and newest.forked):
            newest.dismiss()
            # Servers that did not end normally are kept, because their last output may still be needed.
            for server in [server for server in self._servers if server.status == 0]:
                self._servers.remove(server)
                server.end()
            self._servers.append(self._start())
        return self._servers[-1]


_shared: dict[str, ForkServers] = {}


def shared(module: str) -> ForkServers:
    """Return the fork servers of a module, which all of perfsvc shares; the first call starts them.

    Make the first call in the main thread: Linux kills a server that is still importing when its starting thread ends.
    The servers end with this process, or when ``end_shared`` is called.
    """
    if module not in _shared:
        _shared[module] = ForkServers(partial(ForkServer, module, {}))
        atexit.register(end_shared, module)
    return _shared[module]


def end_shared(module: str) -> None:
    """End the fork servers of a module, if they run."""
    if servers := _shared.pop(module, None):
        servers.__exit__(None, None, None)
