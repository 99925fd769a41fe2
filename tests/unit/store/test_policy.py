"""What the settings lay down: rules from verdict to recovery, and a run that all is compared with."""

from functools import partial

import numpy as np
import pytest

from perfsvc.config import Settings
from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import Cause, ChangeKind, Confirmation, Direction, Judgement, Status, Suspect, Verdict
from perfsvc.service.compare import compare
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.confirm.confirm import relevant_change
from perfsvc.service.findings import update
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.store import RunState

FIVE_PERCENT = compare.thresholds(Settings(thresholds=[{"cases": "*/tiled", "change": "5%"}]))


def night(story, seconds, *, threshold=None, against=None, **origin):
    """Measures and judges a run; the verdicts by variant, with the run that each was compared with."""
    run = story.begin(scope="all", **origin)
    for case, value in seconds.items():
        for replica in range(3):
            story.put(run, case, replica=replica, samples=(value,) * 5)
    story.store.runs.end(run, RunState.FINISHED)
    judgements = judge_run(story.store, run, threshold=threshold, against=against)
    story.store.verdicts.put(run, judgements)
    return {one.series.case.variant: (one.verdict, one.baseline_run) for one in judgements}


def test_a_rule_is_of_its_cases_alone(story):
    night(story, {story.tiled: 1e-4, story.naive: 1e-4})
    judged = night(story, {story.tiled: 1.03e-4, story.naive: 1.03e-4}, threshold=FIVE_PERCENT)
    assert judged == {"tiled": (Verdict.UNCHANGED, 1), "naive": (Verdict.REGRESSION, 1)}


def test_a_command_that_asks_for_a_threshold_goes_before_the_rules(story):
    night(story, {story.tiled: 1e-4})
    asked = compare.thresholds(Settings(thresholds=[{"change": "5%"}]), 0.02)
    assert night(story, {story.tiled: 1.03e-4}, threshold=asked)["tiled"][0] is Verdict.REGRESSION


def test_all_is_compared_with_the_run_that_is_named(story, tmp_path):
    night(story, {story.tiled: 1e-4, story.naive: 1e-4}, label="v1")
    night(story, {story.tiled: 0.9e-4, story.naive: 1e-4})
    named = compare.run_to_compare_with(story.store, "v1", 3, tmp_path)
    judged = night(story, {story.tiled: 1e-4, story.naive: 1e-4}, against=named)
    assert judged == {"tiled": (Verdict.UNCHANGED, 1), "naive": (Verdict.UNCHANGED, 1)}
    own = night(story, {story.tiled: 1e-4})
    assert own["tiled"] == (Verdict.REGRESSION, 2)


def test_a_pin_goes_before_the_run_that_is_named_and_what_that_lacks_has_its_own_baseline(story):
    night(story, {story.tiled: 1e-4})
    night(story, {story.tiled: 1e-4, story.naive: 1e-4})
    story.store.baselines.pin(
        2, [one.series for one in story.store.verdicts.of_run(2) if one.series.case == story.tiled]
    )
    judged = night(story, {story.tiled: 1e-4, story.naive: 1e-4}, against=1)
    assert judged == {"tiled": (Verdict.UNCHANGED, 2), "naive": (Verdict.UNCHANGED, 2)}


def test_a_run_is_not_compared_with_itself_nor_with_one_that_is_not_there(story, tmp_path):
    night(story, {story.tiled: 1e-4}, label="nightly")
    name = partial(compare.run_to_compare_with, story.store, run=1, folder=tmp_path)
    assert name("@baseline") is None
    with pytest.raises(UsageError, match="which is itself"):
        name("nightly")
    with pytest.raises(NotMeasuredError):
        name("7")


def test_a_run_that_is_named_and_has_no_right_result_of_a_case_is_none_for_it(story):
    night(story, {story.tiled: 1e-4})
    broken = story.begin(scope="all")
    story.put(broken, story.tiled, status=Status.FAILED, reason="it hung")
    story.store.runs.end(broken, RunState.FINISHED)
    assert night(story, {story.tiled: 1e-4}, against=broken) == {"tiled": (Verdict.UNCHANGED, 1)}


def stepped(story, by):
    """25 quiet nights, and some on another level."""
    rng = np.random.default_rng(7)
    for step in [1.0] * 25 + [by] * 4:
        night(story, {story.tiled: 1e-4 * step * (1 + 1e-3 * rng.standard_normal())})
    return 29


@pytest.mark.parametrize(("by", "alerted"), [(1.007, False), (1.08, True)])
def test_a_history_alerts_of_nothing_smaller_than_a_rule(story, by, alerted):
    run = stepped(story, by)
    assert suspects_of(story.store, run)
    assert bool(suspects_of(story.store, run, threshold=FIVE_PERCENT)) is alerted


def suspect(story, change, ratio):
    judged = Judgement(story.series(story.tiled), Verdict.REGRESSION, ratio=ratio)
    return Suspect(judged, change, Direction.SLOWER)


@pytest.mark.parametrize(
    ("change", "ratio"), [(ChangeKind.REGRESSION, 1.2), (ChangeKind.STEP, 1.06), (ChangeKind.STEP, 1.2)]
)
def test_measuring_again_looks_for_no_less_than_a_rule_says(story, change, ratio):
    assert relevant_change(suspect(story, change, ratio), "cuda", FIVE_PERCENT) == 0.05


def test_a_finding_is_over_when_its_case_is_back_within_its_rule(story):
    night(story, {story.tiled: 1e-4})
    night(story, {story.tiled: 1.2e-4}, threshold=FIVE_PERCENT)
    (found,) = suspects_of(story.store, 2, threshold=FIVE_PERCENT)
    story.store.confirmations.put(
        Confirmation(found, Cause.KERNEL, "slower", 0.05, seed=1, budget_s=20.0, ratio=1.2, low=1.19, high=1.21)
    )
    (number,) = update.update_findings(story.store, 2, threshold=FIVE_PERCENT).raised
    night(story, {story.tiled: 1.03e-4}, threshold=FIVE_PERCENT)
    assert update.update_findings(story.store, 3).resolved == ()
    assert update.update_findings(story.store, 3, threshold=FIVE_PERCENT).resolved == (number,)
