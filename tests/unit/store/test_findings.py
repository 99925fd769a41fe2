"""Findings after runs: raised, seen again, recovered; and the levels of accepted findings."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import event

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import Cause, ChangeKind, Direction, FindingState, Judgement, Status, Suspect, Verdict
from perfsvc.store import RunState


def suspect(series, baseline=1, direction=Direction.SLOWER, cause=Cause.KERNEL, ratio=1.2):
    judged = Judgement(series, Verdict.REGRESSION, "", ratio, 1.1, 1.3, baseline, None, 1e-4, ratio * 1e-4, cause=cause)
    return Suspect(judged, ChangeKind.REGRESSION, direction)


@contextmanager
def counted(store):
    statements = []

    def note(_connection, _cursor, statement, *_):
        statements.append(statement)

    event.listen(store.database.engine, "before_cursor_execute", note)
    yield statements
    event.remove(store.database.engine, "before_cursor_execute", note)


@pytest.fixture
def tiled(story):
    return story.series(story.tiled)


@pytest.fixture
def naive(story):
    return story.series(story.naive)


@pytest.fixture
def nights(story):
    """Five nights that measured both cases, the first of them the level of both."""
    numbers = [story.run(story.tiled, story.naive) for _ in range(5)]
    story.store.verdicts.put(1, [story.judgement(case) for case in (story.tiled, story.naive)])
    return numbers


def test_a_finding_names_its_series(story, nights, tiled, naive):
    assert story.raise_finding(2, [suspect(tiled), suspect(naive, ratio=1.3)], "the old one is faster") == [1]
    (found,) = story.store.findings.active()
    assert (found.cause, found.changes, found.direction) == (Cause.KERNEL, (ChangeKind.REGRESSION,), Direction.SLOWER)
    assert (found.devices, found.first_run, found.last_run, found.state) == (
        {"GPU-1": "NVIDIA H100"},
        2,
        2,
        FindingState.OPEN,
    )
    assert (found.evidence, found.reason, found.by) == ("the old one is faster", "", "")
    assert {moved.series: (moved.ratio, moved.baseline_run, moved.last_run) for moved in found.moved} == {
        tiled: (1.2, 1, 2),
        naive: (1.3, 1, 2),
    }


def test_a_series_with_an_active_finding_gets_no_second_one(story, nights, tiled, naive):
    story.raise_finding(2, [suspect(tiled)], "")
    assert story.raise_finding(3, [suspect(tiled, ratio=1.4), suspect(naive)], "") == [1, 2]
    second, first = story.store.findings.active()
    assert [(moved.series, moved.ratio) for moved in first.moved] == [(tiled, 1.4)]
    assert [moved.series for moved in second.moved] == [naive]
    assert (first.first_run, first.last_run) == (2, 3)


def test_another_direction_or_metric_is_a_separate_finding(story, nights, tiled):
    story.raise_finding(2, [suspect(tiled)], "")
    assert story.raise_finding(3, [suspect(tiled, direction=Direction.FASTER)], "") == [2]
    assert story.raise_finding(3, [suspect(replace(tiled, metric="energy_j"))], "") == [3]


def test_a_renamed_case_stays_in_its_finding(story, nights, tiled):
    story.raise_finding(2, [suspect(tiled)], "")
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    night = story.run(renamed)
    shared = story.series(renamed)
    assert story.raise_finding(night, [suspect(shared)], "") == [1]
    assert [moved.series for finding in story.store.findings.active() for moved in finding.moved] == [shared]
    assert story.recover(night, [(1, shared)]) == [1]


def test_a_finding_is_resolved_once_all_its_series_are_back(story, nights, tiled, naive):
    story.raise_finding(2, [suspect(tiled), suspect(naive)], "")
    assert story.recover(3, [(1, tiled)]) == []
    assert story.recover(4, [(1, naive)]) == [1]
    assert story.store.findings.active() == []
    (found,) = story.store.findings.all()
    assert (found.state, found.reason) == (FindingState.RESOLVED, "back at its old level in run 4")
    assert sorted(moved.recovered_run for moved in found.moved) == [3, 4]


def test_only_the_recovered_series_is_marked(story, nights, tiled, naive):
    joules = replace(tiled, metric="energy_j")
    story.raise_finding(2, [suspect(tiled), suspect(naive), suspect(joules)], "")
    story.raise_finding(2, [suspect(tiled, direction=Direction.FASTER)], "")
    assert story.recover(3, [(1, joules), (1, naive), (2, tiled)]) == [2]
    (left,) = story.store.findings.active()
    assert {moved.series: moved.recovered_run for moved in left.moved} == {tiled: None, naive: 3, joules: 3}


def test_many_recovered_series_take_few_statements(story):
    cases = [replace(story.tiled, variant=f"v{place}") for place in range(20)]
    story.run(*cases)
    night = story.run(*cases)
    moved = [suspect(story.series(case)) for case in cases]
    story.raise_finding(night, moved, "")
    with counted(story.store) as statements:
        assert story.recover(night, [(1, one.series) for one in moved]) == [1]
    assert len(statements) < 10


def test_a_change_that_comes_back_against_the_same_baseline_reopens_its_finding(story, nights, tiled):
    story.raise_finding(2, [suspect(tiled)], "")
    story.recover(3, [(1, tiled)])
    assert story.raise_finding(4, [suspect(tiled)], "") == [1]
    (found,) = story.store.findings.active()
    assert (found.state, found.last_run, found.moved[0].recovered_run) == (FindingState.OPEN, 4, None)


def test_a_regression_from_another_baseline_after_a_recovery_is_a_new_finding(story, nights, tiled):
    story.raise_finding(2, [suspect(tiled)], "")
    story.recover(3, [(1, tiled)])
    assert story.raise_finding(4, [suspect(tiled, baseline=3)], "") == [2]


def test_an_accepted_finding_moves_the_level_of_its_unrecovered_series(story, nights, tiled, naive):
    story.raise_finding(2, [suspect(tiled), suspect(naive)], "")
    story.raise_finding(3, [suspect(tiled)], "")
    story.recover(3, [(1, naive)])
    accepted = story.store.findings.set_state(
        1, FindingState.ACCEPTED, reason="larger tiles, fewer registers", by="ann"
    )
    assert (accepted.state, accepted.reason, accepted.by) == (
        FindingState.ACCEPTED,
        "larger tiles, fewer registers",
        "ann",
    )
    assert story.store.baselines.get([tiled, naive], before_run=4) == {tiled: 3, naive: 1}
    assert story.store.baselines.get([tiled], before_run=3) == {tiled: 1}
    assert story.raise_finding(4, [suspect(tiled, baseline=3)], "") == [2]


def test_a_later_improvement_replaces_an_accepted_level(story, nights, tiled):
    story.raise_finding(2, [suspect(tiled)], "")
    story.store.findings.set_state(1, FindingState.ACCEPTED, reason="so be it")
    story.judge(4, story.tiled, Verdict.IMPROVEMENT)
    assert story.store.baselines.get([tiled], before_run=5) == {tiled: 4}


def test_only_an_active_finding_can_be_accepted(story, nights, tiled):
    with pytest.raises(NotMeasuredError, match="there is no finding 1"):
        story.store.findings.set_state(1, FindingState.ACCEPTED, reason="so be it")
    story.raise_finding(2, [suspect(tiled)], "")
    story.recover(3, [(1, tiled)])
    with pytest.raises(UsageError, match="resolved already: back at its old level in run 3"):
        story.store.findings.set_state(1, FindingState.ACCEPTED, reason="so be it")


# --- segments --------------------------------------------------------------------------------------------------------


def test_a_segment_has_its_own_level_after_its_first_run(story, tiled):
    old, new = story, replace(story, environment=replace(story.environment, driver="590.1"))
    first = old.run()
    old.judge(first, story.tiled, Verdict.NEW)
    begins, after = new.run(), new.run()
    assert story.store.baselines.get([tiled], begins) == {tiled: first}
    assert story.store.baselines.get([tiled], after) == {tiled: begins}


def test_a_level_accepted_within_a_segment_counts(story, tiled):
    new = replace(story, environment=replace(story.environment, power_limit_w=500.0))
    story.run()
    new.run()
    better, after = new.run(), new.run()
    story.judge(better, story.tiled, Verdict.IMPROVEMENT)
    assert story.store.baselines.get([tiled], after) == {tiled: better}


def test_a_run_with_uncommitted_changes_ends_no_segment(story, tiled):
    first = story.run()
    replace(story, environment=replace(story.environment, toolkit="nvcc 14.0")).run(dirty=True)
    assert story.store.baselines.get([tiled], story.run()) == {tiled: first}


def test_a_wrong_result_in_the_first_run_of_a_segment_is_no_level(story, tiled):
    new = replace(story, environment=replace(story.environment, driver="590.1"))
    first = story.run()
    begins = new.begin()
    new.put(begins, story.tiled, status=Status.WRONG)
    story.store.runs.end(begins, RunState.FINISHED)
    assert story.store.baselines.get([tiled], new.run()) == {tiled: first}


def test_a_recovered_series_that_regresses_for_another_cause_is_a_new_finding(story, tiled):
    _, slow, back, cold = (story.run() for _ in range(4))
    (code,) = story.raise_finding(slow, [suspect(tiled)], "slow")
    assert story.recover(back, [(code, tiled)]) == [code]
    (board,) = story.raise_finding(cold, [suspect(tiled, cause=Cause.ENVIRONMENT)], "the driver is another")
    assert board != code
    assert story.store.findings.get(code).state is FindingState.RESOLVED
    assert story.raise_finding(story.run(), [suspect(tiled)], "slow again") == [board]
