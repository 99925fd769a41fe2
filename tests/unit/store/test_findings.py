"""Findings after runs: raised, joined, seen again, recovered; and updates that are killed or repeated."""

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
    RootCause,
    Suspect,
    Verdict,
)
from perfsvc.service.findings import actions
from perfsvc.service.findings.suspects import ignored
from perfsvc.suite import Selection
from tests.unit.store.conftest import ON_BOTH, counted, suspect

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@ON_BOTH
def test_a_finding_names_its_series_which_get_no_second_one(story, five_nights, tiled, naive):
    warm = replace(naive, cache=CacheState.WARM)
    assert story.raise_finding(2, [suspect(tiled), suspect(naive, ratio=1.3)], "the old one is faster") == [1]
    (finding,) = story.store.findings.active()
    assert (finding.cause, finding.changes) == (Cause.KERNEL, (ChangeKind.REGRESSION,))
    assert (finding.direction, finding.devices) == (Direction.SLOWER, {"GPU-1": "NVIDIA H100"})
    assert (finding.first_run, finding.last_run, finding.state) == (2, 2, FindingState.OPEN)
    assert (finding.evidence, finding.reason, finding.by) == ("the old one is faster", "", "")
    moved = {each.series: (each.ratio, each.baseline_run, each.last_run) for each in finding.moved}
    assert moved == {tiled: (1.2, 1, 2), naive: (1.3, 1, 2)}
    assert story.raise_finding(3, [suspect(tiled, ratio=1.4), suspect(warm)]) == [1, 2]
    second, first = story.store.findings.active()
    assert {each.series: each.ratio for each in first.moved} == {tiled: 1.4, naive: 1.3}
    assert [each.series for each in second.moved] == [warm]
    assert (first.first_run, first.last_run) == (2, 3)


def test_a_renamed_case_stays_in_its_finding(story, five_nights, tiled):
    story.raise_finding(2, [suspect(tiled)], "")
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    night = story.run(renamed)
    shared = story.series(renamed)
    assert story.raise_finding(night, [suspect(shared)], "") == [1]
    assert [moved.series for finding in story.store.findings.active() for moved in finding.moved] == [shared]
    assert story.recover(night, [(1, shared)]) == [1]


def test_a_finding_is_resolved_once_all_its_series_are_back(story, five_nights, tiled, naive):
    joules = replace(tiled, metric="energy_j")
    story.raise_finding(2, [suspect(tiled), suspect(naive), suspect(joules)], "")
    story.raise_finding(2, [suspect(tiled, direction=Direction.FASTER)], "")
    assert story.recover(3, [(1, joules), (1, naive), (2, tiled)]) == [2]
    (finding,) = story.store.findings.active()
    assert {moved.series: moved.recovered_run for moved in finding.moved} == {tiled: None, naive: 3, joules: 3}
    assert story.recover(4, [(1, tiled)]) == [1]
    assert story.store.findings.active() == []
    finding = story.store.findings.get(1)
    assert (finding.state, finding.reason) == (FindingState.RESOLVED, "back at its old level in run 4")


def test_the_events_of_many_series_name_some_and_count_the_others_which_recover_in_few_statements(story, tiled):
    cases = [replace(story.tiled, variant=f"v{place}") for place in range(100, 120)]
    story.run(story.tiled, *cases)
    second, third = story.run(story.tiled, *cases), story.run(story.tiled, *cases)
    cause = RootCause("a..b", "it is slower", (suspect(tiled),))
    story.store.findings.update(second, [], [cause])
    more = tuple(suspect(story.series(case)) for case in cases)
    story.store.findings.update(third, [], [replace(cause, suspects=more)])
    ids = [case.id for case in cases]
    (joined,) = story.store.findings.events(run=third)
    assert joined.text == f"{', '.join(ids[:3])} and 17 more: it is slower"
    split = [story.series(case) for case in cases[:10]]
    number = story.store.findings.set_state(1, FindingState.ACKNOWLEDGED, by="ann", series=split).id
    text = next(event.text for event in story.store.findings.events(finding=number) if event.kind is EventKind.SPLIT)
    assert text == f"{', '.join(ids[:3])} and 7 more was part of finding 1"
    with counted(story.store) as statements:
        rest = [moved.series for moved in story.store.findings.get(1).moved]
        assert (len(rest), story.recover(third, [(1, series) for series in rest])) == (11, [1])
    assert len(statements) < 16


