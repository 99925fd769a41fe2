"""Excluded data: it stays, is judged nowhere, and leaves the findings; and deleted runs."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import Cause, ChangeKind, Environment, FindingState, RootCause, Status, Verdict
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.exclusions import exclude, include
from perfsvc.store import Store
from tests.unit.store.conftest import ON_BOTH, suspect

WHY = "the GPU was shared"
OTHER = Environment(driver="590.1", toolkit="nvcc 13.0.88", power_limit_w=700.0)


def excluded(story, run, *cases):
    return story.store.exclusions.exclude(run, cases or None, reason=WHY, by="ann")


def regression(series, run, baseline, ratio=2.0, **given):
    return suspect(series, ratio, run=run, baseline=baseline, **given)


def step(story, series, run, baseline, root_cause="", **given):
    """Store a further step of a series that a finding holds already."""
    again = regression(series, run, baseline, change=ChangeKind.AGAIN, **given)
    steps = [RootCause(root_cause, "twice", (again,))]
    return story.store.findings.update(run, [], [], steps=steps, moved_again={series})


# --- what is excluded is judged nowhere ------------------------------------------------------------------------------


@ON_BOTH
def test_an_excluded_run_sets_no_level_by_its_verdict_or_by_being_first(story, tiled):
    first, lucky, third = story.run(), story.run(), story.run()
    story.judge(first, story.tiled, Verdict.NEW)
    story.judge(lucky, story.tiled, Verdict.IMPROVEMENT)
    assert story.store.baselines.get([tiled], before_run=9) == {tiled: lucky}
    excluded(story, lucky)
    assert story.store.baselines.get([tiled], before_run=9) == {tiled: first}
    excluded(story, first)
    assert story.store.baselines.get([tiled], before_run=9) == {tiled: third}
    story.store.exclusions.include(lucky, None, by="bob")
    assert story.store.baselines.get([tiled], before_run=9) == {tiled: lucky}


def test_an_excluded_run_ends_no_segment(story, tiled):
    first = story.run()
    elsewhere = replace(story, environment=OTHER).run()
    third, fourth = story.run(), story.run()
    assert story.store.baselines.get([tiled], before_run=fourth) == {tiled: third}
    excluded(story, elsewhere)
    assert story.store.baselines.get([tiled], before_run=fourth) == {tiled: first}


def test_an_excluded_run_is_no_part_of_a_history_and_no_run_that_a_name_resolves_to(story, tiled):
    first, second, third = (story.run(label="nightly", commit="abc", scope="all") for _ in range(3))
    excluded(story, second)
    assert story.store.series.histories_until(third, 9)[tiled].runs.tolist() == [first, third]
    assert list(story.store.runs.commits(third)) == [third, first]
    excluded(story, third)
    store = story.store
    assert [run.id for run in store.runs.of_commit("abc")] == [first]
    assert store.runs.newest().id == store.runs.labelled("nightly").id == first
    assert store.runs.last_of_scopes() == [first]


def test_a_case_alone_can_be_excluded(story, tiled, naive):
    first, second = story.run(story.tiled, story.naive), story.run(story.tiled, story.naive)
    excluded(story, first, story.tiled)
    assert story.store.baselines.get([tiled, naive], before_run=9) == {tiled: second, naive: first}
    assert story.store.series.levels(first).keys() == {naive}
    assert story.store.runs.newest(1).id == first
    assert story.store.runs.get(first).why_excluded == ""
    (exclusion,) = story.store.runs.get(first).excluded
    assert (exclusion.case, exclusion.reason) == (story.tiled.id, WHY)


def test_what_is_excluded_is_expected_from_the_run_before_and_missed_nowhere_else(story, tiled, naive):
    first = story.run(story.tiled, story.naive, scope="all")
    second = story.run(story.tiled, scope="all")
    third, fourth = (story.run(story.tiled, story.naive, scope="all") for _ in range(2))
    assert story.store.baselines.expected(third) == {tiled: second}
    excluded(story, second)
    assert story.store.baselines.expected(third) == {tiled: first, naive: first}
    excluded(story, third, story.tiled)
    assert story.store.baselines.expected(fourth) == {tiled: first, naive: third}
    excluded(story, fourth, story.naive)
    assert story.store.baselines.expected(fourth) == {tiled: first}


def test_a_renamed_case_is_excluded_under_the_name_it_had(story):
    first = story.run(story.tiled)
    renamed = story.series(replace(story.tiled, variant="shared", formerly=("tiled",)))
    second = story.run(renamed.case)
    assert story.store.exclusions.cases(first) == [renamed.case]
    excluded(story, first, renamed.case)
    assert story.store.baselines.get([renamed], before_run=9) == {renamed: second}


# --- what cannot be excluded -----------------------------------------------------------------------------------------


def test_what_a_pin_or_an_accepted_finding_needs_is_neither_excluded_nor_deleted(story, tiled):
    pinned, accepted, bad = (story.run() for _ in range(3))
    story.store.baselines.pin(pinned, [tiled])
    pin = r"a pin makes run 1 the baseline of transpose/tiled\["
    with pytest.raises(UsageError, match=pin) as refused:
        excluded(story, pinned)
    assert f"perfsvc baseline clear --select '{story.tiled.id}'" in refused.value.cure
    with pytest.raises(UsageError, match=pin):
        story.store.exclusions.delete(pinned, reason="", by="ann")
    (finding,) = story.raise_finding(accepted, [regression(tiled, accepted, pinned)])
    story.store.findings.set_state(finding, FindingState.ACCEPTED, reason="wanted")
    with pytest.raises(UsageError, match=f"finding {finding} accepted run {accepted}") as refused:
        excluded(story, accepted)
    assert f"perfsvc findings reopen {finding}" in refused.value.cure
    excluded(story, bad)
    with pytest.raises(NotMeasuredError):
        story.store.baselines.pin(bad, [tiled])


@ON_BOTH
def test_what_is_excluded_or_included_already_and_what_does_not_exist_is_refused(story):
    run, running = story.run(), story.begin()
    with pytest.raises(UsageError, match="has not ended"):
        excluded(story, running)
    with pytest.raises(UsageError, match="has not ended"):
        story.store.exclusions.delete(running, reason="", by="ann")
    with pytest.raises(NotMeasuredError, match="no run 77"):
        excluded(story, 77)
    with pytest.raises(UsageError, match=f"nothing is excluded in run {run}"):
        story.store.exclusions.include(run, None, by="ann")
    with pytest.raises(UsageError, match=f"none of these cases is excluded in run {run}"):
        story.store.exclusions.include(run, [story.tiled], by="ann")
    with pytest.raises(UsageError, match="did not measure transpose/naive"):
        excluded(story, run, story.naive)
    excluded(story, run)
    with pytest.raises(UsageError, match="excluded already, by ann: the GPU was shared"):
        excluded(story, run, story.tiled)
    with pytest.raises(UsageError, match="as a whole"):
        story.store.exclusions.include(run, [story.tiled], by="ann")


# --- findings --------------------------------------------------------------------------------------------------------


def test_a_finding_that_only_excluded_data_shows_is_resolved_with_the_reason_and_comes_back_with_it(story, tiled):
    first, second = story.run(), story.run()
    (finding,) = story.raise_finding(second, [regression(tiled, second, first)])
    assert excluded(story, second).resolved == (finding,)
    resolved = story.store.findings.get(finding)
    assert (resolved.state, resolved.reason, resolved.by) == (FindingState.RESOLVED, f"run 2 is excluded: {WHY}", "ann")
    assert story.store.exclusions.include(second, None, by="bob").reopened == (finding,)
    (moved,) = story.store.findings.get(finding).standing
    assert moved.last_run == second
    texts = [(event.kind.value, event.by) for event in story.store.findings.events(finding=finding)]
    assert texts == [("raised", ""), ("resolved", "ann"), ("reopened", "bob")]


def test_a_finding_that_earlier_data_shows_too_stands_at_that_data(story, tiled):
    first, second, third = story.run(), story.run(), story.run()
    for run, ratio in ((second, 2.0), (third, 3.0)):
        suspect = regression(tiled, run, first, ratio=ratio)
        story.store.verdicts.put(run, [suspect.judgement])
        (finding,) = story.raise_finding(run, [suspect])
    updates = excluded(story, third)
    assert (updates.resolved, updates.reopened) == ((), ())
    (moved,) = story.store.findings.get(finding).standing
    assert (moved.last_run, moved.ratio, moved.candidate_s) == (second, 2.0, 2e-3)
    assert story.store.findings.get(finding).last_run == second


def test_a_finding_whose_first_run_is_excluded_begins_with_the_next_run_until_it_is_included(story, tiled):
    commits = ("a" * 40, "b" * 40, "c" * 40)
    first, second, third = (story.run(commit=commit) for commit in commits)
    suspects = {run: regression(tiled, run, first) for run in (second, third)}
    for run, regressed in suspects.items():
        story.store.verdicts.put(run, [regressed.judgement])
    root_cause = f"{commits[0][:9]}..{commits[1][:9]}"
    (finding,) = story.raise_finding(second, [suspects[second]], "in A/B pairs +100.0 %", root_cause)
    assert story.raise_finding(third, [suspects[third]], "again", root_cause) == [finding]
    assert excluded(story, second).resolved == ()
    later = story.store.findings.get(finding)
    ranges = (f"{commits[0][:9]}..{commits[2][:9]}", third, third)
    assert (later.root_cause, later.first_run, later.last_run) == ranges
    assert [(moved.root_cause, moved.first_run, moved.last_run) for moved in later.moved] == [ranges]
    assert later.evidence == (
        f"run 3 shows it too; run 2, which raised the finding, is excluded ({WHY}), so what it measured does not count"
    )
    *_, event = story.store.findings.events(finding=finding)
    assert event.text == f"run 2 is excluded: {WHY}; run 3 is now the first that shows the finding"
    story.store.exclusions.include(second, None, by="bob")
    restored = story.store.findings.get(finding)
    assert (restored.root_cause, restored.first_run, restored.evidence) == (root_cause, second, "in A/B pairs +100.0 %")
    assert [(moved.root_cause, moved.first_run) for moved in restored.moved] == [(root_cause, second)]
    story.store.exclusions.delete(second, reason="", by="ann")
    left = story.store.findings.get(finding)
    assert (left.first_run, left.last_run) == (third, third)


def test_the_evidence_names_the_run_that_raised_the_finding_whatever_is_excluded_after_it(story, tiled):
    first, second, third, fourth = (story.run(commit=letter * 40) for letter in "abcd")
    for run in (second, third, fourth):
        (finding,) = story.raise_finding(run, [regression(tiled, run, first)], f"seen in run {run}", "a..b")
    excluded(story, second)
    excluded(story, third)
    why = f"run 2, which raised the finding, is excluded ({WHY}), so what it measured does not count"
    assert story.store.findings.get(finding).evidence == f"run 4 shows it too; {why}"
    story.store.exclusions.include(third, None, by="bob")
    assert story.store.findings.get(finding).evidence == f"run 3 shows it too; {why}"
    story.store.exclusions.include(second, None, by="bob")
    assert story.store.findings.get(finding).evidence == "seen in run 2"


def test_a_step_whose_first_run_is_excluded_begins_with_the_next_run(story, tiled):
    first, second, third, fourth = (story.run(commit=letter * 40) for letter in "abcd")
    suspects = {run: regression(tiled, run, first) for run in (second, third, fourth)}
    for run, regressed in suspects.items():
        story.store.verdicts.put(run, [regressed.judgement])
    (finding,) = story.raise_finding(second, [suspects[second]], "once", "aaaaaaaaa..bbbbbbbbb")
    step(story, tiled, third, second, "bbbbbbbbb..ccccccccc")
    story.raise_finding(fourth, [suspects[fourth]], "seen", "aaaaaaaaa..bbbbbbbbb")
    excluded(story, third)
    found = story.store.findings.get(finding)
    assert (found.first_run, found.evidence) == (second, "once")
    assert [(moved.step, moved.first_run, moved.root_cause) for moved in found.moved] == [
        (1, second, "aaaaaaaaa..bbbbbbbbb"),
        (2, fourth, "bbbbbbbbb..ddddddddd"),
    ]
    story.store.exclusions.include(third, None, by="bob")
    *_, last = story.store.findings.get(finding).moved
    assert (last.first_run, last.root_cause) == (third, "bbbbbbbbb..ccccccccc")


def standing(story, series):
    """Return the active findings in which a series stands, each with the step."""
    active = story.store.findings.active()
    return [(finding.id, moved.step) for finding in active for moved in finding.standing if moved.series == series]


def test_a_slowdown_of_two_steps_that_a_newer_finding_holds_stays_there_alone(story, tiled):
    first, second, third = story.run(), story.run(), story.run()
    (old,) = story.raise_finding(second, [regression(tiled, second, first)])
    step(story, tiled, third, second)
    assert standing(story, tiled) == [(old, 1), (old, 2)]
    assert excluded(story, second).resolved == (old,)
    fourth = story.run()
    (new,) = story.raise_finding(fourth, [regression(tiled, fourth, first)])
    assert story.store.exclusions.include(second, None, by="bob").reopened == ()
    assert standing(story, tiled) == [(new, 1)]
    *_, event = story.store.findings.events(finding=old)
    assert (event.by, event.text) == ("bob", f"run {second} is included again; {tiled.case.id} stands in finding {new}")


def test_a_step_of_its_own_cause_comes_back_beside_the_finding_of_the_first_step(story, tiled):
    first, second, third = story.run(), story.run(), story.run()
    (code,) = story.raise_finding(second, [regression(tiled, second, first)])
    updates = step(story, tiled, third, second, "driver 580.1 → 590.1", cause=Cause.ENVIRONMENT)
    (environment,) = updates.raised
    assert excluded(story, third).resolved == (environment,)
    assert story.store.exclusions.include(third, None, by="bob").reopened == (environment,)
    assert standing(story, tiled) == [(environment, 2), (code, 1)]


def test_a_slowdown_whose_newer_finding_was_accepted_is_not_reopened(story, tiled):
    first, second = story.run(), story.run()
    story.raise_finding(second, [regression(tiled, second, first)])
    excluded(story, second)
    third = story.run()
    (new,) = story.raise_finding(third, [regression(tiled, third, first)])
    story.store.findings.set_state(new, FindingState.ACCEPTED, by="ann")
    assert story.store.exclusions.include(second, None, by="bob").reopened == ()
    assert standing(story, tiled) == []


def test_a_slowdown_of_a_renamed_case_stands_in_one_finding(story, tiled):
    first, second = story.run(), story.run()
    (old,) = story.raise_finding(second, [regression(tiled, second, first)])
    excluded(story, second)
    renamed = story.series(replace(story.tiled, variant="shared", formerly=("tiled",)))
    third = story.run(renamed.case)
    (new,) = story.raise_finding(third, [regression(renamed, third, first)])
    assert new != old
    assert story.store.exclusions.include(second, None, by="bob").reopened == ()
    assert [finding.id for finding in story.store.findings.active()] == [new]


def test_a_first_step_whose_baseline_is_included_again_comes_back_beside_the_second(story, tiled):
    first, second, third = story.run(), story.run(), story.run()
    (finding,) = story.raise_finding(second, [regression(tiled, second, first)])
    step(story, tiled, third, second)
    assert excluded(story, first).resolved == ()
    assert standing(story, tiled) == [(finding, 2)]
    story.store.exclusions.include(first, None, by="bob")
    assert standing(story, tiled) == [(finding, 1), (finding, 2)]


def test_a_finding_stays_for_the_series_that_other_data_shows_and_needs_its_baseline(story, tiled, naive):
    first, second = story.run(story.tiled, story.naive), story.run(story.tiled, story.naive)
    suspects = [regression(tiled, second, first), regression(naive, second, first)]
    (finding,) = story.raise_finding(second, suspects)
    assert excluded(story, second, story.tiled).resolved == ()
    assert [moved.series for moved in story.store.findings.get(finding).standing] == [naive]
    assert excluded(story, first).resolved == (finding,)


def test_a_finding_that_recovered_in_an_excluded_run_is_open_again_unless_a_person_resolved_it(story, tiled):
    first, second, third = story.run(), story.run(), story.run()
    (finding,) = story.raise_finding(second, [regression(tiled, second, first)])
    assert story.recover(third, [(finding, tiled)]) == [finding]
    assert excluded(story, third).reopened == (finding,)
    assert story.store.findings.get(finding).state is FindingState.OPEN
    story.store.findings.set_state(finding, FindingState.RESOLVED, by="bob")
    excluded(story, second)
    story.store.exclusions.include(second, None, by="ann")
    assert story.store.findings.get(finding).state is FindingState.RESOLVED


# --- deleting --------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_a_deleted_run_is_gone_with_all_that_belongs_to_it_and_its_record_stays(story, tiled):
    first, second = story.run(), story.run()
    story.judge(second, story.tiled, Verdict.REGRESSION)
    (finding,) = story.raise_finding(second, [regression(tiled, second, first)])
    with pytest.raises(UsageError, match=rf"finding {finding} \(open\) is about run {second}") as refused:
        story.store.exclusions.delete(second, reason="", by="ann")
    assert f"perfsvc runs exclude {second}" in refused.value.cure
    excluded(story, second)
    assert story.store.exclusions.delete(second, reason="no use", by="bob") == (finding,)
    assert [row.id for row in story.store.runs.list()] == [first]
    assert story.store.findings.all() == []
    assert story.execute("SELECT COUNT(*) FROM measurements WHERE run_id = :run", run=second) == [(0,)]
    assert story.execute("SELECT COUNT(*) FROM levels WHERE run_id = :run", run=second) == [(0,)]
    acts = [(act.run, act.reason, act.by, act.deleted) for act in story.store.exclusions.all()]
    assert acts == [(second, WHY, "ann", False), (second, "no use", "bob", True)]
    assert story.run() > second


# --- as if it had never been -----------------------------------------------------------------------------------------

runs = st.fixed_dictionaries(
    {
        "tiled": st.sampled_from([None, "failed", 1.0, 1.0, 1.5, 2.0, 0.5]),
        "naive": st.sampled_from([None, 1.0, 1.0, 3.0]),
        "dirty": st.sampled_from([False, False, False, True]),
        "elsewhere": st.sampled_from([False, False, False, True]),
    }
)


def lived(story, nights, left_out=()):
    """Store and judge nights, except some, under the numbers that they have with all; return the numbers."""
    numbers = []
    elsewhere = replace(story, environment=OTHER)
    for number, night in enumerate(nights):
        run = story.begin(scope="all", dirty=night["dirty"], commit=f"c{number}")
        numbers.append(run)
        if number in left_out:
            story.execute("DELETE FROM runs WHERE id = :run", run=run)
            continue
        for case in (story.tiled, story.naive):
            level = night[case.variant]
            for replica, spread in enumerate((0.99, 1.0, 1.01)):
                here = elsewhere if night["elsewhere"] else story
                if level == "failed":
                    here.put(run, case, replica=replica, status=Status.FAILED, reason="refused")
                elif level is not None:
                    samples = tuple(1e-3 * level * spread * share for share in (0.999, 1, 1.001))
                    here.put(run, case, replica=replica, samples=samples)
        story.end_and_judge(run, threshold=0.01)
    return numbers


def told(story, numbers):
    """What judging makes of the last run, and what each run's stored verdicts are."""
    store, last = story.store, numbers[-1]
    history = store.series.histories_until(last, 99)
    return {
        "judged": judge_run(store, last, threshold=0.01),
        "stored": {run: sorted(map(repr, store.verdicts.of_run(run))) for run in numbers},
        "expected": store.baselines.expected(last),
        "histories": {series: (of.runs.tolist(), str(of.level.tolist())) for series, of in history.items()},
        "commits": store.runs.commits(last),
        "scopes": store.runs.last_of_scopes(),
    }


@pytest.mark.slow
@given(nights=st.lists(runs, min_size=3, max_size=5), data=st.data())
@settings(
    max_examples=5,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_judging_with_an_excluded_run_is_judging_as_if_it_had_never_been_made(new_database, new_story, nights, data):
    bad = data.draw(st.integers(0, len(nights) - 2))
    results = []
    after = None
    for is_excluded in (True, False):
        with Store.open(new_database(False)) as store:
            story = new_story(store)
            numbers = lived(story, nights, () if is_excluded else (bad,))
            if is_excluded:
                before = told(story, numbers)
                exclude(store, numbers[bad], (), reason=WHY, threshold=0.01)
                after = told(story, numbers)
                include(store, numbers[bad], (), threshold=0.01)
                assert told(story, numbers)["judged"] == before["judged"]
            results.append(after if is_excluded else told(story, numbers))
    assert results[0] == results[1]
