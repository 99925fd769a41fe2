"""Telling people of a night: once, with one key, until it has arrived."""

import os
import signal
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from perfsvc.config import Settings
from perfsvc.errors import MissingPackageError, NotSentError
from perfsvc.model import (
    Case,
    Cause,
    ChangeKind,
    DeviceInfo,
    Direction,
    Environment,
    Judgement,
    Measurement,
    Provenance,
    RootCause,
    Series,
    Status,
    Suspect,
    Verdict,
    Work,
)
from perfsvc.notify.fake import FakeNotifier
from perfsvc.notify.notifier import HEADER, AppriseNotifier
from perfsvc.service.notify import notify
from perfsvc.service.notify.notify import PAUSES_S, Means
from perfsvc.store import MeasurementEntry, RunState, StageRow, StageState, Store
from perfsvc.store.schema.engine import transaction

STARTED = datetime(2026, 1, 1, 2, tzinfo=UTC)
TARGETS = {"team": "TEAM_URL", "me": "MY_URL"}
GPU = DeviceInfo("cuda", "cuda:0", "GPU-1", "NVIDIA H100", "sm_90")
SERIES = Series(Case("scale", "beta", (("n", 100),)), GPU.uuid, GPU.model)
ADDRESSES = {"TEAM_URL": "fake://team", "MY_URL": "fake://me"}


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "perfsvc.db") as opened:
        yield opened


class Nights:
    """Nights that have nothing to tell but of stages that failed."""

    def __init__(self, store):
        self.store, self.said, self.rests = store, [], []

    def begin(self, failed="the disk is full", *, day=0, host="host"):
        """A night of which a stage failed, if that is said."""
        night = self.store.nights.begin(
            host=host, started=STARTED + timedelta(days=day), suite="kernels", command_line="", settings={}
        )
        state = StageState.FAILED if failed else StageState.DONE
        self.store.nights.put_stage(night, StageRow("page", 10, state, STARTED, 1.0, failed, ""))
        return night

    def end(self, night):
        """Ends a night that came as far as telling people."""
        self.store.nights.put_stage(night, StageRow("notify", 11, StageState.DONE, datetime.now(UTC), 1.0, "", ""))
        self.store.nights.end(night, RunState.FINISHED, 0)

    def measure(self, night, verdict, *, finding=False):
        """A run of a night that has a verdict on one case, and a finding of it if that is said."""
        run = self.store.runs.begin(Provenance(started=STARTED, command_line="", suite="kernels"), night=night)
        self.store.devices.put(GPU)
        result = Measurement(SERIES.case, GPU.uuid, 0, Status.FAILED, reason="it fails")
        environment = Environment("580.1", "nvcc 13.0", 700.0)
        self.store.measurements.put(run, [MeasurementEntry(result, environment, Work())])
        judged = Judgement(SERIES, verdict, ratio=1.1, cause=Cause.KERNEL)
        self.store.verdicts.put(run, [judged])
        if finding:
            suspect = Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER, "")
            self.store.findings.update(run, [], [RootCause("", "it is slower", (suspect,))])
        self.store.runs.end(run, RunState.FINISHED)

    def tell(self, night, notifier, targets=TARGETS, about=("new", "resolved", "failed"), addresses=ADDRESSES):
        settings = Settings(notify={"targets": targets, "about": about})
        means = Means(addresses, lambda: notifier, self.rests.append)
        return notify(self.store, night, settings, self.said.append, means)


@pytest.fixture
def nights(store):
    return Nights(store)


def test_each_target_gets_the_message_once(nights):
    night, notifier = nights.begin(), FakeNotifier()
    assert nights.tell(night, notifier) == "told me, team"
    assert sorted(address for address, _ in notifier.sent) == ["fake://me", "fake://team"]
    (message,) = {message for _, message in notifier.sent}
    assert message.title == "stage page failed"
    assert "the disk is full" in message.body


def test_telling_it_again_sends_nothing(nights):
    night, notifier = nights.begin(), FakeNotifier()
    nights.tell(night, notifier)
    assert nights.tell(night, notifier) == "nothing new"
    assert len(notifier.sent) == 2


def test_a_night_without_news_sends_nothing_and_asks_for_no_notifier(nights):
    assert nights.tell(nights.begin(failed=""), None) == "nothing new"
    assert nights.store.messages.get(1) is None


def test_what_failed_in_the_same_words_the_night_before_is_no_news(nights):
    first, notifier = nights.begin(), FakeNotifier()
    nights.tell(first, notifier)
    nights.end(first)
    second = nights.begin(day=1)
    assert nights.tell(second, notifier) == "nothing new"
    nights.end(second)
    assert nights.tell(nights.begin("another reason", day=2), notifier) == "told me, team"


def test_what_a_night_told_nobody_for_it_was_killed_is_still_news(nights):
    killed = nights.begin()
    nights.store.nights.end(killed, RunState.INTERRUPTED, None)
    assert nights.tell(nights.begin(day=1), FakeNotifier()) == "told me, team"


