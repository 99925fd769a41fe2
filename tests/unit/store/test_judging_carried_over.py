"""Which suspects are measured again, and in which order; a confirmation holds until something changes."""

from dataclasses import replace

import pytest

from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import (
    Batch,
    Cause,
    ChangeKind,
    Conditions,
    Confirmation,
    Direction,
    FindingState,
    Judgement,
    Measurement,
    Slowdown,
    Status,
    Suspect,
    Verdict,
)
from perfsvc.service.confirm.earlier import earlier_answers
from perfsvc.service.confirm.pairs import PairSettings
from perfsvc.service.findings import update
from perfsvc.service.findings.suspects import suspects_of
from tests.unit.store.conftest import ON_BOTH

THRESHOLD = 0.01
SLOW = b"slow"
NOISE = (-1e-3, 0.0, 1e-3)


@pytest.fixture
def means(story):
    """The devices, seed and threshold of a confirmation."""
    return PairSettings({story.gpu.uuid: story.gpu}, lambda _: Sampling(), {}, seed=1, threshold=THRESHOLD)


@pytest.fixture
def night(story):
    """Return a function that measures a case with these seconds and this code, judges the run and returns it."""

    def run(seconds, code=b"fast", **environment):
        here = replace(story, environment=replace(story.environment, **environment))
        number = story.begin(scope="all")
        here.put_replicas(number, story.tiled, seconds, NOISE, binary=story.binary(story.tiled, code))
        story.end_and_judge(number, threshold=THRESHOLD)
        return number

    return run


@pytest.fixture
def slowed(story, night, after):
    """A run with a confirmed finding: its code is 10 % slower."""

    def live():
        night(1e-4)
        run = night(1.1e-4, SLOW)
        (suspect,) = suspects_of(story.store, run, threshold=THRESHOLD)
        old, new = (Measurement(story.tiled, story.gpu.uuid, place, Status.OK, samples_s=(1e-4,)) for place in (0, 1))
        measured = {"verdict": Verdict.REGRESSION, "ratio": 1.1, "low": 1.095, "high": 1.105, "looks": 1, "drift": 1.0}
        measured |= {"baseline": (old,), "candidate": (new,)}
        why = "measured in A/B pairs, its code is 10.0 % slower than the baseline's"
        story.store.confirmations.put(Confirmation(suspect, Cause.KERNEL, why, THRESHOLD, 1, 20.0, **measured))
        update.update_findings(story.store, run, threshold=THRESHOLD)
        return run

    return after("a confirmed finding", live)


@pytest.fixture
def carried_over(story, means):
    """Return a function that returns the earlier confirmations that hold for the suspects of a run."""

    def of(run, means=means):
        suspects = suspects_of(story.store, run, threshold=THRESHOLD)
        assert len(suspects) == 1
        return list(earlier_answers(story.store, suspects, means))

    return of


@pytest.mark.slow
def test_a_confirmation_holds_for_the_next_runs(story, slowed, night, carried_over):
    for run in (night(1.1e-4, SLOW), night(1.1e-4, SLOW)):
        (answer,) = carried_over(run)
        assert (answer.cause, answer.ratio, answer.suspect.judgement.candidate_run) == (Cause.KERNEL, 1.1, run)
        assert answer.reason == (
            "measured in A/B pairs, its code is 10.0 % slower than the baseline's, as run 2 had it measured"
        )
        assert (answer.carried_over, answer.regressed, answer.pairs, answer.looks) == (True, True, 0, 0)
        story.store.confirmations.put(answer)
        update.update_findings(story.store, run, threshold=THRESHOLD)
        (finding,) = story.store.findings.active()
        assert (finding.first_run, finding.last_run) == (slowed, run)


CHANGED = {
    "other code": ((1.1e-4, b"slow too"), {}),
    "a larger change": ((1.2e-4, SLOW), {}),
    "another toolkit": ((1.1e-4, SLOW), {"toolkit": "nvcc 14.0"}),
    "another driver": ((1.1e-4, SLOW), {"driver": "590.1"}),
    "another power limit": ((1.1e-4, SLOW), {"power_limit_w": 500.0}),
}


