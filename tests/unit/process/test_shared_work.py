"""Work that several processes share."""

import contextlib
import errno
import gc
import os
import signal
import subprocess
import threading
import time
from itertools import product
from pathlib import Path

import pytest

from perfsvc.process import shared_work
from perfsvc.process.shared_work import SharedWork


@pytest.fixture(autouse=True)
def without_threads_of_other_tests(monkeypatch):
    """Other tests of this process may have left threads, with which no work is shared."""
    others = set(threading.enumerate())
    monkeypatch.setattr(threading, "active_count", lambda: 1 + len(set(threading.enumerate()) - others))


def squares(part):
    return b"%d" % part**2


def test_each_result_has_the_place_of_its_part():
    for parts, processes, portion in product((0, 1, 7, 8, 9, 1000, 1025), (1, 2, 4), (None, 1)):
        with SharedWork(parts, squares, processes, portion=portion) as shared:
            assert shared.results() == [squares(part) for part in range(parts)]


def test_a_child_takes_parts_while_its_parent_has_other_work():
    with SharedWork(16, lambda _: b"%d" % os.getpid(), 2) as shared:
        (child,) = shared._children
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # the child has done everything
        assert shared.results() == [b"%d" % child] * 16


@pytest.mark.parametrize("end", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: 1 / 0])
def test_the_parent_does_what_a_child_did_not_finish(end):
    parent = os.getpid()

    def work(part):
        if part == 5 and os.getpid() != parent:
            end()
        return bytes([part]) * 100_000

    with SharedWork(40, work, 2) as shared:
        (child,) = shared._children
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert shared.results() == [bytes([part]) * 100_000 for part in range(40)]


@pytest.mark.timeout(60)
def test_the_parent_does_what_a_stopped_child_holds_up_and_kills_the_child(monkeypatch):
    monkeypatch.setattr(shared_work, "STOPPED_S", 0.3)
    parent = os.getpid()

    def work(part):
        if part == 5 and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGSTOP)
        return b"%d" % part

    with SharedWork(40, work, 2) as shared:
        (child,) = shared._children
        os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOWAIT)
        assert shared.results() == [b"%d" % part for part in range(40)]
    with pytest.raises(ChildProcessError):
        os.waitpid(child, 0)


@pytest.mark.timeout(60)
def test_a_child_that_is_stopped_only_for_a_moment_does_its_parts(monkeypatch):
    monkeypatch.setattr(shared_work, "STOPPED_S", 20.0)
    parent = os.getpid()

    def work(part):
        if part == 5 and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.1)  # the child goes on for longer than the parent has work
        return b"%d" % os.getpid()

    with SharedWork(32, work, 2, portion=16) as shared:
        (child,) = shared._children
        os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOWAIT)
        resuming = subprocess.Popen(["sh", "-c", f"sleep 0.1; kill -CONT {child}"])
        assert shared.results() == [b"%d" % child] * 16 + [b"%d" % parent] * 16
    resuming.wait()


def test_an_error_appears_in_the_parent():
    with pytest.raises(ZeroDivisionError), SharedWork(40, lambda part: b"%d" % (1 // (part - 20)), 2) as shared:
        shared.results()


def test_no_child_is_left_after_an_error_of_the_parent():
    def wait(_):
        signal.pause()

    with contextlib.suppress(KeyError), SharedWork(24, wait, 3) as shared:
        children = list(shared._children)
        raise KeyError
    assert len(children) == 2
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, 0)


def test_a_process_with_threads_works_alone():
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        with SharedWork(16, lambda _: b"%d" % os.getpid(), 2) as shared:
            assert set(shared.results()) == {b"%d" % os.getpid()}
    finally:
        end.set()
        thread.join()


def test_a_signal_that_arrives_while_a_child_begins_ends_the_child_alone(monkeypatch):
    fork, parent = os.fork, os.getpid()

    def interrupted_fork():
        child = fork()
        if not child:
            os.kill(os.getpid(), signal.SIGINT)
        return child

    monkeypatch.setattr(os, "fork", interrupted_fork)
    with SharedWork(40, squares, 2) as shared:
        assert os.getpid() == parent
        assert shared.results() == [squares(part) for part in range(40)]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGTERM}


def test_the_work_is_done_even_if_the_system_reaps_children_itself():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with SharedWork(40, squares, 2) as shared:
            assert shared.results() == [squares(part) for part in range(40)]
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_work_is_done_by_fewer_processes_if_no_more_may_start(monkeypatch):
    def refused():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    blocked, files = signal.pthread_sigmask(signal.SIG_BLOCK, ()), set(Path("/proc/self/fd").iterdir())
    monkeypatch.setattr(os, "fork", refused)
    with SharedWork(20, lambda part: b"%d" % part, processes=3) as work:
        assert work.results() == [b"%d" % part for part in range(20)]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
    assert set(Path("/proc/self/fd").iterdir()) == files
    assert gc.get_freeze_count() == 0
