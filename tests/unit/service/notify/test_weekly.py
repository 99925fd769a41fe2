"""Reminders of findings that nobody has looked at, and digests of quiet weeks."""

from datetime import UTC, datetime, timedelta

import pytest

from perfsvc.config import Settings
from perfsvc.model import (
    Case,
    Cause,
    ChangeKind,
    DeviceInfo,
    Direction,
    FindingState,
    Judgement,
    MessageText,
    Provenance,
    RootCause,
    RunState,
    Series,
    StageRow,
    StageState,
    Suspect,
    Verdict,
)
from perfsvc.notify.fake import FakeNotifier
from perfsvc.service.notify import weekly
from perfsvc.service.notify.notify import notify
from perfsvc.store import Store

FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)
GPU = DeviceInfo("cuda", "cuda:0", "GPU-1", "NVIDIA H100", "sm_90")
CASES = [Case("scale", variant, (("n", 100),)) for variant in ("alpha", "beta")]
WEEK = timedelta(days=7)
TARGETS = {"team": "TEAM_URL", "me": "MY_URL"}
ADDRESSES = {"TEAM_URL": "fake://team", "MY_URL": "fake://me"}


class Nights:
    """A night a day, whose run begins at its time; some of them raise a finding."""

    def __init__(self, store):
        self.store, self.notifier = store, FakeNotifier()

    def night(self, day, *, slow=(), suite="kernels", fails=False, **notify_settings):
        """Store a night, and return the title and the target of each message that it sends."""
        now = FIRST + timedelta(days=day)
        number = self.store.nights.begin(host="host", started=now, suite=suite, command_line="", settings={})
        run = self.store.runs.begin(Provenance(started=now, command_line="", suite=suite), night=number)
        self.store.devices.put(GPU)
        every = [Series(case, GPU.uuid, GPU.model) for case in CASES]
        self.store.verdicts.put(run, [Judgement(series, Verdict.UNCHANGED, ratio=1.0) for series in every])
        self.store.findings.update(run, [], [self.cause(case) for case in slow], now=now)
        self.store.runs.end(run, RunState.FINISHED)
        state = StageState.FAILED if fails else StageState.DONE
        self.store.nights.put_stage(number, StageRow("page", 10, state, now, 1.0, "the disk is full"))
        before = len(self.notifier.sent)
        settings = Settings(notify={"targets": TARGETS, **notify_settings})
        # The message is a little earlier than a week after that of a night which took longer.
        moment = now + timedelta(minutes=60 - day)
        fakes = {"environment": ADDRESSES, "notifier": lambda: self.notifier, "sleep": lambda _: None}
        notify(self.store, number, settings, print, now=moment, **fakes)
        self.store.nights.put_stage(number, StageRow("notify", 11, StageState.DONE, moment, 0.0, ""))
        self.store.nights.end(number, RunState.FAILED if fails else RunState.FINISHED, 0)
        return sorted((address.removeprefix("fake://"), sent.title) for address, sent in self.notifier.sent[before:])

    def cause(self, case):
        judgement = Judgement(Series(case, GPU.uuid, GPU.model), Verdict.REGRESSION, ratio=1.1, cause=Cause.KERNEL)
        return RootCause("", "it is slower", (Suspect(judgement, ChangeKind.REGRESSION, Direction.SLOWER),))

    def days(self, days, **settings):
        """The days of some nights that send anything, with the titles that the team gets."""
        sent = {day: self.night(day, **settings) for day in days}
        return {day: dict(titles)["team"] for day, titles in sent.items() if titles}

    def body(self):
        """The body of the newest message."""
        return self.notifier.sent[-1][1].body


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "perfsvc.db") as opened:
        yield opened


@pytest.fixture
def nights(store):
    return Nights(store)


SLOW = "scale/alpha[n=100] slower by 10 %"


def test_an_unseen_finding_is_repeated_once_a_week(nights):
    nights.night(0, slow=CASES[:1])
    assert nights.days(range(1, 23)) == {
        7: f"{SLOW}, unanswered for 7 days",
        14: f"{SLOW}, unanswered for 14 days",
        21: f"{SLOW}, unanswered for 21 days",
    }
    assert "- finding 1, for 21 days: scale/alpha[n=100] slower by 10 %" in nights.body()


@pytest.mark.parametrize("state", [None, FindingState.ACKNOWLEDGED, FindingState.IGNORED, FindingState.ACCEPTED])
def test_a_finding_that_a_person_has_seen_is_not_repeated(nights, state):
    nights.night(0, slow=CASES)
    if state is None:
        nights.store.findings.comment(1, "I look", by="jane")
        nights.store.findings.assign(2, "jane", by="joe")
    for finding in (1, 2) if state else ():
        nights.store.findings.set_state(finding, state, by="jane")
    assert nights.days((7, 8, 14)) == {}


