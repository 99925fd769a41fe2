"""What people do to findings: change their state, assign them, comment on them, split them."""

from datetime import UTC, datetime, timedelta

import pytest

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import (
    Cause,
    ChangeKind,
    Direction,
    EventKind,
    FindingState,
    FindingUpdates,
    Judgement,
    RootCause,
    Suspect,
    Verdict,
)
from perfsvc.service.findings import actions
from perfsvc.service.findings.suspects import ignored
from perfsvc.suite import Selection

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def suspect(series, ratio=1.2, *, cause=Cause.KERNEL, direction=Direction.SLOWER, baseline=1):
    judged = Judgement(
        series, Verdict.REGRESSION, "", ratio, None, None, baseline, None, 1e-4, ratio * 1e-4, cause=cause
    )
    return Suspect(judged, ChangeKind.REGRESSION, direction)


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


@pytest.fixture
def finding_1(story, nights, tiled, naive):
    """A finding of both cases, raised in run 2."""
    assert story.raise_finding(2, [suspect(tiled), suspect(naive)], "the old one is faster", "abc..def") == [1]


def kinds(store, finding):
    return [event.kind for event in store.findings.events(finding=finding)]


def test_every_action_is_recorded_with_its_person_and_reason(story, finding_1):
    store = story.store
    store.findings.set_state(1, FindingState.ACKNOWLEDGED, reason="looking", by="ann")
    store.findings.assign(1, "bob", by="ann")
    store.findings.comment(1, "it spills", by="bob")
    store.findings.set_state(1, FindingState.RESOLVED, reason="reverted", by="bob")
    assert [(event.kind, event.run, event.by, event.text) for event in store.findings.events(finding=1)] == [
        (EventKind.RAISED, 2, "", "the old one is faster"),
        (EventKind.ACKNOWLEDGED, None, "ann", "looking"),
        (EventKind.ASSIGNED, None, "ann", "bob"),
        (EventKind.COMMENTED, None, "bob", "it spills"),
        (EventKind.RESOLVED, None, "bob", "reverted"),
    ]
    finding = store.findings.get(1)
    assert (finding.owner, finding.state, finding.reason, finding.by) == (
        "bob",
        FindingState.RESOLVED,
        "reverted",
        "bob",
    )


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (FindingState.ACKNOWLEDGED, FindingState.ACKNOWLEDGED),
        (FindingState.ACCEPTED, FindingState.ACKNOWLEDGED),
        (FindingState.ACCEPTED, FindingState.IGNORED),
        (FindingState.RESOLVED, FindingState.ACCEPTED),
    ],
)
def test_a_forbidden_change_of_state_is_refused_and_changes_nothing(story, finding_1, first, then):
    before = story.store.findings.set_state(1, first, reason="so it is")
    with pytest.raises(UsageError, match=f"finding 1 is {first} already: so it is"):
        story.store.findings.set_state(1, then)
    assert (story.store.findings.get(1), len(kinds(story.store, 1))) == (before, 2)


def test_some_cases_of_a_finding_are_split_off(story, finding_1, tiled, naive):
    story.store.findings.assign(1, "bob")
    split = actions.set_state(
        story.store, 1, FindingState.ACCEPTED, reason="exact", selection=Selection(("transpose/tiled",))
    )
    assert (split.id, [moved.series for moved in split.moved], split.root_cause, split.owner) == (
        2,
        [tiled],
        "abc..def",
        "bob",
    )
    rest = story.store.findings.get(1)
    assert ([moved.series for moved in rest.moved], rest.state) == ([naive], FindingState.OPEN)
    assert kinds(story.store, 1)[-1] is EventKind.SPLIT
    assert kinds(story.store, 2) == [EventKind.SPLIT, EventKind.ACCEPTED]
    assert story.store.baselines.get([tiled, naive], before_run=5) == {tiled: 2, naive: 1}


def test_selecting_all_cases_splits_nothing_and_selecting_none_is_refused(story, finding_1):
    assert actions.comment(story.store, 1, "both", selection=Selection(("transpose",))).id == 1
    with pytest.raises(UsageError, match="finding 1 has no such case"):
        actions.comment(story.store, 1, "none", selection=Selection(("dot",)))
    assert len(story.store.findings.active()) == 1
    with pytest.raises(NotMeasuredError, match="there is no finding 7"):
        actions.comment(story.store, 7, "of which", selection=Selection(("dot",)))


def test_a_finding_that_a_person_resolved_reopens_if_a_run_still_shows_it(story, finding_1, tiled):
    story.store.findings.set_state(1, FindingState.RESOLVED, by="ann")
    updates = story.store.findings.update(3, [], [RootCause("abc..def", "still slow", (suspect(tiled),))])
    assert updates == FindingUpdates(reopened=(1,))
    assert kinds(story.store, 1)[-1] is EventKind.REOPENED


def test_reopening_an_accepted_finding_revokes_its_level(story, finding_1, tiled):
    story.store.findings.set_state(1, FindingState.ACCEPTED, reason="so be it")
    story.store.findings.set_state(1, FindingState.OPEN)
    assert story.store.baselines.get([tiled], before_run=5) == {tiled: 1}


def test_a_resolved_finding_can_be_reopened_unless_another_has_its_series(story, nights, tiled):
    story.raise_finding(2, [suspect(tiled)], "")
    story.recover(3, [(1, tiled)])
    assert story.store.findings.set_state(1, FindingState.OPEN).standing
    story.recover(4, [(1, tiled)])
    story.raise_finding(5, [suspect(tiled, baseline=4)], "")
    with pytest.raises(UsageError, match=r"finding 2 holds transpose/tiled.* by now"):
        story.store.findings.set_state(1, FindingState.OPEN)


def test_an_ignored_finding_reopens_when_its_time_is_over(story, finding_1):
    until = NOW + timedelta(days=2)
    story.store.findings.set_state(1, FindingState.IGNORED, by="ann", until=until)
    assert story.store.findings.update(3, [], [], now=until - timedelta(seconds=1)) == FindingUpdates()
    assert story.store.findings.update(4, [], [], now=until) == FindingUpdates(reopened=(1,))
    assert story.store.findings.update(5, [], [], now=until) == FindingUpdates()
    finding = story.store.findings.get(1)
    assert (finding.state, finding.ignored_until) == (FindingState.OPEN, None)
    assert story.store.findings.events(run=4)[0].text == "it was ignored until 2026-01-04"


def test_an_ignored_finding_is_resolved_when_its_series_recover(story, finding_1, tiled, naive):
    story.store.findings.set_state(1, FindingState.IGNORED)
    assert story.store.findings.update(3, [(1, tiled, 1), (1, naive, 1)], []) == FindingUpdates(resolved=(1,))


def test_ignoring_a_finding_ignores_its_series_in_its_direction(story, finding_1, tiled, naive):
    story.raise_finding(3, [suspect(tiled, direction=Direction.FASTER)], "")
    story.store.findings.set_state(1, FindingState.IGNORED)
    assert ignored(story.store.findings.active()) == {(tiled, Direction.SLOWER), (naive, Direction.SLOWER)}


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
