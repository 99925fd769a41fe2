import os
import socket
import threading

import pytest

from perfsvc.measure import wire


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_message_arrives_with_its_blobs(pair):
    blobs = (b"", os.urandom(3_000_000), b"x")
    sender = threading.Thread(target=wire.send, args=(pair[0], b'{"a": 1}', blobs))
    sender.start()
    frame = wire.receive(pair[1])
    sender.join()
    assert (frame.text, frame.blobs, frame.descriptor) == (b'{"a": 1}', blobs, -1)


def test_a_descriptor_travels_with_the_message(pair, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"hello")
    with path.open("rb") as file:
        wire.send(pair[0], b"", descriptor=file.fileno())
    frame = wire.receive(pair[1])
    with os.fdopen(frame.descriptor, "rb") as received:
        assert received.read() == b"hello"


def test_messages_keep_their_order(pair):
    for number in range(50):
        wire.send(pair[0], str(number).encode(), [b"blob"])
    assert [wire.receive(pair[1]).text for _ in range(50)] == [str(n).encode() for n in range(50)]


def test_a_closed_peer_is_no_message(pair):
    pair[0].close()
    assert wire.receive(pair[1]) is None


def test_a_peer_that_dies_within_a_message_is_an_error(pair):
    pair[0].sendall(b"-\0\0\0\1\0\0\0\0\0\0\0\x09half")
    pair[0].close()
    with pytest.raises(EOFError):
        wire.receive(pair[1])
