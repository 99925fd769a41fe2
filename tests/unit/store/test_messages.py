"""Messages: one per night, delivered to each target by that night or a later one."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from perfsvc.model import EventKind, MessageText
from perfsvc.store import RunState
from perfsvc.store.schema.night_tables import Deliveries
from tests.unit.store.conftest import ON_BOTH, suspect

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


@ON_BOTH
def test_a_message_is_stored_once_with_its_own_key_for_all_targets_with_its_text(store, begin, put):
    first, second = begin(), begin(1)
    assert store.messages.of_night(first) == deliveries(store) == store.messages.undelivered(first) == []
    assert put(first, ()) == store.messages.of_night(first) == store.messages.undelivered(first) == []
    slow, failed = MessageText("slower", "by 5 %\non two lines"), MessageText("failed", "a case")
    messages = store.messages.put(first, {"team": slow, "me": failed, "ops": slow})
    assert store.messages.of_night(first) == messages
    texts = {(message.title, message.body) for message in messages}
    assert texts == {("slower", "by 5 %\non two lines"), ("failed", "a case")}
    received = {delivery.target: delivery.message.title for delivery in store.messages.undelivered(first)}
    assert received == {"team": "slower", "me": "failed", "ops": "slower"}
    assert put(first, ("team", "others"), title="another title") == messages
    assert [delivery.target for delivery in deliveries(store)] == ["me", "ops", "team"]
    keys = {message.key for message in (*messages, *put(second))}
    assert len(keys) == 3
    assert all(key.startswith("perfsvc-") for key in keys)


def test_a_reminder_is_an_event_of_its_finding_stored_once_with_the_messages(store, story, begin):
    (finding,) = story.raise_finding(story.run(), [suspect(story.series(story.tiled))])
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


def test_a_later_night_of_the_suite_delivers_for_nights_that_ended_or_whose_host_is_gone(store, begin, put):
    nights = [begin(day) for day in range(3)]
    for night in nights:
        put(night)
    assert store.messages.undelivered(begin()) == []  # the first night still runs, and delivers its own
    store.nights.end(nights[1], RunState.FINISHED, 0)
    assert [delivery.night for delivery in store.messages.undelivered(nights[2])] == nights  # oldest first
    assert store.messages.undelivered(begin(3, suite="others")) == []


def test_messages_are_deleted_with_their_night(store, story, begin, put):
    night = begin()
    put(night)
    story.execute("DELETE FROM nights WHERE id = :night", night=night)
    assert story.execute("SELECT * FROM messages") == story.execute("SELECT * FROM deliveries") == []
