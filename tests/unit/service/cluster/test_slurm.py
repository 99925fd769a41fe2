"""What perfsvc asks Slurm for, and what it makes of Slurm's answers."""

import os
import re
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfsvc.config import Settings
from perfsvc.errors import InfrastructureError
from perfsvc.model import codec
from perfsvc.service.cluster import messages, shared_folder, slurm_agent, slurm_cluster, slurm_jobs
from perfsvc.service.cluster.messages import AgentOrder, AgentReply, LostError
from perfsvc.service.cluster.shared_folder import BlobFolder, FolderCalls, Inbox, Outbox, create
from perfsvc.service.cluster.slurm_cluster import SlurmGpu, parameters
from perfsvc.service.cluster.slurm_jobs import JobQueue

HOW_TO = Path(__file__).parents[4] / "docs" / "how-to" / "measure-on-a-cluster.md"
SETTINGS = {
    "partition": "gpu",
    "time": "90m",
    "options": {"account": "kernels", "cpus-per-task": 8, "exclusive": True, "overcommit": False},
    "gpus": [{"count": 2, "gres": "gpu:h100:1"}, {"gres": "gpu:1", "constraint": "a100&nvlink", "partition": "old"}],
}


def script(gpus):
    """The lines of the script that submitit gives to sbatch."""
    settings = Settings(slurm=SETTINGS).slurm
    text = pytest.importorskip("submitit", reason="pip install perfsvc[slurm]").slurm.slurm._make_sbatch_string(
        "run", "/shared", **parameters(settings, settings.gpus[gpus], "perfsvc-4k")
    )
    return text.splitlines()


def test_the_script_requests_what_the_settings_name():
    lines = script(0)
    wanted = "partition=gpu gres=gpu:h100:1 time=90 nodes=1 no-requeue account=kernels cpus-per-task=8 exclusive"
    assert {f"#SBATCH --{option}" for option in wanted.split()} <= set(lines)
    assert not [line for line in lines if "constraint" in line or "overcommit" in line or "wckey" in line]
    assert lines[-1] == "run"  # without srun
    of_old_model = {"#SBATCH --partition=old", "#SBATCH --gres=gpu:1", "#SBATCH --constraint='a100&nvlink'"}
    assert of_old_model <= set(script(1))


