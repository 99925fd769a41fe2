"""The fork server: imports once what every worker needs, and forks each worker from there.

``perfsvc.measure.host.fork_servers`` runs it as ``python -m perfsvc.measure.worker.fork_server SOCKET PARENT-PID``.
Each message on its socket is a byte and three descriptors: the worker's private socket, the file for its output, and a
socket on which the server reports the worker's process id and later its exit status. The server starts no threads and
no driver, so that a fork inherits nothing that a fresh process would not have.
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
"""Descriptors that come with each message: the worker's socket, the file for its output, the socket for its status."""
STATUS = struct.Struct("!q")
"""A number on the status socket: the process id, then the exit status, negative for the signal that killed it."""
PR_SET_PDEATHSIG = 1

Serve = Callable[[socket.socket], int]
"""What a worker does with its socket; returns its exit status."""


def main(descriptor: int, parent: int, serve: Serve | None = None) -> int:
    """Fork workers until the parent closes the socket and the last worker has ended; returns the exit status.

    The function returns in each worker too, with the exit status of the worker.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a signal to the whole group is for the parent, which ends its workers
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the run may have been started with SIGCHLD blocked
    _die_with(parent)
    serve = serve or _import_worker()
    sys.stdout.flush()  # otherwise each worker would print once more what an import has printed
    gc.collect()
    gc.freeze()  # so that collections in workers do not write to shared pages, which would copy the pages
    with socket.socket(fileno=descriptor) as parents:
        worker_socket = _Server(parents).serve()
    if worker_socket is None:
        return 0
    with worker_socket:
        return serve(worker_socket)


def _import_worker() -> Serve:
    """Import what workers need, including CUDA's packages if they are installed."""
    from perfsvc.measure.worker.main import prepare, serve

    with contextlib.suppress(ImportError):
        importlib.import_module("perfsvc.device.cuda.device")
        importlib.import_module("pynvml")
    prepare()
    return serve


class _Server:
    """Forks a worker for each request, and reports how each one ended."""

    def __init__(self, parents: socket.socket) -> None:
        self._parents = parents
        self._status_sockets: dict[int, socket.socket] = {}  # by process id
        self._child_ended, self._wakeup = socket.socketpair()
        for end in (self._child_ended, self._wakeup):
            end.settimeout(0.0)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only the byte on the wakeup socket is needed
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)

    def serve(self) -> socket.socket | None:
        """Fork a worker for each request; return the worker's socket in a worker, and None in the server at its end."""
        connected = True
        with selectors.PollSelector() as selector:  # not epoll, because forks would share it
            selector.register(self._parents, selectors.EVENT_READ)
            selector.register(self._child_ended, selectors.EVENT_READ)
            while connected or self._status_sockets:
                for key, _ in selector.select():
                    if key.fileobj is self._child_ended:
                        self._report_ended()
                        continue
                    mark, descriptors, _, _ = socket.recv_fds(self._parents, 1, DESCRIPTORS)
                    for descriptor in descriptors:  # a process that a worker starts must not keep its socket open
                        os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no keyword
                    if not mark:
                        connected = False
                        selector.unregister(self._parents)
                    elif worker_socket := self._fork(*descriptors):
                        return worker_socket
        return None

    def _fork(self, worker: int, output: int, status: int) -> socket.socket | None:
        """Fork a worker; returns its socket in the worker and None in the server."""
        server = os.getpid()
        status_socket = socket.socket(fileno=status)
        try:
            pid = os.fork()
        except OSError:  # reported as if a process had started and ended at once
            os.write(output, traceback.format_exc().encode())
            _report(status_socket, 0)
            _report(status_socket, 1)
            status_socket.close()
            pid = None
        if pid == 0:
            self._become_worker(server, output, status_socket)
            return socket.socket(fileno=worker)
        os.close(worker)
        os.close(output)
        if pid:
            self._status_sockets[pid] = status_socket
            _report(status_socket, pid)
        return None

    def _become_worker(self, server: int, output: int, status_socket: socket.socket) -> None:
        """Close everything that belongs to the server, and send standard output and error to the worker's file."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _die_with(server)
        servers = (status_socket, *self._status_sockets.values(), self._child_ended, self._wakeup, self._parents)
        for server_socket in servers:
            server_socket.close()
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)

    def _report_ended(self) -> None:
        """Report the exit status of every worker that has ended."""
        with contextlib.suppress(BlockingIOError):
            while self._child_ended.recv(4096):
                pass
        for pid in list(self._status_sockets):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                status_socket = self._status_sockets.pop(pid)
                _report(status_socket, os.waitstatus_to_exitcode(status))
                status_socket.close()


def _report(status_socket: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the parent has given this worker up
        status_socket.sendall(STATUS.pack(number))


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies: a hung launch never sees the socket close."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("perfsvc's fork server or worker lost its parent while it started")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
