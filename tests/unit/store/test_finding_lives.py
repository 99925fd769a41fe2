"""Findings: joining by root cause, actions of people, and updates that are killed or repeated."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest
from sqlalchemy import event

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import (
    CacheState,
    Cause,
    ChangeKind,
    Confirmation,
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
    """Five nights that measured both cases."""
    return [story.run(story.tiled, story.naive) for _ in range(5)]


@pytest.fixture
def found(story, nights, tiled, naive):
    """A finding of both cases, raised in run 2."""
    assert story.raise_finding(2, [suspect(tiled), suspect(naive)], "the old one is faster", "abc..def") == [1]


def kinds(store, finding):
    return [event.kind for event in store.findings.events(finding=finding)]


# --- one finding a cause ---------------------------------------------------------------------------------------------


def test_two_hosts_that_raise_a_root_cause_at_once_raise_one_finding(story, nights, tiled, naive):
    """The second one begins when the first is about to put the finding in, and sees it all the same."""
    other = Thread(target=story.raise_finding, args=(3, [suspect(naive)], "there", "abc..def"))

    def meanwhile(_connection, _cursor, statement, *_):
        if statement.startswith("INSERT INTO findings") and not other.ident:
            other.start()
            other.join(1.0)

    event.listen(story.store.database.engine, "before_cursor_execute", meanwhile)
    story.raise_finding(2, [suspect(tiled)], "here", "abc..def")
    other.join()
    (one,) = story.store.findings.active()
    assert {moved.series for moved in one.moved} == {tiled, naive}


def test_a_later_run_and_another_device_join_the_finding_of_their_root_cause(story, nights, tiled, naive):
    story.put(3, story.tiled, device="GPU-2")
    story.raise_finding(2, [suspect(tiled)], "first", "abc..def")
    elsewhere = replace(tiled, device="GPU-2")
    assert story.raise_finding(3, [suspect(elsewhere), suspect(naive)], "second", "abc..def") == [1]
    (one,) = story.store.findings.active()
    assert {moved.series for moved in one.moved} == {tiled, elsewhere, naive}
    assert (one.first_run, one.last_run, one.devices.keys()) == (2, 3, {"GPU-1", "GPU-2"})
    joined = story.store.findings.events(run=3)
    assert [(event.kind, event.text) for event in joined] == [
        (EventKind.JOINED, f"{naive.case.id}, {tiled.case.id}: second")
    ]


@pytest.mark.parametrize(
    ("cause", "root_cause"), [(Cause.KERNEL, "def..fed"), (Cause.TOOLCHAIN, "abc..def"), (Cause.KERNEL, "")]
)
def test_another_cause_or_root_cause_is_a_separate_finding(story, nights, tiled, naive, *, cause, root_cause):
    story.raise_finding(2, [suspect(tiled)], "", root_cause and "abc..def")
    assert story.raise_finding(3, [suspect(naive, cause=cause)], "", root_cause) == [2]


@pytest.mark.parametrize("state", [FindingState.IGNORED, FindingState.ACCEPTED, FindingState.RESOLVED])
def test_no_series_joins_an_ignored_or_closed_finding(story, nights, tiled, naive, state):
    story.raise_finding(2, [suspect(tiled)], "", "abc..def")
    story.store.findings.set_state(1, state)
    assert story.raise_finding(3, [suspect(naive)], "", "abc..def") == [2]


# --- what persons do -------------------------------------------------------------------------------------------------


def test_every_action_is_recorded_with_its_person_and_reason(story, found):
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
    one = store.findings.get(1)
    assert (one.owner, one.state, one.reason, one.by) == ("bob", FindingState.RESOLVED, "reverted", "bob")


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (FindingState.ACKNOWLEDGED, FindingState.ACKNOWLEDGED),
        (FindingState.ACCEPTED, FindingState.ACKNOWLEDGED),
        (FindingState.ACCEPTED, FindingState.IGNORED),
        (FindingState.RESOLVED, FindingState.ACCEPTED),
    ],
)
def test_a_forbidden_change_of_state_is_refused_and_changes_nothing(story, found, first, then):
    before = story.store.findings.set_state(1, first, reason="so it is")
    with pytest.raises(UsageError, match=f"finding 1 is {first} already: so it is"):
        story.store.findings.set_state(1, then)
    assert (story.store.findings.get(1), len(kinds(story.store, 1))) == (before, 2)


def test_some_cases_of_a_finding_are_split_off(story, found, tiled, naive):
    story.store.findings.assign(1, "bob")
    one = actions.set_state(
        story.store, 1, FindingState.ACCEPTED, reason="exact", selection=Selection(("transpose/tiled",))
    )
    assert (one.id, [moved.series for moved in one.moved], one.root_cause, one.owner) == (2, [tiled], "abc..def", "bob")
    left = story.store.findings.get(1)
    assert ([moved.series for moved in left.moved], left.state) == ([naive], FindingState.OPEN)
    assert kinds(story.store, 1)[-1] is EventKind.SPLIT
    assert kinds(story.store, 2) == [EventKind.SPLIT, EventKind.ACCEPTED]
    assert story.store.baselines.get([tiled, naive], before_run=5) == {tiled: 2, naive: 1}


def test_selecting_all_cases_splits_nothing_and_selecting_none_is_refused(story, found):
    assert actions.comment(story.store, 1, "both", selection=Selection(("transpose",))).id == 1
    with pytest.raises(UsageError, match="finding 1 has no such case"):
        actions.comment(story.store, 1, "none", selection=Selection(("dot",)))
    assert len(story.store.findings.active()) == 1
    with pytest.raises(NotMeasuredError, match="there is no finding 7"):
        actions.comment(story.store, 7, "of which", selection=Selection(("dot",)))


def test_a_finding_that_a_person_resolved_reopens_if_a_run_still_shows_it(story, found, tiled):
    story.store.findings.set_state(1, FindingState.RESOLVED, by="ann")
    updates = story.store.findings.update(3, [], [RootCause("abc..def", "still slow", (suspect(tiled),))])
    assert updates == FindingUpdates(reopened=(1,))
    assert kinds(story.store, 1)[-1] is EventKind.REOPENED


def test_reopening_an_accepted_finding_revokes_its_level(story, found, tiled):
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


def test_an_ignored_finding_reopens_when_its_time_is_over(story, found):
    until = NOW + timedelta(days=2)
    story.store.findings.set_state(1, FindingState.IGNORED, by="ann", until=until)
    assert story.store.findings.update(3, [], [], now=until - timedelta(seconds=1)) == FindingUpdates()
    assert story.store.findings.update(4, [], [], now=until) == FindingUpdates(reopened=(1,))
    assert story.store.findings.update(5, [], [], now=until) == FindingUpdates()
    one = story.store.findings.get(1)
    assert (one.state, one.ignored_until) == (FindingState.OPEN, None)
    assert story.store.findings.events(run=4)[0].text == "it was ignored until 2026-01-04"


def test_an_ignored_finding_is_resolved_when_its_series_recover(story, found, tiled, naive):
    story.store.findings.set_state(1, FindingState.IGNORED)
    assert story.store.findings.update(3, [(1, tiled), (1, naive)], []) == FindingUpdates(resolved=(1,))


def test_ignoring_a_finding_ignores_its_series_in_its_direction(story, found, tiled, naive):
    story.raise_finding(3, [suspect(tiled, direction=Direction.FASTER)], "")
    story.store.findings.set_state(1, FindingState.IGNORED)
    assert ignored(story.store.findings.active()) == {(tiled, Direction.SLOWER), (naive, Direction.SLOWER)}


# --- killed, done again, done late -----------------------------------------------------------------------------------


class KilledError(BaseException):
    """What stands for a killed process: nothing catches it."""


def killed_at(store, statement, do):
    """Does something that is killed before its n-th statement; returns whether it came that far."""
    left = [statement]

    def count(*_):
        left[0] -= 1
        if left[0] < 0:
            raise KilledError

    event.listen(store.database.engine, "before_cursor_execute", count)
    try:
        do()
    except KilledError:
        return True
    finally:
        event.remove(store.database.engine, "before_cursor_execute", count)
    return False


def told(store):
    """All there is, but for when."""
    every = [replace(finding, at=NOW) for finding in store.findings.all()]
    return every, [(event.finding, event.kind, event.run, event.text) for event in store.findings.events()]


def test_an_update_killed_at_any_statement_can_be_repeated(story, nights, tiled, naive):
    joules = replace(tiled, metric="energy_j")
    warm = replace(tiled, cache=CacheState.WARM)
    story.raise_finding(2, [suspect(tiled), suspect(warm)], "", "abc..def")
    story.raise_finding(2, [suspect(naive)], "", "123..456")
    story.store.findings.set_state(2, FindingState.IGNORED, until=NOW)
    blames = [
        RootCause("abc..def", "joins", (suspect(joules),)),
        RootCause("fed..987", "new", (suspect(joules, 0.8, direction=Direction.FASTER),)),
    ]
    before = told(story.store)

    def update_findings():
        return story.store.findings.update(3, [(1, tiled)], blames, now=NOW)

    statement = 0
    while killed_at(story.store, statement, update_findings):
        assert told(story.store) == before
        statement += 1
    after = told(story.store)
    assert statement > 10
    assert [kind for _, kind, run, _ in after[1] if run == 3] == [
        EventKind.JOINED,
        EventKind.RAISED,
        EventKind.REOPENED,
    ]
    update_findings()
    assert told(story.store) == after


def test_an_old_run_neither_resolves_nor_reopens_newer_findings(story, nights, tiled, naive):
    story.raise_finding(4, [suspect(tiled), suspect(naive)], "", "abc..def")
    assert story.store.findings.update(3, [(1, tiled), (1, naive)], []) == FindingUpdates()
    story.store.findings.set_state(1, FindingState.ACCEPTED, reason="so be it")
    after = told(story.store)
    assert story.store.findings.update(3, [], [RootCause("abc..def", "", (suspect(tiled),))]) == FindingUpdates(
        seen=(1,)
    )
    assert told(story.store) == after


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def heir(story):
    """A case that had the name of ``tiled``, which was then given anew: both are measured from run 2 on."""
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    story.run()
    for _ in range(3):
        story.run(renamed, story.tiled)
    return story.series(renamed)


def test_a_reused_name_and_its_former_owner_have_separate_findings(story, heir, tiled):
    store = story.store
    assert story.raise_finding(2, [suspect(heir)], "", "abc..def") == [1]
    assert story.raise_finding(3, [suspect(tiled)], "", "def..fed") == [2]
    assert [[moved.series for moved in found.moved] for found in store.findings.active()] == [[tiled], [heir]]
    assert story.recover(4, [(1, heir)]) == [1]
    assert [found.id for found in store.findings.active()] == [2]


def test_a_confirmation_is_found_under_the_present_name_of_its_case(story, tiled):
    first, second = story.run(), story.run()
    judged = replace(suspect(tiled).judgement, baseline_run=first, candidate_run=second)
    asked = Confirmation(
        Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER), Cause.NOISE, "gone", 0.01, seed=1, budget_s=9.0
    )
    story.store.confirmations.put(asked)
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    story.run(renamed)
    assert story.store.confirmations.series([second]) == {story.series(renamed)}
    (answer,) = story.store.confirmations.of_run(second)
    assert (answer.suspect.series, answer.suspect.judgement.candidate_s) == (story.series(renamed), judged.candidate_s)
