"""The order of a plan."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc.measure.plan import Plan, Task, devices
from perfsvc.measure.sampler import Sampling
from perfsvc.measure.shared import Recipe
from perfsvc.model import Case, Kind, Mode, ReplayRecord, Tolerance


def task(number, device="GPU-1"):
    record = ReplayRecord(Case("dot", f"v{number}"), Kind.KERNEL, (), (), (), "", seed=0)
    return Task(device, record, (), Mode.COLD, Sampling(), Tolerance(0, 0), arrays=Recipe("none", lambda: ({}, {})))


def plan(tasks, *, replicas=3, seed=1):
    return Plan(tuple(tasks), replicas, seed, limit_s=60)


TWENTY = [task(number) for number in range(20)]


@given(count=st.integers(0, 12), replicas=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_every_replica_has_every_task_once_and_replicas_follow_each_other(count, replicas, seed):
    order = plan(TWENTY[:count], replicas=replicas, seed=seed).order("GPU-1")
    assert [replica for replica, _ in order] == [replica for replica in range(replicas) for _ in range(count)]
    for replica in range(replicas):
        found = [one.record.case.variant for number, one in order if number == replica]
        assert sorted(found) == sorted(one.record.case.variant for one in TWENTY[:count])


def test_each_replica_has_an_order_of_its_own():
    order = plan(TWENTY).order("GPU-1")
    orders = {tuple(one.record.case.variant for number, one in order if number == replica) for replica in range(3)}
    assert len(orders) == 3


def test_a_seed_repeats_the_order_and_another_one_does_not():
    assert plan(TWENTY).order("GPU-1") == plan(TWENTY).order("GPU-1")
    assert plan(TWENTY).order("GPU-1") != plan(TWENTY, seed=2).order("GPU-1")


def test_a_device_has_its_own_tasks_in_an_order_of_its_own():
    both = plan([*TWENTY, *(replace(one, device="GPU-2") for one in TWENTY)])
    first, second = ([one.record.case for _, one in both.order(device)] for device in ("GPU-1", "GPU-2"))
    assert first != second
    assert {one.device for _, one in both.order("GPU-2")} == {"GPU-2"}
    assert devices(both.tasks) == ("GPU-1", "GPU-2")


@pytest.mark.parametrize("device", ["GPU-9", ""])
def test_a_device_without_tasks_has_nothing_to_do(device):
    assert plan(TWENTY).order(device) == []
