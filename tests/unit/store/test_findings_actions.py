"""What people do to findings: change their state, assign them, comment on them, split them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import (
    Direction,
    EventKind,
    FindingState,
    FindingUpdates,
    RootCause,
    Verdict,
)
from perfsvc.service.findings import actions
from perfsvc.service.findings.suspects import ignored
from perfsvc.suite import Selection
from tests.unit.store.conftest import ON_BOTH, suspect

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def finding_1(story, five_nights, tiled, naive):
    """A finding of both cases, raised in run 2."""
    assert story.raise_finding(2, [suspect(tiled), suspect(naive)], "the old one is faster", "abc..def") == [1]


def kinds(store, finding):
    return [event.kind for event in store.findings.events(finding=finding)]


@ON_BOTH
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
    assert (finding.owner, finding.state) == ("bob", FindingState.RESOLVED)
    assert (finding.reason, finding.by) == ("reverted", "bob")


def test_a_forbidden_change_of_state_is_refused_and_changes_nothing(story, five_nights, tiled):
    for number, (first, then) in enumerate(
        [
            (FindingState.ACKNOWLEDGED, FindingState.ACKNOWLEDGED),
            (FindingState.ACCEPTED, FindingState.ACKNOWLEDGED),
            (FindingState.ACCEPTED, FindingState.IGNORED),
            (FindingState.RESOLVED, FindingState.ACCEPTED),
        ],
        start=1,
    ):
        assert story.raise_finding(2, [suspect(replace(tiled, metric=f"m{number}"))]) == [number]
        before = story.store.findings.set_state(number, first, reason="so it is")
        with pytest.raises(UsageError, match=f"finding {number} is {first} already: so it is"):
            story.store.findings.set_state(number, then)
        assert (story.store.findings.get(number), len(kinds(story.store, number))) == (before, 2)


def test_some_cases_of_a_finding_are_split_off(story, finding_1, tiled, naive):
    story.store.findings.assign(1, "bob")
    selection = Selection(("transpose/tiled",))
    split = actions.set_state(story.store, 1, FindingState.ACCEPTED, reason="exact", selection=selection)
    assert (split.id, [moved.series for moved in split.moved]) == (2, [tiled])
    assert (split.root_cause, split.owner) == ("abc..def", "bob")
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


def test_what_a_person_resolved_or_accepted_is_reopened_by_a_run_that_shows_it_or_by_a_person(story, finding_1, tiled):
    story.store.findings.set_state(1, FindingState.RESOLVED, by="ann")
    updates = story.store.findings.update(3, [], [RootCause("abc..def", "still slow", (suspect(tiled),))])
    assert updates == FindingUpdates(reopened=(1,))
    assert kinds(story.store, 1)[-1] is EventKind.REOPENED
    story.store.findings.set_state(1, FindingState.ACCEPTED, reason="so be it")
    assert story.store.baselines.get([tiled], before_run=5) == {tiled: 3}
    story.store.findings.set_state(1, FindingState.OPEN)
    assert story.store.baselines.get([tiled], before_run=5) == {tiled: 1}


def test_a_resolved_finding_can_be_reopened_unless_another_has_its_series(story, five_nights, tiled):
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


def test_an_ignored_finding_hides_its_series_in_its_direction_until_they_recover(story, finding_1, tiled, naive):
    story.raise_finding(3, [suspect(tiled, direction=Direction.FASTER)], "")
    story.store.findings.set_state(1, FindingState.IGNORED)
    assert ignored(story.store.findings.active()) == {(tiled, Direction.SLOWER), (naive, Direction.SLOWER)}
    assert story.store.findings.update(4, [(1, tiled, 1), (1, naive, 1)], []) == FindingUpdates(resolved=(1,))


def test_an_accepted_finding_moves_the_level_of_its_unrecovered_series(story, five_nights, tiled, naive):
    story.raise_finding(2, [suspect(tiled), suspect(naive)], "")
    story.raise_finding(3, [suspect(tiled)], "")
    story.recover(3, [(1, naive)])
    accepted = story.store.findings.set_state(1, FindingState.ACCEPTED, reason="larger tiles", by="ann")
    assert (accepted.state, accepted.reason, accepted.by) == (FindingState.ACCEPTED, "larger tiles", "ann")
    assert story.store.baselines.get([tiled, naive], before_run=4) == {tiled: 3, naive: 1}
    assert story.store.baselines.get([tiled], before_run=3) == {tiled: 1}
    assert story.raise_finding(4, [suspect(tiled, baseline=3)], "") == [2]
    story.judge(4, story.tiled, Verdict.IMPROVEMENT)  # replaces an accepted level
    assert story.store.baselines.get([tiled], before_run=5) == {tiled: 4}


def test_only_an_active_finding_can_be_accepted(story, five_nights, tiled):
    with pytest.raises(NotMeasuredError, match="there is no finding 1"):
        story.store.findings.set_state(1, FindingState.ACCEPTED, reason="so be it")
    story.raise_finding(2, [suspect(tiled)], "")
    story.recover(3, [(1, tiled)])
    with pytest.raises(UsageError, match="resolved already: back at its old level in run 3"):
        story.store.findings.set_state(1, FindingState.ACCEPTED, reason="so be it")
