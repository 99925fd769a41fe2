"""The fork server: imports once what every worker needs, and forks each worker from there.

Run by ``perfsvc.measure.host.fork_servers`` as ``python -m perfsvc.measure.worker.fork_server SOCKET-DESCRIPTOR PARENT-PID``. Each message
on its socket is a byte and three descriptors: the worker's private socket, the file of its words, and a socket on which
its fate is told, its process id first and later its exit status. It starts no threads and no driver, so that a fork
takes nothing along that a fresh process would not have.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import selectors
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable

DESCRIPTORS = 3
"""How many come with each message: the worker's socket, the file of its words, the socket for its fate."""
FATE = struct.Struct("!q")
"""A number of a worker's fate: its process id, then its exit status, negative for the signal that killed it."""
PR_SET_PDEATHSIG = 1

Worker = Callable[[socket.socket], int]
"""What a worker does with its socket; returns its exit status."""


def main(descriptor: int, parent: int, worker: Worker | None = None) -> int:
    """Forks workers until the parent hangs up and the last of them has ended; returns the exit status.

    In a worker it returns that worker's exit status.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # what is sent to the whole group is the parent's, which ends its workers
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whoever started the run may have had SIGCHLD blocked
    _die_with(parent)
    worker = worker or _prepared()
    sys.stdout.flush()  # else each worker would say once more what an import had said
    gc.collect()
    gc.freeze()  # a collection in a worker need not touch, and so copy, the pages it shares with the others
    with socket.socket(fileno=descriptor) as parents:
        pool = _Server(parents).serve()
    if pool is None:
        return 0
    with pool:
        return worker(pool)


def _prepared() -> Worker:
    """Imports what workers need, that of CUDA's devices too where it is there."""
    from perfsvc.measure.worker.main import prepare, serve

    with contextlib.suppress(ImportError):
        importlib.import_module("perfsvc.device.cuda.device")
        importlib.import_module("pynvml")
    prepare()
    return serve


class _Server:
    """Forks what it is asked for, and tells how each fork ended."""

    def __init__(self, parents: socket.socket) -> None:
        self._parents = parents
        self._fates: dict[int, socket.socket] = {}
        self._ended, ended = socket.socketpair()
        self._wakes = ended
        for one in (self._ended, ended):
            one.settimeout(0.0)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it is the byte for the file descriptor that is wanted
        signal.set_wakeup_fd(ended.fileno(), warn_on_full_buffer=False)

    def serve(self) -> socket.socket | None:
        """The socket of the worker that this process has become, or None where it is the server and is done."""
        asked = True
        with selectors.PollSelector() as selector:  # shared by no fork, as epoll's would be
            selector.register(self._parents, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            while asked or self._fates:
                for key, _ in selector.select():
                    if key.fileobj is self._ended:
                        self._tell_fates()
                        continue
                    mark, descriptors, _, _ = socket.recv_fds(self._parents, 1, DESCRIPTORS)
                    for descriptor in descriptors:  # what a worker starts is not to hold its socket when it has died
                        os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no keyword
                    if not mark:
                        asked = False
                        selector.unregister(self._parents)
                    elif pool := self._fork(*descriptors):
                        return pool
        return None

    def _fork(self, pool: int, words: int, fate: int) -> socket.socket | None:
        """Forks a worker; gives its socket in the worker and None in the server."""
        server = os.getpid()
        told = socket.socket(fileno=fate)
        try:
            pid = os.fork()
        except OSError:  # as if it had been born and had died at once
            os.write(words, traceback.format_exc().encode())
            _tell(told, 0)
            _tell(told, 1)
            told.close()
            pid = None
        if pid == 0:
            self._become_worker(server, words, told)
            return socket.socket(fileno=pool)
        os.close(pool)
        os.close(words)
        if pid:
            self._fates[pid] = told
            _tell(told, pid)
        return None

    def _become_worker(self, server: int, words: int, told: socket.socket) -> None:
        """Leaves behind all that is the server's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _die_with(server)
        for mine in (told, *self._fates.values(), self._ended, self._wakes, self._parents):
            mine.close()
        for stream in (1, 2):
            os.dup2(words, stream)
        os.close(words)

    def _tell_fates(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._ended.recv(4096):
                pass
        for pid in list(self._fates):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                told = self._fates.pop(pid)
                _tell(told, os.waitstatus_to_exitcode(status))
                told.close()


def _tell(told: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the parent has given this worker up
        told.sendall(FATE.pack(number))


def _die_with(parent: int) -> None:
    """Has the kernel kill this process when its parent dies: a hung launch never sees the socket close."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("perfsvc's fork server or worker lost its parent while it started")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
