"""The costs of cases in earlier runs, with which a budget is planned."""

from dataclasses import replace
from datetime import UTC
from math import isnan, nan

import pytest

from perfsvc.model import CacheState, CheckedKernel, CheckVerdict, CostHistory, Noise, StaticFacts, Status, Verdict
from perfsvc.store import RunState
from perfsvc.store.measurements import NEWEST
from tests.unit.store.conftest import ON_BOTH

GPUS = ("GPU-1", "GPU-2")


@pytest.fixture
def night(story):
    """Return a function that stores a run in which ``tiled`` took some seconds, one number a replica."""

    def run(*walls_s, case=story.tiled, state=RunState.FINISHED, between=None, **given):
        number = story.begin()
        for replica, wall_s in enumerate(walls_s):
            story.put(number, case, replica=replica, wall_s=wall_s, **given)
        if state is RunState.RUNNING:
            return number
        story.store.runs.end(number, state)
        if walls_s:
            place = {name: given[name] for name in ("device", "cache") if name in given}
            story.set_noise(number, case, Noise(0.1, between), **place)
        return number

    return run


def costs(story, *cases, devices=GPUS):
    """The cost and the noise by device, case and cache state."""
    known = story.store.measurements.costs(cases or [story.tiled], devices)
    return {place: (one.cost_s, one.between) for place, one in known.items()}


def measured_at(story, run):
    return max(story.store.measurements.columns([run])["measured_at"])


@ON_BOTH
def test_the_cost_is_the_mean_of_the_newest_ended_run_and_last_is_from_any_run(story, night):
    night(9.0, 9.0)
    night(0.5, 0.75, between=0.02)
    running = night(7.0, state=RunState.RUNNING)
    past = story.store.measurements.costs([story.tiled, story.naive], GPUS)
    assert past == {
        ("GPU-1", story.tiled.id, CacheState.COLD): CostHistory(0.625, 0.02, measured_at(story, running), 3)
    }
    assert past["GPU-1", story.tiled.id, CacheState.COLD].last.tzinfo is UTC
    assert story.store.measurements.costs([], GPUS) == {}


def test_the_noise_is_that_of_the_newest_run_that_knows_it_and_the_cost_that_of_any_ended_run(story, night):
    cold = ("GPU-1", story.tiled.id, CacheState.COLD)
    night(1.0, 1.0, between=0.3)
    night(1.0, 1.0, between=0.2)
    night(2.0)
    assert costs(story) == {cold: (2.0, 0.2)}
    night(3.0, state=RunState.INTERRUPTED)
    assert costs(story) == {cold: (3.0, 0.2)}
    night(60.0, status=Status.FAILED)
    assert costs(story) == {cold: (60.0, 0.2)}


def test_costs_are_separate_for_each_device_and_cache_state(story, night):
    night(1.0, between=0.1)
    night(2.0, between=0.2, device="GPU-2")
    night(4.0, between=0.4, case=story.naive)
    night(5.0, between=0.5, case=replace(story.tiled, version=2))
    run = story.begin()
    for cache, wall_s in ((CacheState.COLD, 1.0), (CacheState.WARM, 4.0)):
        for replica in range(2):
            story.put(run, story.tiled, cache=cache, replica=replica, wall_s=wall_s + replica)
    story.store.runs.end(run, RunState.FINISHED)
    cold, there, warm = (
        ("GPU-1", story.tiled.id, CacheState.COLD),
        ("GPU-2", story.tiled.id, CacheState.COLD),
        ("GPU-1", story.tiled.id, CacheState.WARM),
    )
    assert costs(story) == {cold: (1.5, 0.0), there: (2.0, 0.2), warm: (4.5, 0.0)}
    assert costs(story, devices=["GPU-2"]) == {there: (2.0, 0.2)}
    assert costs(story, devices=["GPU-3"]) == costs(story, devices=[]) == {}


def test_a_case_that_never_reached_its_device_has_no_cost(story, night):
    night(0.0, status=Status.FAILED)
    assert story.store.measurements.costs([story.tiled], GPUS) == {}
    known = night(1.0)
    night(0.0, status=Status.FAILED)
    (past,) = story.store.measurements.costs([story.tiled], GPUS).values()
    assert (past.cost_s, past.last) == (1.0, measured_at(story, known))


