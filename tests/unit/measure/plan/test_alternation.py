"""The order of A/B pairs: which side of which suspects a process measures."""

import re
from dataclasses import replace
from itertools import groupby

from hypothesis import given, settings
from hypothesis import strategies as st

from perfsvc.measure.plan.order import GROUP, AlternatingPlan
from tests.unit.measure.tasks import make_task

OLD, NEW = (make_task("tree", modules=(module,)) for module in ("old", "new"))

few = settings(max_examples=20)


def order(pairs, seed=1):
    return AlternatingPlan((OLD, NEW), pairs, seed, limit_s=60).order("GPU-1")


@few
@given(pairs=st.integers(1, 20), seed=st.integers(0, 2**32))
def test_each_pair_has_both_sides_in_a_process_each(pairs, seed):
    in_order = order(pairs, seed)
    assert [replica for replica, _ in in_order] == list(range(2 * pairs))
    for pair in range(pairs):
        assert {id(task) for _, task in in_order[2 * pair : 2 * pair + 2]} == {id(OLD), id(NEW)}


@few
@given(twos=st.integers(1, 10), seed=st.integers(0, 2**32))
def test_a_steady_drift_weighs_on_both_sides_alike(twos, seed):
    in_order = order(2 * twos, seed)
    drift = {id(side): sum(position for position, task in in_order if task is side) for side in (OLD, NEW)}
    assert drift[id(OLD)] == drift[id(NEW)]


def test_the_seed_decides_which_side_begins():
    begins = {seed: tuple(task is OLD for _, task in order(8, seed)[::4]) for seed in range(16)}
    assert len(set(begins.values())) > 4
    assert order(8, 3) == order(8, 3)


# --- many suspects ---------------------------------------------------------------------------------------------------

LOOKS = (3, 12)
"""The pairs before the first look, and all pairs."""


def sides(number, **more):
    """Return both sides of a suspect."""
    old, new = (make_task(f"v{number}", modules=(module,), **more) for module in ("old", "new"))
    return old, new


def processes(suspects, seed=1, **more):
    """Return the processes in their order, each with the side that it measures and the variants."""
    tasks = tuple(task for both in suspects for task in both)
    plan = AlternatingPlan(tasks, LOOKS[1], seed, limit_s=60, first_pairs=LOOKS[0], **more)
    order = plan.order("GPU-1")
    assert [replica for replica, _ in order] == sorted(replica for replica, _ in order)
    found = []
    for number, entries in groupby(order, key=lambda entry: entry[0]):
        measured = [task for _, task in entries]
        (side,) = {task.record.modules[0] for task in measured}
        assert number == len(found)
        found.append((side, [task.record.case.variant for task in measured]))
    return found


@few
@given(count=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_suspects_share_processes_in_groups_until_the_first_look_and_all_together_after_it(count, seed):
    found = processes([sides(number) for number in range(count)], seed)
    groups = -(-count // GROUP)
    first, later = found[: 2 * LOOKS[0] * groups], found[2 * LOOKS[0] * groups :]
    for group in range(groups):
        expected = [f"v{number}" for number in range(count)][group * GROUP : (group + 1) * GROUP]
        of_group = first[2 * LOOKS[0] * group : 2 * LOOKS[0] * (group + 1)]
        assert all(sorted(variants) == sorted(expected) for _, variants in of_group)
    assert len(later) == 2 * (LOOKS[1] - LOOKS[0])
    assert all(len(variants) == count for _, variants in later)


@few
@given(count=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_both_processes_of_a_pair_have_the_same_neighbours(count, seed):
    found = processes([sides(number) for number in range(count)], seed)
    for (side, variants), (other_side, other_variants) in zip(found[::2], found[1::2], strict=True):
        assert {side, other_side} == {"old", "new"}
        assert variants == other_variants


@few
@given(count=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_the_sides_of_each_suspect_alternate_as_abba(count, seed):
    found = processes([sides(number) for number in range(count)], seed)
    for number in range(count):
        letters = "".join(side[0] for side, variants in found if f"v{number}" in variants)
        assert re.fullmatch("((onno)|(noon)){6}", letters)


def test_the_order_of_the_cases_is_drawn_anew_for_each_pair():
    found = processes([sides(number) for number in range(8)])
    assert len({tuple(variants) for _, variants in found}) > 10


def test_a_suspect_with_one_pair_has_one_pair():
    found = processes([sides(0), sides(1, replicas=1)])
    assert [variants.count("v1") for _, variants in found] == [1, 1] + [0] * 22
    assert [variants.count("v0") for _, variants in found] == [1] * 24


def test_a_process_measures_a_case_once_although_it_is_a_suspect_twice():
    suspects = [sides(0), sides(0), sides(1)]
    found = processes(suspects)
    assert all(len(set(variants)) == len(variants) for _, variants in found)
    assert sum(variants.count("v0") for _, variants in found) == 2 * 24


def test_cases_that_call_the_same_python_code_follow_each_other():
    python = {"v1": "one", "v4": "one", "v2": "other", "v7": "other"}
    suspects = [sides(number, bench=python.get(f"v{number}", "")) for number in range(8)]
    for _, variants in processes(suspects):
        for bench in ("one", "other"):
            first, second = (position for position, variant in enumerate(variants) if python.get(variant) == bench)
            assert second == first + 1


def test_equal_benchmark_files_that_import_different_modules_are_different_code():
    modules = {0: (("helper", "v1"),), 1: (("helper", "v2"),), 2: (("helper", "v1"),)}
    suspects = [sides(number, bench="same", python_modules=modules[number]) for number in modules]
    for _, variants in processes(suspects):
        places = [variants.index(variant) for variant in ("v0", "v2")]
        assert abs(places[0] - places[1]) == 1
    assert suspects[0][0].python_source != suspects[1][0].python_source
    assert replace(suspects[0][0], bench="").python_source == replace(suspects[1][0], bench="").python_source
