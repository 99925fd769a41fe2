"""A run on a stand-in for Slurm, which starts submitit's jobs on this machine, each with a fake GPU."""

import json
import os
import signal
import threading

import pytest

pytest.importorskip("submitit", reason="submitit is not installed: pip install perfsvc[slurm]")

from perfsvc.service.cluster import shared_folder, slurm_cluster, slurm_jobs
from tests.slurm_stand_in import slurm_stand_in

pytestmark = pytest.mark.timeout(300)
CASES = 24
SETTINGS = """
[slurm]
folder = "shared"
partition = "{partition}"
wait = "{wait}"

[[slurm.gpus]]
count = 2
gres = "gpu:h100:1"
"""


@pytest.fixture
def on_slurm(perfsvc):
    """Return a function that writes the settings and returns the command, and the stand-in."""
    devices = []
    for number in range(2):
        path = perfsvc.folder / f"gpu{number}.json"
        path.write_text(json.dumps({"uuid": f"FAKE-{number}"}))
        devices += ["--device", f"fake:{path}"]

    def command(partition="gpu", wait="5m"):
        (perfsvc.folder / "perfsvc.toml").write_text(SETTINGS.format(partition=partition, wait=wait))
        suite = ("--suite", perfsvc.suites / "sleeps", "--points", "full", "--replicas", "1")
        return ("run", "--on", "slurm", *devices, *suite, "--spread", "each-model")

    with slurm_stand_in(perfsvc.folder) as slurm:
        perfsvc.environment |= {name: os.environ[name] for name in ("PATH", "SLURM_STAND_IN")}
        yield command, slurm


def disturbed(perfsvc, command, disturb, code):
    """Run a command, and disturb it when it has stored four measurements."""

    def in_the_middle():
        perfsvc.wait_for(None, 4)
        disturb()

    disturbing = threading.Thread(target=in_the_middle)
    disturbing.start()
    ended = perfsvc(*command, code=code)
    disturbing.join()
    return ended


def test_each_case_is_stored_once_though_a_node_dies(perfsvc, on_slurm):
    command, slurm = on_slurm
    ended = disturbed(perfsvc, command(), lambda: slurm.break_node("1"), code=0)
    assert "FAKE-0 is lost (job 1 on here was lost: its job ended with the state NODE_FAIL)" in ended.err
    measured = perfsvc.rows("SELECT run_id, case_id FROM measurements")
    assert len(measured) == len(set(measured)) == CASES
    assert slurm.states() == {"1": "NODE_FAIL", "2": "CANCELLED"}
    assert list((perfsvc.folder / "shared").iterdir()) == []


def test_each_case_is_stored_once_though_an_agent_and_slurm_hang(perfsvc, on_slurm, monkeypatch):
    command, slurm = on_slurm
    monkeypatch.setattr(slurm_cluster, "SILENT_AGENT_S", 8.0)
    monkeypatch.setattr(slurm_jobs, "COMMAND_S", 3.0)

    def freeze():
        slurm.freeze("1")
        slurm.hang()

    ended = disturbed(perfsvc, command(), freeze, code=0)
    assert "FAKE-0 is lost (job 1 on here was lost: its agent has given no sign of life for 8s)" in ended.err
    assert ended.err.count("Slurm does not say how the jobs are (squeue did not end within 3s)") == 1
    measured = perfsvc.rows("SELECT run_id, case_id FROM measurements")
    assert len(measured) == len(set(measured)) == CASES
    assert slurm.states() == {"1": "CANCELLED", "2": "CANCELLED"}
    assert list((perfsvc.folder / "shared").iterdir()) == []


def test_a_shared_folder_that_does_not_answer_ends_the_run_and_keeps_what_was_measured(perfsvc, on_slurm, monkeypatch):
    command, slurm = on_slurm
    monkeypatch.setattr(shared_folder, "REPORT_S", 1.0)
    monkeypatch.setattr(shared_folder, "FOLDER_S", 3.0)
    pipes = []

    def block():
        slurm.freeze("1")
        (replies,) = (perfsvc.folder / "shared").glob("run-*/0.replies")
        os.mkfifo(replies.with_suffix(".pipe"))
        pipes.append(replies.with_suffix(".pipe").replace(replies))  # opening it blocks

    ended = disturbed(perfsvc, command(), block, code=5)
    os.close(os.open(pipes[0], os.O_RDWR))
    shared = perfsvc.folder / "shared"
    assert f"the shared folder {shared} has not answered for 1s: the run waits for it, and ends after 3s" in ended.err
    assert f"the shared folder {shared} has not answered for 3s" in ended.err
    assert perfsvc.rows("SELECT state FROM runs") == [("failed",)]
    assert len(perfsvc.rows("SELECT DISTINCT case_id FROM measurements")) >= 4
    assert slurm.states() == {"1": "CANCELLED", "2": "CANCELLED"}


def test_ctrl_c_cancels_the_jobs_and_keeps_what_was_measured(perfsvc, on_slurm):
    command, slurm = on_slurm
    with perfsvc.start(*command()) as run:
        perfsvc.wait_for(run, 2)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
    assert run.returncode == 130
    assert slurm.states() == {"1": "CANCELLED", "2": "CANCELLED"}
    assert not slurm.processes()
    assert perfsvc.rows("SELECT state FROM runs") == [("interrupted",)]
    assert len(perfsvc.rows("SELECT DISTINCT case_id FROM measurements")) >= 2


def test_a_job_that_does_not_start_in_time_a_mistyped_case_and_a_refused_job_end_the_run(perfsvc, on_slurm):
    command, slurm = on_slurm
    slurm.hold()
    late = perfsvc(*command(wait="1s"), code=5)
    assert "job 1 (PENDING: Priority) did not lend a GPU within 1s: measuring without it" in late.err
    assert slurm.states() == {"1": "CANCELLED", "2": "CANCELLED"}
    mistyped = perfsvc(*command(), "--select", "nothing", code=2)
    assert "nothing" in mistyped.err
    assert len(slurm.states()) == 2
    refused = perfsvc(*command(partition="cpu"), code=5)
    assert "Slurm refuses a job with gpu:h100:1: invalid partition specified: cpu" in refused.err
    assert list((perfsvc.folder / "shared").iterdir()) == []
