"""The verdicts of successive nights."""

from dataclasses import replace

import pytest

from perfsvc.model import CacheState, Status, Verdict
from perfsvc.service.compare.compare import compare, judge_run
from perfsvc.store import RunState


@pytest.fixture
def night(story):
    """Return a function that measures and judges a run; it takes each case's seconds or its status."""

    def run(
        seconds, *, device="GPU-1", scope="all", state=RunState.FINISHED, metrics=None, over_budget=(), **provenance
    ):
        number = story.begin(scope=scope, **provenance)
        for case, value in seconds.items():
            for replica in range(3):
                given = (
                    {"samples": (value,) * 5} if isinstance(value, float) else {"status": value, "reason": "because"}
                )
                story.put(number, case, replica=replica, device=device, metrics=(metrics or {}).get(case, {}), **given)
        story.store.runs.put_over_budget(number, [(device, case, CacheState.COLD) for case in over_budget])
        story.store.runs.end(number, state)
        judgements = judge_run(story.store, number, threshold=None)
        story.store.verdicts.put(number, judgements)
        return {(judgement.series.case.variant, judgement.series.metric): judgement for judgement in judgements}

    return run


def verdicts(judgements):
    return {variant: judgement.verdict for (variant, _), judgement in judgements.items()}


def test_a_run_with_uncommitted_changes_does_not_move_the_level(story, night):
    night({story.tiled: 1e-4})
    assert verdicts(night({story.tiled: 5e-5}, dirty=True)) == {"tiled": Verdict.IMPROVEMENT}
    assert verdicts(night({story.tiled: 1e-4})) == {"tiled": Verdict.UNCHANGED}


def test_a_committed_improvement_is_the_level_from_then_on(story, night):
    night({story.tiled: 1e-4})
    night({story.tiled: 5e-5})
    assert verdicts(night({story.tiled: 1e-4})) == {"tiled": Verdict.REGRESSION}


def test_a_removed_case_is_missing_on_the_first_night_only(story, night):
    night({story.tiled: 1e-4, story.naive: 1e-4})
    gone = night({story.tiled: 1e-4})
    assert verdicts(gone) == {"tiled": Verdict.UNCHANGED, "naive": Verdict.MISSING}
    assert gone["naive", "time"].reason == "run 1 has it and the candidate does not"
    assert verdicts(night({story.tiled: 1e-4})) == {"tiled": Verdict.UNCHANGED}
    assert [judgement.verdict for judgement in story.store.verdicts.of_run(2)] == [Verdict.UNCHANGED, Verdict.MISSING]


def test_a_case_that_comes_back_is_compared_with_its_level(story, night):
    night({story.tiled: 1e-4, story.naive: 1e-4})
    night({story.tiled: 1e-4})
    assert verdicts(night({story.tiled: 1e-4, story.naive: 2e-4}))["naive"] is Verdict.REGRESSION


@pytest.mark.parametrize("heir_first", [True, False])
def test_a_reused_name_does_not_get_the_level_of_the_renamed_case(story, night, heir_first):
    renamed = replace(story.tiled, variant="shared")
    night({story.tiled: 1e-4})
    night({replace(renamed, formerly=("tiled",)): 1e-4})
    slower = {renamed: 1.3e-4, story.tiled: 5e-4}
    slower = slower if heir_first else dict(reversed(slower.items()))
    assert verdicts(night(slower)) == {"shared": Verdict.REGRESSION, "tiled": Verdict.NEW}
    assert verdicts(night(slower)) == {"shared": Verdict.REGRESSION, "tiled": Verdict.UNCHANGED}
    later = night({renamed: 1e-4, story.tiled: 4e-4})
    assert verdicts(later) == {"shared": Verdict.UNCHANGED, "tiled": Verdict.IMPROVEMENT}
    assert (later["shared", "time"].baseline_run, later["tiled", "time"].baseline_run) == (1, 3)


def test_a_smaller_selection_has_no_missing_case(story, night):
    night({story.tiled: 1e-4, story.naive: 1e-4})
    assert verdicts(night({story.tiled: 1e-4}, scope="all --select=transpose/tiled")) == {"tiled": Verdict.UNCHANGED}


def test_an_interrupted_night_hides_no_missing_case(story, night):
    night({story.tiled: 1e-4, story.naive: 1e-4})
    night({story.tiled: 1e-4}, state=RunState.INTERRUPTED)
    assert verdicts(night({story.tiled: 1e-4}))["naive"] is Verdict.MISSING


def test_a_case_over_budget_is_not_missing_and_a_removed_case_is(story, night):
    night({story.tiled: 1e-4, story.naive: 1e-4})
    assert verdicts(night({story.tiled: 1e-4}, over_budget=[story.naive])) == {"tiled": Verdict.UNCHANGED}
    gone = night({story.tiled: 1e-4})
    assert (gone["naive", "time"].verdict, gone["naive", "time"].baseline_run) == (Verdict.MISSING, 1)
    assert verdicts(night({story.tiled: 1e-4})) == {"tiled": Verdict.UNCHANGED}


