"""A budget's division: what waited longest comes first, and what remains goes where it narrows most."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc.measure.plan.budget import MOST, CostHistory, divide
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import CacheState, Case, Kind, ReplayRecord, Tolerance

NOW = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)


def task(name, device="GPU-1", cache=CacheState.COLD, **sampling):
    record = ReplayRecord(Case("dot", name), Kind.KERNEL, (), (), (), "", seed=0)
    return Task(device, record, (), cache, Sampling(**sampling), Tolerance(0, 0), Recipe("none", lambda: ({}, {})))


def key(one):
    return one.device, one.record.case.id, one.cache


def past(cost_s=1.0, between=0.001, days=1.0):
    return CostHistory(cost_s, between, NOW - timedelta(days=days))


def divided(known, budget_s, replicas=3):
    """The replicas by name of cases with a past (or None), and the names that are left out."""
    tasks = [task(name) for name in known]
    of_tasks = {key(one): known[one.record.case.variant] for one in tasks if known[one.record.case.variant]}
    division = divide(tasks, of_tasks, budget_s, replicas, NOW)
    return {one.record.case.variant: one.replicas for one in division.tasks}, [
        one.case.variant for one in division.over_budget
    ]


def test_cases_never_measured_come_first_and_then_those_that_waited_longest():
    known = {"old": past(days=3), "older": past(days=9), "never": None, "fresh": past(days=1)}
    assert divided(known, 4.0) == ({"never": 2, "older": 2}, ["old", "fresh"])
    assert divided(known, 6.0) == ({"never": 2, "older": 2, "old": 2}, ["fresh"])


def test_cheap_cases_of_the_same_night_come_first_until_an_expensive_one_has_waited_a_night():
    hours = {"dear": past(cost_s=3.0, days=1.02), "cheap": past(days=0.98)}
    assert divided(hours, 6.0) == ({"cheap": 6}, ["dear"])
    assert divided(hours | {"dear": past(cost_s=3.0, days=2.0)}, 6.0) == ({"dear": 2}, ["cheap"])


def test_a_case_that_does_not_fit_makes_room_for_one_that_does():
    assert divided({"dear": past(cost_s=10.0, days=5), "cheap": past()}, 3.0) == ({"cheap": 3}, ["dear"])


def test_remaining_time_goes_where_it_narrows_the_interval_most():
    found, over_budget = divided({"quiet": past(between=0.001), "noisy": past(between=0.01)}, 7.0)
    assert (found, over_budget) == ({"quiet": 2, "noisy": 5}, [])
    # a tenth of the deviation is a hundredth of the variance; at a hundredth of the cost it is worth as much
    found, _ = divided({"quiet": past(between=0.001, cost_s=0.01), "noisy": past(between=0.01)}, 3.035)
    assert found == {"quiet": 3, "noisy": 3}


def test_no_case_gets_more_than_twice_the_replicas_asked_for():
    assert divided({"noisy": past(between=0.5), "quiet": past(between=0.0)}, 1e6) == (
        {"noisy": MOST * 3, "quiet": MOST * 3},
        [],
    )


def test_a_single_replica_is_enough_if_no_more_were_asked_for():
    assert divided({"one": past(), "two": past()}, 2.0, replicas=1) == ({"one": 1, "two": 1}, [])


def test_an_unknown_cost_is_the_median_of_the_known_ones():
    known = {"a": past(cost_s=1.0), "b": past(cost_s=2.0), "c": past(cost_s=9.0), "new": None}
    assert "new" in divided(known, 4.0)[0]
    assert "new" not in divided(known, 3.9)[0]


def test_without_any_known_cost_it_is_the_time_cap_of_sampling():
    tasks = [task("a", seconds=5.0), task("b", seconds=5.0)]
    assert divide(tasks, {}, 19.9, 3, NOW).over_budget[0].case.variant == "b"
    assert not divide(tasks, {}, 20.0, 3, NOW).over_budget


def test_a_case_over_budget_has_a_reason():
    (one,) = divide([task("a", seconds=5.0)], {}, 3.0, 3, NOW).over_budget
    assert (one.device, one.case.id, one.cache) == ("GPU-1", "dot/a", CacheState.COLD)
    assert one.reason == "2 replicas of about 5 s did not fit the budget of 3 s"


def test_every_device_has_the_whole_budget_and_its_own_history():
    tasks = [task("a"), task("a", device="GPU-2"), task("a", cache=CacheState.WARM)]
    known = {key(one): past(cost_s=cost_s) for one, cost_s in zip(tasks, (1.0, 2.0, 9.0), strict=True)}
    division = divide(tasks, known, 6.0, 3, NOW)
    assert [(one.device, one.cache, one.replicas) for one in division.tasks] == [
        ("GPU-1", CacheState.COLD, 6),
        ("GPU-2", CacheState.COLD, 3),
    ]
    assert [(one.device, one.cache) for one in division.over_budget] == [("GPU-1", CacheState.WARM)]


PASTS = st.none() | st.builds(
    past, cost_s=st.floats(0, 100), between=st.none() | st.floats(0, 0.2), days=st.floats(0, 400)
)


@given(known=st.lists(PASTS, max_size=12), budget_s=st.floats(0.1, 500), replicas=st.integers(1, 6))
def test_the_budget_is_kept_and_every_case_is_measured_or_over_budget(known, budget_s, replicas):
    named = {str(number): one for number, one in enumerate(known)}
    found, over_budget = divided(named, budget_s, replicas)
    assert sorted([*found, *over_budget]) == sorted(named)
    assert all(min(2, replicas) <= count <= MOST * replicas for count in found.values())
    spent_s = sum(count * named[name].cost_s for name, count in found.items() if named[name])
    assert spent_s <= budget_s + 1e-6 * len(named)


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_the_tasks_does_not_matter(order):
    names = [f"v{number}" for number in range(9)][::order]
    found, over_budget = divided(dict.fromkeys(names, past()), 11.0)
    assert sorted(over_budget) == ["v5", "v6", "v7", "v8"]
    assert set(found) == {"v0", "v1", "v2", "v3", "v4"}
