"""The order of A/B pairs."""

from hypothesis import given
from hypothesis import strategies as st

from perfsvc.measure.plan.order import AlternatingPlan, Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import CacheState, Case, Kind, ReplayRecord, Tolerance
from perfsvc.process.shared_memory import share


def task(module):
    record = ReplayRecord(Case("dot", "tree"), Kind.KERNEL, (), (), (module,), "", seed=0)
    return Task(
        "GPU-1", record, (), CacheState.COLD, Sampling(), Tolerance(0, 0), arrays=Recipe("none", lambda: share({}, {}))
    )


OLD, NEW = task("old"), task("new")


def order(pairs, seed=1):
    return AlternatingPlan((OLD, NEW), pairs, seed, limit_s=60).order("GPU-1")


@given(pairs=st.integers(1, 20), seed=st.integers(0, 2**32))
def test_each_pair_has_both_sides_in_a_process_each(pairs, seed):
    in_order = order(pairs, seed)
    assert [replica for replica, _ in in_order] == list(range(2 * pairs))
    for pair in range(pairs):
        assert {id(task) for _, task in in_order[2 * pair : 2 * pair + 2]} == {id(OLD), id(NEW)}


@given(twos=st.integers(1, 10), seed=st.integers(0, 2**32))
def test_a_steady_drift_weighs_on_both_sides_alike(twos, seed):
    in_order = order(2 * twos, seed)
    drift = {id(side): sum(position for position, task in in_order if task is side) for side in (OLD, NEW)}
    assert drift[id(OLD)] == drift[id(NEW)]


def test_the_seed_decides_which_side_begins():
    begins = {seed: tuple(task is OLD for _, task in order(8, seed)[::4]) for seed in range(16)}
    assert len(set(begins.values())) > 4
    assert order(8, 3) == order(8, 3)


def test_another_device_has_nothing_to_do():
    assert AlternatingPlan((OLD, NEW), 3, 1, limit_s=60).order("GPU-2") == []
