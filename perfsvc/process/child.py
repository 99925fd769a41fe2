"""One child of a fork server as its parent sees it: start it, exchange messages with it, and end it."""

import contextlib
import fcntl
import math
import os
import select
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfsvc.process import frames
from perfsvc.process.fork_servers import END_LIMIT_S, ForkServer, tail
from perfsvc.process.frames import Frame
from perfsvc.process.programs import describe_exit

TAIL_BYTES = 2000
"""How many bytes of a dead child's output are reported."""
MOST_OUTPUT_BYTES = 16 << 20
"""A file of output that is larger is emptied, so that a child that prints without end does not fill the disk."""
OUTPUT_POLL_S = 0.5
"""Seconds between two looks at the size of the output."""
CLOSED = "killed, because it stopped exchanging messages"
"""How a child died that closed its socket, or took no message, but did not end."""
CLOSED_LIMIT_S = 2.0
"""Seconds a child may take to end after it has closed its socket. The workers of all other devices wait meanwhile."""


@dataclass(frozen=True, slots=True)
class Death:
    """How a child died.

    Attributes:
        how: its exit status, or the signal that killed it.
        status: the exit status, negative for a signal; None if it cannot be killed.
        output: the end of what it printed; empty if it printed nothing.
        with_server: whether it died because its fork server died.
        unread: whether it died before it had received the whole of its last message.
        closed: whether it closed its socket, or took no message, and was killed because it did not end.
    """

    how: str
    status: int | None
    output: str
    with_server: bool
    unread: bool = False
    closed: bool = False


class Child:
    """A child process, its private socket, and the file that takes its standard output and error.

    Args:
        server: forks the child.
    """

    def __init__(self, server: ForkServer) -> None:
        self._server = server
        self._dismissed = math.inf
        self._interrupted = False
        self.socket, theirs = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        fcntl.fcntl(self._output, fcntl.F_SETFL, os.O_APPEND)  # so that it can be emptied between two messages
        with theirs:
            self._process = server.fork(theirs, self._output)

    def send(
        self, text: bytes, blobs: Sequence[bytes] = (), descriptors: Sequence[int] = (), limit_s: float | None = None
    ) -> Death | None:
        """Send a message; return how the child died if it has died, else None.

        Args:
            text: the JSON text of the message.
            blobs: the blobs of the message.
            descriptors: the file descriptors to send with the message.
            limit_s: seconds that the child may take to receive the message; by default there is no limit.

        Raises:
            TimeoutError: the child did not receive the message in time.
        """
        self.socket.settimeout(limit_s)
        try:
            frames.send(self.socket, text, blobs, descriptors)
        except TimeoutError:
            raise
        except OSError:
            return replace(self.death(), unread=True)
        return None

    def receive(self, limit_s: float | None = None, *, message_limit_s: float | None = None) -> Frame | Death:
        """Return the child's next message, or how it died.

        Args:
            limit_s: seconds to wait for the first byte; by default there is no limit.
            message_limit_s: seconds from the first byte to the last; by default there is no limit.

        Raises:
            TimeoutError: no message came in time.
            FrameError: the child sent something that is no message, or did not end its message in time.
        """
        try:
            self._wait_for_message(limit_s)
            self.socket.settimeout(limit_s)
            frame = frames.receive(self.socket, message_limit_s)
        except TimeoutError:
            raise
        except ConnectionResetError:  # Linux reports so that a peer was gone before it had read everything
            return replace(self.death(), unread=True)
        except (OSError, EOFError):
            frame = None
        return frame or self.death()

    def limit_output(self) -> None:
        """Empty the file of output if it is too large. Call this method again and again while the child works."""
        if os.fstat(self._output.fileno()).st_size > MOST_OUTPUT_BYTES:
            self._output.truncate(0)

    def take_output(self) -> str:
        """Return the end of what the child has printed since the last call."""
        text = tail(self._output, TAIL_BYTES)
        self._output.truncate(0)
        return text

    def is_alive(self) -> bool:
        """Return whether the child has not ended yet."""
        return not self._process.wait(0.0)

    def interrupt(self) -> None:
        """Make a thread that waits for the child's message see the child as dead; that thread then kills the child."""
        self._interrupted = True
        with contextlib.suppress(OSError):  # it is closed already
            self.socket.shutdown(socket.SHUT_RDWR)

    def dismiss(self, *, kill: bool = False) -> None:
        """Close the socket, so that the child ends by itself, or kill the child; do not wait for its end."""
        if kill:
            self._process.kill()
        self.socket.close()
        self._dismissed = time.monotonic()

    def is_gone(self) -> bool:
        """Return whether the child has ended since it was dismissed.

        A child that takes too long to end is killed. If it survives the kill, it counts as ended all the same.
        """
        waited_s = time.monotonic() - self._dismissed
        if waited_s > END_LIMIT_S:
            self._process.kill()
        gone = self._process.wait(0.0) or waited_s > 2 * END_LIMIT_S
        if gone:
            self._close()
        return gone

    def end(self, *, kill: bool = False) -> None:
        """Dismiss or kill the child, and wait until it is gone."""
        self.dismiss(kill=kill)
        if not self._process.wait(END_LIMIT_S):
            self._process.kill()
            self._process.wait(END_LIMIT_S)  # gives up if a driver call hangs
        self._close()

    def death(self) -> Death:
        """Wait for the child to end, kill the child if it takes too long, and return how it died."""
        if self._interrupted:
            self._process.kill()
        in_time = self._process.wait(CLOSED_LIMIT_S)
        if not in_time:
            self._process.kill()
        ended, status = in_time or self._process.wait(END_LIMIT_S), self._process.status
        with_server = ended and status is None
        closed = not in_time and status == -signal.SIGKILL  # any other status shows that it was ending by itself
        if with_server:
            ended, status = self._server.wait(END_LIMIT_S), self._server.status
        output = tail(self._output, TAIL_BYTES) or self._server.last_output(TAIL_BYTES)
        how = CLOSED if closed else _how(status if ended else None)
        return Death(how, status if ended else None, output, with_server, closed=closed)

    def _wait_for_message(self, limit_s: float | None) -> None:
        """Wait for the first byte of a message, and limit the output meanwhile; raises ``TimeoutError``."""
        ends = math.inf if limit_s is None else time.monotonic() + limit_s
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        while not poll.poll(1000 * min(OUTPUT_POLL_S, max(0.0, ends - time.monotonic()))):
            if time.monotonic() >= ends:
                raise TimeoutError
            self.limit_output()

    def _close(self) -> None:
        self._process.kill()  # what it started and left behind
        self._output.close()
        self._process.forget()


def _how(status: int | None) -> str:
    if status is None:
        return "it cannot be killed"
    return describe_exit(status) if status >= 0 else f"killed by {describe_exit(status)}"
