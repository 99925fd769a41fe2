"""The fork server: imports once what every child needs, and forks each child from there.

``perfsvc.process.fork_servers`` runs it as ``python -m perfsvc.process.fork_server SOCKET PARENT-PID MODULE``. The
module's ``prepare`` imports and builds what its children need, and its ``serve`` is what a child does with its socket.

Each message on the server's socket is a byte and three descriptors: the child's private socket, the file for its
output, and a socket on which the server reports the child's process id and later its exit status. The server starts no
threads and no driver, so that a fork inherits nothing that a fresh process would not have.
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
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path

DESCRIPTORS = 3
"""Descriptors that come with each message: the child's socket, the file for its output, the socket for its status."""
STATUS = struct.Struct("!q")
"""A number on the status socket: the process id, then the exit status, negative for the signal that killed it."""
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PARENT_DIED = signal.SIGUSR1
"""The signal that the kernel sends to the server when the thread that started it ends."""

Serve = Callable[[socket.socket], int]
"""What a child does with its socket; returns its exit status."""


def main(descriptor: int, parent: int, prepared: Callable[[], Serve]) -> int:
    """Fork children until the parent closes the socket and the last child has ended; returns the exit status.

    The function returns in each child too, with the exit status of the child. If the parent is killed, the server kills
    its children and what these have started, and ends.

    Args:
        descriptor: the server's socket.
        parent: the process id of the parent.
        prepared: imports what children need, and returns the function that each child runs.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a signal to the whole group is for the parent, which ends its workers
    signal.signal(PARENT_DIED, signal.SIG_DFL)  # ends a server that is still importing
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the run may have been started with SIGCHLD blocked
    die_with(parent, PARENT_DIED)
    _adopt_orphans()
    serve = prepared()
    sys.stdout.flush()  # otherwise each child would print once more what an import has printed
    gc.collect()
    gc.freeze()  # so that collections in children do not write to shared pages, which would copy the pages
    with socket.socket(fileno=descriptor) as parents:
        child_socket = _Server(parents, parent).serve()
    if child_socket is None:
        return 0
    with child_socket:
        return serve(child_socket)


def _prepared(name: str) -> Serve:
    """Import a module, let it prepare for children, and return the function that each child runs."""
    module = importlib.import_module(name)
    module.prepare()
    serve: Serve = module.serve
    return serve


class _Server:
    """Forks a child for each request, and reports how each child ended."""

    def __init__(self, parents: socket.socket, parent: int) -> None:
        self._parents = parents
        self._parent = parent
        self._status_sockets: dict[int, socket.socket] = {}  # by process id
        self._signals, self._wakeup = socket.socketpair()
        for end in (self._signals, self._wakeup):
            end.settimeout(0.0)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, PARENT_DIED):
            signal.signal(number, lambda *_: None)  # only the byte on the wakeup socket is needed

    def serve(self) -> socket.socket | None:
        """Fork a child for each request; return the child's socket in a child, and None in the server at its end."""
        connected = True
        with selectors.PollSelector() as selector:  # not epoll, because forks would share it
            selector.register(self._parents, selectors.EVENT_READ)
            selector.register(self._signals, selectors.EVENT_READ)
            while connected or self._status_sockets:
                for key, _ in selector.select():
                    if key.fileobj is self._signals:
                        if os.getppid() != self._parent:
                            kill_orphans()
                            return None
                        self._report_ended()
                        continue
                    mark, descriptors, _, _ = socket.recv_fds(self._parents, 1, DESCRIPTORS)
                    for descriptor in descriptors:  # a process that a child starts must not keep its socket open
                        os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no keyword
                    if not mark:
                        connected = False
                        selector.unregister(self._parents)
                    elif child_socket := self._fork(*descriptors):
                        return child_socket
        return None

    def _fork(self, child: int, output: int, status: int) -> socket.socket | None:
        """Fork a child; returns its socket in the child and None in the server."""
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
            self._become_child(server, output, status_socket)
            return socket.socket(fileno=child)
        os.close(child)
        os.close(output)
        if pid:
            self._status_sockets[pid] = status_socket
            _report(status_socket, pid)
        return None

    def _become_child(self, server: int, output: int, status_socket: socket.socket) -> None:
        """Close everything that belongs to the server, and send standard output and error to the child's file."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, PARENT_DIED):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # a process group of its own, which can be killed as a whole
        die_with(server, signal.SIGKILL)  # a child that hangs in a launch never sees the socket close
        _adopt_orphans()  # the server then adopts only what a child leaves behind at its end
        servers = (status_socket, *self._status_sockets.values(), self._signals, self._wakeup, self._parents)
        for server_socket in servers:
            server_socket.close()
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)

    def _report_ended(self) -> None:
        """Report the exit status of every child that has ended."""
        with contextlib.suppress(BlockingIOError):
            while self._signals.recv(4096):
                pass
        while (ended := _ended_child()) is not None:
            pid, status = ended
            if status_socket := self._status_sockets.pop(pid, None):  # otherwise it is an orphan
                _report(status_socket, status)
                status_socket.close()
        kill_orphans(self._status_sockets)


def _report(status_socket: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the parent has given this child up
        status_socket.sendall(STATUS.pack(number))


def _ended_child() -> tuple[int, int] | None:
    """Return the process id and the exit status of a child that has ended; None if there is none."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _adopt_orphans() -> None:
    """Make this process the parent of what its children started and left behind, sessions of their own included."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill_orphans(known: Container[int] = ()) -> None:
    """Kill all children of this process except ``known``, then the children that it adopts from these, and so on."""
    while orphans := [pid for pid in children() if pid not in known]:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(orphans[0], 0)


def children() -> list[int]:
    """Return the process ids of this process's children; empty if the system does not list them."""
    try:
        listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(pid) for pid in listed.split()]


def die_with(parent: int, number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        sys.exit("perfsvc's fork server or its child lost its parent while it started")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), partial(_prepared, sys.argv[3])))
