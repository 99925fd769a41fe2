"""The message of a night: sent once, with one key, until it has arrived."""

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select, text

from perfsvc.config import Settings
from perfsvc.errors import MissingPackageError, NotSentError
from perfsvc.model import Verdict
from perfsvc.notify.fake import FakeNotifier
from perfsvc.notify.notifier import HEADER, AppriseNotifier
from perfsvc.service.nightly.night import STAGES
from perfsvc.service.notify.news import FIRST
from perfsvc.service.notify.notify import PAUSES_S, notify
from perfsvc.store import StageRow, StageState, Store
from perfsvc.store.schema.engine import transaction
from perfsvc.store.schema.night_tables import Deliveries
from tests.unit.service.notify.nights import SENT, SERIES, STARTED, TARGETS, Nights


@pytest.fixture
def nights(tmp_path):
    with Store.open(tmp_path / "perfsvc.db") as store:
        yield Nights(store)


def deliveries(store):
    with store.database.reading() as connection:
        return connection.execute(select(Deliveries).order_by(Deliveries.message_id, Deliveries.target)).all()


def key_of(store, night):
    """The key of the only message of a night."""
    (message,) = store.messages.of_night(night)
    return message.key


def undelivered(nights, *faults):
    """End a night whose message the team did not get; return the night, and its notifier."""
    night, notifier = nights.begin(), FakeNotifier({"fake://team": faults})
    with pytest.raises(NotSentError):
        nights.notify(night, notifier)
    nights.end(night)
    return night, notifier


def test_each_target_gets_the_message_once(nights):
    night, notifier = nights.begin(), FakeNotifier()
    assert nights.notify(night, notifier) == SENT
    assert sorted(address for address, _ in notifier.sent) == ["fake://me", "fake://team"]
    (message,) = {message for _, message in notifier.sent}
    assert message.title == "stage page failed"
    assert "the disk is full" in message.body
    assert nights.notify(night, notifier) == "nothing new"
    assert len(notifier.sent) == 2


def test_without_news_of_the_configured_kinds_or_without_targets_nothing_is_sent_and_no_notifier_made(nights):
    assert nights.notify(nights.begin(failed=""), None) == "nothing new"
    assert nights.store.messages.of_night(1) == []
    assert nights.notify(nights.begin(), None, about=("new",)) == "nothing new"
    assert nights.notify(nights.begin(), None, targets={}) == "no messages are sent: notify.targets is empty"


def test_a_failure_is_reported_once_and_stays_known_after_a_night_of_another_host(nights):
    assert nights.outcomes(0, 1, failed="the disk is full") == [SENT, "nothing new"]
    nights.outcomes(2, host="other")
    assert nights.outcomes(3, failed="the disk is full") == ["nothing new"]
    assert nights.outcomes(4, failed="another reason") == [SENT]


PRUNE = ("prune", 12)
FAILED = StageRow(*PRUNE, StageState.FAILED, STARTED, 1.0, "the database is locked", "")
AFTER_NOTIFYING = {
    "prune: the database is locked (in night 1)": lambda nights, night: nights.store.nights.put_stage(night, FAILED),
    "prune: the night was killed or stopped at this stage (in night 1)": lambda nights, night: nights.kill(
        night, PRUNE
    ),
    "notify: the night was killed or stopped after this stage (in night 1)": lambda nights, night: nights.kill(night),
}


@pytest.mark.parametrize("text", AFTER_NOTIFYING)
def test_what_fails_or_is_killed_after_the_notification_is_reported_by_the_next_night_once(nights, text):
    first, second, third = nights.bodies(0, 1, 2, then=lambda night: AFTER_NOTIFYING[text](nights, night))
    assert (first, third) == ("", "")
    assert text in second


def test_nights_killed_before_their_notification_are_reported_by_the_next_night_once(nights):
    assert STAGES[0].name == FIRST
    nights.kill(nights.begin("", stages=False))
    first, second = nights.bodies(1, 2)
    assert "lock: the night was killed or stopped before this stage (in night 1)" in first
    assert second == ""
    for day in (3, 4):
        nights.kill(nights.begin("", day=day), ("run", 11))
    first, second = nights.bodies(5, 6)
    assert "run: the night was killed or stopped at this stage (in night 5)" in first
    assert "(in night 4)" not in first
    assert second == ""


