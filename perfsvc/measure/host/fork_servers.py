"""Fork servers and the processes that they fork, as the parent sees them.

``multiprocessing``'s fork server does not suit: each of its children imports the parent's main module, which is the
command line, and it cannot distinguish the death of the server from the death of a worker.
"""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from types import TracebackType
from typing import IO, Self

from perfsvc.build.process import python_module
from perfsvc.device import VISIBLE
from perfsvc.measure.worker.fork_server import STATUS

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment variables of a worker. They keep libraries from starting threads, which would delay launches."""
END_LIMIT_S = 10.0
"""Seconds a process may take to end by itself before it is killed."""


class ForkedProcess:
    """A worker's process. It is a child of the fork server, which reports its process id and its exit status.

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
        """Wait for the end of the process; returns whether it has ended."""
        while not self._ended and self._receive(limit_s):
            pass
        return self._ended

    def kill(self) -> None:
        """Kill the process. A process that is not forked yet ends by itself, because the worker's socket is closed."""
        while self._pid is None and not self._ended and self._receive(0.0):
            pass
        if self._pid and not self.wait(0.0):
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
        if len(number) < STATUS.size:  # the server died, and its workers with it
            self._ended = True
        elif self._pid is None:
            (self._pid,) = STATUS.unpack(number)
        else:
            (self.status,) = STATUS.unpack(number)
            self._ended = True
        return True


class ForkServer:
    """A process that has imported what workers need and forks them; see ``perfsvc.measure.worker.fork_server``."""

    def __init__(self) -> None:
        self.forked = False
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*python_module("perfsvc.measure.worker.fork_server"), str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                env={**ONE_THREAD, VISIBLE: "", **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
            )

    def fork(self, theirs: socket.socket, output: IO[bytes]) -> ForkedProcess:
        """Request a worker, without waiting for the fork. If the server is gone, the worker counts as ended.

        Args:
            theirs: the worker's end of its private socket.
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
        """Close the connection, so that the server ends after its last worker has ended."""
        self._socket.close()

    def end(self) -> None:
        """Dismiss the server and wait for its end; kill the server and its workers if they take too long.

        A server that has forked no worker is killed at once, because it may still be importing.
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
    """The fork servers of a run: one for most workers, and a new one for each worker that needs its own address layout.

    A context manager that ends all servers. The first server starts at once, so that it imports while the run prepares.
    """

    def __init__(self) -> None:
        self._servers = [ForkServer()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for server in self._servers:
            server.dismiss()
        while self._servers:
            self._servers.pop().end()

    def take(self, *, unused: bool = False) -> ForkServer:
        """Return a running server. This object ends it.

        Args:
            unused: return a server that has forked no worker yet.
        """
        newest = self._servers[-1]
        if newest.status is not None or (unused and newest.forked):
            newest.dismiss()
            # Servers that did not end normally are kept, because their last output may still be needed.
            for server in [server for server in self._servers if server.status == 0]:
                self._servers.remove(server)
                server.end()
            self._servers.append(ForkServer())
        return self._servers[-1]
