"""The input prefetcher: arrays are made in the order of need, once, within a budget, and given back in time."""

import contextlib
import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfsvc.errors import SuiteError
from perfsvc.measure.host import input_prefetcher
from perfsvc.measure.host.input_prefetcher import InputPrefetcher, array_threads
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import Array, Buffer, CacheState, Case, DeviceInfo, Kind, ReplayRecord, Role, Tolerance
from perfsvc.process.shared_memory import map_arrays, share

UNIT = 2048
"""Bytes of an input, and of its reference; a case takes two."""


class Recipes:
    """Makes tasks, remembers which recipes ran, and can hold them up."""

    def __init__(self):
        self.made = []
        self.waiting = {}
        self.changed = threading.Condition()

    def task(self, name, variant="v", device="GPU-1", *, fresh=False):
        array = Array("x", "float64", (UNIT // 8,))
        buffers = (Buffer(array, Role.INPUT), Buffer(Array("y", "float32", (UNIT // 8,)), Role.OUTPUT))
        record = ReplayRecord(Case(name, variant), Kind.KERNEL, buffers, (), (), "", seed=0)
        recipe = Recipe(name, lambda: self.make(name), (lambda first: self.make_fresh(name, first)) if fresh else None)
        return Task(device, record, (), CacheState.COLD, Sampling(), Tolerance(0, 0), recipe)

    def make(self, name):
        self._note(name)
        if name in self.waiting:
            assert self.waiting[name].wait(30)
        return share({"x": np.full(UNIT // 8, float(ord(name[0])))}, {"y": np.zeros(UNIT // 8)})

    def make_fresh(self, name, first):
        self._note(f"fresh {name}")
        if f"fresh {name}" in self.waiting:
            assert self.waiting[f"fresh {name}"].wait(30)
        shared = first()
        return share({"x": map_arrays(shared.descriptor, shared.layout.inputs)["x"] + 1}, {})

    def hold(self, name):
        """Hold up a recipe until the event that this returns is set."""
        self.waiting[name] = threading.Event()
        return self.waiting[name]

    def await_made(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.made) >= count, 30)
        return self.made[:]

    def _note(self, what):
        with self.changed:
            self.made.append(what)
            self.changed.notify_all()


@pytest.fixture
def recipes():
    return Recipes()


def plan(tasks, replicas=1):
    return [(replica, task) for replica in range(replicas) for task in tasks]


def use(prefetcher, task, replica=0):
    """Order and take arrays, as a queue does; returns a value of the inputs, and of the fresh ones."""
    with prefetcher.take(prefetcher.order(task, replica)) as arrays:
        assert arrays.name == task.arrays.name
        first, *fresh = (os.pread(descriptor, 8, 0) for descriptor in arrays.descriptors)
        assert bool(arrays.fresh) == bool(fresh)
        return tuple(float(np.frombuffer(raw)[0]) for raw in (first, *fresh))


def wait_until_made(prefetcher):
    """Wait until all recipes that were started are done."""
    for made in tuple(prefetcher._arrays.values()):
        with contextlib.suppress(SuiteError):
            made.result(30)


def names_kept(prefetcher):
    return {name + " fresh" * fresh for name, fresh in prefetcher._arrays}


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_arrays_shared_by_variants_devices_and_replicas_are_made_once(recipes):
    queues = [
        [recipes.task("a", variant, device) for variant in ("v", "w")] + [recipes.task("b", "v", device)]
        for device in ("GPU-1", "GPU-2")
    ]
    with InputPrefetcher([plan(queue, 2) for queue in queues], budget_bytes=1 << 20) as prefetcher:
        for replica in range(2):
            for tasks in zip(*queues, strict=True):
                orders = [prefetcher.order(task, replica) for task in tasks]
                for order in orders:
                    with prefetcher.take(order):
                        pass
    assert sorted(recipes.made) == ["a", "b"]


def test_arrays_are_prefetched_in_order_alternating_between_devices(recipes):
    queues = [[recipes.task(name) for name in names] for names in ("abc", "de")]
    with InputPrefetcher(map(plan, queues), budget_bytes=1 << 20) as prefetcher:
        wait_until_made(prefetcher)
        assert recipes.made == ["a", "d", "b", "e", "c"]


def test_the_arrays_of_a_device_that_measures_short_cases_come_before_those_of_a_device_that_measures_long_ones(
    recipes,
):
    queues = [
        [replace(recipes.task(name), cost_s=cost_s) for name in names] for names, cost_s in (("abc", 10), ("defg", 4))
    ]
    with InputPrefetcher(map(plan, queues), budget_bytes=1 << 20) as prefetcher:
        wait_until_made(prefetcher)
        assert recipes.made == ["a", "d", "e", "f", "b", "g", "c"]


def test_prefetching_stops_at_the_budget_and_continues_when_there_is_room(recipes):
    tasks = [recipes.task(name) for name in "abcd"]
    with InputPrefetcher([plan(tasks)], budget_bytes=4 * UNIT) as prefetcher:
        wait_until_made(prefetcher)
        assert recipes.made == ["a", "b"]
        assert use(prefetcher, tasks[0]) == (ord("a"),)
        wait_until_made(prefetcher)
        assert recipes.made == ["a", "b", "c"]
        assert names_kept(prefetcher) == {"b", "c"}


def test_an_order_is_served_whatever_the_budget(recipes):
    tasks = [recipes.task(name) for name in "ab"]
    with InputPrefetcher([plan(tasks, 2)], budget_bytes=0) as prefetcher:
        assert [use(prefetcher, task, replica) for replica, task in plan(tasks, 2)] == [(97.0,), (98.0,)] * 2
    assert recipes.made == ["a", "b", "a", "b"]


def test_arrays_needed_again_soonest_are_kept(recipes):
    a, b, c = (recipes.task(name) for name in "abc")
    with InputPrefetcher([[(0, a), (0, b), (0, c), (1, c), (1, b), (1, a)]], budget_bytes=4 * UNIT) as prefetcher:
        for replica, task in ((0, a), (0, b), (0, c), (1, c), (1, b), (1, a)):
            use(prefetcher, task, replica)
            wait_until_made(prefetcher)
    assert recipes.made == ["a", "b", "c", "a"]


def test_arrays_no_task_needs_any_more_are_given_back_at_once(recipes):
    before = open_files()
    tasks = [recipes.task(name) for name in "ab"]
    with InputPrefetcher([plan(tasks)], budget_bytes=1 << 20) as prefetcher:
        wait_until_made(prefetcher)
        assert open_files() == before + 2
        use(prefetcher, tasks[0])
        assert open_files() == before + 1
        use(prefetcher, tasks[1])
        assert open_files() == before


def test_fresh_arrays_go_to_the_first_replica_and_are_then_given_back(recipes):
    tasks = [recipes.task(name, fresh=True) for name in "ab"]
    with InputPrefetcher([plan(tasks, 2)], budget_bytes=1 << 20) as prefetcher:
        wait_until_made(prefetcher)
        assert recipes.made == ["a", "fresh a", "b", "fresh b"]
        assert use(prefetcher, tasks[0]) == (97, 98)
        assert names_kept(prefetcher) == {"a", "b", "b fresh"}
        assert use(prefetcher, tasks[1]) == (98, 99)
        assert names_kept(prefetcher) == {"a", "b"}
        assert [use(prefetcher, task, 1) for task in tasks] == [(97,), (98,)]
    assert len(recipes.made) == 4


def test_fresh_arrays_stay_until_the_last_device_has_used_them(recipes):
    tasks = [recipes.task("a", device=device, fresh=True) for device in ("GPU-1", "GPU-2")]
    with InputPrefetcher([plan([task], 2) for task in tasks], budget_bytes=1 << 20) as prefetcher:
        use(prefetcher, tasks[0])
        assert use(prefetcher, tasks[0], 1) == (97,)
        assert names_kept(prefetcher) == {"a", "a fresh"}
        assert use(prefetcher, tasks[1]) == (97, 98)
        assert names_kept(prefetcher) == {"a"}


def test_a_recipe_without_fresh_arrays_gives_none(recipes):
    task = recipes.task("a", fresh=True)
    recipes.make_fresh = lambda name, first: share({}, {})
    with InputPrefetcher([plan([task])]) as prefetcher:
        assert use(prefetcher, task) == (97,)


def test_fresh_arrays_are_not_made_if_the_first_ones_do_not_fit_the_budget(recipes):
    tasks = [recipes.task(name, fresh=True) for name in "ab"]
    with InputPrefetcher([plan(tasks)], budget_bytes=4 * UNIT) as prefetcher:
        wait_until_made(prefetcher)
        assert recipes.made == ["a", "fresh a"]


def test_several_threads_make_different_arrays_at_once_but_never_the_same(recipes):
    gates = {name: recipes.hold(name) for name in "ab"}
    tasks = [recipes.task(name, variant) for name in "ab" for variant in "vw"]
    with InputPrefetcher([plan(tasks)], threads=4, budget_bytes=1 << 20) as prefetcher:
        assert sorted(recipes.await_made(2)) == ["a", "b"]
        order = prefetcher.order(tasks[0], 0)
        assert not order.ready
        gates["a"].set()
        with prefetcher.take(order):
            assert order.ready
        gates["b"].set()
        wait_until_made(prefetcher)
    assert sorted(recipes.made) == ["a", "b"]


def test_arrays_of_tasks_that_were_passed_over_are_still_prefetched(recipes):
    tasks = [recipes.task(name) for name in "abc"]
    with InputPrefetcher([plan(tasks)], budget_bytes=1 << 20) as prefetcher:
        order = prefetcher.order(tasks[2], 0)
        assert names_kept(prefetcher) == {"a", "b", "c"}
        prefetcher.cancel(order)
        assert names_kept(prefetcher) == {"a", "b"}


def test_fresh_arrays_are_made_while_the_first_ones_are(recipes):
    gate, task = recipes.hold("a"), recipes.task("a", fresh=True)
    with InputPrefetcher([plan([task])], threads=2, budget_bytes=1 << 20) as prefetcher:
        assert sorted(recipes.await_made(2)) == ["a", "fresh a"]
        gate.set()
        assert use(prefetcher, task) == (97, 98)


def test_it_is_known_which_arrays_are_ready(recipes):
    gate, (a, b) = recipes.hold("fresh b"), (recipes.task(name, fresh=True) for name in "ab")
    with InputPrefetcher([plan([a, b])], budget_bytes=1 << 20) as prefetcher:
        recipes.await_made(4)
        assert [prefetcher.is_ready(a, 0), prefetcher.is_ready(b, 0), prefetcher.is_ready(b, 1)] == [True, False, True]
        gate.set()
        wait_until_made(prefetcher)
        assert prefetcher.is_ready(b, 0)
        assert not prefetcher.is_ready(recipes.task("c"), 0)


def test_nothing_is_prefetched_for_a_dropped_task_in_any_replica(recipes):
    a, b = (recipes.task(name) for name in "ab")
    with InputPrefetcher([plan([a, b], 3)], budget_bytes=1 << 20) as prefetcher:
        prefetcher.drop(b)
        assert names_kept(prefetcher) == {"a"}


def test_first_arrays_are_kept_while_fresh_ones_are_made_from_them_even_if_all_orders_are_cancelled(recipes):
    before, gate = open_files(), recipes.hold("a")
    task = recipes.task("a", fresh=True)
    with InputPrefetcher(threads=2) as prefetcher:
        orders = [prefetcher.order(task, replica) for replica in (1, 0)]
        _, fresh = orders[1].arrays
        while not fresh.running():
            pass
        for order in orders:
            prefetcher.cancel(order)
        gate.set()
        assert recipes.await_made(2) == ["a", "fresh a"]
        assert fresh.exception(30) is None
    assert open_files() == before


def test_an_error_in_a_recipe_is_raised_for_each_of_its_cases_and_no_other(recipes):
    def fail(name):
        recipes._note(name)
        raise SuiteError("inputs raised", path="bench.py")

    bad = [recipes.task("a", variant, fresh=True) for variant in "vw"]
    good = recipes.task("b")
    make, recipes.make = recipes.make, lambda name: fail(name) if name == "a" else make(name)
    with InputPrefetcher([plan([*bad, good])], budget_bytes=1 << 20) as prefetcher:
        for task in bad:
            with pytest.raises(SuiteError, match="inputs raised"):
                use(prefetcher, task)
        assert use(prefetcher, good) == (98,)
    assert recipes.made == ["a", "b"]


def test_all_memory_is_given_back_at_the_end(recipes):
    before = open_files()
    tasks = [recipes.task(name, fresh=True) for name in "abcd"]
    with InputPrefetcher([plan(tasks, 2)], threads=3, budget_bytes=1 << 20) as prefetcher:
        prefetcher.order(tasks[0], 0)
        use(prefetcher, tasks[1])
        wait_until_made(prefetcher)
        assert open_files() > before
    assert open_files() == before


def test_an_early_end_waits_for_running_recipes_and_starts_no_others(recipes):
    before, gate = open_files(), recipes.hold("a")
    tasks = [recipes.task(name) for name in "ab"]
    with InputPrefetcher([plan(tasks)], budget_bytes=1 << 20):
        recipes.await_made(1)
        threading.Timer(0.05, gate.set).start()
    assert recipes.made == ["a"]
    assert open_files() == before


@pytest.mark.parametrize("limit", ["MOST_KEPT", "HORIZON"])
def test_the_number_of_kept_arrays_and_the_look_ahead_are_limited(recipes, monkeypatch, limit):
    monkeypatch.setattr(input_prefetcher, limit, 3)
    with InputPrefetcher([plan([recipes.task(name) for name in "abcde"])], budget_bytes=1 << 20) as prefetcher:
        wait_until_made(prefetcher)
        assert names_kept(prefetcher) == {"a", "b", "c"}


def test_threads_leave_cores_for_measuring(monkeypatch):
    table = {
        (("cuda",), 1): 1,
        (("cuda",), 3): 1,
        (("cuda",), 5): 3,
        (("cuda", "cuda"), 64): 12,
        (("fake",), 64): 12,
        (("cpu",), 64): 1,
        (("cuda", "cpu"), 64): 1,
    }
    found = {}
    for kinds, cores in table:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        found[kinds, cores] = array_threads([DeviceInfo(kind, kind, kind, kind, kind) for kind in kinds])
    assert found == table
