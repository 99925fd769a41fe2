"""Hostile messages of workers cost their cases alone; ``tests/benchmarks/hostile_frames.py`` sends 10,000."""

import importlib
import random
import threading
from pathlib import Path

import pytest

from perfsvc.measure.host import worker_handle
from perfsvc.measure.plan.order import Plan
from perfsvc.measure.protocol.messages import CaseJob
from perfsvc.model import Status
from perfsvc.process.shared_memory import ArrayLayout

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
PROCESSES = 12

pytestmark = pytest.mark.slow  # thousands of messages, dozens of processes


@pytest.fixture
def script(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("PERFSVC_LOCKS", str(tmp_path / "locks"))
    return importlib.import_module("hostile_frames")


def test_hostile_messages_cost_their_cases_alone(script):
    script.attack(script.CASES, 1)
    before = script.descriptors(), threading.active_count()
    result = script.attack(300, 2)
    assert +result.problems == {}
    assert sum(result.by_kind.values()) == 300
    assert len(result.by_kind) > 9
    assert (script.descriptors(), threading.active_count()) == before


def test_no_process_is_left_by_workers_that_send_hostile_messages(script, work, monkeypatch):
    """The same with processes: each hostile worker sends bytes that were made for its case."""
    monkeypatch.setattr(worker_handle, "MESSAGE_LIMIT_S", 0.3)
    chance = random.Random(3)
    tasks = [work.task(f"bad{number}") for number in range(PROCESSES)]
    attacks = {task.record.case.variant: script.hostile(chance, job_of(task)) for task in tasks}
    for variant, attack in attacks.items():
        (work.folder / variant).write_bytes(attack.content)
    ends = "os._exit(0) if len(variant) % 2 else time.sleep(1)"  # then it also sends its right reply
    work.play(each=f"log(); (folder / variant).exists() and (pool.sendall((folder / variant).read_bytes()), {ends})")
    tasks += [work.task(f"right{number}") for number in range(PROCESSES)]
    before = script.descriptors()
    measurements = work.measure(Plan(tuple(tasks), 1, 1, 5.0), work.devices("only"))
    accepted = {measurement.case.variant for measurement in measurements if measurement.status is Status.OK}
    assert len(measurements) == len(tasks)
    assert {f"right{number}" for number in range(PROCESSES)} <= accepted
    assert not accepted & {variant for variant, attack in attacks.items() if attack.wrong and attack.content}
    assert len(work.born()) > PROCESSES / 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in work.born())
    assert script.descriptors() == before


def job_of(task):
    return CaseJob(task.record, 0, task.cache, task.tolerance, task.sampling, "none", ArrayLayout())