@pytest.mark.parametrize("changed", CHANGED)
def test_what_has_changed_is_measured_again(slowed, night, carried_over, changed):
    measured, environment = CHANGED[changed]
    assert carried_over(night(*measured, **environment)) == []


def test_another_threshold_is_measured_again_and_a_device_of_another_host_is_not(slowed, night, carried_over, means):
    run = night(1.1e-4, SLOW)
    assert len(carried_over(run)) == 1
    assert carried_over(run, replace(means, threshold=0.02)) == []
    assert carried_over(run, replace(means, devices={})) == []


@pytest.mark.parametrize("cause", [Cause.NOISE, Cause.UNCONFIRMED])
def test_a_suspect_not_confirmed_as_the_kernel_is_measured_again(story, night, carried_over, cause):
    night(1e-4)
    run = night(1.1e-4, SLOW)
    (suspect,) = suspects_of(story.store, run, threshold=THRESHOLD)
    answer = Confirmation(suspect, cause, "nothing of it stays", THRESHOLD, seed=1, budget_s=20.0)
    story.store.confirmations.put(answer)
    update.update_findings(story.store, run, threshold=THRESHOLD)
    assert carried_over(night(1.1e-4, SLOW)) == []


def test_a_finding_that_a_person_resolved_is_measured_again(story, slowed, night, carried_over):
    story.store.findings.set_state(1, FindingState.RESOLVED, by="a person")
    assert carried_over(night(1.1e-4, SLOW)) == []


def test_a_series_recovers_even_if_noise_makes_it_a_regression(story, slowed, night):
    """The code is the old one again, and the time is nearer to the old level than to the moved one."""
    run = night(1.02e-4)
    (judged,) = (judgement for judgement in story.store.verdicts.of_run(run) if judgement.series.metric == "time")
    assert (judged.verdict, judged.cause) == (Verdict.REGRESSION, Cause.NOISE)
    update.update_findings(story.store, run, threshold=THRESHOLD)
    (finding,) = story.store.findings.all()
    assert (finding.state, finding.moved[0].recovered_run) == (FindingState.RESOLVED, run)


def test_a_series_does_not_recover_if_the_rest_of_its_regression_may_be_its_code(story, slowed, night):
    run = night(1.02e-4, b"mended")
    update.update_findings(story.store, run, threshold=THRESHOLD)
    (finding,) = story.store.findings.active()
    assert finding.moved[0].recovered_run is None


# --- the order -------------------------------------------------------------------------------------------------------


@pytest.fixture
def slower(story):
    """Return a function that stores a run in which three cases are slower by some factors, and returns its suspects."""
    cases = [replace(story.tiled, variant=variant) for variant in ("a", "b", "c")]

    def run(*factors):
        number = story.begin(scope="all")
        for case, factor in zip(cases, factors, strict=True):
            story.put_replicas(number, case, 1e-4 * factor, NOISE)
        story.end_and_judge(number, threshold=THRESHOLD)
        return suspects_of(story.store, number, threshold=THRESHOLD)

    run(1, 1, 1)
    return run


def variants(suspects):
    return "".join(suspect.series.case.variant for suspect in suspects)


@pytest.mark.slow
@pytest.mark.parametrize("cause", [Cause.UNCONFIRMED, Cause.NOISE])
def test_a_budget_for_one_suspect_a_night_reaches_all_suspects(story, slower, cause):
    orders = []
    for _ in range(5):
        suspects = slower(1.1, 1.05, 1.2)
        orders.append(variants(suspects))
        story.store.confirmations.put(Confirmation(suspects[0], cause, "noise hides it", THRESHOLD, 1, 20.0, looks=4))
    assert orders == ["cab", "abc", "bca", "cab", "abc"]


def test_a_suspect_that_grew_comes_before_the_suspects_that_were_measured(story, slower):
    for suspect in slower(1.1, 1.05, 1.2):
        story.store.confirmations.put(Confirmation(suspect, Cause.UNCONFIRMED, "", THRESHOLD, 1, 20.0, looks=4))
    assert variants(slower(1.1, 1.15, 1.2)) == "bca"