def test_what_failed_on_another_host_meanwhile_does_not_make_the_same_words_news_again(nights):
    for night in (nights.begin(), nights.begin("", day=1, host="other")):
        nights.tell(night, FakeNotifier())
        nights.end(night)
    assert nights.tell(nights.begin(day=2), None) == "nothing new"


def test_what_fails_when_people_have_been_told_is_told_with_the_next_night_once(nights):
    for day in range(3):
        night, notifier = nights.begin("", day=day), FakeNotifier()
        nights.tell(night, notifier, {"me": "MY_URL"})
        pruning = StageRow("prune", 12, StageState.FAILED, STARTED, 1.0, "the database is locked", "")
        nights.store.nights.put_stage(night, pruning)
        nights.end(night)
        bodies = [message.body for _, message in notifier.sent]
        assert len(bodies) == (day == 1)
        assert all("prune: the database is locked (in night 1)" in body for body in bodies)


def test_a_night_under_way_on_another_host_tells_of_its_own_run(nights):
    """Two hosts share a server, and the night that began first is the last to tell people."""
    elsewhere, here = nights.begin("", host="other"), nights.begin("")
    nights.measure(elsewhere, Verdict.REGRESSION, finding=True)
    assert nights.tell(here, None) == "nothing new"
    nights.end(here)
    assert nights.tell(elsewhere, FakeNotifier()) == "told me, team"


def test_a_night_that_is_killed_when_another_hosts_has_told_people_is_told_with_the_next(nights):
    elsewhere, here = nights.begin("", host="other"), nights.begin("")
    nights.measure(elsewhere, Verdict.REGRESSION, finding=True)
    nights.tell(here, None)
    nights.end(here)
    nights.store.nights.end(elsewhere, RunState.INTERRUPTED, None)
    for day, told in ((1, "told me, team"), (2, "nothing new")):
        night = nights.begin("", day=day)
        assert nights.tell(night, FakeNotifier()) == told
        nights.end(night)


def test_a_night_that_was_killed_is_told_once_whatever_its_clock_said(nights):
    killed = nights.begin("")
    nights.measure(killed, Verdict.REGRESSION, finding=True)
    nights.store.nights.end(killed, RunState.INTERRUPTED, None)
    with transaction(nights.store.database.engine, writes=True) as connection:
        connection.execute(text("UPDATE nights SET finished_at = '2099-01-01 00:00:00.000000'"))
    for day, host, told in ((1, "host", "told me, team"), (2, "host", "nothing new"), (3, "other", "nothing new")):
        night = nights.begin("", day=day, host=host)
        assert nights.tell(night, FakeNotifier()) == told
        nights.end(night)


def test_a_case_that_fails_still_is_no_news_after_a_night_that_came_to_no_run(nights):
    for day, told in ((0, "told me, team"), (1, "nothing new"), (3, "nothing new")):
        night = nights.begin("", day=day)
        nights.measure(night, Verdict.BROKEN)
        assert nights.tell(night, FakeNotifier()) == told
        nights.end(night)
        lost = nights.begin("no device answers" if day else "", day=day + 1)
        nights.tell(lost, FakeNotifier())
        nights.end(lost)


def test_only_what_the_settings_ask_for_is_told(nights):
    assert nights.tell(nights.begin(), None, about=("new",)) == "nothing new"


def test_without_targets_nobody_is_told(nights):
    assert nights.tell(nights.begin(), None, targets={}) == "nobody is told: notify.targets names no one"


def test_what_does_not_arrive_is_tried_again_with_backoff_and_the_same_key(nights):
    night, notifier = nights.begin(), FakeNotifier({"fake://team": ("down", "hang")})
    assert nights.tell(night, notifier) == "told me, team"
    assert notifier.tried == ["fake://team", "fake://me", "fake://team", "fake://team"]
    assert nights.rests == list(PAUSES_S)
    assert nights.said == [
        "team was not told of night 1: the target answered 500 Internal Server Error",
        "team was not told of night 1: the target did not answer in time",
    ]
    assert [one.attempts for one in nights.store.messages.deliveries(night)] == [1, 3]


def test_what_is_refused_is_not_tried_again_tonight(nights):
    notifier = FakeNotifier({"fake://team": ("refuse",)})
    with pytest.raises(NotSentError, match="team was not told: the target answered 404 Not Found") as raised:
        nights.tell(nights.begin(), notifier)
    assert notifier.tried == ["fake://team", "fake://me"]
    assert 'apprise -vv -b test "$TEAM_URL"' in raised.value.cure


def test_what_could_not_be_delivered_is_sent_the_next_night_before_its_own(nights):
    first, notifier = nights.begin(), FakeNotifier({"fake://team": ("down",) * len(PAUSES_S)})
    with pytest.raises(NotSentError):
        nights.tell(first, notifier)
    nights.end(first)
    second = nights.begin("another reason", day=1)
    assert nights.tell(second, notifier) == "told team, me"
    keys = [message.key for address, message in notifier.sent if address == "fake://team"]
    assert keys == [nights.store.messages.get(night).key for night in (first, second)]


