"""Messages: one per night, delivered to each target by that night or a later one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from perfsvc.model import Cause, ChangeKind, Direction, EventKind, MessageText, Suspect, Verdict
from perfsvc.store import RunState
from perfsvc.store.schema.night_tables import Deliveries

STARTED = datetime(2025, 1, 1, 2, tzinfo=UTC)


@pytest.fixture
def begin(store):
    """Return a function that begins a night on its own host."""

    def begin_night(day=0, *, suite="kernels"):
        return store.nights.begin(
            host=f"host-{day}-{suite}",
            started=STARTED + timedelta(days=day),
            suite=suite,
            command_line="perfsvc nightly",
            settings={},
        )

    return begin_night


@pytest.fixture
def put(store):
    def put_message(night, targets=("team",), title="a title"):
        text = MessageText(title, "a body\nof two lines")
        return store.messages.put(night, dict.fromkeys(targets, text))

    return put_message


def undelivered(store, night):
    attempts = {(row.message_id, row.target): (row.attempts, row.error) for row in deliveries(store)}
    return [
        (delivery.night, delivery.target, *attempts[delivery.night, delivery.target])
        for delivery in store.messages.undelivered(night)
    ]


def deliveries(store):
    """Return the stored deliveries; each night of a test stores one message, so both have the same number."""
    with store.database.reading() as connection:
        return connection.execute(select(Deliveries).order_by(Deliveries.message_id, Deliveries.target)).all()


def test_a_night_without_a_message_has_nothing_to_deliver(store, begin):
    night = begin()
    assert store.messages.of_night(night) == []
    assert deliveries(store) == store.messages.undelivered(night) == []


def test_a_message_is_read_as_it_was_stored_with_its_own_key(store, begin, put):
    first, second = begin(), begin(1)
    (message,) = put(first)
    assert store.messages.of_night(first) == [message]
    assert (message.title, message.body) == ("a title", "a body\nof two lines")
    assert message.key.startswith("perfsvc-")
    assert put(second)[0].key != message.key


def test_the_messages_of_a_night_are_stored_once(store, begin, put):
    night = begin()
    first = put(night, ("team", "me"))
    assert put(night, ("team", "others"), title="another title") == first
    assert [delivery.target for delivery in deliveries(store)] == ["me", "team"]


def test_targets_with_the_same_text_share_a_message(store, begin):
    night = begin()
    slow, failed = MessageText("slower", "by 5 %"), MessageText("failed", "a case")
    messages = store.messages.put(night, {"team": slow, "me": failed, "ops": slow})
    assert {(message.title, message.body) for message in messages} == {("slower", "by 5 %"), ("failed", "a case")}
    received = {delivery.target: delivery.message.title for delivery in store.messages.undelivered(night)}
    assert received == {"team": "slower", "me": "failed", "ops": "slower"}
    assert len({message.key for message in messages}) == 2


def test_a_night_without_targets_stores_no_message(store, begin, put):
    night = begin()
    assert put(night, ()) == store.messages.of_night(night) == store.messages.undelivered(night) == []


def test_a_reminder_is_an_event_of_its_finding_stored_once_with_the_messages(store, story, begin):
    suspect = Suspect(story.judgement(story.tiled, Verdict.REGRESSION), ChangeKind.REGRESSION, Direction.SLOWER)
    (finding,) = story.raise_finding(
        story.run(), [replace(suspect, judgement=replace(suspect.judgement, cause=Cause.KERNEL))]
    )
    night = begin()
    for _ in range(2):
        store.messages.put(night, {"team": MessageText("a title", "a body")}, reminded=[finding], now=STARTED)
    (event,) = [event for event in store.findings.events(finding=finding) if event.kind is EventKind.REMINDED]
    assert (event.at, event.by, event.text) == (STARTED, "", f"in the message of night {night}")


def test_the_newest_message_of_each_target_is_known_by_its_suite(store, begin):
    first, second, other = begin(), begin(1), begin(2, suite="others")
    text = MessageText("a title", "a body")
    store.messages.put(first, {"team": text, "me": text}, now=STARTED)
    store.messages.put(second, {"team": text}, now=STARTED + timedelta(days=1))
    store.messages.put(other, {"me": text}, now=STARTED + timedelta(days=2))
    assert store.messages.newest("kernels") == {"me": STARTED, "team": STARTED + timedelta(days=1)}


def test_attempts_are_counted_until_the_message_is_delivered(store, begin, put):
    night = begin()
    key = put(night, ("me", "team"))[0].key
    store.messages.put_attempt(key, "team", error="the target answered 500")
    assert undelivered(store, night) == [(night, "me", 0, ""), (night, "team", 1, "the target answered 500")]
    store.messages.put_attempt(key, "team")
    assert undelivered(store, night) == [(night, "me", 0, "")]
    (_, delivered) = deliveries(store)
    assert (delivered.attempts, delivered.error, delivered.sent_at) == (2, "", delivered.tried_at)
    assert delivered.sent_at.tzinfo is UTC


def test_undelivered_messages_of_earlier_nights_come_oldest_first(store, begin, put):
    nights = [begin(day) for day in range(3)]
    for night in nights[:2]:
        put(night)
        store.nights.end(night, RunState.FINISHED, 0)
    put(nights[2])
    assert [delivery.night for delivery in store.messages.undelivered(nights[2])] == nights


def test_a_running_night_delivers_its_own_message(store, begin, put):
    running, here = begin(0), begin(0)
    put(running)
    assert store.messages.undelivered(here) == []
    store.nights.end(running, RunState.INTERRUPTED, None)
    assert [delivery.night for delivery in store.messages.undelivered(here)] == [running]


def test_a_later_night_delivers_for_a_night_whose_host_is_gone(store, begin, put):
    gone = begin(0)
    put(gone)
    assert [delivery.night for delivery in store.messages.undelivered(begin(2))] == [gone]


def test_messages_of_another_suite_are_not_delivered(store, begin, put):
    night = begin()
    put(night)
    store.nights.end(night, RunState.FINISHED, 0)
    assert store.messages.undelivered(begin(1, suite="others")) == []


def test_messages_are_deleted_with_their_night(store, story, begin, put):
    night = begin()
    put(night)
    story.execute("DELETE FROM nights WHERE id = :night", night=night)
    assert story.execute("SELECT * FROM messages") == story.execute("SELECT * FROM deliveries") == []