def test_a_resumed_night_keeps_the_order_of_its_suspects(story, slower):
    suspects = slower(1.1, 1.05, 1.2)
    story.store.confirmations.put(Confirmation(suspects[0], Cause.UNCONFIRMED, "", THRESHOLD, 1, 20.0, looks=4))
    run = suspects[0].judgement.candidate_run
    assert variants(suspects_of(story.store, run, threshold=THRESHOLD)) == "ab"


# --- stored confirmations --------------------------------------------------------------------------------------------


@pytest.fixture
def confirmation(story):
    """A suspect of the second night, measured again in two pairs."""
    story.run(story.tiled)
    story.run(story.tiled)
    judged = Judgement(story.series(story.tiled), Verdict.REGRESSION, ratio=1.25, baseline_run=1, candidate_run=2)

    def side_run(number, *samples):
        return Measurement(story.tiled, story.gpu.uuid, number, Status.OK, samples_s=samples, wall_s=0.5)

    return Confirmation(
        Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER),
        Cause.KERNEL,
        "the old one is faster",
        threshold=0.03,
        seed=2**32 - 1,
        budget_s=20.0,
        verdict=Verdict.REGRESSION,
        ratio=1.25,
        low=1.2,
        high=1.3,
        looks=1,
        drift=1.0,
        same_code=False,
        wall_s=2.5,
        baseline=(side_run(0, 0.5, 0.25), side_run(3, 0.5)),
        candidate=(side_run(1, 0.75), side_run(2, 1.0, 0.75)),
    )


@ON_BOTH
def test_confirmations_are_read_as_they_were_stored(story, confirmation):
    crashed = Measurement(story.tiled, story.gpu.uuid, 0, Status.FAILED, reason="its worker died")
    failed = replace(confirmation, baseline=(crashed,), candidate=())
    assert failed.failed
    unmeasured = replace(
        confirmation,
        cause=Cause.UNCONFIRMED,
        reason="it runs Python",
        **dict.fromkeys(("verdict", "ratio", "low", "high", "drift", "same_code")),
        baseline=(),
        candidate=(),
    )
    stored = [confirmation, replace(confirmation, cause=Cause.NOISE), unmeasured, failed]
    for each in stored:
        story.store.confirmations.put(each)
    assert story.store.confirmations.of_run(2) == stored
    assert story.store.confirmations.of_run(1) == []
    story.execute("DELETE FROM runs WHERE id = 2")
    assert story.execute("SELECT * FROM confirmation_runs") == []


def test_the_state_of_the_device_is_stored_for_each_side_run(story, confirmation):
    hot = Conditions(sm_clock_hz=1.5e9, temperature_c=80.0, slowdowns=(Slowdown.POWER_CAP,))
    hot_run = replace(confirmation.baseline[0], batches=(Batch((0.5, 0.25), conditions=hot),))
    story.store.confirmations.put(replace(confirmation, baseline=(hot_run,)))
    rows = story.execute("SELECT sm_clock_hz, temperature_c, slowdowns FROM confirmation_runs WHERE side = 'baseline'")
    assert [tuple(row) for row in rows] == [(1.5e9, 80.0, "power cap")]


@ON_BOTH
def test_the_confirmations_of_a_series_come_from_all_runs_and_without_their_measurements(story, confirmation):
    story.store.confirmations.put(confirmation)
    story.run(story.tiled)
    later = replace(confirmation.suspect.judgement, candidate_run=3)
    story.store.confirmations.put(replace(confirmation, suspect=replace(confirmation.suspect, judgement=later)))
    tiled, naive = story.series(story.tiled), story.series(story.naive)
    found = story.store.confirmations.of_series([tiled, naive])
    assert [answer.suspect.judgement.candidate_run for answer in found] == [2, 3]
    assert {(answer.reason, answer.baseline) for answer in found} == {("the old one is faster", ())}
    assert story.store.confirmations.of_series([naive]) == story.store.confirmations.of_series([]) == []
