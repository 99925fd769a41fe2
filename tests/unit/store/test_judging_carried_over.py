"""Which suspects are measured again, and in which order; a confirmation holds until something changes."""

from dataclasses import replace

import pytest

from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import Cause, Confirmation, FindingState, Kind, Measurement, ReplayRecord, Status, Verdict, digest
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.confirm.earlier import earlier_answers
from perfsvc.service.confirm.pairs import PairSettings
from perfsvc.service.findings import update
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.store import RunState

THRESHOLD = 0.01
SLOW = b"slow"


@pytest.fixture
def means(story):
    """The devices, seed and threshold of a confirmation."""
    return PairSettings({story.gpu.uuid: story.gpu}, lambda _: Sampling(), {}, seed=1, threshold=THRESHOLD)


@pytest.fixture
def night(story):
    """Return a function that measures a case with these seconds and this code, judges the run and returns it."""

    def run(seconds, code=b"fast", **environment):
        in_environment = replace(story, environment=replace(story.environment, **environment))
        number = story.begin(scope="all")
        record = ReplayRecord(story.tiled, Kind.KERNEL, (), (), (digest(code),), digest(b"# bench.py"), seed=7)
        binary = story.put_binary(record, {digest(code): code}, b"# bench.py", {"a.cu": code})
        for replica, noise in enumerate((-1e-3, 0.0, 1e-3)):
            samples = (seconds * (1 + noise),) * 5
            in_environment.put(number, story.tiled, replica=replica, samples=samples, binary=binary)
        story.store.runs.end(number, RunState.FINISHED)
        story.store.verdicts.put(number, judge_run(story.store, number, threshold=THRESHOLD))
        return number

    return run


@pytest.fixture
def slowed(story, night):
    """A run with a confirmed finding: its code is 10 % slower."""
    night(1e-4)
    run = night(1.1e-4, SLOW)
    (suspect,) = suspects_of(story.store, run, threshold=THRESHOLD)
    old, new = (Measurement(story.tiled, story.gpu.uuid, place, Status.OK, samples_s=(1e-4,)) for place in (0, 1))
    measured = {"verdict": Verdict.REGRESSION, "ratio": 1.1, "low": 1.095, "high": 1.105, "looks": 1, "drift": 1.0}
    why = "measured in A/B pairs, its code is 10.0 % slower than the baseline's"
    answer = Confirmation(suspect, Cause.KERNEL, why, THRESHOLD, 1, 20.0, **measured, baseline=(old,), candidate=(new,))
    story.store.confirmations.put(answer)
    update.update_findings(story.store, run, threshold=THRESHOLD)
    return run


@pytest.fixture
def carried_over(story, means):
    """Return a function that returns the earlier confirmations that hold for the suspects of a run."""

    def of(run, means=means):
        suspects = suspects_of(story.store, run, threshold=THRESHOLD)
        assert len(suspects) == 1
        return list(earlier_answers(story.store, suspects, means))

    return of


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


def test_changed_code_is_measured_again(slowed, night, carried_over):
    assert carried_over(night(1.1e-4, b"slow too")) == []


def test_a_larger_change_than_the_confirmed_one_is_measured_again(slowed, night, carried_over):
    assert carried_over(night(1.2e-4, SLOW)) == []


@pytest.mark.parametrize("changed", [{"toolkit": "nvcc 14.0"}, {"driver": "590.1"}, {"power_limit_w": 500.0}])
def test_another_environment_is_measured_again(slowed, night, carried_over, changed):
    assert carried_over(night(1.1e-4, SLOW, **changed)) == []


def test_another_threshold_is_measured_again(slowed, night, carried_over, means):
    assert carried_over(night(1.1e-4, SLOW), replace(means, threshold=0.02)) == []


def test_a_device_of_another_host_is_not_confirmed_here(slowed, night, carried_over, means):
    assert carried_over(night(1.1e-4, SLOW), replace(means, devices={})) == []


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
            for replica, noise in enumerate((-1e-3, 0.0, 1e-3)):
                story.put(number, case, replica=replica, samples=(1e-4 * factor * (1 + noise),) * 5)
        story.store.runs.end(number, RunState.FINISHED)
        story.store.verdicts.put(number, judge_run(story.store, number, threshold=THRESHOLD))
        return suspects_of(story.store, number, threshold=THRESHOLD)

    run(1, 1, 1)
    return run


def variants(suspects):
    return "".join(suspect.series.case.variant for suspect in suspects)


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
