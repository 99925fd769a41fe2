"""The order of a plan."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from perfsvc.measure.plan.order import PROGRAM_GRACE_S, Plan, devices
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import Kind, RunProgram
from tests.unit.measure.tasks import make_task

few = settings(max_examples=20)


def plan(tasks, *, replicas=3, seed=1):
    return Plan(tuple(tasks), replicas, seed, limit_s=60)


TWENTY = [make_task(f"v{number}") for number in range(20)]


@few
@given(count=st.integers(0, 12), replicas=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_every_replica_has_every_task_once_and_replicas_follow_each_other(count, replicas, seed):
    order = plan(TWENTY[:count], replicas=replicas, seed=seed).order("GPU-1")
    assert [replica for replica, _ in order] == [replica for replica in range(replicas) for _ in range(count)]
    for replica in range(replicas):
        variants = [task.record.case.variant for number, task in order if number == replica]
        assert sorted(variants) == sorted(task.record.case.variant for task in TWENTY[:count])


def test_each_replica_has_its_own_order():
    order = plan(TWENTY).order("GPU-1")
    orders = {tuple(task.record.case.variant for number, task in order if number == replica) for replica in range(3)}
    assert len(orders) == 3


def test_a_seed_repeats_its_order_and_another_seed_gives_another_order():
    assert plan(TWENTY).order("GPU-1") == plan(TWENTY).order("GPU-1")
    assert plan(TWENTY).order("GPU-1") != plan(TWENTY, seed=2).order("GPU-1")


def test_a_device_has_its_own_tasks_in_its_own_order():
    both = plan([*TWENTY, *(replace(task, device="GPU-2") for task in TWENTY)])
    first, second = ([task.record.case for _, task in both.order(device)] for device in ("GPU-1", "GPU-2"))
    assert first != second
    assert {task.device for _, task in both.order("GPU-2")} == {"GPU-2"}
    assert devices(both.tasks) == ("GPU-1", "GPU-2")


def test_a_task_may_have_its_own_number_of_replicas():
    few, usual, many = (replace(TWENTY[number], replicas=count) for number, count in enumerate((1, None, 4)))
    order = plan([few, usual, many], replicas=2).order("GPU-1")
    assert {(replica, task.record.case.variant) for replica, task in order} == {
        (0, "v0"),
        *((replica, "v1") for replica in range(2)),
        *((replica, "v2") for replica in range(4)),
    }
    assert [replica for replica, _ in order] == [0, 0, 0, 1, 1, 2, 3]


def test_tasks_that_call_python_of_one_file_follow_each_other():
    benches = [*["a", "b"] * 4, *[""] * 12]
    tasks = [replace(task, bench=bench) for task, bench in zip(TWENTY, benches, strict=True)]
    order = plan(tasks).order("GPU-1")
    for replica in range(3):
        in_order = "".join(task.bench or "-" for number, task in order if number == replica)
        assert "aaaa" in in_order
        assert "bbbb" in in_order
    others = [entry for entry in order if not entry[1].bench]
    assert others == [entry for entry in plan(TWENTY).order("GPU-1") if entry[1] in TWENTY[8:]]  # as random as ever


def test_first_tasks_are_measured_once_before_all_others():
    peaks = (make_task("peak"), make_task("peak", "GPU-2"))
    both = replace(plan(TWENTY[:3], replicas=2), first=peaks)
    order = both.order("GPU-1")
    assert order[0] == (0, peaks[0])
    assert [replica for replica, task in order if task.record.case.variant == "peak"] == [0]
    assert len(order) == 1 + 2 * 3
    assert both.order("GPU-2") == []  # a device without cases needs no measured peak


def program(number, limit_s=None):
    step = RunProgram(("./bench",), ("bench",), "csv", limit_s=limit_s)
    task = make_task(f"v{number}")
    return replace(task, record=replace(task.record, kind=Kind.PROGRAM, steps=(step,)))


@few
@given(seed=st.integers(0, 2**32))
def test_programs_follow_each_other_because_their_worker_opens_no_device(seed):
    tasks = [program(number) if number % 2 else make_task(f"v{number}") for number in range(10)]
    order = [task.is_program for replica, task in plan(tasks, seed=seed).order("GPU-1") if replica == 0]
    assert sum(before != after for before, after in pairwise(order)) <= 2


def test_a_program_has_its_own_time_limit_and_its_worker_a_little_more():
    limits = plan([program(1), program(2, limit_s=500), make_task("v3")])
    assert limits.limits_s(program(1)) == (60 + PROGRAM_GRACE_S, 60)
    assert limits.limits_s(program(2, limit_s=500)) == (500 + PROGRAM_GRACE_S, 500)
    assert limits.limits_s(make_task("v3")) == (60 + Sampling().recovery_s, 0)
