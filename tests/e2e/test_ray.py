"""A run on a Ray cluster of two nodes with two fake GPUs each."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install perfsvc[ray]")

from perfsvc.service.cluster import ray_cluster
from tests.benchmarks.ray_nodes import ray_nodes

pytestmark = pytest.mark.timeout(600)
CASES = 24
MEASURED = "SELECT run_id, case_id FROM measurements"


def agents(folder):
    """The processes that measure for a cluster with the locks of a folder, and what they have started."""
    paths = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline")]
    ours = [path for path in paths if f"PERFSVC_LOCKS={folder}/locks".encode() in _content(path / "environ")]
    names = (b"RayAgent", b"perfsvc.process.fork_server")
    return [path.name for path in ours if any(name in _content(path / "cmdline") for name in names)]


def _content(path):
    try:
        return path.read_bytes()
    except OSError:  # the process has ended since it was listed
        return b""


def test_each_case_is_stored_once_though_an_agent_hangs(perfsvc, monkeypatch):
    monkeypatch.setattr(ray_cluster, "SILENT_AGENT_S", 12.0)
    options = ("--suite", perfsvc.suites / "sleeps", "--points", "full", "--replicas", "1", "--spread", "each-model")

    frozen = []

    def freeze_agent_in_the_middle():
        perfsvc.wait_for(None, 4)
        pids = [pid for pid in agents(perfsvc.folder) if b"RayAgent" in _content(Path("/proc", pid, "cmdline"))]
        frozen.append(int(pids[0]))
        os.kill(frozen[0], signal.SIGSTOP)

    with ray_nodes(perfsvc.folder, (2, 2)) as nodes:
        freezing = threading.Thread(target=freeze_agent_in_the_middle)
        freezing.start()
        ended = perfsvc("run", "--on", nodes.address, *nodes.devices, *options, code=0)
        freezing.join()
        os.kill(frozen[0], signal.SIGCONT)  # an agent that goes on must end: its cases have moved
        ends = time.monotonic() + 10
        while Path("/proc", str(frozen[0])).exists() and time.monotonic() < ends:
            time.sleep(0.2)
        assert not Path("/proc", str(frozen[0])).exists()
    assert "was lost: its agent has not answered for 12s" in ended.err
    measured = perfsvc.rows(MEASURED)
    assert len(measured) == len(set(measured)) == CASES


def test_each_case_is_stored_once_though_a_node_dies_and_nothing_runs_on_after_ctrl_c(perfsvc):
    options = ("--suite", perfsvc.suites / "sleeps", "--points", "full", "--replicas", "1", "--spread", "each-model")
    with ray_nodes(perfsvc.folder, (2, 2)) as nodes:
        command = ("run", "--on", nodes.address, *nodes.devices, *options)
        with perfsvc.start(*command) as run:
            perfsvc.wait_for(run, 4)
            nodes.kill(1)
            out, err = run.communicate(timeout=120)
        assert run.returncode == 0, (out, err)
        assert "is lost" in err
        measured = perfsvc.rows(MEASURED)
        assert len(measured) == CASES
        assert len(set(measured)) == CASES
        with perfsvc.start(*command) as run:  # Ray may still list the dead node, whose GPUs cannot be used then
            perfsvc.wait_for(run, CASES + 2)
            assert agents(perfsvc.folder)
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=60)
        assert run.returncode == 130
        ends = time.monotonic() + 10
        while agents(perfsvc.folder) and time.monotonic() < ends:
            time.sleep(0.2)
        assert not agents(perfsvc.folder)
    states = perfsvc.rows("SELECT state FROM runs ORDER BY id")
    assert [state for (state,) in states] == ["finished", "interrupted"]
