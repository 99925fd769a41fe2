"""The folder of a site after faults of the processes that write it."""

import os
import signal
import threading

import pytest

from perfsvc.errors import InfrastructureError
from perfsvc.process.shared_work import SharedWork
from perfsvc.service.dashboard.folder import writing

NAMES = [f"series/{number}.html" for number in range(16)]


def hidden(folder):
    """The temporary files in a folder."""
    return list(folder.rglob(".perfsvc-new-*"))


def test_a_killed_process_leaves_no_temporary_file(tmp_path, monkeypatch):
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # other tests may have left threads
    parent = os.getpid()
    with writing(tmp_path, NAMES) as site:

        def write(at):
            if os.getpid() != parent:
                with site._folder.writing(NAMES[at]):
                    os.kill(os.getpid(), signal.SIGKILL)
            site.write(NAMES[at], b"page")
            return b""

        with SharedWork(len(NAMES), write, 2) as shared:
            (child,) = shared._children
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            assert len(hidden(tmp_path)) == 1
            shared.results()
    assert hidden(tmp_path) == []
    assert {path.read_bytes() for path in tmp_path.glob("series/*")} == {b"page"}


def test_a_failed_build_leaves_no_temporary_file(tmp_path):
    def fail():
        with writing(tmp_path, NAMES) as site:
            site.write(NAMES[0], b"page")
            (tmp_path / "series" / f".perfsvc-new-{32 * '0'}").touch()  # of a process that was killed
            raise OSError("the disk is full")

    with pytest.raises(InfrastructureError, match="cannot be written"):
        fail()
    assert hidden(tmp_path) == []
