"""Settings that affect judging: threshold rules, and a named run that all cases are compared with."""

from functools import partial

import numpy as np
import pytest

from perfsvc.config import Settings
from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import Cause, ChangeKind, Confirmation, Status, Verdict
from perfsvc.service.compare import compare
from perfsvc.service.confirm.conclude import relevant_change
from perfsvc.service.findings import update
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.store import RunState
from tests.unit.store.conftest import suspect

FIVE_PERCENT = compare.thresholds(Settings(thresholds=[{"cases": "*/tiled", "change": "5%"}]))


def night(story, seconds, *, threshold=None, against=None, **provenance):
    """Measure and judge a run, and return the verdict and the baseline run of each variant."""
    run = story.begin(scope="all", **provenance)
    for case, value in seconds.items():
        story.put_replicas(run, case, value)
    judgements = story.end_and_judge(run, threshold=threshold, against=against)
    return {judgement.series.case.variant: (judgement.verdict, judgement.baseline_run) for judgement in judgements}


def test_a_threshold_rule_applies_to_its_cases_only_and_that_of_a_command_overrides_it(story):
    night(story, {story.tiled: 1e-4, story.naive: 1e-4})
    judged = night(story, {story.tiled: 1.03e-4, story.naive: 1.03e-4}, threshold=FIVE_PERCENT)
    assert judged == {"tiled": (Verdict.UNCHANGED, 1), "naive": (Verdict.REGRESSION, 1)}
    threshold = compare.thresholds(Settings(thresholds=[{"change": "5%"}]), 0.02)
    assert night(story, {story.tiled: 1.03e-4}, threshold=threshold)["tiled"][0] is Verdict.REGRESSION


def test_all_cases_are_compared_with_the_named_run(story, tmp_path):
    night(story, {story.tiled: 1e-4, story.naive: 1e-4}, label="v1")
    night(story, {story.tiled: 0.9e-4, story.naive: 1e-4})
    named = compare.run_to_compare_with(story.store, "v1", 3, tmp_path)
    judged = night(story, {story.tiled: 1e-4, story.naive: 1e-4}, against=named)
    assert judged == {"tiled": (Verdict.UNCHANGED, 1), "naive": (Verdict.UNCHANGED, 1)}
    own = night(story, {story.tiled: 1e-4})
    assert own["tiled"] == (Verdict.REGRESSION, 2)


def test_a_pin_overrides_the_named_run_and_missing_cases_keep_their_baseline(story):
    night(story, {story.tiled: 1e-4})
    night(story, {story.tiled: 1e-4, story.naive: 1e-4})
    story.store.baselines.pin(
        2, [judgement.series for judgement in story.store.verdicts.of_run(2) if judgement.series.case == story.tiled]
    )
    judged = night(story, {story.tiled: 1e-4, story.naive: 1e-4}, against=1)
    assert judged == {"tiled": (Verdict.UNCHANGED, 2), "naive": (Verdict.UNCHANGED, 2)}


def test_a_run_is_not_compared_with_itself_or_a_missing_run(story, tmp_path):
    night(story, {story.tiled: 1e-4}, label="nightly")
    name = partial(compare.run_to_compare_with, story.store, run=1, folder=tmp_path)
    assert name("@baseline") is None
    with pytest.raises(UsageError, match="which is itself"):
        name("nightly")
    with pytest.raises(NotMeasuredError):
        name("7")


def test_a_named_run_without_a_correct_result_of_a_case_is_not_its_baseline(story):
    night(story, {story.tiled: 1e-4})
    broken = story.begin(scope="all")
    story.put(broken, story.tiled, status=Status.FAILED, reason="it hung")
    story.store.runs.end(broken, RunState.FINISHED)
    assert night(story, {story.tiled: 1e-4}, against=broken) == {"tiled": (Verdict.UNCHANGED, 1)}


def stepped(story, by):
    """Measure 25 runs on one level and four on another, and return the last one."""
    rng = np.random.default_rng(7)
    for step in [1.0] * 25 + [by] * 4:
        seconds = 1e-4 * step * (1 + 1e-3 * rng.standard_normal())
        night(story, {story.tiled: seconds}, threshold=0.1)  # so that only the history shows the step
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
    night(story, {story.tiled: 1e-4})
    night(story, {story.tiled: 1.2e-4}, threshold=FIVE_PERCENT)
    (slower,) = suspects_of(story.store, 2, threshold=FIVE_PERCENT)
    story.store.confirmations.put(
        Confirmation(slower, Cause.KERNEL, "slower", 0.05, seed=1, budget_s=20.0, ratio=1.2, low=1.19, high=1.21)
    )
    (number,) = update.update_findings(story.store, 2, threshold=FIVE_PERCENT).raised
    night(story, {story.tiled: 1.03e-4}, threshold=FIVE_PERCENT)
    assert update.update_findings(story.store, 3).resolved == ()
    assert update.update_findings(story.store, 3, threshold=FIVE_PERCENT).resolved == (number,)
