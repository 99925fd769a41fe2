"""What tests/benchmarks/simulated reports of findings that were planted and of others; tests/e2e runs a small year."""

import importlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perfsvc.model import CacheState, Case, Cause, Direction, Finding, FindingState, MovedSeries, Series

BENCHMARKS = Path(__file__).parents[2] / "tests" / "benchmarks"


@pytest.fixture
def module(monkeypatch):
    """Return a function that imports a module of the benchmark."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return lambda name: importlib.import_module(f"simulated.{name}")


@pytest.fixture
def plan(module):
    """Return a plan with a step that is taken back, a spike and an improvement."""
    planted = module("planted")
    return planted.Plan(
        nights=20,
        benchmarks=3,
        variants=2,
        planted=(
            planted.step("a step", [planted.Commit(4, "b0/first.cu", "b0/*", 1.05)], delay=2, back=8),
            planted.spike("a spike", 6, "b1/*", 1.1),
            planted.improvement("an improvement", planted.Commit(9, "b2/first.cu", "b2/v0", 0.9)),
        ),
    )


def moved(case, back=None, direction=Direction.SLOWER):
    benchmark, variant = case.split("/")
    series = Series(Case(benchmark, variant, (("n", 64),), 1), "FAKE-0", "Fake GPU", "time", CacheState.COLD)
    return MovedSeries(series, 1.05, 1.04, 1.06, 3, 1e-4, 1.05e-4, 7, recovered_run=back, direction=direction)


def finding(*places, night=4, cause=Cause.KERNEL, state=FindingState.RESOLVED):
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Finding(night, cause, "", night, night, state, "", "", "", at, moved=places)


STEP = finding(moved("b0/v0", 8), moved("b0/v1", 8))
IMPROVED = {9: {"b2/v0"}}


@pytest.fixture
def failing(module, plan):
    """Return a function that returns the claims that fail for some findings."""
    found = module("found")

    def of(*findings, improved=IMPROVED):
        outcomes = found.outcomes(plan, findings, improved)
        return {claim.what for claim in found.claims_of(outcomes, found.unplanted(plan, findings)) if not claim.holds}

    return of


def test_findings_of_exactly_what_was_planted_pass_and_a_row_shows_what_is_missing(module, plan, failing):
    found = module("found")
    assert failing(STEP) == set()
    outcomes = found.outcomes(plan, [STEP], IMPROVED)
    assert [outcome.exact for outcome in outcomes] == [True] * 3
    step, spike, improvement = found.rows_of(plan, outcomes)
    assert step == ["a step", "4", "2", "4 kernel", "4", "2", "0", "0", "8", "resolved", "yes"]
    assert (spike[3], improvement[3]) == ("none", "improved")
    missing, *_ = found.rows_of(plan, found.outcomes(plan, [], IMPROVED))
    assert missing[3:] == ["none", "-", "0", "2", "one missing", "-", "-", "NO"]
    stays, *_ = found.rows_of(plan, found.outcomes(plan, [finding(moved("b0/v0", 8), moved("b0/v1"))], IMPROVED))
    assert stays[8] == "not, 8"


def of_spike(night):
    return finding(moved("b1/v0"), night=night, state=FindingState.OPEN)


MANY, LOST, LATE = (
    "a step: findings too many",
    "a step: cases that are missing",
    "a step: other nights of recovery than 8",
)
UNPLANTED, SPIKED = "findings that were not planted", "a spike: findings although none may be"
FAILING = {
    "none": ((), {MANY, LOST, LATE}),
    "a finding for each case": ([finding(moved(case, 8)) for case in ("b0/v0", "b0/v1")], {MANY}),
    "a case is missing": ([finding(moved("b0/v0", 8))], {LOST}),
    "a case is back a night later": ([finding(moved("b0/v0", 8), moved("b0/v1", 9))], {LATE}),
    "a case is not back": ([finding(moved("b0/v0", 8), moved("b0/v1", None))], {LATE}),
    "another state": ([replace(STEP, state=FindingState.OPEN)], {"a step: findings that are not resolved"}),
    "late": ([STEP, finding(moved("b0/v0", 8), night=6)], {UNPLANTED}),
    "another cause": ([STEP, finding(moved("b0/v0", 8), cause=Cause.ENVIRONMENT)], {UNPLANTED}),
    "the other way": ([STEP, finding(moved("b0/v0", 8, Direction.FASTER))], {UNPLANTED}),
    "with another case": ([STEP, finding(moved("b0/v0", 8), moved("b2/v1", 8))], {UNPLANTED}),
    "of a spike, before it": ([STEP, of_spike(5)], {UNPLANTED}),
    "of a spike, in its night": ([STEP, of_spike(6)], {UNPLANTED, SPIKED}),
    "of a spike, soon after it": ([STEP, of_spike(20)], {UNPLANTED, SPIKED}),
    "of a spike, long after it": ([STEP, of_spike(21)], {UNPLANTED}),
}


def test_each_difference_from_what_was_planted_fails_its_claims(failing):
    found = {name: failing(*findings) for name, (findings, _) in FAILING.items()}
    assert found == {name: expected for name, (_, expected) in FAILING.items()}
    assert failing(STEP, improved={9: {"b2/v1"}}) == {"an improvement: cases that no verdict called improved"}


# --- the plan --------------------------------------------------------------------------------------------------------


def test_a_step_that_is_taken_back_leaves_no_change(plan):
    (there,), (back,) = plan.commits(4), plan.commits(8)
    assert (there.path, there.cases) == (back.path, back.cases)
    assert there.factor * back.factor == pytest.approx(1.0)


def test_weather_applies_to_its_nights_and_a_driver_stays(module):
    planted = module("planted")
    things = (planted.slow_gpu("a GPU", 3, 2, 1.1), planted.driver("a driver", 7, "2.0", 1.2))
    plan = planted.Plan(9, 1, 1, things)
    assert [[weather.factor for weather in plan.weather(night)] for night in range(2, 9)] == [
        *([], [1.1], [1.1], [], []),
        *([1.2], [1.2]),
    ]
    assert [plan.driver(night) for night in (6, 7, 9)] == [planted.FIRST_DRIVER, "2.0", "2.0"]
    assert plan.planted[0].expected.back == 5


def test_a_short_year_has_everything_that_a_year_has(module):
    for nights in (365, 75):
        plan = module("year").a_year(nights)
        assert (plan.nights, len(plan.cases), plan.measurements) == (nights, 100, 300)
        assert all(plan.moved(planted) for planted in plan.planted)
        assert all(commit.night <= plan.nights for planted in plan.planted for commit in planted.commits)
        (drift,) = [planted for planted in plan.planted if planted.name == "a drift"]
        assert (len(plan.moved(drift)), len({commit.night for commit in drift.commits})) == (5, 12)
        firsts = [planted.night for planted in plan.planted if planted.expected or planted.improves]
        assert firsts == sorted(set(firsts))
        slow_gpu, late = plan.planted[-2:]
        assert slow_gpu.expected.back < late.night


# --- what nights cost ------------------------------------------------------------------------------------------------


def nights(life, sizes):
    return [life.Lived(number, 1.0, 0.5, 0.1, size, number % 2) for number, size in enumerate(sizes, start=1)]


def test_growth_is_shown_in_tenths(module):
    life = module("life")
    lived = nights(life, [1000, *range(1100, 3000, 100)])  # twenty nights
    (first, first_grown), (second, second_grown), *others = life.tenths(lived)
    assert (first.night, first.bytes, first_grown, first.suspects) == (2, 1100, 550, 1)
    assert (second.night, second_grown, second.wall_s, second.cpu_s) == (4, 100, 1.0, 0.5)
    assert others[-1][0].night == 20
    assert len(life.tenths(lived[:3])) == 3
    assert life.apiece(lived) == 100


def test_faster_growth_in_the_last_third_is_seen(module):
    life = module("life")
    assert life.bend(nights(life, range(100, 1300, 100))) == pytest.approx(0.0)
    steeper = nights(life, [100 * night + 50 * max(0, night - 7) for night in range(12)])
    assert life.bend(steeper) == pytest.approx(50.0)
