"""Fork servers and their workers as the parent sees them: started, asked for workers, told how those ended."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from perfsvc.build.process import python_module
from perfsvc.device import VISIBLE
from perfsvc.measure.worker.fork_server import FATE

if TYPE_CHECKING:
    from perfsvc.measure.host.worker_handle import Process

QUIET = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A worker's libraries start no threads of their own, which would keep it from launching in time."""
END_LIMIT_S = 10.0
"""Seconds a fork server may take to end by itself before it is killed."""


class Fork:
    """A worker's process, which is the fork server's child and not ours.

    Args:
        fate: where its process id, and then its exit status, are told.
    """

    def __init__(self, fate: socket.socket) -> None:
        self._fate = fate
        self._pid: int | None = None
        self._ended = False
        self._status: int | None = None

    def wait(self, limit_s: float) -> bool:
        """Waits for its end; returns whether it has ended."""
        while not self._ended and self._hear(limit_s):
            pass
        return self._ended

    @property
    def status(self) -> int | None:
        """Its exit status once it has ended, negative for the signal that killed it; None where its server died too."""
        return self._status

    def kill(self) -> None:
        """Kills it; one that is not born yet ends by itself, since nobody speaks to it."""
        while self._pid is None and not self._ended and self._hear(0.0):
            pass
        if self._pid and not self.wait(0.0):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def forget(self) -> None:
        """Hears nothing more of it, however it may end."""
        self._fate.close()

    def _hear(self, limit_s: float) -> bool:
        """Takes the next number of its fate; false where none came in time."""
        self._fate.settimeout(limit_s)
        try:
            number = self._fate.recv(FATE.size, socket.MSG_WAITALL)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            number = b""
        if len(number) < FATE.size:  # the server died, and its workers with it
            self._ended = True
        elif self._pid is None:
            (self._pid,) = FATE.unpack(number)
        else:
            (self._status,) = FATE.unpack(number)
            self._ended = True
        return True


class ForkServer:
    """A process that has imported what workers need, and forks them; see ``perfsvc.measure.worker.fork_server``."""

    def __init__(self) -> None:
        self.forked = False
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*python_module("perfsvc.measure.worker.fork_server"), str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                env={**QUIET, VISIBLE: "", **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=subprocess.STDOUT,
            )

    def fork(self, theirs: socket.socket, words: IO[bytes]) -> Fork:
        """Has a worker forked, without waiting for it; where the server is gone, that worker has ended already.

        Args:
            theirs: the worker's end of its socket.
            words: where its standard output and error go.
        """
        self.forked = True
        ours, told = socket.socketpair()
        with told, contextlib.suppress(OSError):  # then nobody has the other end, and the fork knows
            socket.send_fds(self._socket, [b"f"], [theirs.fileno(), words.fileno(), told.fileno()])
        return Fork(ours)

    @property
    def status(self) -> int | None:
        """Its exit status once it has ended, negative for the signal that killed it."""
        return self._process.poll()

    def wait(self, limit_s: float) -> bool:
        """Waits for its end; returns whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)
        return self.status is not None

    def last_words(self, size: int) -> str:
        """The end of what it printed: why it could not start. Nothing where it has been ended."""
        if self._words.closed:
            return ""
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - size))
        return self._words.read().decode(errors="replace").strip()

    def dismiss(self) -> None:
        """Hangs up: it ends when its last worker has."""
        self._socket.close()

    def end(self) -> None:
        """Dismisses it and waits until it is gone; kills it, and what is left of its workers, after a while.

        One that has forked nothing is killed at once: it may still be importing, and nobody needs to wait for that.
        """
        self.dismiss()
        if not (self.forked and self.wait(END_LIMIT_S)):
            self._process.kill()
            self.wait(END_LIMIT_S)  # in vain where a driver call that never returns holds it
        self._words.close()


class ForkServers:
    """The fork servers of a run: one for all workers, and new ones for who asks for a layout of addresses of its own.

    A context manager, which ends them all. The first one starts at once: what it imports takes as long as preparing
    a run.
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

    def begin(self, *, apart: bool = False) -> "Process":
        """Forks a worker; one that is to have a layout of addresses of its own from a server of its own."""
        from perfsvc.measure.host.worker_handle import Process  # a server has started long before a worker is needed

        return Process(self.take(unused=apart))

    def take(self, *, unused: bool = False) -> ForkServer:
        """One that runs; it goes on being ours to end.

        Args:
            unused: one that has forked no worker yet.
        """
        present = self._servers[-1]
        if present.status is not None or (unused and present.forked):
            present.dismiss()
            self._clear()
            self._servers.append(ForkServer())
        return self._servers[-1]

    def _clear(self) -> None:
        """Ends for good those that ended as they were told to; the last words of others may still be asked for."""
        for server in [one for one in self._servers if one.status == 0]:
            self._servers.remove(server)
            server.end()
