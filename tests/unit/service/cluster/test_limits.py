"""Calls that do not return, as those to a file server that does not answer."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfsvc.errors import InfrastructureError
from perfsvc.service.cluster import limits
from perfsvc.service.cluster.limits import FolderCalls, within

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
    monkeypatch.setattr(limits, "REPORT_S", 0.1)
    monkeypatch.setattr(limits, "FOLDER_S", 0.3)
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
        within(0.5, start, InfrastructureError("late"))
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


def test_the_end_of_a_process_does_not_wait_for_a_late_call(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    text = f"""
from pathlib import Path
from perfsvc.errors import InfrastructureError
from perfsvc.service.cluster.limits import within
within(0.1, Path({str(tmp_path / "pipe")!r}).read_bytes, InfrastructureError("late"))
"""
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=20, check=False)
    assert ended.stderr.splitlines()[-1].endswith("InfrastructureError: late")
