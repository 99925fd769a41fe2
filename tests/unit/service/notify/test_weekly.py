"""Reminders of findings that nobody has looked at, and digests of quiet weeks."""

from datetime import UTC, datetime, timedelta

import pytest

from perfsvc.model import FindingState, MessageText
from perfsvc.service.notify import weekly
from perfsvc.store import Store
from tests.unit.service.notify.nights import EVERY, STARTED, WEEK, Weeks


@pytest.fixture
def weeks(tmp_path):
    with Store.open(tmp_path / "perfsvc.db") as store:
        yield Weeks(store)


SLOW = "scale/alpha[n=100] slower by 10 %"


def test_an_unseen_finding_is_repeated_once_a_week(weeks):
    weeks.night(0, slow=EVERY[:1])
    assert weeks.days((1, 6, 7, 8, 13, 14, 20, 21, 22)) == {
        7: f"{SLOW}, unanswered for 7 days",
        14: f"{SLOW}, unanswered for 14 days",
        21: f"{SLOW}, unanswered for 21 days",
    }
    assert "- finding 1, for 21 days: scale/alpha[n=100] slower by 10 %" in weeks.body()


@pytest.mark.parametrize("state", [None, FindingState.ACKNOWLEDGED, FindingState.IGNORED, FindingState.ACCEPTED])
def test_a_finding_that_a_person_has_seen_is_not_repeated(weeks, state):
    weeks.night(0, slow=EVERY)
    if state is None:
        weeks.store.findings.comment(1, "I look", by="jane")
        weeks.store.findings.assign(2, "jane", by="joe")
    for finding in (1, 2) if state else ():
        weeks.store.findings.set_state(finding, state, by="jane")
    assert weeks.days((7, 8, 14)) == {}


def test_each_finding_has_a_week_of_its_own(weeks):
    weeks.night(0, slow=EVERY[:1])
    weeks.night(3, slow=EVERY[1:])
    days = weeks.days(range(4, 11))
    assert list(days) == [7, 10]
    assert days[10].startswith("scale/beta")


def test_the_time_of_reminders_is_a_setting(weeks):
    weeks.night(0, slow=EVERY[:1])
    assert list(weeks.days(range(1, 9), remind="3d")) == [3, 6]
    assert weeks.days((9, 15, 29), remind="never") == {}
    assert weeks.days((30, 31), about=("failed",)) == {}


def test_a_night_of_another_suite_does_not_remind_and_a_repeated_stage_reminds_once(weeks):
    weeks.night(0, slow=EVERY[:1])
    assert weeks.night(8, suite="others") == []
    assert len(weeks.night(9)) == 2
    assert weekly.reminders(weeks.store, weeks.store.nights.get(3), WEEK, STARTED + timedelta(days=9)) == ()


def test_a_reminder_goes_the_routes_of_its_finding_and_is_not_recorded_if_no_target_receives_it(weeks):
    weeks.night(0, slow=EVERY[:1])
    assert weeks.night(7, route=[{"targets": ["me", "team"], "at_least": "50%"}]) == []
    routes = [{"targets": "me", "severity": "resolved"}]
    assert weeks.night(8, route=routes) == [("team", f"{SLOW}, unanswered for 8 days")]


def test_a_quiet_week_has_a_digest(weeks):
    quiet = {"digest": "weekly"}
    assert weeks.days(range(16), **quiet) == {
        7: "a quiet week: 7 nights, 2 of 2 series unchanged",
        14: "a quiet week: 7 nights, 2 of 2 series unchanged",
    }
    assert "7 nights on 1 host, all without a failed stage" in weeks.body()
    assert "2 series in the newest run 15" in weeks.body()


def test_a_digest_leaves_out_an_excluded_run(weeks):
    for day in range(3):
        weeks.night(day)
    weeks.store.exclusions.exclude(3, None, reason="the GPU was shared", by="jane")
    digest = weekly.digest(weeks.store, weeks.store.nights.get(3), STARTED - WEEK)
    assert (len(digest.nights), digest.runs) == (3, (2,))


def test_a_week_with_a_message_has_no_digest(weeks):
    weeks.night(0, digest="weekly")
    weeks.night(5, slow=EVERY[:1], digest="weekly", remind="never")
    days = weeks.days(range(6, 13), digest="weekly", remind="never")
    assert list(days) == [12]
    assert "1 open finding: perfsvc findings" in weeks.body()


def test_a_digest_is_off_by_default(weeks):
    assert weeks.days((0, 7, 8)) == {}


def test_a_failed_night_that_is_known_is_no_news_but_in_the_digest(weeks):
    weeks.night(0, fails=True)
    days = weeks.days(range(1, 8), fails=True, digest="weekly")
    assert list(days) == [7]
    assert "7 nights on 1 host, of which stages failed in night 2, night 3, night 4 and 4 more" in weeks.body()


def test_each_target_has_quiet_weeks_of_its_own(weeks):
    routes = [{"targets": "me", "severity": "failed"}]
    weeks.night(0, slow=EVERY[:1], route=routes, digest="weekly")
    weeks.night(6, slow=EVERY[1:], route=routes, digest="weekly", remind="never")
    sent = {
        day: [target for target, _ in weeks.night(day, route=routes, digest="weekly", remind="never")]
        for day in range(7, 15)
    }
    assert {day: targets for day, targets in sent.items() if targets} == {7: ["me"], 13: ["team"], 14: ["me"]}


def test_a_target_without_any_message_counts_from_the_first_night(weeks):
    weeks.night(0, slow=EVERY[:1])
    night = weeks.store.nights.get(1)
    assert weekly.quiet_targets(weeks.store, night, ["new"], STARTED + timedelta(days=6)) == {}
    for day in (7, 30):
        now = STARTED + timedelta(days=day)
        assert weekly.quiet_targets(weeks.store, night, ["new"], now) == {"new": now - WEEK}


def test_a_week_with_a_message_of_the_watchdog_is_not_quiet(weeks):
    weeks.night(0, digest="weekly")
    weeks.store.messages.put_of_watchdog(1, {"team": MessageText("host gpu2 is missing", "")})
    sent = datetime.now(UTC)
    night = weeks.store.nights.get(1)
    targets = ["team", "me"]
    assert weekly.quiet_targets(weeks.store, night, targets, sent + WEEK / 2).keys() == {"me"}
    assert weekly.quiet_targets(weeks.store, night, targets, sent + WEEK).keys() == {"me", "team"}