def test_a_change_that_comes_back_reopens_its_finding_with_the_evidence_of_today(story, five_nights, tiled):
    story.raise_finding(2, [suspect(tiled)], "11 times as slow", "aaa..bbb")
    story.recover(3, [(1, tiled)])
    assert story.raise_finding(4, [suspect(tiled)], "3 times as slow", "aaa..bbb") == [1]
    (finding,) = story.store.findings.active()
    assert (finding.state, finding.last_run, finding.moved[0].recovered_run) == (FindingState.OPEN, 4, None)
    assert finding.evidence == "3 times as slow"
    story.store.findings.set_state(1, FindingState.RESOLVED, by="ann")  # too early, whatever code came since
    assert story.raise_finding(5, [suspect(tiled)], "", "ccc..ddd") == [1]


def test_another_root_cause_baseline_or_cause_after_a_recovery_is_a_new_finding(story, five_nights, tiled):
    story.raise_finding(2, [suspect(tiled)], "11 times as slow", "aaa..bbb")
    story.recover(3, [(1, tiled)])
    assert story.raise_finding(4, [suspect(tiled)], "3 times as slow", "ccc..ddd") == [2]
    first, second = story.store.findings.get(1), story.store.findings.get(2)
    assert (first.state, first.root_cause, first.last_run) == (FindingState.RESOLVED, "aaa..bbb", 2)
    assert (second.state, second.root_cause, second.evidence) == (FindingState.OPEN, "ccc..ddd", "3 times as slow")
    story.recover(5, [(2, tiled)])
    assert story.raise_finding(story.run(), [suspect(tiled, baseline=5)], "", "ccc..ddd") == [3]
    story.recover(cold := story.run(), [(3, tiled)])
    driver = suspect(tiled, cause=Cause.ENVIRONMENT, baseline=5)
    assert story.raise_finding(cold, [driver], "the driver is another") == [4]
    assert story.store.findings.get(3).state is FindingState.RESOLVED
    assert story.raise_finding(again := story.run(), [suspect(tiled, baseline=5)], "slow again") == [5]
    assert story.store.findings.get(4).moved[0].recovered_run == again  # the code explains it


@ON_BOTH
def test_two_hosts_that_raise_a_root_cause_at_once_raise_one_finding(story, five_nights, tiled, naive):
    """The second host begins just before the first one inserts its finding, and still joins that finding."""
    other = Thread(target=story.raise_finding, args=(3, [suspect(naive)], "there", "abc..def"))

    def meanwhile(_connection, _cursor, statement, *_):
        if statement.startswith("INSERT INTO findings") and not other.ident:
            other.start()
            other.join(0.3)

    event.listen(story.store.database.engine, "before_cursor_execute", meanwhile)
    story.raise_finding(2, [suspect(tiled)], "here", "abc..def")
    other.join()
    (finding,) = story.store.findings.active()
    assert {moved.series for moved in finding.moved} == {tiled, naive}


def test_a_later_run_and_another_device_join_the_finding_of_their_root_cause(story, five_nights, tiled, naive):
    story.put(3, story.tiled, device="GPU-2")
    story.raise_finding(2, [suspect(tiled)], "first", "abc..def")
    other_device = replace(tiled, device="GPU-2")
    assert story.raise_finding(3, [suspect(other_device), suspect(naive)], "second", "abc..def") == [1]
    (finding,) = story.store.findings.active()
    assert {moved.series for moved in finding.moved} == {tiled, other_device, naive}
    assert (finding.first_run, finding.last_run, finding.devices.keys()) == (2, 3, {"GPU-1", "GPU-2"})
    (joined,) = story.store.findings.events(run=3)
    assert (joined.kind, joined.text) == (EventKind.JOINED, f"{naive.case.id}, {tiled.case.id}: second")


