"""Dividing a budget: cases that waited longest come first, and the rest goes where it narrows intervals most."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from perfsvc.measure.plan.budget import MOST, divide
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import CacheState, CostHistory
from tests.unit.measure.tasks import make_task

NOW = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
FIVE_S = Sampling(seconds=5.0)


def key(task):
    return task.device, task.record.case.id, task.cache


def history(cost_s=1.0, between=0.001, days=1.0):
    return CostHistory(cost_s, between, NOW - timedelta(days=days))


def divided(histories, budget_s, replicas=3):
    """Return the replicas of cases by name, given their histories (or None), and the names that are over budget."""
    tasks = [make_task(name) for name in histories]
    of_tasks = {key(task): histories[task.record.case.variant] for task in tasks if histories[task.record.case.variant]}
    division = divide(tasks, of_tasks, budget_s, replicas, NOW)
    return {task.record.case.variant: task.replicas for task in division.tasks}, [
        over.case.variant for over in division.over_budget
    ]


def test_cases_never_measured_come_first_and_then_those_that_waited_longest():
    histories = {"old": history(days=3), "older": history(days=9), "never": None, "fresh": history(days=1)}
    assert divided(histories, 4.0) == ({"never": 2, "older": 2}, ["old", "fresh"])
    assert divided(histories, 6.0) == ({"never": 2, "older": 2, "old": 2}, ["fresh"])


def test_cheap_cases_of_the_same_night_come_first_until_an_expensive_one_has_waited_a_night():
    cases = {"costly": history(cost_s=3.0, days=1.02), "cheap": history(days=0.98)}
    assert divided(cases, 6.0) == ({"cheap": 6}, ["costly"])
    assert divided(cases | {"costly": history(cost_s=3.0, days=2.0)}, 6.0) == ({"costly": 2}, ["cheap"])


def test_a_case_that_does_not_fit_makes_room_for_one_that_does():
    assert divided({"costly": history(cost_s=10.0, days=5), "cheap": history()}, 3.0) == ({"cheap": 3}, ["costly"])


def test_remaining_time_goes_where_it_narrows_the_interval_most():
    counts, over_budget = divided({"quiet": history(between=0.001), "noisy": history(between=0.01)}, 7.0)
    assert (counts, over_budget) == ({"quiet": 2, "noisy": 5}, [])
    # a tenth of the deviation is a hundredth of the variance; at a hundredth of the cost it is worth as much
    counts, _ = divided({"quiet": history(between=0.001, cost_s=0.01), "noisy": history(between=0.01)}, 3.035)
    assert counts == {"quiet": 3, "noisy": 3}


def test_no_case_gets_more_than_twice_the_replicas_asked_for():
    assert divided({"noisy": history(between=0.5), "quiet": history(between=0.0)}, 1e6) == (
        {"noisy": MOST * 3, "quiet": MOST * 3},
        [],
    )


def test_a_single_replica_is_enough_if_no_more_were_asked_for():
    assert divided({"one": history(), "two": history()}, 2.0, replicas=1) == ({"one": 1, "two": 1}, [])


def test_an_unknown_cost_is_the_median_of_the_known_ones():
    histories = {"a": history(cost_s=1.0), "b": history(cost_s=2.0), "c": history(cost_s=9.0), "new": None}
    assert "new" in divided(histories, 4.0)[0]
    assert "new" not in divided(histories, 3.9)[0]


def test_without_any_known_cost_it_is_the_time_cap_of_sampling():
    tasks = [make_task("a", sampling=FIVE_S), make_task("b", sampling=FIVE_S)]
    assert divide(tasks, {}, 19.9, 3, NOW).over_budget[0].case.variant == "b"
    assert not divide(tasks, {}, 20.0, 3, NOW).over_budget


def test_a_case_over_budget_has_a_reason():
    (over,) = divide([make_task("a", sampling=FIVE_S)], {}, 3.0, 3, NOW).over_budget
    assert (over.device, over.case.id, over.cache) == ("GPU-1", "dot/a", CacheState.COLD)
    assert over.reason == "2 replicas of about 5 s did not fit the budget of 3 s"


def test_every_device_has_the_whole_budget_and_its_own_history():
    tasks = [make_task("a"), make_task("a", device="GPU-2"), make_task("a", cache=CacheState.WARM)]
    histories = {key(task): history(cost_s=cost_s) for task, cost_s in zip(tasks, (1.0, 2.0, 9.0), strict=True)}
    division = divide(tasks, histories, 6.0, 3, NOW)
    assert [(task.device, task.cache, task.replicas) for task in division.tasks] == [
        ("GPU-1", CacheState.COLD, 6),
        ("GPU-2", CacheState.COLD, 3),
    ]
    assert [(over.device, over.cache) for over in division.over_budget] == [("GPU-1", CacheState.WARM)]


PASTS = st.none() | st.builds(
    history, cost_s=st.floats(0, 100), between=st.none() | st.floats(0, 0.2), days=st.floats(0, 400)
)


@given(histories=st.lists(PASTS, max_size=12), budget_s=st.floats(0.1, 500), replicas=st.integers(1, 6))
def test_the_budget_is_kept_and_every_case_is_measured_or_over_budget(histories, budget_s, replicas):
    named = {str(number): past for number, past in enumerate(histories)}
    counts, over_budget = divided(named, budget_s, replicas)
    assert sorted([*counts, *over_budget]) == sorted(named)
    assert all(min(2, replicas) <= count <= MOST * replicas for count in counts.values())
    spent_s = sum(count * named[name].cost_s for name, count in counts.items() if named[name])
    assert spent_s <= budget_s + 1e-6 * len(named)


def test_the_order_of_the_tasks_does_not_matter():
    for order in (1, -1):
        names = [f"v{number}" for number in range(9)][::order]
        counts, over_budget = divided(dict.fromkeys(names, history()), 11.0)
        assert sorted(over_budget) == ["v5", "v6", "v7", "v8"]
        assert set(counts) == {"v0", "v1", "v2", "v3", "v4"}
