"""What perfsvc asks Slurm for, and what it makes of Slurm's answers."""

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfsvc.config import Settings
from perfsvc.config.settings import SlurmSettings
from perfsvc.errors import InfrastructureError, MissingPackageError, UsageError
from perfsvc.model import codec
from perfsvc.service.cluster import slurm_agent, slurm_cluster
from perfsvc.service.cluster.lending import lent
from perfsvc.service.cluster.messages import AgentOrder, AgentReply
from perfsvc.service.cluster.protocol import LostError
from perfsvc.service.cluster.shared_folder import BlobFolder, Inbox, Outbox, create
from perfsvc.service.cluster.slurm_cluster import JobQueue, SlurmCluster, SlurmGpu, parameters
from tests.slurm_stand_in import slurm_stand_in

HOW_TO = Path(__file__).parents[4] / "docs" / "how-to" / "measure-on-a-cluster.md"
SETTINGS = {
    "partition": "gpu",
    "time": "90m",
    "options": {"account": "kernels", "cpus-per-task": 8, "exclusive": True, "overcommit": False},
    "gpus": [
        {"count": 2, "gres": "gpu:h100:1"},
        {"gres": "gpu:1", "constraint": "a100&nvlink", "partition": "old"},
    ],
}


def script(gpus):
    """The lines of the script that submitit gives to sbatch."""
    text = pytest.importorskip("submitit", reason="pip install perfsvc[slurm]").slurm.slurm._make_sbatch_string(
        "run", "/shared", **parameters(Settings(slurm=SETTINGS).slurm, Settings(slurm=SETTINGS).slurm.gpus[gpus])
    )
    return text.splitlines()


def test_the_script_requests_what_the_settings_name():
    lines = script(0)
    assert {
        "#SBATCH --partition=gpu",
        "#SBATCH --gres=gpu:h100:1",
        "#SBATCH --time=90",
        "#SBATCH --nodes=1",
        "#SBATCH --no-requeue",
        "#SBATCH --account=kernels",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --exclusive",
    } <= set(lines)
    assert not [line for line in lines if "constraint" in line or "overcommit" in line or "wckey" in line]
    assert lines[-1] == "run"  # without srun


def test_a_model_may_have_a_constraint_and_a_partition_of_its_own():
    lines = script(1)
    assert {"#SBATCH --partition=old", "#SBATCH --gres=gpu:1", "#SBATCH --constraint='a100&nvlink'"} <= set(lines)


