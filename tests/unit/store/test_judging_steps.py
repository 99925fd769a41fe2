"""Series of findings that move again, and changes that two nights agree on."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from perfsvc.errors import UsageError
from perfsvc.model import Case, Cause, ChangeKind, Confirmation, EventKind, FindingState, FindingUpdates, Verdict
from perfsvc.service.exclusions import exclude, include
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.service.findings.update import update_findings
from tests.unit.store.conftest import ON_BOTH

pytestmark = pytest.mark.slow

FAST, SLOW, SLOWER = b"fast", b"slow", b"slower"


@pytest.fixture
def cases(story):
    """Six cases, enough to tell that a GPU moved them all."""
    return [story.tiled, *(Case("reduce", f"v{place}", (("n", 64),)) for place in range(5))]


@pytest.fixture
def night(story):
    """Return a function that measures and judges a run, and updates the findings.

    It takes the time of the first case, its code, the factor of the other cases' times, and the cause that
    confirmations find (None: nothing is measured again); it returns what the findings' update changed.
    """
    story.store.devices.put(story.gpu)

    def run(
        seconds,
        code=FAST,
        *,
        cases=(story.tiled,),
        others=1.0,
        cause=Cause.KERNEL,
        commit="",
        replicas=(-1e-3, 0.0, 1e-3),
        pairs=None,
        **environment,
    ):
        here = replace(story, environment=replace(story.environment, **environment))
        number = story.begin(scope="all", commit=commit)
        for case in cases:
            own, level = (code, seconds) if case == cases[0] else (FAST, 1e-4 * others)
            here.put_replicas(number, case, level, replicas, binary=story.binary(case, own))
        story.end_and_judge(number)
        for suspect in suspects_of(story.store, number) if cause else ():
            judged = suspect.judgement
            measured = {
                "ratio": pairs or judged.ratio,
                "low": judged.low,
                "high": judged.high,
                "verdict": judged.verdict,
            }
            answer = Confirmation(suspect, cause, f"measured: {cause}", 0.01, seed=1, budget_s=20.0, **measured)
            story.store.confirmations.put(answer)
        updates = update_findings(story.store, number)
        seen = {*updates.raised, *updates.joined, *updates.stepped, *updates.reopened, *updates.seen}
        before = story.store.findings.all()
        again = update_findings(story.store, number)  # doing it again changes nothing
        assert story.store.findings.all() == before
        assert {*again.raised, *again.joined, *again.stepped, *again.reopened, *again.resolved} == set()
        assert set(again.seen) <= seen
        return updates

    return run


@pytest.fixture
def slowed(night, after):
    """Two nights; the second is slow."""
    after("a slow night", lambda: (night(1e-4, commit="aaaaaaaaaa"), night(2e-4, SLOW, commit="bbbbbbbbbb")))


@pytest.fixture
def stepped(night, after):
    """Three nights; the second is slow, and the third is slower."""

    def live():
        night(1e-4, commit="aaaaaaaaaa")
        night(2e-4, SLOW, commit="bbbbbbbbbb")
        assert night(8e-4, SLOWER, commit="cccccccccc") == FindingUpdates(stepped=(1,), seen=(1,))

    after("a slow night and a slower one", live)


def steps(story, number=1):
    """The steps of a finding: number, baseline run, newest run, recovered run."""
    moved = story.store.findings.get(number).moved
    return [(each.step, each.baseline_run, each.last_run, each.recovered_run) for each in moved]


def kinds(story, number=1):
    return [event.kind for event in story.store.findings.events(finding=number)]


def test_a_second_regression_is_a_step_with_its_own_commits_and_ratio(story, night, stepped):
    (finding,) = story.store.findings.active()
    first, second = finding.moved
    assert (first.root_cause, second.root_cause) == ("aaaaaaaaa..bbbbbbbbb", "bbbbbbbbb..ccccccccc")
    assert (first.ratio, second.ratio) == (pytest.approx(2, rel=1e-2), pytest.approx(4, rel=1e-2))
    assert (first.change, second.change) == (ChangeKind.REGRESSION, ChangeKind.AGAIN)
    assert finding.changes == (ChangeKind.REGRESSION,)
    assert (first.first_run, first.level_run, second.first_run, second.baseline_run) == (2, 2, 3, 2)  # kept binaries
    assert night(8e-4, SLOWER) == FindingUpdates(seen=(1,))
    assert steps(story) == [(1, 1, 2, None), (2, 2, 4, None)]
    assert kinds(story) == [EventKind.RAISED, EventKind.STEP]


def test_the_first_step_that_still_shows_has_its_own_ratio_when_the_second_is_taken_back(story, night, stepped):
    night(2.02e-4, SLOW, commit="dddddddddd")
    first, second = story.store.findings.get(1).moved
    assert (first.baseline_run, first.last_run, second.recovered_run) == (1, 4, 4)
    assert first.ratio == pytest.approx(first.candidate_s / first.baseline_s) == pytest.approx(2.02, rel=1e-3)
    assert first.low < 2.02 < first.high


def test_other_code_of_the_same_speed_is_no_step(story, night, slowed):
    assert night(2.002e-4, SLOWER) == FindingUpdates(seen=(1,))
    assert steps(story) == [(1, 1, 3, None)]


def test_a_step_that_pairs_clear_is_none(story, night, slowed):
    assert night(3e-4, SLOWER, cause=Cause.NOISE).stepped == ()
    assert steps(story) == [(1, 1, 2, None)]  # its row keeps the level that it had


@ON_BOTH
def test_the_next_step_is_measured_from_the_fastest_level_since_the_last(story, night):
    night(1e-4)
    night(16e-4, SLOW)
    assert night(4e-4, b"half mended").stepped == ()
    assert night(16e-4, SLOWER).stepped == (1,)
    assert steps(story) == [(1, 1, 3, None), (2, 3, 4, None)]


def test_a_new_driver_that_slows_a_case_of_a_commit_further_is_a_finding_of_its_own(story, night, slowed):
    assert night(2.5e-4, SLOW, driver="590.1", cause=None).raised == ()
    assert night(2.5e-4, SLOW, driver="590.1", cause=None).raised == (2,)
    finding = story.store.findings.get(2)
    assert (finding.cause, finding.root_cause) == (Cause.ENVIRONMENT, "driver 580.1 → 590.1")
    assert finding.evidence.endswith("+25.0 % against run 2 in runs 3 and 4, and the code is unchanged")
    assert [night(2.5e-4, SLOW, driver="590.1", cause=None).raised for _ in range(2)] == [(), ()]
    assert [each[0] for each in steps(story, 2)] == [2]


def test_a_second_driver_that_slows_a_case_further_is_a_step(story, night):
    for driver, level in [("580.1", 1e-4)] * 3 + [("590.1", 1.5e-4)] * 2:
        night(level, driver=driver)
    assert [night(2.2e-4, driver="600.1").stepped for _ in range(4)] == [(), (1,), (), ()]
    first, second = story.store.findings.get(1).moved
    assert (first.root_cause, second.root_cause) == ("driver 580.1 → 590.1", "driver 590.1 → 600.1")
    assert (first.ratio, second.ratio) == (pytest.approx(1.5, rel=1e-2), pytest.approx(22 / 15, rel=1e-2))


def test_a_finding_of_a_slow_gpu_takes_a_second_slowdown_of_the_gpu(story, night, cases):
    night(1e-4, cases=cases, cause=None)
    assert night(1.1e-4, cases=cases, others=1.1, cause=None).raised == (1,)
    assert night(1.4e-4, cases=cases, others=1.4, cause=None).stepped == (1,)
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.root_cause, len(finding.moved)) == (Cause.ENVIRONMENT, "GPU GPU-1", 12)
    assert night(1.1e-4, cases=cases, others=1.1, cause=None).resolved == ()
    assert night(1e-4, cases=cases, cause=None).resolved == (1,)


def test_code_that_slows_a_case_of_a_slow_gpu_is_a_finding_of_its_own(story, night, cases):
    night(1e-4, cases=cases, cause=None)
    night(1.1e-4, cases=cases, others=1.1, cause=None)
    assert night(4.4e-4, SLOW, cases=cases, others=1.1, pairs=4.0).raised == (2,)
    kernel, gpu = story.store.findings.active()
    assert (kernel.cause, gpu.cause) == (Cause.KERNEL, Cause.ENVIRONMENT)
    assert [(moved.series.case, moved.step, moved.baseline_run) for moved in kernel.moved] == [(story.tiled, 2, 2)]
    assert kernel.moved[0].ratio == pytest.approx(4, rel=1e-2)
    assert night(4e-4, SLOW, cases=cases).resolved == ()  # the first case is slow, whatever the GPU does
    assert story.store.findings.get(2).state is FindingState.OPEN


@pytest.mark.parametrize("slow", [1.3, 1.4, 1.8])
def test_code_that_slows_a_case_right_after_a_disturbed_night_is_a_finding_of_its_own(story, night, cases, slow):
    night(1e-4, cases=cases, cause=None)
    assert night(1.4e-4, cases=cases, others=1.4, cause=None).raised == (1,)
    assert night(slow * 1e-4, SLOW, cases=cases, pairs=slow).raised == (2,)
    night(slow * 1e-4, SLOW, cases=cases, pairs=slow)
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.moved[0].ratio) == (Cause.KERNEL, pytest.approx(slow, rel=1e-2))


def test_a_slow_driver_is_told_though_a_slow_commit_follows_in_the_next_night(story, night):
    for driver, level in [("580.1", 1e-4)] * 3 + [("590.1", 1.12e-4)]:
        night(level, driver=driver, cause=None)
    assert night(1.4e-4, SLOW, driver="590.1", pairs=1.25).raised == (1, 2)
    assert night(1.12e-4, driver="590.1").resolved == (2,)
    (finding,) = story.store.findings.active()
    assert (finding.root_cause, finding.moved[0].ratio) == ("driver 580.1 → 590.1", pytest.approx(1.12, rel=1e-2))


def test_other_code_that_slows_a_recovered_series_is_a_finding_of_its_own(story, night, cases):
    night(1e-4, cases=cases, commit="aaaaaaaaaa")
    assert night(2e-4, SLOW, cases=cases, others=1.0, commit="bbbbbbbbbb").raised == (1,)
    night(1e-4, cases=cases, commit="cccccccccc")
    story.store.findings.set_state(1, FindingState.OPEN)  # a case of it is still slow, say
    night(1e-4, cases=cases, commit="cccccccccc")
    assert night(1.5e-4, b"another slow", cases=cases, commit="dddddddddd").raised == (2,)


def test_a_slow_gpu_whose_nights_scatter_makes_no_steps(story, night):
    for level in [1e-4] * 3 + [1.5e-4] * 7:
        night(level, cause=None)
    scattered = [night(1.5e-4 * factor, cause=None).stepped for factor in (0.98, 1.01, 1.015, 0.985, 1.01, 1.015)]
    assert scattered == [()] * 6
    assert len(steps(story)) == 1


def test_a_driver_that_takes_back_only_a_part_of_a_large_change_resolves_nothing(story, night):
    for driver, level in [("580.1", 1e-4)] * 3 + [("590.1", 1.5e-4)] * 2:
        night(level, driver=driver)
    assert [night(1.2e-4, driver="600.1").resolved for _ in range(3)] == [()] * 3
    assert night(1.04e-4, driver="610.1").resolved == ()
    assert night(1.04e-4, driver="610.1").resolved == (1,)


@pytest.mark.parametrize("count", [1, 6])
def test_a_slow_driver_is_compared_with_the_last_driver_not_with_the_baselines(story, night, cases, count):
    for driver, level in [("580.1", 1e-4), ("590.1", 1e-4), ("590.1", 1e-4), ("600.1", 1.5e-4), ("600.1", 1.5e-4)]:
        night(level, cases=cases[:count], others=level / 1e-4, driver=driver, cause=None)
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.root_cause) == (Cause.ENVIRONMENT, "driver 590.1 → 600.1")


def test_a_driver_under_which_a_gpu_was_fast_is_not_why_it_is_slow(story, night, cases):
    for driver, level in [("580.1", 1e-4), ("590.1", 1e-4), ("590.1", 1.5e-4)]:
        night(level, cases=cases, others=level / 1e-4, driver=driver, cause=None)
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.root_cause) == (Cause.ENVIRONMENT, "GPU GPU-1")


def test_an_ignored_finding_stays_ignored_when_its_series_recovers(story, night, slowed):
    story.store.findings.set_state(1, FindingState.IGNORED, until=datetime(2100, 1, 1, tzinfo=UTC))
    assert night(1e-4).resolved == ()
    finding = story.store.findings.get(1)
    assert (finding.state, finding.moved[0].recovered_run) == (FindingState.IGNORED, 3)
    again = night(2e-4, SLOW, commit="bbbbbbbbbb")
    assert (again.raised, again.reopened, story.store.findings.get(1).state) == ((), (), FindingState.IGNORED)
    night(1e-4)
    assert night(2e-4, b"another slow", commit="dddddddddd").raised == (2,)  # another commit is another finding


def test_an_ignored_finding_whose_series_is_back_is_resolved_on_its_date(story, night, slowed):
    story.store.findings.set_state(1, FindingState.IGNORED, until=datetime(2100, 1, 1, tzinfo=UTC))
    night(1e-4)
    story.execute("UPDATE findings SET ignored_until = '2020-01-01 00:00:00'")
    assert night(1e-4).reopened == ()
    assert story.store.findings.get(1).state is FindingState.RESOLVED


def test_a_step_that_a_finding_does_not_have_is_refused(story, night, stepped):
    with pytest.raises(UsageError, match="finding 1 has no step 3; it has step 1, 2"):
        story.store.findings.set_state(1, FindingState.ACCEPTED, step=3)


def test_an_ignored_series_has_no_further_steps(story, night, slowed):
    story.store.findings.set_state(1, FindingState.IGNORED)
    assert night(8e-4, SLOWER).stepped == ()


def test_accepting_the_first_step_leaves_the_second(story, night, stepped):
    accepted = story.store.findings.set_state(1, FindingState.ACCEPTED, reason="wanted", by="ann", step=1)
    (left,) = story.store.findings.active()
    assert (accepted.id, accepted.root_cause) == (2, "aaaaaaaaa..bbbbbbbbb")
    assert [moved.step for moved in accepted.moved] == [1]
    assert (left.id, left.root_cause, left.first_run) == (1, "bbbbbbbbb..ccccccccc", 3)
    assert left.evidence.startswith("step 2, bbbbbbbbb..ccccccccc: transpose/tiled")
    assert night(8e-4, SLOWER) == FindingUpdates(seen=(1,))
    (judged,) = (one for one in story.store.verdicts.of_run(4) if one.series.metric == "time")
    assert judged.baseline_run == 2
    assert night(2e-4, SLOW).resolved == (1,)


# --- two nights that agree -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [None, Cause.UNCONFIRMED])
def test_an_unconfirmed_change_is_a_finding_in_the_second_night_until_a_confirmation_names_its_cause(
    story, night, cause
):
    night(1e-4, commit="aaaaaaaaaa")
    assert night(2e-4, SLOW, cause=cause, commit="bbbbbbbbbb") == FindingUpdates()
    assert night(2e-4, SLOW, cause=cause, commit="cccccccccc").raised == (1,)
    (finding,) = story.store.findings.active()
    why = "it was not measured again" if cause is None else "measured: unconfirmed"
    assert finding.evidence.endswith(f"against run 1 in runs 2 and 3, unconfirmed: {why}")
    assert (finding.cause, finding.root_cause) == (Cause.UNCONFIRMED, "aaaaaaaaa..bbbbbbbbb")
    assert night(2e-4, SLOW, cause=cause).raised == ()
    assert night(2e-4, SLOW, commit="dddddddddd") == FindingUpdates(seen=(1,))
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.root_cause) == (Cause.KERNEL, "aaaaaaaaa..bbbbbbbbb")
    assert finding.evidence.endswith("measured: kernel")
    assert kinds(story) == [EventKind.RAISED, EventKind.CONFIRMED]


def test_nights_that_pairs_have_cleared_agree_with_none_if_the_change_is_small(night):
    night(1e-4)
    assert night(1.05e-4, SLOW, cause=Cause.NOISE).raised == ()
    assert night(1.05e-4, SLOW, cause=None).raised == ()
    assert night(1.05e-4, SLOW, cause=None).raised == (1,)


def test_a_large_change_that_pairs_clear_night_after_night_is_unexplained(story, night):
    night(1e-4)
    assert night(2e-4, SLOW, cause=Cause.NOISE).raised == ()
    assert night(2e-4, SLOW, cause=Cause.NOISE).raised == (1,)
    (finding,) = story.store.findings.active()
    assert finding.cause is Cause.UNEXPLAINED
    assert finding.evidence.endswith("against run 1 in runs 2 and 3; measured: noise")


def test_a_night_between_that_was_as_usual_breaks_the_agreement(night):
    night(1e-4)
    night(2e-4, SLOW, cause=None)
    night(1e-4, b"mended", cause=None)
    assert night(2e-4, SLOWER, cause=None).raised == ()


def test_unchanged_code_that_stays_slow_is_a_finding_of_its_gpu(story, night):
    for _ in range(3):
        night(1e-4)
    assert night(1.1e-4).raised == ()
    assert night(1.1e-4).raised == (1,)
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.root_cause) == (Cause.UNEXPLAINED, "GPU GPU-1")
    assert finding.evidence.endswith("against run 1 in runs 4 and 5, and the code is unchanged")
    assert night(1e-4).resolved == (1,)


def test_a_single_fast_night_makes_no_finding_of_unchanged_code(night):
    night(1e-4)
    assert [night(1.05e-4).raised for _ in range(4)] == [()] * 4


def test_the_second_night_that_is_much_slower_than_the_first_is_unexplained(story, night):
    night(1e-4)
    assert night(1e-3).raised == ()
    assert night(1e-3).raised == (1,)  # though the slow night before is a part of its baseline
    assert night(1e-3) == FindingUpdates()
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.worst.baseline_run) == (Cause.UNEXPLAINED, 1)
    assert finding.worst.ratio == pytest.approx(10, rel=1e-2)


@pytest.mark.parametrize("replicas", [(-1e-3, 0.0, 1e-3), (0.0,)], ids=["3", "1"])
def test_the_slow_nights_before_a_finding_spoil_no_baseline(story, night, replicas):
    night(1e-4, replicas=replicas)
    assert [night(1e-3, replicas=replicas).raised for _ in range(4)] == [(), (1,), (), ()]
    assert night(1e-4, replicas=replicas).resolved == (1,)
    assert [night(1e-4, replicas=replicas).resolved for _ in range(3)] == [()] * 3
    later = [night(2e-4, replicas=replicas) for _ in range(3)]
    assert any(updates.reopened or updates.raised for updates in later)


@pytest.mark.parametrize("slow", [1, 3, 6])
def test_a_new_driver_that_slows_cases_is_one_finding_however_many_they_are(story, night, cases, slow):
    for _ in range(3):
        night(1e-4, cases=cases)
    for _ in range(3):
        here = replace(story, environment=replace(story.environment, driver="590.1"))
        number = story.begin(scope="all")
        for place, case in enumerate(cases):
            level = 1e-3 if place < slow else 1e-4
            here.put_replicas(number, case, level, (-1e-3, 0.0, 1e-3), binary=story.binary(case, FAST))
        story.end_and_judge(number)
        update_findings(story.store, number)
    (finding,) = story.store.findings.active()
    assert (finding.cause, len(finding.moved)) == (Cause.ENVIRONMENT, slow)
    assert finding.root_cause.endswith("→ 590.1") or slow == 6
    assert all(moved.ratio == pytest.approx(10, rel=1e-2) for moved in finding.moved)
    if slow == 3:
        assert finding.evidence.startswith("3 of 6 cases slower, median +900.")


def test_a_commit_that_lands_with_a_new_driver_is_told_though_nothing_is_measured_again(story, night):
    for _ in range(3):
        night(1e-4, commit="aaaaaaaaaa")
    assert night(1e-3, SLOW, cause=None, commit="bbbbbbbbbb", driver="590.1").raised == ()
    assert night(1e-3, SLOW, cause=None, commit="bbbbbbbbbb", driver="590.1").raised == (1,)
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.root_cause) == (Cause.UNCONFIRMED, "aaaaaaaaa..bbbbbbbbb")


def test_a_slow_driver_is_told_though_the_code_changes_in_the_next_nights(story, night):
    for _ in range(3):
        night(1e-4)
    raised = [night(1.5e-4, code, driver="590.1").raised for code in (FAST, b"new", b"newer", b"newest")]
    assert raised == [(), (1,), (), ()]
    finding = story.store.findings.get(1)
    assert (finding.cause, finding.root_cause) == (Cause.ENVIRONMENT, "driver 580.1 → 590.1")
    assert finding.evidence.endswith("+50.0 % against run 1 in runs 4 and 5, and the code was unchanged in run 4")


def test_a_slow_driver_is_told_though_the_next_night_is_slower_still(story, night):
    for _ in range(3):
        night(1e-4)
    assert [night(level, driver="590.1").raised for level in (1.5e-4, 1.8e-4)] == [(), (1,)]
    assert (finding := story.store.findings.get(1)).cause is Cause.ENVIRONMENT
    assert "+80.0 % against run 1 in runs 4 and 5" in finding.evidence


@pytest.mark.parametrize("slow", [1.05e-4, 1e-3])
def test_three_nights_of_one_replica_agree_on_a_large_change(story, night, slow):
    for _ in range(2):
        night(1e-4, replicas=(0.0,))
    raised = [night(slow, SLOW, cause=None, replicas=(0.0,)).raised for _ in range(4)]
    assert raised == ([(), (), (1,), ()] if slow == 1e-3 else [()] * 4)


@pytest.mark.parametrize("slow", [1.05e-4, 1.5e-4])
def test_three_nights_of_one_replica_with_a_new_driver_agree_on_a_large_change(story, night, slow):
    for _ in range(3):
        night(1e-4, replicas=(0.0,))
    raised = [night(slow, cause=None, replicas=(0.0,), driver="590.1").raised for _ in range(4)]
    assert raised == ([(), (), (1,), ()] if slow == 1.5e-4 else [()] * 4)
    if slow == 1.5e-4:
        (finding,) = story.store.findings.active()
        assert (finding.cause, finding.worst.baseline_run) == (Cause.ENVIRONMENT, 1)
        assert finding.evidence.endswith("+50.0 % against run 1 in runs 4 and 6, and the code is unchanged")


def test_one_disturbed_night_of_a_young_baseline_hides_no_commit(story, night):
    night(1e-4, cause=None)
    night(1.4e-4, cause=None)
    assert night(1.3e-4, SLOW, pairs=1.3).raised == (1,)


def test_a_level_that_is_accepted_in_a_slow_night_raises_no_finding_about_what_was_accepted(story, night):
    for level in (1e-4, 1e-4, 1.3e-4, 1.3e-4):
        night(level, SLOW if level > 1e-4 else FAST)
    night(1.82e-4, SLOW, cause=None)
    story.store.findings.set_state(1, FindingState.ACCEPTED, reason="wanted")
    night(1.82e-4, SLOW, cause=None)
    raised = [night(1.3e-4, SLOW, cause=None).raised for _ in range(3)]
    assert (raised, story.store.findings.active()) == ([()] * 3, [])


def test_a_run_that_is_included_again_is_judged_again(story, night):
    night(1e-4, cause=None)
    night(1.6e-4, SLOW, cause=None)
    for act in (exclude, include):
        for run in (1, 2):
            act(story.store, run, (), **({"reason": "a hot GPU"} if act is exclude else {}))
    (judged,) = (each for each in story.store.verdicts.of_run(2) if each.series.metric == "time")
    assert (judged.verdict, judged.baseline_run) == (Verdict.REGRESSION, 1)


def test_an_accepted_level_is_not_told_again(story, night):
    night(1e-4)
    night(2e-4)
    assert night(2e-4).raised == (1,)
    story.store.findings.set_state(1, FindingState.ACCEPTED, by="ann")
    assert [night(2e-4).raised for _ in range(2)] == [(), ()]
    assert story.store.findings.active() == []


def test_a_lucky_baseline_makes_no_finding_of_every_later_night(night):
    night(1.2e-4)
    night(1e-4, SLOW, cause=None)  # faster code, and a lucky night: the baseline of the next ones
    assert [night(1.1e-4, SLOW, cause=None).raised for _ in range(4)] == [()] * 4


def test_a_step_whose_run_is_excluded_comes_back_in_the_next_night(story, night, stepped):
    exclude(story.store, 3, (), reason="the GPU was shared")
    assert steps(story) == [(1, 1, 2, None), (2, 2, 3, 3)]
    assert night(8e-4, SLOWER).stepped == (1,)
    assert steps(story) == [(1, 1, 2, None), (2, 2, 4, None)]
    include(story.store, 3, ())
    assert steps(story) == [(1, 1, 2, None), (2, 2, 4, None)]
    assert night(1e-4).resolved == (1,)