def test_a_new_name_has_the_cost_of_the_former_one(story, night):
    night(1.0, between=0.1)
    shared = replace(story.tiled, variant="shared", formerly=("tiled",))
    place = ("GPU-1", shared.id, CacheState.COLD)
    assert costs(story, shared) == {place: (1.0, 0.1)}
    night(2.0, case=shared)
    assert costs(story, shared) == {place: (2.0, 0.1)}


def test_only_the_newest_measurements_count(story, night):
    night(9.0, between=0.9)
    night(8.0, cache=CacheState.WARM)
    for _ in range(NEWEST // 2):
        night(1.0, 2.0)
    past = story.store.measurements.costs([story.tiled], GPUS)
    ((place, one),) = past.items()
    assert (place[2], one.cost_s, one.between, one.runs) == (CacheState.COLD, 1.5, None, NEWEST // 2)


def test_nights_without_a_time_do_not_hide_the_cost(story, night):
    night(1.0)
    for _ in range(NEWEST):
        night(0.0, status=Status.SKIPPED)
    assert [cost for cost, _ in costs(story).values()] == [1.0]


# --- what runs measured besides times --------------------------------------------------------------------------------


FACTS = StaticFacts(32, 0, 4, 8, 0, 1, None, "5a" * 32)


@pytest.fixture
def check(story):
    """Return a function that stores a check of ``tiled`` with two kernels, whose facts it takes."""

    def put(commit, *facts, toolkit=None, architecture="sm_90", dirty=False):
        kernels = [
            CheckedKernel(story.tiled, architecture, f"kernel_{number}", facts=each, source="c" * 64)
            for number, each in enumerate(facts)
        ]
        provenance = story.provenance(commit=commit, dirty=dirty, scope="kernels")
        verdicts = [CheckVerdict(kernel, Verdict.NEW) for kernel in kernels]
        story.store.checks.put(provenance, verdicts, toolkit=toolkit or story.environment.toolkit)

    return put


@ON_BOTH
def test_errors_and_work_are_those_of_all_replicas(story, store):
    runs = [story.begin(), story.begin()]
    for run in runs:
        for replica, error in enumerate((1e-7, 3e-7 * run, None)):
            story.put(run, story.tiled, replica=replica, max_error=error)
        story.put(run, story.naive)
    found = {
        series.case: {
            run: (None if isnan(error) else error, moved, flops)
            for run, error, moved, flops in zip(of.runs, of.max_error, of.moved_bytes, of.flops, strict=True)
        }
        for series, of in store.measurements.quantities(runs).items()
    }
    errors = {story.tiled: {run: 3e-7 * run for run in runs}, story.naive: dict.fromkeys(runs)}
    assert found == {case: {run: (worst, 6000, 10) for run, worst in of.items()} for case, of in errors.items()}
    assert store.measurements.quantities(runs[:1])[story.series(story.tiled)].runs.tolist() == runs[:1]


def test_a_renamed_case_keeps_its_quantities_and_a_run_with_a_bad_replica_is_left_out(story, store):
    first = story.run()
    renamed = replace(story.tiled, variant="blocked", formerly=("tiled",))
    second = story.run(renamed)
    (of_case,) = store.measurements.quantities([first, second]).values()
    assert of_case.runs.tolist() == [first, second]
    run = story.begin()
    story.put(run, story.tiled, replica=0)
    story.put(run, story.tiled, replica=1, status=Status.WRONG)
    assert store.measurements.quantities([run]) == {}


@ON_BOTH
def test_static_facts_are_those_of_the_commit_the_compiler_and_the_architecture(story, store, check):
    check("a", FACTS, replace(FACTS, registers=40))
    check("a", FACTS, replace(FACTS, registers=48))
    check("a", replace(FACTS, registers=90), toolkit="nvcc 12.0")
    check("a", replace(FACTS, registers=91), architecture="sm_80")
    check("a", replace(FACTS, registers=92), dirty=True)
    check("b", replace(FACTS, registers=93))
    runs = [story.run(commit="a"), story.run(commit="a", dirty=True), story.run(commit="c"), story.run()]
    (of_case,) = store.measurements.quantities(runs).values()
    assert of_case.registers.tolist() == pytest.approx([48, nan, nan, nan], nan_ok=True)
    assert of_case.spilled_bytes.tolist() == pytest.approx([24, nan, nan, nan], nan_ok=True)