def test_the_settings_that_the_docs_show_can_be_used():
    shown = re.findall(r"^```toml\n(.*?)^```$", HOW_TO.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    settings = [Settings(**tomllib.loads(text)) for text in shown]
    assert [gpus.count for gpus in settings[0].slurm.gpus] == [2, 1]
    assert settings[1].run.on == "slurm"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"options": {"gres": "gpu:1"}}, "gres is a key of its own"),
        ({"options": {"array": "0-3"}}, "perfsvc sets array itself"),
        ({"options": {"arra": "0-3"}}, "perfsvc sets arra itself"),
        ({"options": {"--mem": "4G"}}, "'--mem' is no long option of sbatch; write mem"),
        ({"options": {"mem": "4G\n#SBATCH --exclusive"}}, "is no value for sbatch"),
        ({"partition": "a\nb"}, "is no value for sbatch"),
        ({"gpus": [{"count": 0}]}, "greater than or equal to 1"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(settings, problem):
    with pytest.raises(ValueError, match=problem):
        Settings(slurm=settings)


# --- a job -----------------------------------------------------------------------------------------------------------


class Queue(JobQueue):
    """The states of jobs as squeue would print them."""

    def __init__(self, monkeypatch, printed=""):
        super().__init__()
        self.printed = printed
        monkeypatch.setattr(slurm_cluster, "_slurm", lambda *_: self.printed)
        monkeypatch.setattr(slurm_cluster, "ASK_S", -1.0)


@pytest.fixture
def queue(monkeypatch):
    queue = Queue(monkeypatch)
    queue.add("7")
    return queue


@pytest.fixture
def gpu(queue, tmp_path):
    """Job 7, and the file of its replies."""
    for name in ("orders", "replies"):
        create(tmp_path / name)
    (tmp_path / "run-1" / "logs").mkdir(parents=True)
    job = SimpleNamespace(job_id=7, paths=SimpleNamespace(stderr=tmp_path / "run-1" / "logs" / "log"))
    return SlurmGpu(job, queue, tmp_path / "orders", tmp_path / "replies", BlobFolder(tmp_path))


@pytest.mark.parametrize(
    ("printed", "place"),
    [
        ("7|PENDING|Priority|\n8|RUNNING|None|b", "job 7 (PENDING: Priority)"),
        ("7|RUNNING|None|node3", "job 7 on node3"),
        ("7|COMPLETING|None|node3", "job 7 on node3"),
        (None, "job 7 (UNKNOWN)"),
        ("", "job 7 (GONE)"),
    ],
)
def test_a_job_is_named_with_its_node_or_with_what_it_waits_for(gpu, queue, printed, place):
    queue.printed = printed
    assert gpu.place == place


def test_jobs_that_slurm_does_not_answer_for_are_not_lost(gpu, queue):
    queue.printed = "7|RUNNING|None|node3"
    assert gpu.take() == []
    queue.printed = None
    assert gpu.take() == []


@pytest.mark.parametrize(
    ("printed", "what", "cure"),
    [
        ("7|TIMEOUT|TimeLimit|a", "its job ended with the state TIMEOUT", "the key time of"),
        ("7|OUT_OF_MEMORY|None|a", "its job ended with the state OUT_OF_MEMORY", "mem ="),
        ("7|PREEMPTED|None|a", "its job ended with the state PREEMPTED", "^$"),
        ("7|FAILED|None|a", "its job ended with the state FAILED", "name a folder that all nodes see, unlike /"),
        ("8|RUNNING|None|a", "Slurm no longer lists its job", "^$"),
    ],
)
def test_a_job_that_has_ended_is_lost_with_the_reason(gpu, queue, printed, what, cure):
    queue.printed = printed
    with pytest.raises(LostError, match=what) as lost:
        gpu.take()
    assert re.search(cure, lost.value.cure)


@pytest.mark.parametrize(
    ("log", "what", "cure"),
    [
        ("", "the state FAILED\n", "see .*log"),
        ("Traceback\n  x\nOSError: full\n\n", "the state FAILED: OSError: full", "see .*log"),
        ("ModuleNotFoundError: No module named 'perfsvc'", "No module named", "the same version of perfsvc on every"),
    ],
)
def test_an_agent_that_failed_is_lost_with_its_error(gpu, queue, log, what, cure):
    queue.printed = "7|FAILED|None|a"
    gpu.log.write_text(log)
    with pytest.raises(LostError, match=what) as lost:
        gpu.take()
    assert re.search(cure, lost.value.cure)


def test_what_a_job_sent_before_its_end_is_read_first(gpu, queue, tmp_path):
    queue.printed = "7|NODE_FAIL|None|a"
    Outbox(tmp_path / "replies").send(
        [codec.encode(AgentReply(facts=b"facts")), codec.encode(AgentReply(news=b"news"))]
    )
    assert gpu.facts() == b"facts"
    assert gpu.take() == [(b"news", {})]
    with pytest.raises(LostError, match="NODE_FAIL"):
        gpu.take()


def test_a_damaged_file_is_a_lost_gpu(gpu, queue, tmp_path):
    queue.printed = "7|RUNNING|None|a"
    Outbox(tmp_path / "replies").send([codec.encode(AgentReply(news=b"news", files=("0" * 64,)))])
    with pytest.raises(LostError, match="what it sent cannot be read"):
        gpu.take()


def test_orders_arrive_with_their_binaries(gpu, tmp_path):
    gpu.begin(b"share", {"0" * 64: b"code"})
    gpu.drop([3])
    gpu.stop()
    orders = [codec.decode(AgentOrder, text) for text in Inbox(tmp_path / "orders").read()]
    assert orders == [AgentOrder(share=b"share", blobs=("0" * 64,)), AgentOrder(drop=(3,)), AgentOrder(stop=True)]
    assert (tmp_path / ("0" * 64)).read_bytes() == b"code"


def test_a_full_disk_loses_the_gpu(gpu, tmp_path):
    (tmp_path / "orders").unlink()
    with pytest.raises(LostError, match="its shared folder cannot be written"):
        gpu.stop()


# --- the agent -------------------------------------------------------------------------------------------------------


def test_an_agent_does_not_load_the_store():
    loaded = "import sys, perfsvc.service.cluster.slurm_agent; sys.exit('sqlalchemy' in sys.modules)"
    subprocess.run([sys.executable, "-c", loaded], check=True)


def test_an_agent_ends_when_the_command_is_gone(tmp_path, monkeypatch):
    orders = tmp_path / "orders"
    orders.touch()
    times = iter(range(0, 10_000, 250))
    monkeypatch.setattr(slurm_agent.time, "monotonic", lambda: next(times))
    looks = 0
    for _ in slurm_agent._while_the_command_lives(orders):
        looks += 1
        if looks <= 5:
            os.utime(orders, (looks, looks))  # a sign of life
    assert looks == 8  # look 6 sees the last sign of life; looks 7 and 8 come within SILENT_S after that


def test_an_agent_ends_when_its_folder_is_removed(tmp_path):
    orders = tmp_path / "orders"
    orders.touch()
    looks = []
    for _ in slurm_agent._while_the_command_lives(orders):
        looks.append(orders.unlink())
    assert len(looks) == 1


# --- the cluster -----------------------------------------------------------------------------------------------------


def test_without_submitit_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(MissingPackageError, match="needs submitit, which is not") as told, lent("slurm", (), print):
        pass
    assert re.search(r"submitit|\[slurm\]", told.value.cure)


def test_without_slurm_the_error_names_the_missing_commands(monkeypatch, tmp_path):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="missing on this host: sbatch, squeue, scancel, srun"):
        SlurmCluster(SlurmSettings())


