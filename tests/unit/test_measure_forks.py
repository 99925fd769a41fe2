"""The fork server: workers are its children, and the parent is told how each of them ended."""

import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from perfsvc.measure.forks import ForkServer, ForkServers
from perfsvc.measure.process import Process

LIMIT_S = 20.0
PYTHON = sys.executable  # before a test replaces it


@pytest.fixture
def servers(work):
    with ForkServers() as servers:
        yield servers


@contextmanager
def forked(server):
    """A worker, its socket and the file of its words."""
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as words, ours:
        with theirs:
            fork = server.fork(theirs, words)
        yield fork, ours, words
        fork.forget()


def wait_for(condition):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gone(pid):
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("born", "status"),
    [("sys.exit(0)", 0), ("os._exit(7)", 7), ("raise ValueError", 1), ("os.kill(os.getpid(), signal.SIGSEGV)", -11)],
)
def test_a_worker_tells_how_it_ended(work, servers, born, status):
    work.play(born=born)
    with forked(servers.take()) as (fork, _, _):
        assert fork.wait(LIMIT_S)
        assert fork.status == status


def test_a_worker_writes_into_the_file_of_its_words_and_no_other(work, servers):
    work.play(born="print('mine alone', os.getpid(), flush=True); os.system('echo and my children speak'); sys.exit()")
    with forked(servers.take()) as (one, _, first), forked(servers.take()) as (other, _, second):
        assert one.wait(LIMIT_S)
        assert other.wait(LIMIT_S)
        said = []
        for words in (first, second):
            words.seek(0)
            said.append(words.read().decode().split())
    assert [line[-4:] for line in said] == [["and", "my", "children", "speak"]] * 2
    assert len({tuple(line) for line in said}) == 2


def test_a_worker_is_killed_and_another_lives_on(work, servers):
    work.play(born="log('born'); pool.recv(1); sys.exit(5)")
    with forked(servers.take()) as (one, _, _), forked(servers.take()) as (other, ours, _):
        wait_for(lambda: len(work.born()) == 2)
        assert not one.wait(0.0)
        one.kill()
        assert one.wait(LIMIT_S)
        assert one.status == -signal.SIGKILL
        assert not other.wait(0.2)
        ours.close()
        assert other.wait(LIMIT_S)
        assert other.status == 5


def test_a_worker_that_is_given_up_before_it_is_born_ends_by_itself(work, servers):
    work.play()
    process = Process(servers.take())
    process.end(kill=True)


def test_a_server_has_open_nothing_of_its_workers(work, servers):
    def open_files():
        return sum(1 for _ in Path(f"/proc/{server._process.pid}/fd").iterdir())

    work.play(born="sys.exit()")
    server = servers.take()
    with forked(server) as (fork, _, _):
        assert fork.wait(LIMIT_S)
    before = open_files()
    for _ in range(5):
        with forked(server) as (fork, _, _):
            assert fork.wait(LIMIT_S)
    wait_for(lambda: open_files() <= before)


def test_workers_die_with_their_server_which_is_told_and_replaced(work, servers):
    work.play(born="log('born'); time.sleep(60)")
    server = servers.take()
    with forked(server) as (fork, _, _):
        wait_for(work.born)
        server._process.kill()
        assert fork.wait(LIMIT_S)
        assert fork.status is None
    (pid,) = work.born()
    wait_for(lambda: gone(pid))
    server._process.wait()
    work.play(born="sys.exit()")
    assert servers.take() is not server
    with forked(servers.take()) as (fork, _, _):
        assert fork.wait(LIMIT_S)
        assert fork.status == 0


def test_a_server_that_cannot_start_says_why(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho nothing to be imported here\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    server = ForkServer()
    process = Process(server)
    crash = process.hear()
    assert "the worker process died (exit status 3): nothing to be imported here" in crash.what
    process.end(kill=True)
    server.end()


def test_a_server_that_was_never_used_ends_with_its_run(work):
    with ForkServers() as servers:
        pid = servers.take()._process.pid
    assert gone(pid)


def test_nothing_outlives_a_parent_that_is_killed(work):
    work.play(born="log('born', os.getppid()); time.sleep(60)")
    program = """
import socket, sys, tempfile, time
sys.executable = sys.argv[1]
from perfsvc.measure.forks import ForkServer
_, theirs = socket.socketpair()
fork = ForkServer().fork(theirs, tempfile.TemporaryFile())
time.sleep(60)
"""
    with subprocess.Popen([PYTHON, "-c", program, sys.executable]) as parent:
        wait_for(work.born)
        parent.kill()
    ((_, _, server),) = work.logged()
    (worker,) = work.born()
    wait_for(lambda: gone(worker) and gone(server))
