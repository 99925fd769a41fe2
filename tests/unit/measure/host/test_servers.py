"""The fork server: workers are its children, and it reports how each of them ended."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from perfsvc.measure.host.pool import worker_servers
from perfsvc.measure.host.worker_handle import WorkerHandle
from perfsvc.process import fork_server
from perfsvc.process.fork_servers import ForkServer

LIMIT_S = 20.0
PYTHON = sys.executable  # before a test replaces it


@pytest.fixture
def servers(work, scripted):
    """Return the fork servers of all tests."""
    return scripted[1]


@pytest.fixture
def new_servers(work):
    with worker_servers() as servers:
        yield servers


@contextmanager
def forked(server):
    """Fork a worker; gives it, its socket and the file of its output."""
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as output, ours:
        with theirs:
            fork = server.fork(theirs, output)
        yield fork, ours, output
        fork.forget()


def wait_for(condition):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def open_files(pid="self"):
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def gone(pid):
    return not Path(f"/proc/{pid}").exists()


def test_the_exit_status_of_a_worker_is_reported(work, servers):
    ends = {"sys.exit(0)": 0, "os._exit(7)": 7, "raise ValueError": 1, "os.kill(os.getpid(), signal.SIGSEGV)": -11}
    for born, status in ends.items():
        work.play(born=born)
        with forked(servers.take()) as (fork, _, _):
            assert fork.wait(LIMIT_S)
            assert fork.status == status


def test_a_worker_writes_to_its_own_output_file_only(work, servers):
    work.play(born="print('mine alone', os.getpid(), flush=True); os.system('echo and my children speak'); sys.exit()")
    with forked(servers.take()) as (fork, _, first), forked(servers.take()) as (other, _, second):
        assert fork.wait(LIMIT_S)
        assert other.wait(LIMIT_S)
        outputs = []
        for output in (first, second):
            output.seek(0)
            outputs.append(output.read().decode().split())
    assert [line[-4:] for line in outputs] == [["and", "my", "children", "speak"]] * 2
    assert len({tuple(line) for line in outputs}) == 2


def test_killing_a_worker_leaves_the_others_running(work, servers):
    work.play(born="log('born'); pool.recv(1); sys.exit(5)")
    with forked(servers.take()) as (fork, _, _), forked(servers.take()) as (other, ours, _):
        wait_for(lambda: len(work.born()) == 2)
        assert not fork.wait(0.0)
        fork.kill()
        assert fork.wait(LIMIT_S)
        assert fork.status == -signal.SIGKILL
        assert not other.wait(0.2)
        ours.close()
        assert other.wait(LIMIT_S)
        assert other.status == 5


def test_a_worker_that_is_given_up_before_it_is_forked_ends_by_itself(work, servers):
    work.play()
    process = WorkerHandle(servers.take())
    process.dismiss(kill=True)
    process.end()
    assert process._child._process._ended
    assert process._child._process.status in {0, -signal.SIGKILL}


def test_a_worker_has_no_signal_blocked_and_does_not_repeat_the_output_of_imports(work, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # without it the server's output waits in a buffer
    server = work.folder / "server.py"
    text = server.read_text()
    server.write_text(f"print('from an import')\n{text}")
    work.play(born="print('mine'); sys.exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGUSR1})
    try:
        with worker_servers() as servers, forked(servers.take()) as (fork, _, output):
            assert fork.wait(LIMIT_S)
            assert fork.status == 0
            output.seek(0)
            assert output.read() == b"output of the worker\nmine\n"
    finally:
        server.write_text(text)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_process_that_a_worker_leaves_behind_does_not_keep_its_socket_open(work, servers):
    work.play(born="os.system('sleep 30 & echo $!'); os._exit(3)")
    with forked(servers.take()) as (fork, ours, output):
        assert fork.wait(LIMIT_S)
        output.seek(0)
        try:
            ours.settimeout(LIMIT_S)
            assert ours.recv(1) == b""
        finally:
            with contextlib.suppress(ProcessLookupError):  # the server may have killed it already
                os.kill(int(output.read().split()[-1]), signal.SIGKILL)


def test_a_failed_fork_is_reported_as_an_immediate_end_and_the_server_goes_on(monkeypatch):
    def full():
        raise BlockingIOError("no process to be had")

    monkeypatch.setattr(os, "fork", full)
    server = fork_server._Server.__new__(fork_server._Server)
    server._status_sockets = {}
    for given_up in (False, True):
        with contextlib.ExitStack() as stack:
            ours, status_socket = socket.socketpair()
            pool, theirs = socket.socketpair()
            output = stack.enter_context(tempfile.TemporaryFile())
            stack.enter_context(ours)
            stack.enter_context(pool)
            if given_up:
                ours.close()
            assert server._fork(theirs.detach(), os.dup(output.fileno()), status_socket.detach()) is None
            assert pool.recv(1) == b""
            output.seek(0)
            assert b"no process to be had" in output.read()
            if not given_up:
                assert ours.recv(100) == fork_server.STATUS.pack(0) + fork_server.STATUS.pack(1)


def test_a_server_keeps_no_file_of_its_workers_open(work, servers):
    work.play(born="sys.exit()")
    server = servers.take()
    with forked(server) as (fork, _, _):
        assert fork.wait(LIMIT_S)
    before = open_files(server._process.pid)
    for _ in range(5):
        with forked(server) as (fork, _, _):
            assert fork.wait(LIMIT_S)
    wait_for(lambda: open_files(server._process.pid) <= before)


@pytest.mark.slow
def test_ended_servers_are_released_before_the_run_is_over(work, new_servers):
    servers = new_servers
    work.play(born="sys.exit()")

    def used():
        server = servers.take(unused=True)
        with forked(server) as (fork, _, _):
            assert fork.wait(LIMIT_S)
        return server

    first, second = used(), used()
    wait_for(lambda: first.status is not None)
    third = used()
    assert first.last_output(100) == ""
    before = open_files()
    for last in (second, third):
        wait_for(lambda last=last: last.status is not None)
        used()
    assert open_files() <= before


@pytest.mark.slow
def test_workers_die_with_their_server_which_is_replaced(work, new_servers):
    servers = new_servers
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


def use_python(monkeypatch, folder, script):
    (folder / "python").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


def test_the_output_of_a_server_that_cannot_start_is_reported(monkeypatch, tmp_path):
    use_python(monkeypatch, tmp_path, "echo nothing to be imported here\nexit 3")
    server = ForkServer("perfsvc.measure.worker.main", {})
    process = WorkerHandle(server)
    crash = process.receive()
    assert "the worker process died (exit status 3): nothing to be imported here" in crash.what
    process.dismiss(kill=True)
    process.end()
    server.end()


@pytest.mark.parametrize("ours_as_well", [False, True])
def test_a_server_imports_from_the_working_directory_only_if_the_run_does(monkeypatch, tmp_path, ours_as_well):
    (tmp_path / "selectors.py").write_text("raise ImportError('a module of the user that is called so')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path] + [""] * ours_as_well)
    with worker_servers() as servers:
        process = WorkerHandle(servers.take())
        process.end()
        assert process._child._process.status == (None if ours_as_well else 0)


def test_an_unused_server_ends_with_its_run(work):
    with worker_servers() as servers:
        pid = servers.take()._process.pid
    assert gone(pid)


def test_a_run_does_not_wait_for_a_server_that_is_still_starting(monkeypatch, tmp_path):
    use_python(monkeypatch, tmp_path, "exec sleep 60")
    started = time.monotonic()
    with worker_servers():
        pass
    assert time.monotonic() - started < 5


@pytest.mark.slow
def test_no_process_outlives_a_killed_parent(work):
    daemon = "subprocess.Popen(['sleep', '60'], start_new_session=True).pid"
    work.play(born=f"import subprocess; log('born', os.getppid(), {daemon}); time.sleep(60)")
    program = """
import socket, sys, tempfile, time
sys.executable = sys.argv[1]
from perfsvc.process.fork_servers import ForkServer
_, theirs = socket.socketpair()
fork = ForkServer("perfsvc.measure.worker.main", {}).fork(theirs, tempfile.TemporaryFile())
time.sleep(60)
"""
    with subprocess.Popen([PYTHON, "-c", program, sys.executable]) as parent:
        wait_for(work.born)
        parent.kill()
    ((_, _, server, daemon),) = work.logged()
    (worker,) = work.born()
    wait_for(lambda: gone(worker) and gone(server) and gone(daemon))