def test_a_case_over_budget_for_several_nights_is_compared_with_its_level(story, night):
    night({story.tiled: 1e-4, story.naive: 1e-4})
    for _ in range(2):
        night({story.tiled: 1e-4}, over_budget=[story.naive])
    assert verdicts(night({story.tiled: 1e-4, story.naive: 2e-4}))["naive"] is Verdict.REGRESSION


def test_a_case_that_was_never_correct_is_not_missing(story, night):
    night({story.tiled: 1e-4, story.naive: Status.FAILED})
    assert verdicts(night({story.tiled: 1e-4})) == {"tiled": Verdict.UNCHANGED}


def test_a_case_that_is_skipped_from_now_on_is_missing_once(story, night):
    night({story.tiled: 1e-4})
    skipped = night({story.tiled: Status.SKIPPED})
    assert (skipped["tiled", "time"].verdict, skipped["tiled", "time"].reason) == (Verdict.MISSING, "because")
    assert night({story.tiled: Status.SKIPPED}) == {}


def test_a_renamed_case_is_not_missing(story, night):
    night({story.tiled: 1e-4})
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    assert verdicts(night({renamed: 1e-4})) == {"shared": Verdict.UNCHANGED}


def test_a_new_device_is_compared_with_another_of_its_model_and_then_with_itself(story, night):
    night({story.tiled: 1e-4})
    judgement = night({story.tiled: 1.2e-4}, device="GPU-2")["tiled", "time"]
    assert judgement.verdict is Verdict.REGRESSION
    assert "compared with another NVIDIA H100 (GPU-1)" in judgement.reason
    assert verdicts(night({story.tiled: 1.2e-4}, device="GPU-2")) == {"tiled": Verdict.UNCHANGED}


def test_a_broken_host_case_has_one_row_and_not_one_per_metric(story, night):
    metrics = {story.tiled: {"latency_ms": 2.0, "hops": 3.0}}
    night({story.tiled: 1e-4}, metrics=metrics)
    broken = night({story.tiled: Status.WRONG})
    assert {key: judgement.verdict for key, judgement in broken.items()} == {("tiled", "time"): Verdict.BROKEN}


def test_a_metric_that_is_no_longer_returned_is_missing(story, night):
    night({story.tiled: 1e-4}, metrics={story.tiled: {"latency_ms": 2.0}})
    after = night({story.tiled: 1e-4})
    assert {metric: judgement.verdict for (_, metric), judgement in after.items()} == {
        "time": Verdict.UNCHANGED,
        "latency_ms": Verdict.MISSING,
    }


def test_a_pin_accepts_a_regression_until_it_is_removed(story, night):
    night({story.tiled: 1e-4})
    night({story.tiled: 1.2e-4})
    story.store.baselines.pin(2, [story.series(story.tiled)])
    assert verdicts(night({story.tiled: 1.2e-4})) == {"tiled": Verdict.UNCHANGED}
    story.store.baselines.unpin()
    assert verdicts(night({story.tiled: 1.2e-4})) == {"tiled": Verdict.REGRESSION}


def test_a_comparison_names_its_runs(story, night, tmp_path):
    night({story.tiled: 1e-4}, label="before", commit="abc1")
    night({story.tiled: 1e-4}, commit="def2", dirty=True)
    comparison = compare(story.store, "before", "latest", folder=tmp_path, threshold=None)
    assert (comparison.base.asked, comparison.base.run, comparison.base.label, comparison.base.commit) == (
        "before",
        1,
        "before",
        "abc1",
    )
    assert (comparison.new.asked, comparison.new.run, comparison.new.commit, comparison.new.dirty) == (
        "latest",
        2,
        "def2",
        True,
    )
    assert compare(story.store, "@baseline", "2", folder=tmp_path, threshold=None).base is None


@pytest.mark.parametrize(
    ("factor", "verdicts_on_errors"), [(1.5, []), (2.5, [Verdict.REGRESSION]), (0.3, [Verdict.IMPROVEMENT])]
)
def test_a_correct_result_with_twice_the_error_is_a_regression_and_a_smaller_change_is_not(
    story, factor, verdicts_on_errors
):
    for error in (1e-6, factor * 1e-6):
        run = story.begin(scope="all")
        for replica in range(3):
            story.put(run, story.tiled, replica=replica, samples=(1e-4,) * 5, max_error=error)
        story.store.runs.end(run, RunState.FINISHED)
        judged = judge_run(story.store, run, threshold=0.01)
    assert [judgement.verdict for judgement in judged if judgement.series.metric == "max_error"] == verdicts_on_errors
    assert [judgement.verdict for judgement in judged if judgement.series.metric == "time"] == [Verdict.UNCHANGED]


def test_an_improved_error_is_the_level_from_then_on(story):
    for error in (1e-6, 1e-7, 1e-6):
        run = story.begin(scope="all")
        for replica in range(3):
            story.put(run, story.tiled, replica=replica, samples=(1e-4,) * 5, max_error=error)
        story.store.runs.end(run, RunState.FINISHED)
        judged = judge_run(story.store, run, threshold=None)
        story.store.verdicts.put(run, judged)
    (error,) = [judgement for judgement in judged if judgement.series.metric == "max_error"]
    assert (error.verdict, error.baseline_run) == (Verdict.REGRESSION, 2)
