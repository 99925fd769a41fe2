"""Series that a run should have measured."""

from dataclasses import replace
from math import inf, nan

import pytest

from perfsvc.model import CacheState, Status
from perfsvc.store import RunState
from tests.unit.store.conftest import ON_BOTH


@pytest.fixture
def night(story):
    """Return a function that stores a finished run of the scope ``all``; it takes the measured and skipped cases."""

    def run(*places, over_budget=(), state=RunState.FINISHED, scope="all", **given):
        number = story.begin(scope=scope, **given)
        for device, case, cache in places:
            story.put(number, case, device=device, cache=cache)
        story.store.runs.put_over_budget(number, over_budget)
        story.store.runs.end(number, state)
        return number

    return run


@pytest.fixture
def tiled(story):
    return "GPU-1", story.tiled, CacheState.COLD


@pytest.fixture
def naive(story):
    return "GPU-1", story.naive, CacheState.COLD


def runs(story, number):
    """The run from which each case is expected, by device, case and cache state."""
    return {
        (series.device, series.case, series.cache): run
        for series, run in story.store.baselines.expected(number).items()
    }


@ON_BOTH
def test_the_previous_run_is_the_newest_finished_one_of_the_scope_on_each_device(story):
    first = story.run(scope="all")
    second = story.begin(scope="all")
    story.put(second, story.tiled, device="GPU-2")
    story.store.runs.end(second, RunState.FINISHED)
    story.run(scope="all", state=RunState.INTERRUPTED)
    story.run(scope="all", dirty=True)
    story.run(scope="some")
    tonight = story.begin(scope="all")
    for device in ("GPU-1", "GPU-2", "GPU-3"):
        story.put(tonight, story.tiled, device=device)
    expected = story.store.baselines.expected(tonight)
    assert {series.device: run for series, run in expected.items()} == {"GPU-1": first, "GPU-2": second}
    story.run(scope="")
    assert story.store.baselines.expected(story.run(scope="")) == {}


def test_the_correct_series_of_the_previous_run_are_expected(story):
    before = story.begin(scope="all")
    for variant, given in {
        "right": {"metrics": {"energy_j": 1.0, "sm_cycles": nan}, "max_error": 0.0},
        "erring": {"max_error": inf},
        "untimed": {"samples": (), "metrics": {"speed": 2.0}},
        "wrong": {"status": Status.WRONG, "max_error": 1.0},
        "partly": {},
        "skipped": {"status": Status.SKIPPED},
    }.items():
        for replica in range(2):
            broken = {"status": Status.FAILED} if (variant, replica) == ("partly", 1) else {}
            story.put(before, replace(story.tiled, variant=variant), replica=replica, **{**given, **broken})
    story.store.runs.end(before, RunState.FINISHED)
    right = {series for series, level in story.store.series.levels(before).items() if level.status is Status.OK}
    tonight = story.run(replace(story.tiled, variant="right"), scope="all")
    assert story.store.baselines.expected(tonight) == dict.fromkeys(right, before)
    assert {(series.case.variant, series.metric) for series in right} > {("right", "energy_j"), ("untimed", "speed")}


def test_a_case_over_budget_in_the_previous_run_is_expected_from_an_earlier_one(story, night, tiled, naive):
    warm, always = (*naive[:2], CacheState.WARM), ("GPU-1", replace(story.tiled, variant="always"), CacheState.COLD)
    first = night(tiled, naive, warm, over_budget=[always])
    assert runs(story, night(tiled, over_budget=[naive, always])) == {tiled: first, warm: first}
    second = night(tiled, naive)
    night(naive, dirty=True)
    night(naive, state=RunState.INTERRUPTED)
    night(naive, scope="some")
    night(tiled, over_budget=[naive])
    fourth = night(tiled, over_budget=[naive])
    tonight, later = night(tiled, naive), night(naive)
    assert runs(story, tonight) == {tiled: fourth, naive: second}
    assert runs(story, later) == {tiled: tonight, naive: tonight}


def test_if_all_runs_have_uncommitted_changes_the_newest_is_the_previous_one(story, night, tiled):
    first, second = night(tiled, dirty=True), night(tiled, dirty=True)
    assert runs(story, second) == {tiled: first}


def test_a_case_over_budget_on_one_device_is_expected_from_that_device(story, night, tiled, naive):
    there = ("GPU-2", *naive[1:])
    first = night(naive, there)
    second = night(naive, ("GPU-2", *tiled[1:]), over_budget=[there])
    tonight = night(naive, ("GPU-2", *tiled[1:]))
    assert runs(story, tonight) == {naive: second, there: first, ("GPU-2", *tiled[1:]): second}


def test_cases_over_budget_have_their_present_names(story, night, tiled, naive):
    shared = replace(story.naive, variant="shared", formerly=("naive",))
    first = night(tiled, naive)
    skipping = night(tiled, over_budget=[("GPU-1", shared, CacheState.COLD)])
    assert story.store.runs.over_budget(skipping) == [("GPU-1", shared, CacheState.COLD)]
    assert runs(story, night(tiled)) == {tiled: skipping, ("GPU-1", shared, CacheState.COLD): first}
    assert runs(story, night(tiled, over_budget=[naive])).keys() == {tiled}


def test_cases_over_budget_are_read_as_stored_and_replaced(story, night, tiled, naive):
    story.store.devices.put(story.gpu)
    run = night(over_budget=[naive, tiled, naive])
    assert set(story.store.runs.over_budget(run)) == {tiled, naive}
    story.store.runs.put_over_budget(run, [tiled])
    assert story.store.runs.over_budget(run) == [tiled]
    assert story.store.runs.over_budget(night(tiled)) == []
