"""Messages through files: each arrives once and whole, however the file grows."""

import random

import pytest

from perfsvc.model import digest
from perfsvc.service.cluster import shared_folder
from perfsvc.service.cluster.shared_folder import BlobFolder, Inbox, Outbox, create

MESSAGES = [b"one", b"", b"three" * 100, bytes(40), b"five"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "messages"
    create(path)
    return path


def test_messages_arrive_in_order_and_once(path):
    outbox, inbox = Outbox(path), Inbox(path)
    assert inbox.read() == []
    assert not inbox.has_more()
    outbox.send(MESSAGES[:2])
    assert inbox.has_more()
    assert inbox.read() == MESSAGES[:2]
    outbox.send(MESSAGES[2:4])
    outbox.send(MESSAGES[4:])
    assert inbox.read() == MESSAGES[2:]
    assert not inbox.has_more()


def test_a_message_is_read_once_it_is_whole(path):
    Outbox(path).send(MESSAGES)
    content = path.read_bytes()
    chance = random.Random(1)
    for _ in range(20):
        sizes = [*sorted(chance.sample(range(len(content)), 6)), len(content)]
        path.write_bytes(b"")
        inbox, arrived = Inbox(path), []
        for size in sizes:
            path.write_bytes(content[:size])
            new = inbox.read()
            arrived += new
            assert sum(40 + len(text) for text in arrived) <= size
        assert arrived == MESSAGES


def test_bytes_that_have_not_arrived_yet_may_be_zeros(path):
    """On NFS the length of a file can be seen before its content."""
    Outbox(path).send(MESSAGES)
    content, inbox = path.read_bytes(), Inbox(path)
    path.write_bytes(content[:50] + bytes(len(content) - 50))
    assert inbox.read() == MESSAGES[:1]
    path.write_bytes(content)
    assert inbox.read() == MESSAGES[1:]


def test_a_message_that_stays_damaged_is_an_error(path, monkeypatch):
    outbox, inbox = Outbox(path), Inbox(path)
    outbox.send([b"text"])
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert inbox.read() == []
    monkeypatch.setattr(shared_folder, "ARRIVAL_S", -1.0)
    with pytest.raises(ValueError, match="messages is damaged after 0 bytes"):
        inbox.read()


def test_a_file_that_is_gone_is_an_error(path):
    outbox, inbox = Outbox(path), Inbox(path)
    path.unlink()
    for use in (inbox.read, inbox.has_more, lambda: outbox.send([b"text"])):
        with pytest.raises(FileNotFoundError):
            use()


def test_blobs_are_written_once_and_checked(tmp_path):
    blobs = {digest(content): content for content in (b"a", b"b")}
    folder = BlobFolder(tmp_path)
    folder.write(blobs)
    assert BlobFolder(tmp_path).read(list(blobs)) == blobs
    first, second = blobs
    (tmp_path / first).unlink()
    folder.write(blobs)
    assert not (tmp_path / first).exists()
    (tmp_path / second).write_bytes(b"other")
    with pytest.raises(ValueError, match=f"{second} is damaged"):
        folder.read([second])