def test_another_direction_metric_cause_or_root_cause_is_a_separate_finding(story, five_nights, tiled, naive):
    story.raise_finding(2, [suspect(tiled)], "", "abc..def")
    for number, (other, root_cause) in enumerate(
        [
            (suspect(tiled, direction=Direction.FASTER), "abc..def"),
            (suspect(replace(tiled, metric="energy_j"), cause=Cause.TOOLCHAIN), "abc..def"),
            (suspect(naive), "def..fed"),
            (suspect(replace(naive, metric="energy_j")), ""),
            (suspect(replace(naive, metric="steps")), ""),
        ],
        start=2,
    ):
        assert story.raise_finding(3, [other], "", root_cause) == [number]


def test_no_series_joins_an_ignored_or_closed_finding(story, five_nights, tiled):
    for number, state in enumerate([FindingState.IGNORED, FindingState.ACCEPTED, FindingState.RESOLVED], start=1):
        assert story.raise_finding(2, [suspect(replace(tiled, metric=f"m{number}"))], "", "abc..def") == [number]
        story.store.findings.set_state(number, state)


class KilledError(BaseException):
    """Simulates a killed process: nothing catches it."""


def killed_at(store, statement, do):
    """Call a function and kill it before its n-th SQL statement; return whether it came that far."""
    remaining = [statement]

    def count(*_):
        remaining[0] -= 1
        if remaining[0] < 0:
            raise KilledError

    event.listen(store.database.engine, "before_cursor_execute", count)
    try:
        do()
    except KilledError:
        return True
    finally:
        event.remove(store.database.engine, "before_cursor_execute", count)
    return False


def stored(store):
    """All stored findings and events, without their times."""
    every = [replace(finding, at=NOW) for finding in store.findings.all()]
    return every, [(event.finding, event.kind, event.run, event.text) for event in store.findings.events()]


@pytest.mark.slow
@ON_BOTH
def test_an_update_killed_at_any_statement_can_be_repeated(story, five_nights, tiled, naive):
    joules = replace(tiled, metric="energy_j")
    warm = replace(tiled, cache=CacheState.WARM)
    story.raise_finding(2, [suspect(tiled), suspect(warm)], "", "abc..def")
    story.raise_finding(2, [suspect(naive)], "", "123..456")
    story.store.findings.set_state(2, FindingState.IGNORED, until=NOW)
    causes = [
        RootCause("abc..def", "joins", (suspect(joules),)),
        RootCause("fed..987", "new", (suspect(joules, 0.8, direction=Direction.FASTER),)),
    ]
    before = stored(story.store)

    def update_findings():
        return story.store.findings.update(3, [(1, tiled, 1)], causes, now=NOW)

    statement = 0
    while killed_at(story.store, statement, update_findings):
        assert stored(story.store) == before
        statement += 1
    after = stored(story.store)
    assert statement > 10
    assert [kind for _, kind, run, _ in after[1] if run == 3] == [
        EventKind.JOINED,
        EventKind.RAISED,
        EventKind.REOPENED,
    ]
    update_findings()
    assert stored(story.store) == after


def test_an_old_run_neither_resolves_nor_reopens_newer_findings(story, five_nights, tiled, naive):
    story.raise_finding(4, [suspect(tiled), suspect(naive)], "", "abc..def")
    assert story.store.findings.update(3, [(1, tiled, 1), (1, naive, 1)], []) == FindingUpdates()
    story.store.findings.set_state(1, FindingState.ACCEPTED, reason="so be it")
    after = stored(story.store)
    updates = story.store.findings.update(3, [], [RootCause("abc..def", "", (suspect(tiled),))])
    assert updates == FindingUpdates(seen=(1,))
    assert stored(story.store) == after


