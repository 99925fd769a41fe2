"""Alerts from series histories: what they are compared with, and how long they are raised."""

from dataclasses import replace

import numpy as np
import pytest

from perfsvc.model import Cause, ChangeKind, Confirmation, Direction, FindingState, Suspect, Verdict
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.findings import actions, suspects, update
from perfsvc.service.findings.alerts import Alerts
from perfsvc.store import RunState

pytestmark = pytest.mark.slow

OTHER = b"other"
NOISY = {"between": (-2e-2, 0.0, 2e-2)}
"""Replicas that differ so much that the verdict on a step is inconclusive, and only the history shows it."""
CURED = b"cured"


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def night(story, rng):
    """Return a function that measures and judges a run; it takes the relative time of the cases and their code.

    The function returns the suspects; none if the run does not finish.
    """

    def run(by=1.0, code=b"code", *, state=RunState.FINISHED, cases=(story.tiled,), between=(0.0, 0.0, 0.0)):
        number = story.begin(scope="all")
        story.store.devices.put(story.gpu)
        for case in cases:
            value = 1e-4 * by * (1 + 1e-3 * rng.standard_normal())
            story.put_replicas(number, case, value, between, binary=story.binary(case, code))
        if state is not RunState.FINISHED:
            story.store.runs.end(number, state)
            return []
        story.end_and_judge(number)
        raised = suspects.suspects_of(story.store, number)
        update.update_findings(story.store, number)
        return raised

    return run


def confirm(story, suspect, cause=Cause.KERNEL):
    ratio = {"ratio": suspect.judgement.ratio} if cause is Cause.KERNEL else {}
    story.store.confirmations.put(Confirmation(suspect, cause, "so it is", 0.01, seed=1, budget_s=60.0, **ratio))


@pytest.fixture
def nights(night, rng, after):
    """The same function, after 25 quiet nights."""

    def quiet():
        assert [suspect for _ in range(25) for suspect in night()] == []
        return rng.bit_generator.state

    rng.bit_generator.state = after("25 quiet nights of a case", quiet)
    return night


def test_a_step_detected_a_night_late_is_compared_with_the_code_before_it(night):
    assert [suspect for place in range(25) for suspect in night(1 + 4e-3 * (-1) ** place, **NOISY)] == []
    night(1.005, OTHER, **NOISY)
    suspect = next(suspect for _ in range(8) for suspect in night(1.02, OTHER, **NOISY))
    assert suspect.evidence.endswith("since run 27, a step in its history")
    assert (suspect.judgement.baseline_run, suspect.judgement.cause) == (25, Cause.UNCONFIRMED)


def test_an_alert_is_raised_every_night_until_it_is_confirmed_or_cleared(story, nights):
    raised = [nights(1.015, OTHER, **NOISY) for _ in range(6)]
    assert [len(of_night) for of_night in raised[-3:]] == [1, 1, 1]
    (suspect,) = raised[-1]
    confirm(story, suspect, Cause.NOISE)
    assert nights(1.015, OTHER, **NOISY) == []


def test_an_unanswered_alert_ends_after_two_weeks(nights):
    raised = [len(nights(1.015, OTHER, **NOISY)) for _ in range(20)]
    assert (sum(raised), raised[-1]) == (15, 0)


def test_an_alert_of_an_interrupted_night_is_raised_on_the_next_one_until_its_step_is_undone(nights):
    for _ in range(4):
        nights(1.015, OTHER, state=RunState.INTERRUPTED, **NOISY)
    (suspect,) = nights(1.015, OTHER, **NOISY)
    assert suspect.judgement.baseline_run == 25
    assert nights(1.0, CURED) == []


def test_a_plateau_that_ends_resolves_its_finding_without_a_second_alert(story, nights):
    """The replicas of each night differ so much that no verdict shows the change or its end."""
    (suspect,) = [suspect for _ in range(2) for suspect in nights(1.015, OTHER, **NOISY)]
    assert (suspect.change, suspect.direction) == (ChangeKind.STEP, Direction.SLOWER)
    confirm(story, suspect)
    assert update.update_findings(story.store, 27).raised == (1,)
    assert [nights(1.015, OTHER, **NOISY) for _ in range(4)] == [[]] * 4
    assert story.store.findings.get(1).state is FindingState.OPEN
    assert nights(1.0, CURED, **NOISY) == []
    assert story.store.findings.get(1).state is FindingState.OPEN  # a single run may be a spike
    assert nights(1.0, CURED, **NOISY) == []
    finding = story.store.findings.get(1)
    assert (finding.state, finding.moved[0].recovered_run) == (FindingState.RESOLVED, 33)
    assert [suspect for _ in range(4) for suspect in nights(1.0, CURED, **NOISY)] == []
    assert [finding.id for finding in story.store.findings.all()] == [1]


def test_a_confirmed_suspect_becomes_a_finding_whose_accepted_level_raises_no_alert(story, nights):
    (suspect,) = nights(1.1, OTHER)
    assert suspects.suspects_of(story.store, 26) == [suspect]
    confirm(story, suspect)
    (number,) = update.update_findings(story.store, 26).raised
    actions.set_state(story.store, number, FindingState.ACCEPTED, reason="wanted")
    assert [suspect for _ in range(4) for suspect in nights(1.1, OTHER)] == []


def test_an_improvement_with_a_verdict_raises_no_alert_in_later_noisy_nights_of_its_code(story, night):
    noise = {"between": (-4e-3, 0.0, 4e-3)}
    assert [suspect for _ in range(25) for suspect in night(**noise)] == []
    night(0.94, OTHER, **noise)
    assert on_times(story, 26) == {Verdict.IMPROVEMENT}
    assert [suspect for _ in range(8) for suspect in night(0.94, OTHER, **noise)] == []
    assert on_times(story, 27) == {Verdict.UNCHANGED}  # the code of the run before, however wide the interval is


def on_times(story, run):
    return {judged.verdict for judged in story.store.verdicts.of_run(run) if judged.series.metric == "time"}


def test_the_recovery_of_a_device_raises_no_alert_in_the_histories(story, night):
    cases = [replace(story.tiled, variant=f"v{place}") for place in range(6)]
    for by in [1.0] * 25 + [1.05] * 5 + [1.0] * 8:
        assert night(by, cases=cases) == []
    (finding,) = story.store.findings.all()
    known = (Cause.ENVIRONMENT, Direction.SLOWER, FindingState.RESOLVED)
    assert (finding.cause, finding.direction, finding.state) == known
    assert {moved.recovered_run for moved in finding.moved} == {31}


def test_alerts_of_a_few_cases_are_not_a_move_of_the_whole_device(story, night, monkeypatch):
    every = [replace(story.tiled, variant=f"v{place}") for place in range(11)]
    for _ in range(2):
        night(cases=every)
    quiet = judge_run(story.store, 2, threshold=None)
    moved = [replace(judgement, verdict=Verdict.REGRESSION, ratio=1.005) for judgement in quiet[:5]]
    raised = {judgement.series: Suspect(judgement, ChangeKind.STEP, Direction.SLOWER) for judgement in moved}
    monkeypatch.setattr(suspects, "alerts", lambda *_: Alerts(raised))
    changes = suspects.changes_of_run(story.store, 2, quiet)
    assert [judgement.cause for judgement in changes.judgements if judgement.cause] == [Cause.NOISE] * 5
    assert changes.together == ()
