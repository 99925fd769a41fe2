"""Which device measures which case, if one device of each model measures each case."""

import itertools
import random
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsvc.measure.plan.assignment import (
    EVEN,
    LARGE_GAIN,
    NEW_RUNS,
    SMALL_GAIN,
    _Loads,
    hand_over,
    home_device,
    last_device,
    spread,
)
from perfsvc.model import CacheState, CostHistory, DeviceInfo
from tests.unit.measure.tasks import make_task

FIRST_NIGHT = datetime(2026, 11, 1, tzinfo=UTC)
FOUR = ("GPU-1", "GPU-2", "GPU-3", "GPU-4")


def gpus(*uuids, model="H100"):
    return [DeviceInfo("cuda", f"cuda:{uuid}", uuid, model, "sm_90") for uuid in uuids]


class Host:
    """GPUs of one model that measure cases night after night.

    Args:
        costs: the seconds of a replica of each case, by variant.
    """

    def __init__(self, costs):
        self.costs = dict(costs)
        self.past = {}
        self.night = 0

    def assigned(self, uuids=FOUR, begun=()):
        """Return the GPU of each case, by variant."""
        tasks = [make_task(name, uuid) for uuid in uuids for name in self.costs]
        return {
            task.record.case.variant: task.device
            for task in spread(tasks, gpus(*uuids), "each-model", self.past, begun)
        }

    def measure(self, uuids=FOUR, *, only=None):
        """Measure all cases on their GPUs, or all on one, for a night; return the GPU of each case."""
        homes = dict.fromkeys(self.costs, only) if only else self.assigned(uuids)
        self.night += 1
        for name, uuid in homes.items():
            key = uuid, make_task(name).record.case.id, CacheState.COLD
            runs = self.past.get(key, CostHistory()).runs
            last = FIRST_NIGHT + timedelta(days=self.night)
            self.past[key] = CostHistory(self.costs[name], None, last, runs + 1)
        return homes

    def loads(self, homes):
        """Return the seconds of each GPU."""
        seconds = defaultdict(float)
        for name, uuid in homes.items():
            seconds[uuid] += self.costs[name]
        return seconds

    def slowest_s(self, homes):
        return max(self.loads(homes).values())


@pytest.fixture
def host():
    """A host that has measured 100 cases of very different lengths for five nights."""
    chance = random.Random(1)
    host = Host({f"v{number}": chance.lognormvariate(0, 1) for number in range(100)})
    for _ in range(5):
        host.measure()
    return host


def moved(before, after):
    return {name for name in before if name in after and before[name] != after[name]}


# --- which devices ---------------------------------------------------------------------------------------------------


def test_each_device_measures_every_case_unless_cases_are_assigned():
    devices = gpus("GPU-1", "GPU-2")
    tasks = [make_task(f"v{number}", device.uuid) for device in devices for number in range(40)]
    assert spread(tasks, devices, "each-device") == tuple(tasks)
    assert Counter(task.key for task in spread(tasks, devices, "each-model")) == Counter({task.key for task in tasks})


def test_each_model_measures_every_case():
    devices = [*gpus("GPU-1", "GPU-2"), *gpus("GPU-8", "GPU-9", model="H200")]
    tasks = [make_task(f"v{number}", device.uuid) for device in devices for number in range(40)]
    models = {device.uuid: device.model for device in devices}
    assigned = spread(tasks, devices, "each-model")
    assert Counter((task.key, models[task.device]) for task in assigned) == Counter(
        {(task.key, model) for task in tasks for model in ("H100", "H200")}
    )


def test_a_case_is_assigned_to_a_device_that_can_measure_it():
    devices = gpus("GPU-1", "GPU-2")
    tasks = [*(make_task(f"v{number}", "GPU-2") for number in range(9)), *(make_task("any", uuid) for uuid in FOUR[:2])]
    assigned = spread(tasks, devices, "each-model")
    assert [(task.record.case.variant, task.device) for task in assigned] == [
        *((f"v{number}", "GPU-2") for number in range(9)),
        ("any", "GPU-1"),
    ]


def test_a_hash_chooses_the_same_device_with_every_version_of_perfsvc():
    homes = [home_device(make_task(f"v{number}").key, ("GPU-1", "GPU-2", "GPU-3"))[-1] for number in range(20)]
    assert "".join(homes) == "33113113111333132123"
    cold = [make_task(f"v{number}").key for number in range(20)]
    warm = [(case, CacheState.WARM) for case, _ in cold]
    assert [home_device(key, FOUR) for key in cold] != [home_device(key, FOUR) for key in warm]


# --- even ------------------------------------------------------------------------------------------------------------


def test_without_known_costs_each_device_gets_the_same_number_of_cases():
    for count, most in ((400, 100), (401, 101), (24, 6), (3, 1)):
        host = Host(dict.fromkeys((f"v{number}" for number in range(count)), 1.0))
        assert max(Counter(host.assigned().values()).values()) == most