def test_a_reused_name_and_its_former_owner_have_separate_findings(story, tiled):
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    story.run()
    for _ in range(3):  # from run 2 on, another case has the former name
        story.run(renamed, story.tiled)
    shared = story.series(renamed)
    assert story.raise_finding(2, [suspect(shared)], "", "abc..def") == [1]
    assert story.raise_finding(3, [suspect(tiled)], "", "def..fed") == [2]
    assert [moved.series for finding in story.store.findings.active() for moved in finding.moved] == [tiled, shared]
    assert story.recover(4, [(1, shared)]) == [1]
    assert [finding.id for finding in story.store.findings.active()] == [2]


def test_a_confirmation_is_found_under_the_present_name_of_its_case(story, tiled):
    first, second = story.run(), story.run()
    judged = replace(suspect(tiled).judgement, baseline_run=first, candidate_run=second)
    moved = Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER)
    story.store.confirmations.put(Confirmation(moved, Cause.NOISE, "gone", 0.01, seed=1, budget_s=9.0))
    renamed = replace(story.tiled, variant="shared", formerly=("tiled",))
    story.run(renamed)
    assert story.store.confirmations.series([second]) == {story.series(renamed)}
    (answer,) = story.store.confirmations.of_run(second)
    assert (answer.suspect.series, answer.suspect.judgement.candidate_s) == (story.series(renamed), judged.candidate_s)


def test_a_finding_has_the_evidence_of_its_own_series_whatever_shares_its_root_cause(story, five_nights, tiled, naive):
    story.raise_finding(2, [suspect(tiled, cause=Cause.TOOLCHAIN)], "", "nvcc 13 → nvcc 14")
    known = replace(suspect(tiled), evidence="its code is 50.0 % slower")
    new = replace(suspect(naive), evidence="its code is 5.0 % slower")
    evidence = f"{tiled.case.id}: {known.evidence}"
    assert story.raise_finding(3, [known, new], evidence, "abc..def") == [1, 2]
    assert story.store.findings.get(2).evidence == f"{naive.case.id}: its code is 5.0 % slower"
    (event,) = story.store.findings.events(run=3, finding=2)
    assert event.text == f"{naive.case.id}: its code is 5.0 % slower"


def test_deleting_the_run_in_which_a_series_recovered_accepts_no_slow_level(story, five_nights, tiled, naive):
    cause = RootCause("a..b", "it is slower", (suspect(naive),))
    story.store.findings.update(2, [], [replace(cause, suspects=(suspect(tiled), suspect(naive)))])
    story.store.findings.update(3, [(1, tiled, 1)], [cause])
    story.store.findings.update(4, [], [cause])
    story.store.findings.set_state(1, FindingState.ACCEPTED, by="ann")
    assert story.store.baselines.get([tiled, naive], 9) == {tiled: 1, naive: 4}
    story.store.exclusions.delete(3, reason="it was a test", by="ann")
    assert story.store.baselines.get([tiled, naive], 9) == {tiled: 1, naive: 4}
    recovered = {moved.series: moved.recovered_run for moved in story.store.findings.get(1).moved}
    assert recovered == {tiled: 4, naive: None}


# --- what people do to findings --------------------------------------------------------------------------------------


@pytest.fixture
def finding_1(story, five_nights, tiled, naive):
    """A finding of both cases, raised in run 2."""
    assert story.raise_finding(2, [suspect(tiled), suspect(naive)], "the old one is faster", "abc..def") == [1]


def kinds(store, finding):
    return [event.kind for event in store.findings.events(finding=finding)]


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
    assert story.store.findings.update(4, [(1, tiled, 1), (1, naive, 1)], []) == FindingUpdates()
    assert ignored(story.store.findings.active()) == set()


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
