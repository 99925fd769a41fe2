"""The verdicts of successive nights."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from perfsvc.config import Settings
from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import CacheState, Cause, ChangeKind, Confirmation, Status, Verdict
from perfsvc.service.compare.compare import run_to_compare_with, thresholds
from perfsvc.service.confirm.conclude import relevant_change
from perfsvc.service.findings import update
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.store import RunState
from tests.unit.store.conftest import ON_BOTH, suspect


@pytest.fixture
def night(story):
    """Return a function that measures and judges a run; it takes each case's seconds or its status."""

    def run(
        seconds, *, device="GPU-1", state=RunState.FINISHED, metrics=None, error=None, over_budget=(), **provenance
    ):
        number = story.begin(**{"scope": "all", **provenance})
        story.store.series.register(seconds)
        for case, value in seconds.items():
            given = {} if isinstance(value, float) else {"status": value, "reason": "because"}
            given |= {"device": device, "metrics": (metrics or {}).get(case, {}), "max_error": error}
            story.put_replicas(number, case, value if isinstance(value, float) else 1.0, **given)
        story.store.runs.put_over_budget(number, [(device, case, CacheState.COLD) for case in over_budget])
        judgements = story.end_and_judge(number, state)
        return {(judgement.series.case.variant, judgement.series.metric): judgement for judgement in judgements}

    return run


def verdicts(judgements):
    return {variant: judgement.verdict for (variant, _), judgement in judgements.items()}


@ON_BOTH
def test_a_committed_improvement_is_the_level_from_then_on_and_one_with_uncommitted_changes_is_none(story, night):
    night({story.tiled: 1e-4})
    assert verdicts(night({story.tiled: 5e-5}, dirty=True)) == {"tiled": Verdict.IMPROVEMENT}
    assert verdicts(night({story.tiled: 1e-4})) == {"tiled": Verdict.UNCHANGED}
    assert verdicts(night({story.tiled: 5e-5})) == {"tiled": Verdict.IMPROVEMENT}
    assert verdicts(night({story.tiled: 1e-4})) == {"tiled": Verdict.REGRESSION}


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


def test_a_case_over_budget_is_compared_with_its_level_later_and_not_missing_and_a_removed_case_is(story, night):
    night({story.tiled: 1e-4, story.naive: 1e-4})
    for _ in range(2):
        skipping = night({story.tiled: 1e-4}, over_budget=[story.naive])
        assert verdicts(skipping) == {"tiled": Verdict.UNCHANGED}
    gone = night({story.tiled: 1e-4})
    assert (gone["naive", "time"].verdict, gone["naive", "time"].baseline_run) == (Verdict.MISSING, 1)
    assert verdicts(night({story.tiled: 1e-4})) == {"tiled": Verdict.UNCHANGED}
    assert verdicts(night({story.tiled: 1e-4, story.naive: 2e-4}))["naive"] is Verdict.REGRESSION


def test_a_case_that_is_skipped_from_now_on_is_missing_once(story, night):
    night({story.tiled: 1e-4})
    skipped = night({story.tiled: Status.SKIPPED})
    assert (skipped["tiled", "time"].verdict, skipped["tiled", "time"].reason) == (Verdict.MISSING, "because")
    assert night({story.tiled: Status.SKIPPED}) == {}


def test_a_metric_that_is_no_longer_returned_is_missing_and_a_broken_case_has_one_row(story, night):
    night({story.tiled: 1e-4}, metrics={story.tiled: {"latency_ms": 2.0, "hops": 3.0, "steps": 1.0}})
    after = night({story.tiled: 1e-4}, metrics={story.tiled: {"hops": 3.0, "steps": 1.0}})
    assert {metric: judgement.verdict for (_, metric), judgement in after.items()} == {
        **dict.fromkeys(("time", "hops", "steps"), Verdict.UNCHANGED),
        "latency_ms": Verdict.MISSING,
    }
    broken = night({story.tiled: Status.WRONG})
    assert {key: judgement.verdict for key, judgement in broken.items()} == {("tiled", "time"): Verdict.BROKEN}


def test_a_correct_result_with_twice_the_error_is_a_regression_and_a_smaller_change_is_not(story, night):
    found = {}
    for factor in (1.5, 2.5, 0.3):
        case = replace(story.tiled, point=(("factor", factor),))
        night({case: 1e-4}, error=1e-6, scope=str(factor))
        judged = night({case: 1e-4}, error=factor * 1e-6, scope=str(factor))
        found[factor] = {metric: judgement.verdict for (_, metric), judgement in judged.items()}
    assert found == {
        1.5: {"time": Verdict.UNCHANGED},
        2.5: {"time": Verdict.UNCHANGED, "max_error": Verdict.REGRESSION},
        0.3: {"time": Verdict.UNCHANGED, "max_error": Verdict.IMPROVEMENT},
    }
    again = night({case: 1e-4}, error=1e-6, scope="0.3")["tiled", "max_error"]  # the improved error is the level
    assert (again.verdict, again.baseline_run) == (Verdict.REGRESSION, 6)


# --- thresholds, and a named run -------------------------------------------------------------------------------------


FIVE_PERCENT = thresholds(Settings(thresholds=[{"cases": "*/tiled", "change": "5%"}]))