def test_a_shared_folder_that_cannot_be_made_is_named(tmp_path):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    (tmp_path / "file").touch()
    with slurm_stand_in(tmp_path), pytest.raises(InfrastructureError, match="file for the jobs of Slurm cannot be"):
        SlurmCluster(SlurmSettings(folder=tmp_path / "file"))


def test_a_shared_folder_that_others_may_change_is_refused(tmp_path):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with slurm_stand_in(tmp_path), pytest.raises(InfrastructureError, match="other users may write"):
        SlurmCluster(SlurmSettings(folder=tmp_path / "shared"))


def test_the_default_folder_is_private_whatever_the_umask(tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    monkeypatch.setenv("PERFSVC_CACHE", str(tmp_path / "cache"))
    before = os.umask(0o002)
    try:
        with slurm_stand_in(tmp_path):
            SlurmCluster(SlurmSettings()).close()
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("cache", "cache/slurm")] == [0o700, 0o700]


def test_a_path_that_would_add_a_line_to_the_script_is_refused(tmp_path):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    with slurm_stand_in(tmp_path), pytest.raises(UsageError, match="cannot be printed"):
        SlurmCluster(SlurmSettings(folder=tmp_path / "a\ntouch b"))


def test_a_shared_folder_that_disappears_is_named_and_closing_never_fails(tmp_path):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    with slurm_stand_in(tmp_path) as slurm:
        cluster = SlurmCluster(SlurmSettings(folder=tmp_path / "shared"))
        shutil.rmtree(tmp_path / "shared")
        with pytest.raises(InfrastructureError, match="for the jobs of Slurm cannot be used: No such file"):
            cluster.lend(("auto",))
        cluster.close()
        assert slurm.states() == {}


def test_an_agent_that_cannot_start_keeps_its_log(tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="pip install perfsvc[slurm]")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(slurm_cluster, "ASK_S", 0.2)
    (tmp_path / "numpy.py").write_text("raise OSError('the disk of this node is full')")
    messages, settings = [], SlurmSettings(folder=tmp_path / "shared")
    with (
        slurm_stand_in(tmp_path),
        contextlib.suppress(InfrastructureError),
        lent("slurm", ("auto",), messages.append, settings),
    ):
        pass
    assert "ended with the state FAILED: OSError: the disk of this node is full; see" in messages[0]
    (log,) = tmp_path.glob("shared/run-*/logs/*.err")
    assert str(log) in messages[0]