def test_each_finding_has_a_week_of_its_own(nights):
    nights.night(0, slow=CASES[:1])
    nights.night(3, slow=CASES[1:])
    days = nights.days(range(4, 11))
    assert list(days) == [7, 10]
    assert days[10].startswith("scale/beta")


def test_the_time_of_reminders_is_a_setting(nights):
    nights.night(0, slow=CASES[:1])
    assert list(nights.days(range(1, 9), remind="3d")) == [3, 6]
    assert nights.days((9, 15, 29), remind="never") == {}
    assert nights.days((30, 31), about=("failed",)) == {}


def test_a_night_of_another_suite_does_not_remind_and_a_repeated_stage_reminds_once(nights):
    nights.night(0, slow=CASES[:1])
    assert nights.night(8, suite="others") == []
    assert len(nights.night(9)) == 2
    assert weekly.reminders(nights.store, nights.store.nights.get(3), WEEK, FIRST + timedelta(days=9)) == ()


def test_a_reminder_goes_the_routes_of_its_finding_and_is_not_recorded_if_no_target_receives_it(nights):
    nights.night(0, slow=CASES[:1])
    assert nights.night(7, route=[{"targets": ["me", "team"], "at_least": "50%"}]) == []
    routes = [{"targets": "me", "severity": "resolved"}]
    assert nights.night(8, route=routes) == [("team", f"{SLOW}, unanswered for 8 days")]


def test_a_quiet_week_has_a_digest(nights):
    quiet = {"digest": "weekly"}
    assert nights.days(range(16), **quiet) == {
        7: "a quiet week: 7 nights, 2 of 2 series unchanged",
        14: "a quiet week: 7 nights, 2 of 2 series unchanged",
    }
    assert "7 nights on 1 host, all without a failed stage" in nights.body()
    assert "2 series in the newest run 15" in nights.body()


def test_a_digest_leaves_out_an_excluded_run(nights):
    for day in range(3):
        nights.night(day)
    nights.store.exclusions.exclude(3, None, reason="the GPU was shared", by="jane")
    digest = weekly.digest(nights.store, nights.store.nights.get(3), FIRST - WEEK)
    assert (len(digest.nights), digest.runs) == (3, (2,))


def test_a_week_with_a_message_has_no_digest(nights):
    nights.night(0, digest="weekly")
    nights.night(5, slow=CASES[:1], digest="weekly", remind="never")
    days = nights.days(range(6, 13), digest="weekly", remind="never")
    assert list(days) == [12]
    assert "1 open finding: perfsvc findings" in nights.body()


def test_a_digest_is_off_by_default(nights):
    assert nights.days((0, 7, 8)) == {}


def test_a_failed_night_that_is_known_is_no_news_but_in_the_digest(nights):
    nights.night(0, fails=True)
    days = nights.days(range(1, 8), fails=True, digest="weekly")
    assert list(days) == [7]
    assert "7 nights on 1 host, of which stages failed in night 2, night 3, night 4 and 4 more" in nights.body()


def test_each_target_has_quiet_weeks_of_its_own(nights):
    routes = [{"targets": "me", "severity": "failed"}]
    nights.night(0, slow=CASES[:1], route=routes, digest="weekly")
    nights.night(6, slow=CASES[1:], route=routes, digest="weekly", remind="never")
    sent = {
        day: [target for target, _ in nights.night(day, route=routes, digest="weekly", remind="never")]
        for day in range(7, 15)
    }
    assert {day: targets for day, targets in sent.items() if targets} == {7: ["me"], 13: ["team"], 14: ["me"]}


def test_a_target_without_any_message_counts_from_the_first_night(nights):
    nights.night(0, slow=CASES[:1])
    night = nights.store.nights.get(1)
    assert weekly.quiet_targets(nights.store, night, ["new"], FIRST + timedelta(days=6)) == {}
    for day in (7, 30):
        now = FIRST + timedelta(days=day)
        assert weekly.quiet_targets(nights.store, night, ["new"], now) == {"new": now - WEEK}


def test_a_week_with_a_message_of_the_watchdog_is_not_quiet(nights):
    nights.night(0, digest="weekly")
    nights.store.messages.put_of_watchdog(1, {"team": MessageText("host gpu2 is missing", "")})
    sent = datetime.now(UTC)
    night = nights.store.nights.get(1)
    targets = ["team", "me"]
    assert weekly.quiet_targets(nights.store, night, targets, sent + WEEK / 2).keys() == {"me"}
    assert weekly.quiet_targets(nights.store, night, targets, sent + WEEK).keys() == {"me", "team"}