def test_after_the_first_night_the_devices_take_equally_long(host):
    mean_s = sum(host.costs.values()) / len(FOUR)
    assert host.slowest_s(host.assigned()) < (1 + SMALL_GAIN) * mean_s


@settings(deadline=None)
@given(costs=st.lists(st.floats(0.01, 10), min_size=1, max_size=7), devices=st.integers(2, 3))
def test_no_assignment_is_much_better(costs, devices):
    """Compare with all possible assignments. No move helps, so the bound of Finn and Horowitz (1979) holds."""
    host = Host({f"v{number}": cost for number, cost in enumerate(costs)})
    host.measure(only="GPU-1")  # the other devices are new
    slowest_s = host.slowest_s(host.assigned(FOUR[:devices]))
    best_s = min(
        host.slowest_s(dict(zip(host.costs, homes, strict=True)))
        for homes in itertools.product(FOUR[:devices], repeat=len(costs))
    )
    assert slowest_s <= max(2 - 2 / (devices + 1), 1 + EVEN) * best_s + 1e-9


def test_new_cases_fill_the_device_with_the_least_work():
    host = Host({"long": 3.0, "short": 1.0})
    before = host.measure(FOUR[:2])
    host.costs |= {"new": 1.0}
    assert host.measure(FOUR[:2])["new"] == before["short"]


def test_the_result_does_not_depend_on_the_order_of_devices_and_cases(host):
    before = host.assigned()
    host.costs = dict(random.Random(2).sample(list(host.costs.items()), len(host.costs)))
    host.past = dict(reversed(host.past.items()))
    assert host.assigned(FOUR[::-1]) == before


def test_a_task_knows_its_cost(host):
    tasks = [make_task(name, uuid) for uuid in FOUR for name in host.costs]
    for task in spread(tasks, gpus(*FOUR), "each-model", host.past):
        assert task.cost_s == host.costs[task.record.case.variant]


# --- the same device every night -------------------------------------------------------------------------------------


def test_no_case_moves_if_costs_vary(host):
    before, chance = host.assigned(), random.Random(3)
    usual = dict(host.costs)
    for _ in range(20):
        host.costs = {name: cost * chance.lognormvariate(0, 0.1) for name, cost in usual.items()}
        assert host.measure() == before


def test_no_case_moves_if_cases_are_added_or_removed(host):
    before = host.assigned()
    host.costs |= {f"new{number}": 1.0 for number in range(5)}
    for _ in range(NEW_RUNS + 1):
        after = host.measure()
        assert not moved(before, after)
    del host.costs["v0"], host.costs["v1"]
    assert not moved(before, host.measure())


def test_only_the_cases_of_a_lost_device_move_and_they_return_with_it(host):
    before = host.assigned()
    lost = {name for name, uuid in before.items() if uuid == "GPU-2"}
    without = host.measure(("GPU-1", "GPU-3", "GPU-4"))
    assert moved(before, without) == lost
    assert max(host.loads(without).values()) < (1 + SMALL_GAIN) * sum(host.costs.values()) / 3
    assert host.measure(("GPU-1", "GPU-3", "GPU-4")) == without
    again = host.measure()
    assert not moved({name: before[name] for name in before.keys() - lost}, again)
    assert sum(host.costs[name] for name in moved(before, again)) < 2 * SMALL_GAIN * host.loads(before)["GPU-2"]


def test_a_new_device_takes_its_share_of_every_other_device(host):
    before = host.assigned()
    after = host.measure((*FOUR, "GPU-5"))
    assert {after[name] for name in moved(before, after)} == {"GPU-5"}
    assert host.slowest_s(after) < (1 + SMALL_GAIN) * sum(host.costs.values()) / 5


def test_a_new_device_takes_its_share_without_a_look_at_every_case_for_each_move(monkeypatch):
    looks = Counter()
    with_unit = _Loads.with_unit

    def counting(loads, unit, device):
        looks[device] += 1
        return with_unit(loads, unit, device)

    monkeypatch.setattr(_Loads, "with_unit", counting)
    costs = {f"v{number}": 1.0 + number % 97 / 97 for number in range(1000)}
    host = Host(costs)
    host.measure(("GPU-1",))
    moved = Counter(host.assigned().values())
    assert min(moved.values()) > 150
    assert sum(looks.values()) < 100 * len(costs)  # a look at each case for each of 750 moves would be a million


def test_cases_with_a_history_move_only_for_a_large_gain():
    host = Host({f"v{number}": 1.0 for number in range(12)})
    for _ in range(NEW_RUNS):
        before = host.measure(FOUR[:2])
    first = [name for name, uuid in before.items() if uuid == "GPU-1"]
    host.costs |= dict.fromkeys(first, 1.0 + LARGE_GAIN)
    host.measure(FOUR[:2])
    assert host.measure(FOUR[:2]) == before
    host.costs |= dict.fromkeys(first, 4.0)
    host.measure(FOUR[:2])
    after = host.measure(FOUR[:2])
    assert len(moved(before, after)) == 2
    assert host.measure(FOUR[:2]) == after