def test_what_failed_in_a_killed_night_is_reported_by_the_next_night_once_unless_people_know_it(nights):
    nights.kill(nights.begin("the disk is full"))
    first, second = nights.bodies(1, 2)
    assert "the disk is full (in night 1)" in first
    assert second == ""
    nights.bodies(3, failed="the GPU is gone")
    nights.kill(nights.begin("the GPU is gone", day=4))
    assert "the GPU is gone" not in "".join(nights.bodies(5, failed="the GPU is gone"))


def test_killed_nights_of_two_hosts_are_both_reported_and_no_night_that_a_person_resumed(nights):
    stopped = [nights.begin("", host=host) for host in ("host", "other", "resumed")]
    for night in stopped:
        nights.kill(night, ("run", 11))
    nights.store.nights.resume(stopped[2])
    again = STARTED + timedelta(days=1, hours=20)
    nights.store.nights.put_stage(stopped[2], StageRow("run", 11, StageState.RUNNING, again))
    (body,) = nights.bodies(2)
    assert [f"(in night {number})" in body for number in stopped] == [True, True, False]


def test_another_host_does_not_report_that_a_night_still_prunes(nights):
    here = nights.begin("")
    nights.notify(here, None)
    nights.end(here)
    nights.store.nights.put_stage(here, StageRow("prune", 12, StageState.RUNNING, STARTED))
    assert nights.notify(nights.begin("", day=1, host="other"), None) == "nothing new"


def test_a_night_running_on_another_host_reports_its_own_run(nights):
    """Two hosts share a server, and the night that began first is the last to notify people."""
    elsewhere, here = nights.begin("", host="other"), nights.begin("")
    nights.measure(elsewhere, Verdict.REGRESSION, finding=True)
    assert nights.notify(here, None) == "nothing new"
    nights.end(here)
    assert nights.notify(elsewhere, FakeNotifier()) == SENT


def test_a_night_killed_after_another_host_has_notified_is_reported_by_the_next(nights):
    elsewhere, here = nights.begin("", host="other"), nights.begin("")
    nights.measure(elsewhere, Verdict.REGRESSION, finding=True)
    nights.notify(here, None)
    nights.end(here)
    nights.kill(elsewhere)
    assert nights.outcomes(1, 2) == [SENT, "nothing new"]


def test_a_killed_night_is_reported_once_even_with_a_wrong_clock(nights):
    killed = nights.begin("")
    nights.measure(killed, Verdict.REGRESSION, finding=True)
    nights.kill(killed)
    with transaction(nights.store.database.engine, writes=True) as connection:
        connection.execute(text("UPDATE nights SET finished_at = '2099-01-01 00:00:00.000000'"))
    assert nights.outcomes(1, 2) == [SENT, "nothing new"]
    assert nights.outcomes(3, host="other") == ["nothing new"]


def test_a_case_that_still_fails_is_not_reported_again_after_a_night_without_a_run_or_under_a_new_name(nights):
    renamed = replace(SERIES, case=replace(SERIES.case, variant="gamma", formerly=("beta",)))
    for day, series in ((0, SERIES), (1, SERIES), (3, SERIES), (5, renamed)):
        night = nights.begin("", day=day)
        nights.measure(night, Verdict.BROKEN, series=series)
        assert nights.notify(night, FakeNotifier()) == ("nothing new" if day else SENT)
        nights.end(night)
        nights.outcomes(day + 1, failed="no device answers" if day else "")


def test_a_message_that_did_not_arrive_is_tried_again_with_backoff_and_the_same_key(nights):
    night, notifier = nights.begin(), FakeNotifier({"fake://team": ("down", "hang")})
    assert nights.notify(night, notifier) == SENT
    assert notifier.tried == ["fake://team", "fake://me", "fake://team", "fake://team"]
    assert nights.sleeps == list(PAUSES_S)
    assert nights.reported == [
        "team did not get the message of night 1: the target answered 500 Internal Server Error",
        "team did not get the message of night 1: the target did not answer in time",
    ]
    assert [delivery.attempts for delivery in deliveries(nights.store)] == [1, 3]


def test_a_refused_message_is_tried_again_by_the_next_night_only(nights):
    night, notifier = nights.begin(), FakeNotifier({"fake://team": ("refuse",)})
    with pytest.raises(NotSentError, match="team did not get its message: the target answered 404 Not Found") as raised:
        nights.notify(night, notifier)
    assert notifier.tried == ["fake://team", "fake://me"]
    assert 'apprise -vv -b test "$TEAM_URL"' in raised.value.cure
    nights.end(night)
    assert nights.notify(nights.begin(failed="", day=1), notifier) == "sent to team"  # without news of its own


