"""The order of a plan."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc.measure.plan.order import Plan, Task, devices, home_device, spread
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import CacheState, Case, DeviceInfo, Kind, ReplayRecord, Tolerance
from perfsvc.process.shared_memory import share


def make_task(number, device="GPU-1"):
    record = ReplayRecord(Case("dot", f"v{number}"), Kind.KERNEL, (), (), (), "", seed=0)
    return Task(
        device, record, (), CacheState.COLD, Sampling(), Tolerance(0, 0), arrays=Recipe("none", lambda: share({}, {}))
    )


def plan(tasks, *, replicas=3, seed=1):
    return Plan(tuple(tasks), replicas, seed, limit_s=60)


TWENTY = [make_task(number) for number in range(20)]


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


@pytest.mark.parametrize("device", ["GPU-9", ""])
def test_a_device_without_tasks_has_nothing_to_do(device):
    assert plan(TWENTY).order(device) == []


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
    peaks = (make_task("peak"), make_task("peak", device="GPU-2"))
    both = replace(plan(TWENTY[:3], replicas=2), first=peaks)
    order = both.order("GPU-1")
    assert order[0] == (0, peaks[0])
    assert [replica for replica, task in order if task.record.case.variant == "vpeak"] == [0]
    assert len(order) == 1 + 2 * 3
    assert both.order("GPU-2") == []  # a device without cases needs no measured peak


def gpus(*uuids, model="H100"):
    return [DeviceInfo("cuda", f"cuda:{uuid}", uuid, model, "sm_90") for uuid in uuids]


def assigned(devices, count=400, how="each-model"):
    """Return the devices that measure each case."""
    tasks = [make_task(number, device.uuid) for device in devices for number in range(count)]
    homes = {}
    for task in spread(tasks, devices, how):
        homes.setdefault(task.record.case.variant, []).append(task.device)
    return homes


def test_each_device_measures_every_case_unless_cases_are_assigned():
    devices = gpus("GPU-1", "GPU-2")
    assert set(map(tuple, assigned(devices, how="each-device").values())) == {("GPU-1", "GPU-2")}
    assert {len(homes) for homes in assigned(devices).values()} == {1}


def test_an_assignment_does_not_depend_on_the_order_of_the_devices():
    assert assigned(gpus("GPU-1", "GPU-2", "GPU-3")) == assigned(gpus("GPU-3", "GPU-1", "GPU-2"))


def test_an_assignment_is_the_same_every_night_and_with_every_version_of_perfsvc():
    homes = [home_device(make_task(number).key, ("GPU-1", "GPU-2", "GPU-3"))[-1] for number in range(20)]
    assert "".join(homes) == "33113113111333132123"


@pytest.mark.parametrize(("count", "most"), [(400, 100), (401, 101), (24, 6), (3, 1)])
def test_an_assignment_is_even(count, most):
    homes = [home for (home,) in assigned(gpus(*(f"GPU-{number}" for number in range(4))), count).values()]
    assert max(homes.count(f"GPU-{number}") for number in range(4)) == most


def test_a_new_device_takes_its_share_and_moves_few_other_cases():
    before, after = assigned(gpus("GPU-1", "GPU-2")), assigned(gpus("GPU-1", "GPU-2", "GPU-3"))
    moved = [name for name in before if before[name] != after[name]]
    assert [after[name] for name in moved].count(["GPU-3"]) == 133
    assert len(moved) - 133 < 30


def test_a_new_case_moves_few_others():
    devices = gpus("GPU-1", "GPU-2")
    before, after = assigned(devices, 400), assigned(devices, 401)
    assert sum(before[name] != after[name] for name in before) < 10


def test_each_model_measures_every_case_and_cache_states_are_assigned_separately():
    devices = [*gpus("GPU-1", "GPU-2"), *gpus("GPU-8", "GPU-9", model="H200")]
    models = {device.uuid: device.model for device in devices}
    assert {tuple(sorted(models[home] for home in homes)) for homes in assigned(devices).values()} == {("H100", "H200")}
    cold = [home_device(task.key, ("GPU-1", "GPU-2")) for task in TWENTY]
    assert cold != [home_device((task.record.case, CacheState.WARM), ("GPU-1", "GPU-2")) for task in TWENTY]


def test_a_case_is_assigned_to_a_device_that_can_measure_it():
    devices = gpus("GPU-1", "GPU-2")
    only = [make_task(number, "GPU-2") for number in range(9)]
    assert spread(only, devices, "each-model") == tuple(only)


def test_a_device_that_alone_can_measure_most_cases_takes_more_than_its_share():
    devices = gpus("GPU-1", "GPU-2")
    tasks = [*(make_task(number, "GPU-2") for number in range(9)), make_task(9, "GPU-1"), make_task(9, "GPU-2")]
    homes = [task.device for task in spread(tasks, devices, "each-model")]
    assert homes == ["GPU-2"] * 9 + ["GPU-1"]
