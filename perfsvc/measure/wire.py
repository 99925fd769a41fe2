"""Messages on the private socket between the pool and a worker: length-prefixed JSON, raw blobs, file descriptors.

A frame is one byte (``D`` with descriptors beside it, ``-`` without), the sizes of the text and of each blob, then
their bytes. No pickle: nothing that a kernel scribbles over can make the other side run code.
"""

import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

MOST_DESCRIPTORS = 2
"""How many file descriptors a message can bear."""
_COUNT = struct.Struct("!I")
_SIZE = struct.Struct("!Q")


@dataclass(frozen=True, slots=True)
class Frame:
    """One message as it came: JSON text, blobs, and descriptors that the receiver must close."""

    text: bytes
    blobs: tuple[bytes, ...]
    descriptors: tuple[int, ...]


def send(peer: socket.socket, text: bytes, blobs: Sequence[bytes] = (), descriptors: Sequence[int] = ()) -> None:
    """Sends one message; raises ``OSError`` where the peer is gone."""
    if descriptors:
        socket.send_fds(peer, [b"D"], descriptors)
    else:
        peer.sendall(b"-")
    sizes = [_SIZE.pack(len(part)) for part in (text, *blobs)]
    peer.sendall(_COUNT.pack(len(sizes)) + b"".join(sizes) + text)
    for blob in blobs:
        peer.sendall(blob)


def receive(peer: socket.socket) -> Frame | None:
    """Receives one message, or ``None`` where the peer has closed; ``EOFError`` where it died within a message."""
    mark, descriptors, _, _ = socket.recv_fds(peer, 1, MOST_DESCRIPTORS)
    if not mark:
        return None
    try:
        count = _COUNT.unpack(_exactly(peer, _COUNT.size))[0]
        sizes = [_SIZE.unpack(_exactly(peer, _SIZE.size))[0] for _ in range(count)]
        text, *blobs = (_exactly(peer, size) for size in sizes)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return Frame(text, tuple(blobs), tuple(descriptors))


def _exactly(peer: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        received = peer.recv_into(view)
        if not received:
            message = "the peer closed within a message"
            raise EOFError(message)
        view = view[received:]
    return bytes(buffer)
