import os
import resource
import socket
import struct
import threading
import tracemalloc
from pathlib import Path

import pytest

from perfsvc.process import frames


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_message_arrives_with_its_blobs(pair):
    blobs = (b"", os.urandom(3_000_000), b"x")
    sender = threading.Thread(target=frames.send, args=(pair[0], b'{"a": 1}', blobs))
    sender.start()
    frame = frames.receive(pair[1])
    sender.join()
    assert (frame.text, frame.blobs, frame.descriptors) == (b'{"a": 1}', blobs, ())


def test_descriptors_travel_with_the_message_in_their_order(pair, tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).write_text(name)
    with (tmp_path / "first").open("rb") as first, (tmp_path / "second").open("rb") as second:
        frames.send(pair[0], b"", descriptors=(first.fileno(), second.fileno()))
    frame = frames.receive(pair[1])
    assert len(frame.descriptors) == frames.MOST_DESCRIPTORS
    for descriptor, name in zip(frame.descriptors, (b"first", b"second"), strict=True):
        with os.fdopen(descriptor, "rb") as received:
            assert received.read() == name


@pytest.mark.parametrize("room", [0, 1])
def test_a_message_whose_descriptors_do_not_all_arrive_is_refused(pair, tmp_path, room):
    with (tmp_path / "file").open("w") as file:
        frames.send(pair[0], b"{}", descriptors=(file.fileno(), file.fileno()))
    before, limits = open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(pair[0].fileno())
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + room, limits[1]))
    try:
        with pytest.raises(frames.FrameError, match="more file descriptors than this process may open"):
            frames.receive(pair[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert open_files() == before


def test_an_incomplete_message_leaves_no_descriptor_open(pair, tmp_path):
    path = tmp_path / "file"
    path.touch()
    before = open_files()
    with path.open("rb") as file:
        socket.send_fds(pair[0], [b"D"], [file.fileno()])
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError):
        frames.receive(pair[1])
    assert open_files() == before


def test_messages_keep_their_order(pair):
    for number in range(50):
        frames.send(pair[0], str(number).encode(), [b"blob"])
    assert [frames.receive(pair[1]).text for _ in range(50)] == [str(n).encode() for n in range(50)]


def test_a_closed_peer_is_no_message(pair):
    pair[0].close()
    assert frames.receive(pair[1]) is None


def test_a_peer_that_dies_within_a_message_is_an_error(pair):
    pair[0].sendall(b"-\0\0\0\1\0\0\0\0\0\0\0\x09half")
    pair[0].close()
    with pytest.raises(EOFError):
        frames.receive(pair[1])


def test_sizes_that_no_message_has_are_refused(pair):
    pair[0].sendall(b"-" + struct.pack("!IQQ", 2, 1 << 29, 1 << 29))
    with pytest.raises(frames.FrameError, match="a message of 1073741824 bytes"):
        frames.receive(pair[1])


def test_memory_is_taken_only_for_bytes_that_arrive(pair):
    pair[0].sendall(b"-" + struct.pack("!IQ", 1, frames.MOST_BYTES) + b"few")
    pair[0].close()
    tracemalloc.start()
    try:
        with pytest.raises(EOFError):
            frames.receive(pair[1])
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()