def test_what_could_not_be_delivered_is_sent_also_by_a_night_without_news(nights):
    first, notifier = nights.begin(), FakeNotifier({"fake://team": ("refuse",)})
    with pytest.raises(NotSentError):
        nights.tell(first, notifier)
    nights.end(first)
    assert nights.tell(nights.begin(failed="", day=1), notifier) == "told team"


def test_what_a_target_refuses_for_good_does_not_keep_later_messages_from_it(nights):
    first, notifier = nights.begin(), FakeNotifier({"fake://team": ("refuse", "refuse")})
    with pytest.raises(NotSentError):
        nights.tell(first, notifier)
    nights.end(first)
    second = nights.begin("another reason", day=1)
    with pytest.raises(NotSentError, match="404"):
        nights.tell(second, notifier)
    assert [message.key for address, message in notifier.sent if address == "fake://team"] == [
        nights.store.messages.get(second).key
    ]


def test_a_target_that_hangs_is_given_up_before_its_other_messages(nights):
    script = {"fake://team": ("hang",) * 100}
    first, notifier = nights.begin(), FakeNotifier(script)
    with pytest.raises(NotSentError):
        nights.tell(first, notifier)
    nights.end(first)
    before = len(notifier.tried)
    with pytest.raises(NotSentError):
        nights.tell(nights.begin("another reason", day=1), notifier)
    assert notifier.tried[before:].count("fake://team") == len(PAUSES_S)


@pytest.mark.parametrize("addresses", [{"MY_URL": "fake://me"}, {"MY_URL": "fake://me", "TEAM_URL": " "}])
def test_a_variable_that_is_not_set_costs_its_target_alone(nights, addresses):
    night, notifier = nights.begin(), FakeNotifier()
    with pytest.raises(NotSentError, match="team was not told: the environment variable TEAM_URL is not set") as raised:
        nights.tell(night, notifier, addresses=addresses)
    assert raised.value.cure == "set TEAM_URL where nights begin; the next night sends it again"
    assert [address for address, _ in notifier.sent] == ["fake://me"]
    assert nights.tell(night, notifier) == "told team"


def test_without_apprise_the_message_is_kept(nights, monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    night = nights.begin()
    with pytest.raises(MissingPackageError, match="apprise"):
        notify(nights.store, night, Settings(notify={"targets": TARGETS}), nights.said.append)
    assert nights.tell(night, FakeNotifier()) == "told me, team"


# --- over HTTP -------------------------------------------------------------------------------------------------------


@pytest.fixture
def web(nights, receiver):
    """Tells of a night over HTTP."""
    addresses = {"TEAM_URL": receiver.address()}

    def tell(night, limit_s=10.0):
        return nights.tell(night, AppriseNotifier(limit_s), {"team": "TEAM_URL"}, addresses=addresses)

    return tell


def keys(receiver):
    return [one.headers[HEADER] for one in receiver.received]


def test_a_target_that_answers_twice_with_an_error_is_told_by_the_third_attempt(nights, receiver, web):
    receiver.answers = [500, 500]
    assert web(nights.begin()) == "told team"
    assert keys(receiver) == [nights.store.messages.get(1).key] * 3


@pytest.mark.parametrize(("answer", "limit_s"), [(500, 10.0), ("close", 10.0), ("hang", 0.5), ("drip", 0.5)])
def test_a_target_that_never_takes_it_is_told_the_next_night(nights, receiver, web, answer, limit_s):
    receiver.answers = [answer] * len(PAUSES_S)
    first = nights.begin()
    with pytest.raises(NotSentError) as raised:
        web(first, limit_s)
    nights.end(first)
    assert web(nights.begin(failed="", day=1)) == "told team"
    assert set(keys(receiver)) == {nights.store.messages.get(first).key}
    stored = " ".join(one.error for one in nights.store.messages.deliveries(first))
    assert "a-secret-token" not in f"{raised.value}{stored}{nights.said}"


KILLED = """
    import os, signal, sys
    from perfsvc.config import Settings
    from perfsvc.notify.notifier import AppriseNotifier
    from perfsvc.service.notify import notify
    from perfsvc.service.notify.notify import Means
    from perfsvc.store import Store

    class Deadly(AppriseNotifier):
        def send(self, message, address):
            super().send(message, address)
            os.kill(os.getpid(), signal.SIGKILL)

    with Store.open(sys.argv[1]) as store:
        settings = Settings(notify={"targets": {"team": "TEAM_URL"}})
        notify(store, 1, settings, print, Means(os.environ, Deadly))
"""


def test_a_kill_between_sending_and_recording_sends_the_same_key_again(nights, receiver, web, tmp_path):
    night = nights.begin()
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), tmp_path / "perfsvc.db"],
        env=os.environ | {"TEAM_URL": receiver.address()},
        check=False,
        timeout=100,
    )
    assert ended.returncode == -signal.SIGKILL
    assert len(receiver.received) == 1
    assert web(night) == "told team"
    first, second = receiver.received
    assert first.headers[HEADER] == second.headers[HEADER] == nights.store.messages.get(night).key
    assert first.content == second.content
    assert web(night) == "nothing new"
