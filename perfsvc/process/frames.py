"""The form of messages on the private socket between perfsvc and a child process.

A frame is one byte (``D`` if file descriptors come with it, ``-`` if not), the number of its parts, their sizes, then
their bytes. The first part is a text, which is JSON and not a pickle: a child may run foreign code or have its memory
overwritten by a kernel, and must not be able to make its parent run code. The other parts are blobs.
"""

import math
import os
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

MOST_DESCRIPTORS = 2
"""How many file descriptors a frame can carry."""
MOST_PARTS = 1 << 16
"""How many parts a frame can have: its text, and a blob for each file of a measurement or each binary of a case."""
MOST_BYTES = 1 << 29
"""How many bytes the parts of a frame can have together. Binaries and files are far smaller, arrays are not sent."""
_AT_ONCE = 1 << 20
"""Memory is taken in steps of this size while bytes arrive, because the sizes in a frame may be wrong."""
_COUNT = struct.Struct("!I")
_SIZE = struct.Struct("!Q")


class FrameError(Exception):
    """The peer sent something that is no frame, did not end a frame in time, or its descriptors cannot be received."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message as it arrived: JSON text, blobs, and descriptors that the receiver must close."""

    text: bytes
    blobs: tuple[bytes, ...]
    descriptors: tuple[int, ...]


def as_text(value: str) -> str:
    """Return a path or a variable, which may have bytes that are no text, as text that JSON can hold."""
    return os.fsencode(value).decode("latin-1")


def from_text(text: str) -> str:
    """Return the path or variable of ``as_text``."""
    return os.fsdecode(text.encode("latin-1"))


def send(peer: socket.socket, text: bytes, blobs: Sequence[bytes] = (), descriptors: Sequence[int] = ()) -> None:
    """Send one message; raises ``OSError`` if the peer is gone."""
    if descriptors:
        socket.send_fds(peer, [b"D"], descriptors)
    else:
        peer.sendall(b"-")
    sizes = [_SIZE.pack(len(part)) for part in (text, *blobs)]
    peer.sendall(_COUNT.pack(len(sizes)) + b"".join(sizes) + text)
    for blob in blobs:
        peer.sendall(blob)


def receive(peer: socket.socket, limit_s: float | None = None) -> Frame | None:
    """Wait for a message and return it.

    Args:
        peer: the socket.
        limit_s: seconds from the first byte of the message to its last; by default there is no limit.

    Returns:
        The message, or None if the peer has closed the socket.

    Raises:
        FrameError: the sizes in the message are impossible, the message took too long, or this process may not open as
            many files as came with it.
        EOFError: the peer closed the socket within the message.
        OSError: the socket failed, or its own timeout expired before the first byte.
    """
    mark, descriptors, flags, _ = socket.recv_fds(peer, 1, MOST_DESCRIPTORS)
    if not mark:
        return None
    if flags & socket.MSG_CTRUNC:
        for descriptor in descriptors:
            os.close(descriptor)
        raise FrameError("a message with more file descriptors than this process may open")
    ends = math.inf if limit_s is None else time.monotonic() + limit_s
    timeout_s = peer.gettimeout()
    try:
        text, *blobs = (_exactly(peer, size, ends) for size in _sizes(peer, ends))
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    finally:
        peer.settimeout(timeout_s)
    return Frame(text, tuple(blobs), tuple(descriptors))


def _sizes(peer: socket.socket, ends: float) -> list[int]:
    """Receive the sizes of a frame's parts."""
    (count,) = _COUNT.unpack(_exactly(peer, _COUNT.size, ends))
    if not 1 <= count <= MOST_PARTS:
        raise FrameError(f"a message of {count} parts")
    sizes = [size for (size,) in _SIZE.iter_unpack(_exactly(peer, count * _SIZE.size, ends))]
    if sum(sizes) > MOST_BYTES:
        raise FrameError(f"a message of {sum(sizes)} bytes")
    return sizes


def _exactly(peer: socket.socket, size: int, ends: float) -> bytes:
    """Receive exactly this many bytes before a time on the monotonic clock."""
    buffer = bytearray()
    while len(buffer) < size:
        left_s = ends - time.monotonic()
        if left_s <= 0:
            raise FrameError("a message that did not end in time")
        peer.settimeout(left_s if ends < math.inf else None)
        try:
            received = peer.recv(min(size - len(buffer), _AT_ONCE))
        except TimeoutError:
            continue
        if not received:
            raise EOFError("the peer closed the socket within a message")
        buffer += received
    return bytes(buffer)