def judged_in(story, seconds, *, threshold=None, against=None, **provenance):
    """Measure and judge a run, and return the verdict and the baseline run of each variant."""
    run = story.begin(scope="all", **provenance)
    for case, value in seconds.items():
        story.put_replicas(run, case, value)
    judgements = story.end_and_judge(run, threshold=threshold, against=against)
    return {judgement.series.case.variant: (judgement.verdict, judgement.baseline_run) for judgement in judgements}


def test_a_threshold_rule_applies_to_its_cases_only_and_that_of_a_command_overrides_it(story):
    judged_in(story, {story.tiled: 1e-4, story.naive: 1e-4})
    judged = judged_in(story, {story.tiled: 1.03e-4, story.naive: 1.03e-4}, threshold=FIVE_PERCENT)
    assert judged == {"tiled": (Verdict.UNCHANGED, 1), "naive": (Verdict.REGRESSION, 1)}
    threshold = thresholds(Settings(thresholds=[{"change": "5%"}]), 0.02)
    assert judged_in(story, {story.tiled: 1.03e-4}, threshold=threshold)["tiled"][0] is Verdict.REGRESSION


def test_all_cases_are_compared_with_the_named_run(story, tmp_path):
    judged_in(story, {story.tiled: 1e-4, story.naive: 1e-4}, label="v1")
    judged_in(story, {story.tiled: 0.9e-4, story.naive: 1e-4})
    named = run_to_compare_with(story.store, "v1", 3, tmp_path)
    judged = judged_in(story, {story.tiled: 1e-4, story.naive: 1e-4}, against=named)
    assert judged == {"tiled": (Verdict.UNCHANGED, 1), "naive": (Verdict.UNCHANGED, 1)}
    own = judged_in(story, {story.tiled: 1e-4})
    assert own["tiled"] == (Verdict.REGRESSION, 2)


def test_a_pin_overrides_the_named_run_and_missing_cases_keep_their_baseline(story):
    judged_in(story, {story.tiled: 1e-4})
    judged_in(story, {story.tiled: 1e-4, story.naive: 1e-4})
    story.store.baselines.pin(2, [story.series(story.tiled)])
    judged = judged_in(story, {story.tiled: 1e-4, story.naive: 1e-4}, against=1)
    assert judged == {"tiled": (Verdict.UNCHANGED, 2), "naive": (Verdict.UNCHANGED, 2)}


def test_a_run_is_not_compared_with_itself_or_a_missing_run(story, tmp_path):
    judged_in(story, {story.tiled: 1e-4}, label="nightly")
    name = partial(run_to_compare_with, story.store, run=1, folder=tmp_path)
    assert name("@baseline") is None
    with pytest.raises(UsageError, match="which is itself"):
        name("nightly")
    with pytest.raises(NotMeasuredError):
        name("7")


def test_a_named_run_without_a_correct_result_of_a_case_is_not_its_baseline(story):
    judged_in(story, {story.tiled: 1e-4})
    broken = story.begin(scope="all")
    story.put(broken, story.tiled, status=Status.FAILED, reason="it hung")
    story.store.runs.end(broken, RunState.FINISHED)
    assert judged_in(story, {story.tiled: 1e-4}, against=broken) == {"tiled": (Verdict.UNCHANGED, 1)}


def stepped(story, by):
    """Measure 25 runs on one level and four on another, and return the last one."""
    rng = np.random.default_rng(7)
    for step in [1.0] * 25 + [by] * 4:
        seconds = 1e-4 * step * (1 + 1e-3 * rng.standard_normal())
        judged_in(story, {story.tiled: seconds}, threshold=0.1)  # so that only the history shows the step
    return 29


@pytest.mark.slow
@pytest.mark.parametrize(("by", "alerted"), [(1.03, False), (1.08, True)])
def test_a_history_raises_no_alert_smaller_than_its_rule(story, by, alerted):
    run = stepped(story, by)
    assert suspects_of(story.store, run)
    assert bool(suspects_of(story.store, run, threshold=FIVE_PERCENT)) is alerted


def test_a_confirmation_looks_for_no_change_smaller_than_its_rule(story):
    for change, ratio in ((ChangeKind.REGRESSION, 1.2), (ChangeKind.STEP, 1.06), (ChangeKind.STEP, 1.2)):
        moved = suspect(story.series(story.tiled), ratio, change=change)
        assert relevant_change(moved, "cuda", FIVE_PERCENT) == 0.05


def test_a_finding_is_resolved_when_its_case_is_back_within_its_rule(story):
    judged_in(story, {story.tiled: 1e-4})
    judged_in(story, {story.tiled: 1.2e-4}, threshold=FIVE_PERCENT)
    (slower,) = suspects_of(story.store, 2, threshold=FIVE_PERCENT)
    story.store.confirmations.put(
        Confirmation(slower, Cause.KERNEL, "slower", 0.05, seed=1, budget_s=20.0, ratio=1.2, low=1.19, high=1.21)
    )
    (number,) = update.update_findings(story.store, 2, threshold=FIVE_PERCENT).raised
    judged_in(story, {story.tiled: 1.03e-4}, threshold=FIVE_PERCENT)
    assert update.update_findings(story.store, 3).resolved == ()
    assert update.update_findings(story.store, 3, threshold=FIVE_PERCENT).resolved == (number,)
