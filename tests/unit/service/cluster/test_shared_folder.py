"""The folder of a run on Slurm: messages arrive once and whole, killed commands and dead file servers do no harm."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfsvc.errors import InfrastructureError
from perfsvc.model import digest
from perfsvc.service.cluster import shared_folder
from perfsvc.service.cluster.run_folder import make_run_folder
from perfsvc.service.cluster.shared_folder import BlobFolder, FolderCalls, Inbox, Outbox, create, within

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
    for _ in range(8):
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


# --- after commands that were killed ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_folder_of_a_killed_command_is_removed_by_the_next(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; "
        "from perfsvc.service.cluster.shared_folder import make_run_folder; "
        "print(make_run_folder(Path(sys.argv[1])), flush=True); time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True) as command:
        killed = Path(command.stdout.readline().strip())
        (killed / "0.orders").touch()
        assert make_run_folder(tmp_path) != killed
        assert killed.exists()
        command.kill()
    living = make_run_folder(tmp_path)
    assert killed not in set(tmp_path.iterdir())
    assert living.exists()


def test_the_folder_of_a_command_on_another_host_is_removed_if_it_is_old_and_logs_stay(tmp_path):
    logs = tmp_path / "run-1" / "logs"
    logs.mkdir(parents=True)
    other = make_run_folder(tmp_path)
    (other / "command").write_text("elsewhere 1 123 456")
    for age_s, is_kept in ((3600, True), (30 * 3600, False)):
        past_s = time.time() - age_s
        os.utime(other / "command", (past_s, past_s))
        make_run_folder(tmp_path)
        assert other.exists() == is_kept
    assert logs.exists()


# --- calls that do not return ----------------------------------------------------------------------------------------


pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def blocking(tmp_path):
    """Return a call that blocks as one to a dead file server does, until the test ends."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    yield pipe.read_bytes
    descriptor = os.open(pipe, os.O_RDWR)
    time.sleep(0.1)
    os.close(descriptor)


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Calls to a folder, and the messages about it."""
    monkeypatch.setattr(shared_folder, "REPORT_S", 0.1)
    monkeypatch.setattr(shared_folder, "FOLDER_S", 0.3)
    messages = []
    return FolderCalls(tmp_path / "shared", messages.append), messages


def raise_(error):
    raise error


def test_a_call_returns_its_value_or_raises_its_error(calls):
    for call in (calls[0], lambda work: within(5.0, work, InfrastructureError("late"))):
        assert call(lambda: 7) == 7
        for error in (OSError("full"), TimeoutError("its own"), KeyboardInterrupt()):
            with pytest.raises(type(error)) as raised:
                call(lambda error=error: raise_(error))
            assert raised.value is error
    assert calls[1] == []


def test_a_late_call_leaves_no_process(tmp_path):
    def start():
        with subprocess.Popen(["sleep", "1000"]) as process:
            (tmp_path / "pid").write_text(str(process.pid))

    with pytest.raises(InfrastructureError, match="late"):
        within(0.3, start, InfrastructureError("late"))
    while Path("/proc", (tmp_path / "pid").read_text()).exists():
        time.sleep(0.05)


def test_a_folder_that_does_not_answer_is_reported_and_then_an_error_for_every_call(calls, blocking, tmp_path):
    call, messages = calls
    for _ in range(2):
        with pytest.raises(InfrastructureError, match=rf"{tmp_path}/shared has not answered for 0\.3s") as late:
            call(blocking)
        assert f"ls {tmp_path}/shared" in late.value.cure
    (message,) = messages
    assert f"{tmp_path}/shared has not answered for 0.1s: the run waits for it" in message


def test_a_folder_that_answers_late_is_no_error(calls):
    call, messages = calls
    assert call(lambda: time.sleep(0.2) or 7) == 7
    assert len(messages) == 1
    assert call(lambda: 8) == 8


@pytest.mark.slow
def test_the_end_of_a_process_does_not_wait_for_a_late_call(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    text = f"""
from pathlib import Path
from perfsvc.errors import InfrastructureError
from perfsvc.service.cluster.shared_folder import within
within(0.1, Path({str(tmp_path / "pipe")!r}).read_bytes, InfrastructureError("late"))
"""
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=20, check=False)
    assert ended.stderr.splitlines()[-1].endswith("InfrastructureError: late")