def test_cases_without_a_history_move_for_a_small_gain():
    host = Host({f"v{number}": 1.0 for number in range(8)})
    before = host.assigned(FOUR[:2])
    host.costs |= {name: 1.7 for name, uuid in before.items() if uuid == "GPU-1"}
    assert host.measure(FOUR[:2]) == before
    assert len(moved(before, host.measure(FOUR[:2]))) == 1


def test_cases_that_every_device_has_measured_move_for_a_small_gain():
    host = Host({f"v{number}": 1.0 for number in range(8)})
    for uuid in FOUR[:2] * NEW_RUNS:
        host.measure(only=uuid)  # as with each-device
    assert host.slowest_s(host.assigned(FOUR[:2])) == 4.0


def test_the_last_device_is_the_one_of_the_newest_measurement():
    key = make_task("v").key
    past = {
        (uuid, key[0].id, key[1]): CostHistory(1.0, None, FIRST_NIGHT + timedelta(days=days), 1)
        for uuid, days in (("GPU-1", 0), ("GPU-2", 2), ("GPU-3", 1))
    }
    assert last_device(key, FOUR, past) == "GPU-2"
    assert last_device(key, ("GPU-1", "GPU-3"), past) == "GPU-3"
    assert last_device(key, ("GPU-4",), past) is None


def test_a_case_that_a_resumed_run_has_begun_stays(host):
    before = host.assigned()
    mine = [name for name, uuid in before.items() if uuid == "GPU-1"]
    begun = [("GPU-4", make_task(name).key) for name in mine]
    after = host.assigned(begun=begun)
    assert {after[name] for name in mine} == {"GPU-4"}
    elsewhere = host.assigned(FOUR[:3], begun=begun)  # GPU-4 is gone
    assert set(elsewhere.values()) == set(FOUR[:3])


# --- variants in Python ----------------------------------------------------------------------------------------------


def in_python(uuids):
    return [
        make_task(f"v{variant}", uuid, bench="bench.py", point=(("n", n),))
        for uuid in uuids
        for variant in range(8)
        for n in (1, 2, 3)
    ]


def test_the_points_of_a_variant_in_python_stay_together_and_variants_may_part():
    assigned = spread(in_python(FOUR), gpus(*FOUR), "each-model")
    homes = defaultdict(set)
    for task in assigned:
        homes[task.record.case.variant].add(task.device)
    assert {len(devices) for devices in homes.values()} == {1}
    assert Counter(device for (device,) in homes.values()) == dict.fromkeys(FOUR, 2)


def test_short_variants_of_a_benchmark_in_python_share_a_device_because_each_process_takes_time():
    tasks = in_python(FOUR[:2])
    past = {
        (task.device, task.record.case.id, task.cache): CostHistory(0.01, None, FIRST_NIGHT, 1)
        for task in tasks
        if task.device == "GPU-1"
    }
    tasks += [make_task("long", uuid) for uuid in FOUR[:2]]
    past["GPU-2", make_task("long").record.case.id, CacheState.COLD] = CostHistory(0.5, None, FIRST_NIGHT, 1)
    homes = {task.record.case.variant: task.device for task in spread(tasks, gpus(*FOUR[:2]), "each-model", past)}
    assert homes == {**{f"v{variant}": "GPU-1" for variant in range(8)}, "long": "GPU-2"}


# --- the cases of a lost device --------------------------------------------------------------------------------------


def test_the_cases_of_a_lost_device_are_divided_by_cost():
    tasks = [make_task("long", cost_s=6.0), *(make_task(f"v{number}", cost_s=1.0) for number in range(6))]
    taken = hand_over(tasks, {"GPU-2": 0.0, "GPU-3": 0.0})
    assert sorted(len(of_device) for of_device in taken.values()) == [1, 6]
    assert all(task.device == device for device, of_device in taken.items() for task in of_device)
    after = hand_over(tasks, {"GPU-2": 12.0, "GPU-3": 0.0})
    assert {device: len(of_device) for device, of_device in after.items()} == {"GPU-3": 7}


def test_the_points_of_a_variant_in_python_are_handed_over_together():
    taken = hand_over(in_python(["GPU-1"]), {"GPU-2": 0.0, "GPU-3": 0.0})
    variants = {device: {task.record.case.variant for task in of_device} for device, of_device in taken.items()}
    assert variants["GPU-2"].isdisjoint(variants["GPU-3"])
    assert {len(of_device) for of_device in taken.values()} == {12}
    assert hand_over([], {"GPU-2": 0.0}) == {}


def test_handing_over_does_not_depend_on_the_order_of_the_cases():
    tasks = [make_task(f"v{number}", cost_s=1.0) for number in range(20)]
    loads = {"GPU-2": 0.0, "GPU-3": 0.0}
    assert {uuid: set(map(id_of, found)) for uuid, found in hand_over(tasks, loads).items()} == {
        uuid: set(map(id_of, found)) for uuid, found in hand_over(tasks[::-1], dict(reversed(loads.items()))).items()
    }


def id_of(task):
    return replace(task, device="").record.case.id