def test_the_settings_that_the_docs_show_can_be_used():
    shown = re.findall(r"^```toml\n(.*?)^```$", HOW_TO.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    settings = [Settings(**tomllib.loads(text)) for text in shown]
    assert [gpus.count for gpus in settings[0].slurm.gpus] == [2, 1]
    assert settings[1].run.on == "slurm"


def test_a_setting_that_cannot_work_is_refused():
    refused = [
        ({"options": {"gres": "gpu:1"}}, "gres is a key of its own"),
        ({"options": {"array": "0-3"}}, "perfsvc sets array itself"),
        ({"options": {"arra": "0-3"}}, "perfsvc sets arra itself"),
        ({"options": {"--mem": "4G"}}, "'--mem' is no long option of sbatch; write mem"),
        ({"options": {"mem": "4G\n#SBATCH --exclusive"}}, "is no value for sbatch"),
        ({"partition": "a\nb"}, "is no value for sbatch"),
        ({"gpus": [{"count": 0}]}, "greater than or equal to 1"),
    ]
    for settings, problem in refused:
        with pytest.raises(ValueError, match=problem):
            Settings(slurm=settings)


# --- a job -----------------------------------------------------------------------------------------------------------


class Queue(JobQueue):
    """The states of jobs as squeue would print them; None if it fails."""

    def __init__(self, monkeypatch):
        self.messages = []
        super().__init__(self.messages.append)
        self.printed = ""
        self.commands = []
        monkeypatch.setattr(slurm_jobs, "slurm", self._slurm)

    def _slurm(self, *command):
        self.commands.append(command)
        if self.printed is None:
            raise InfrastructureError(f"{command[0]} failed: Unable to contact slurm controller")
        return self.printed

    def state(self, job):
        self.ask()
        return super().state(job)


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
    calls = FolderCalls(tmp_path, queue.messages.append)
    return SlurmGpu(job, queue, tmp_path / "orders", tmp_path / "replies", blobs=BlobFolder(tmp_path), calls=calls)


@pytest.fixture
def later(monkeypatch):
    """Return a function that lets seconds pass for the command."""
    past = [0.0]
    monotonic = shared_folder.time.monotonic
    monkeypatch.setattr(shared_folder.time, "monotonic", lambda: monotonic() + past[0])

    def do(seconds):
        past[0] += seconds

    return do


def test_a_job_is_named_with_its_node_or_with_what_it_waits_for(gpu, queue):
    places = {
        None: "job 7 (UNKNOWN)",
        "7|PENDING|Priority|\n8|RUNNING|None|b": "job 7 (PENDING: Priority)",
        "7|RUNNING|None|node3": "job 7 on node3",
        "7|COMPLETING|None|node3": "job 7 on node3",
        "": "job 7 (GONE)",
    }
    for queue.printed, place in places.items():
        assert gpu.place == place


def test_the_agent_of_a_job_starts_from_when_the_job_runs_until_it_sends_its_facts(gpu, queue, tmp_path):
    seen = []
    for queue.printed in ("7|PENDING|Priority|", "7|RUNNING|None|node3"):
        seen.append(gpu.is_starting)
    Outbox(tmp_path / "replies").send([codec.encode(AgentReply(facts=b"{}"))])
    assert gpu.facts() == b"{}"
    assert [*seen, gpu.is_starting] == [False, True, False]


def test_jobs_that_slurm_does_not_answer_for_are_not_lost_and_it_is_reported_once(gpu, queue):
    queue.printed = "7|RUNNING|None|node3"
    assert gpu.take() == []
    assert queue.messages == []
    queue.printed = None
    for _ in range(3):
        assert gpu.take() == []
    (message,) = queue.messages
    assert "(squeue failed: Unable to contact slurm controller): the run goes on" in message


def test_a_job_that_is_added_while_slurm_is_asked_is_not_gone(monkeypatch):
    queue = JobQueue(print)

    def answer_of_before(*_):
        queue.add("8")
        return ""

    monkeypatch.setattr(slurm_jobs, "slurm", answer_of_before)
    queue.ask()
    assert queue.state("8").state == "UNKNOWN"


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """Return a function that lets squeue be a script."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def be(text):
        (tmp_path / "squeue").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "squeue").chmod(0o700)

    return be


@pytest.mark.timeout(30)
def test_a_command_of_slurm_that_hangs_is_killed_with_all_that_it_started(tmp_path, monkeypatch, squeue):
    monkeypatch.setattr(slurm_jobs, "COMMAND_S", 0.3)
    squeue(f"sleep 1000 &\necho $! >{tmp_path}/pid\nwait")
    with pytest.raises(InfrastructureError, match=r"squeue did not end within 0\.3s"):
        slurm_jobs.slurm("squeue", "--me")
    started = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    while started.exists() and started.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.05)


def test_a_command_of_slurm_that_fails_is_reported_with_its_last_line(squeue):
    squeue("echo slurm_load_jobs error: Unable to contact >&2\nexit 1")
    with pytest.raises(InfrastructureError, match=r"squeue failed: slurm_load_jobs error: Unable to contact$"):
        slurm_jobs.slurm("squeue", "--me")


@pytest.mark.parametrize("printed", ["7|RUNNING|None|node3", "7|SUSPENDED|None|node3", None])
def test_a_silent_agent_is_lost_for_ever_and_its_job_cancelled(gpu, queue, tmp_path, later, printed):
    queue.printed = "7|RUNNING|None|node3"
    replies = Outbox(tmp_path / "replies")
    replies.send([codec.encode(AgentReply(facts=b"facts"))])
    assert gpu.facts() == b"facts"
    queue.printed = printed
    for _ in range(3):  # an agent that measures a long case sends nothing, and lives
        later(messages.SILENT_AGENT_S - 10)
        replies.show_life()
        assert gpu.take() == []
    later(messages.SILENT_AGENT_S + 10)
    with pytest.raises(LostError, match="its agent has given no sign of life for 5m"):
        gpu.take()
    queue.printed = ""
    queue.ask()
    assert ("scancel", "7") in queue.commands
    replies.send([codec.encode(AgentReply(news=b"late"))])
    for use in (gpu.take, gpu.stop, lambda: gpu.begin(b"share", {})):
        with pytest.raises(LostError, match="no sign of life"):
            use()


def test_a_job_that_waits_is_not_silent_and_one_that_runs_without_an_agent_is(gpu, queue, later):
    queue.printed = "7|PENDING|Priority|"
    for _ in range(3):
        assert gpu.facts() is None
        later(10 * messages.SILENT_AGENT_S)
    queue.printed = "7|RUNNING|None|node3"
    assert gpu.facts() is None
    later(messages.SILENT_AGENT_S + 10)
    with pytest.raises(LostError, match="no sign of life for 5m"):
        gpu.facts()


@pytest.mark.timeout(30)
def test_the_parts_of_the_environment_may_come_late(gpu, queue, tmp_path, later, monkeypatch):
    queue.printed = "7|RUNNING|None|node3"
    replies = Outbox(tmp_path / "replies")
    replies.send([codec.encode(AgentReply(facts=b"facts"))])
    gpu.facts()
    waits = []

    def wait(_):
        later(messages.SILENT_AGENT_S - 50)  # longer than an answer took at most once
        waits.append(replies.show_life())
        if len(waits) == 3:
            replies.send([codec.encode(AgentReply(parts=b"parts"))])

    monkeypatch.setattr(slurm_cluster.time, "sleep", wait)
    assert gpu.parts(b"device", {}) == b"parts"


def test_parts_of_a_silent_agent_are_not_awaited_for_ever(gpu, queue, later, monkeypatch, tmp_path):
    queue.printed = "7|RUNNING|None|node3"
    Outbox(tmp_path / "replies").send([codec.encode(AgentReply(facts=b"facts"))])
    gpu.facts()
    monkeypatch.setattr(slurm_cluster.time, "sleep", lambda _: later(messages.SILENT_AGENT_S / 2))
    with pytest.raises(LostError, match="no sign of life"):
        gpu.parts(b"device", {})


ENDED = {
    "7|TIMEOUT|TimeLimit|a": ("its job ended with the state TIMEOUT", "the key time of"),
    "7|OUT_OF_MEMORY|None|a": ("its job ended with the state OUT_OF_MEMORY", "mem ="),
    "7|PREEMPTED|None|a": ("its job ended with the state PREEMPTED", "^$"),
    "7|FAILED|None|a": ("its job ended with the state FAILED", "name a folder that all nodes see, unlike /"),
    "8|RUNNING|None|a": ("Slurm no longer lists its job", "^$"),
}
LOGS = {
    "": ("the state FAILED\n", "see .*log"),
    "Traceback\n  x\nOSError: full\n\n": ("the state FAILED: OSError: full", "see .*log"),
    "ModuleNotFoundError: No module named 'perfsvc'": ("No module named", "the same version of perfsvc on every"),
}


@pytest.mark.parametrize("printed", ENDED)
def test_a_job_that_has_ended_is_lost_with_the_reason(gpu, queue, printed):
    queue.printed = printed
    with pytest.raises(LostError, match=ENDED[printed][0]) as lost:
        gpu.take()
    assert re.search(ENDED[printed][1], lost.value.cure)


@pytest.mark.parametrize("log", LOGS)
def test_an_agent_that_failed_is_lost_with_its_error(gpu, queue, log):
    queue.printed = "7|FAILED|None|a"
    gpu.log.write_text(log)
    with pytest.raises(LostError, match=LOGS[log][0]) as lost:
        gpu.take()
    assert re.search(LOGS[log][1], lost.value.cure)


def test_a_full_disk_is_named_if_the_agent_could_not_write_why_it_failed(gpu, queue, request):
    request.getfixturevalue("full_disk")
    queue.printed = "7|FAILED|None|a"
    gpu.log.write_text("")
    with pytest.raises(LostError, match=r"the state FAILED, and .*run-1 cannot be written: No space left") as lost:
        gpu.take()
    assert "make room there" in lost.value.cure


def test_what_a_job_sent_before_its_end_is_read_first(gpu, queue, tmp_path):
    queue.printed = "7|NODE_FAIL|None|a"
    replies = AgentReply(facts=b"facts"), AgentReply(news=b"news")
    Outbox(tmp_path / "replies").send([codec.encode(reply) for reply in replies])
    assert gpu.facts() == b"facts"
    assert gpu.take() == [(b"news", {})]
    with pytest.raises(LostError, match="NODE_FAIL"):
        gpu.take()


def test_a_damaged_file_is_a_lost_gpu(gpu, queue, tmp_path):
    queue.printed = "7|RUNNING|None|a"
    Outbox(tmp_path / "replies").send([codec.encode(AgentReply(news=b"news", files=("0" * 64,)))])
    with pytest.raises(LostError, match="what it sent cannot be read"):
        gpu.take()


def test_orders_arrive_with_their_binaries_and_a_full_disk_loses_the_gpu(gpu, tmp_path):
    gpu.begin(b"share", {"0" * 64: b"code"})
    gpu.drop([3])
    gpu.stop()
    orders = [codec.decode(AgentOrder, text) for text in Inbox(tmp_path / "orders").read()]
    assert orders == [AgentOrder(share=b"share", blobs=("0" * 64,)), AgentOrder(drop=(3,)), AgentOrder(stop=True)]
    assert (tmp_path / ("0" * 64)).read_bytes() == b"code"
    (tmp_path / "orders").unlink()
    with pytest.raises(LostError, match="its shared folder cannot be written") as lost:
        gpu.stop()
    assert "make room there" in lost.value.cure


# --- the agent -------------------------------------------------------------------------------------------------------


def test_an_agent_shows_that_it_lives_while_it_has_no_news(tmp_path, monkeypatch):
    for name in ("0.orders", "0.replies"):
        create(tmp_path / name)
    signs = set()

    class Quiet:
        """An agent that measures a long case."""

        def facts(self, spec):
            return b"facts"

        def take(self, wait_s):
            signs.add((tmp_path / "0.replies").stat().st_mtime_ns)
            if len(signs) == 3:
                (tmp_path / "0.orders").unlink()
            return []

        def end(self, limit_s):
            pass

    monkeypatch.setattr(shared_folder, "TOUCH_S", 0.01)
    monkeypatch.setattr(slurm_agent, "Agent", Quiet)
    monkeypatch.setattr(slurm_agent.signal, "signal", lambda *_: None)
    slurm_agent.serve(str(tmp_path), "0", "cuda")
    assert len(signs) == 3


def test_an_agent_ends_when_the_command_or_its_folder_is_gone(tmp_path, monkeypatch):
    orders = tmp_path / "orders"
    orders.touch()
    assert [orders.unlink() for _ in slurm_agent._while_the_command_lives(orders)] == [None]
    orders.touch()
    times = iter(range(0, 10_000, 250))
    monkeypatch.setattr(slurm_agent.time, "monotonic", lambda: next(times))
    looks = 0
    for _ in slurm_agent._while_the_command_lives(orders):
        looks += 1
        if looks <= 5:
            os.utime(orders, (looks, looks))  # a sign of life
    assert looks == 8  # look 6 sees the last sign of life; looks 7 and 8 come within SILENT_COMMAND_S after that
