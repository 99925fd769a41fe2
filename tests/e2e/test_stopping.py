"""Ctrl-C, SIGTERM and SIGHUP end a run in order: nothing is left behind, and nothing that was measured is lost."""

import os
import signal
import time
from contextlib import contextmanager

import pytest

from tests.e2e.processes import alive, wait_for, workers

SIGNALS = (signal.SIGINT, signal.SIGHUP)
CODES = {number: 128 + number for number in SIGNALS}
SLOW_COMPILER = """#!/bin/sh
case "$*" in *--version*) echo "slow 1.0"; exit;; esac
sleep 600 &
echo $! > {pid}
wait
"""


@contextmanager
def started(perfsvc, *arguments):
    """Run a command, and kill it if the test fails."""
    with perfsvc.start(*arguments) as run:
        try:
            yield run
        finally:
            run.kill()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_stopped_run_ends_its_worker_and_is_marked_interrupted(perfsvc, number):
    perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"fault": "hang"}})
    arguments = ("run", "--device", f"fake:{perfsvc.script}", "--suite", perfsvc.suites / "scale", "--replicas", "1")
    with started(perfsvc, *arguments, "--select", "scale/alpha", "--select", "scale/beta") as run:
        wait_for(lambda: workers(run))
        time.sleep(1.5)  # the worker reaches the case that hangs
        (worker,) = workers(run)
        os.kill(worker, number)  # a terminal or a service manager signals the whole group, in any order
        time.sleep(0.3)
        assert alive(worker)
        run.send_signal(number)
        out, err = run.communicate(timeout=30)
    assert (run.returncode, out) == (CODES[number], "")
    assert err.endswith("what was measured is stored\n")
    wait_for(lambda: not alive(worker))
    assert perfsvc.rows("select state from runs") == [("interrupted",)]
    assert set(perfsvc.rows("select status from measurements")) <= {("ok",)}


@pytest.mark.parametrize("number", SIGNALS)
def test_a_run_stopped_while_it_compiles_ends_its_compilers(perfsvc, number):
    pid = perfsvc.folder / "pid"
    compiler = perfsvc.folder / "c++"
    compiler.write_text(SLOW_COMPILER.format(pid=pid))
    compiler.chmod(0o755)
    perfsvc.environment |= {"CXX": str(compiler), "PERFSVC_CACHE": str(perfsvc.folder / "cache")}
    with started(perfsvc, "run", "--device", "cpu", "--suite", perfsvc.suites / "scale") as run:
        wait_for(lambda: pid.exists() and pid.read_text())
        run.send_signal(number)
        _, err = run.communicate(timeout=30)
    assert run.returncode == CODES[number], err
    assert err.endswith("; nothing was measured\n")
    wait_for(lambda: not alive(int(pid.read_text())))
    assert perfsvc.rows("select count(*) from runs") == [(0,)]
    assert perfsvc.rows("select count(*) from measurements") == [(0,)]