def test_an_undelivered_message_is_sent_the_next_night_before_its_own(nights):
    first, notifier = undelivered(nights, *("down",) * len(PAUSES_S))
    second = nights.begin("another reason", day=1)
    assert nights.notify(second, notifier) == "sent to team, me"
    keys = [message.key for address, message in notifier.sent if address == "fake://team"]
    assert keys == [key_of(nights.store, night) for night in (first, second)]


def test_a_refused_message_does_not_block_later_ones(nights):
    _, notifier = undelivered(nights, "refuse", "refuse")
    second = nights.begin("another reason", day=1)
    with pytest.raises(NotSentError, match="404"):
        nights.notify(second, notifier)
    keys = [message.key for address, message in notifier.sent if address == "fake://team"]
    assert keys == [key_of(nights.store, second)]


def test_the_other_messages_of_a_target_that_hangs_are_not_tried(nights):
    _, notifier = undelivered(nights, *("hang",) * 100)
    before = len(notifier.tried)
    with pytest.raises(NotSentError):
        nights.notify(nights.begin("another reason", day=1), notifier)
    assert notifier.tried[before:].count("fake://team") == len(PAUSES_S)


@pytest.mark.parametrize("addresses", [{"MY_URL": "fake://me"}, {"MY_URL": "fake://me", "TEAM_URL": " "}])
def test_an_unset_variable_affects_its_target_only(nights, addresses):
    night, notifier = nights.begin(), FakeNotifier()
    unset = "team did not get its message: the environment variable TEAM_URL is not set"
    with pytest.raises(NotSentError, match=unset) as raised:
        nights.notify(night, notifier, addresses=addresses)
    assert raised.value.cure == "set TEAM_URL where nights begin; the next night sends it again"
    assert [address for address, _ in notifier.sent] == ["fake://me"]
    assert nights.notify(night, notifier) == "sent to team"


def test_without_apprise_the_message_is_kept(nights, monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    night = nights.begin()
    with pytest.raises(MissingPackageError, match="apprise"):
        notify(nights.store, night, Settings(notify={"targets": TARGETS}), nights.reported.append)
    assert nights.notify(night, FakeNotifier()) == SENT


# --- over HTTP -------------------------------------------------------------------------------------------------------


@pytest.fixture
def web(nights, receiver):
    """Return a function that sends the message of a night over HTTP."""
    addresses = {"TEAM_URL": receiver.address()}

    def send(night, limit_s=10.0):
        return nights.notify(night, AppriseNotifier(limit_s), {"team": "TEAM_URL"}, addresses=addresses)

    return send


def keys(receiver):
    return [request.headers[HEADER] for request in receiver.received]


def test_a_target_that_answers_with_two_errors_gets_the_third_attempt(nights, receiver, web):
    receiver.answers = [500, 500]
    assert web(nights.begin()) == "sent to team"
    assert keys(receiver) == [key_of(nights.store, 1)] * 3


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "limit_s"), [(500, 10.0), ("close", 10.0), ("hang", 0.5), ("drip", 0.5)])
def test_a_target_that_does_not_accept_the_message_gets_it_the_next_night(nights, receiver, web, answer, limit_s):
    receiver.answers = [answer] * len(PAUSES_S)
    first = nights.begin()
    with pytest.raises(NotSentError) as raised:
        web(first, limit_s)
    nights.end(first)
    assert web(nights.begin(failed="", day=1)) == "sent to team"
    assert set(keys(receiver)) == {key_of(nights.store, first)}
    stored = " ".join(delivery.error for delivery in deliveries(nights.store))
    assert "a-secret-token" not in f"{raised.value}{stored}{nights.reported}"


KILLED = """
    import os, signal, sys
    from perfsvc.config import Settings
    from perfsvc.notify.notifier import AppriseNotifier
    from perfsvc.service.notify.notify import notify
    from perfsvc.store import Store

    class Deadly(AppriseNotifier):
        def send(self, message, address):
            super().send(message, address)
            os.kill(os.getpid(), signal.SIGKILL)

    with Store.open(sys.argv[1]) as store:
        settings = Settings(notify={"targets": {"team": "TEAM_URL"}})
        notify(store, 1, settings, print, notifier=Deadly)
"""


@pytest.mark.slow
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
    assert web(night) == "sent to team"
    first, second = receiver.received
    assert first.headers[HEADER] == second.headers[HEADER] == key_of(nights.store, night)
    assert first.content == second.content
    assert web(night) == "nothing new"
