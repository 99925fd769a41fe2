"""Messages: one per night, delivered to each target by that night or a later one."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

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
        return store.messages.put(night, title=title, body="a body\nof two lines", targets=targets)

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
    assert store.messages.get(night) is None
    assert deliveries(store) == store.messages.undelivered(night) == []


def test_a_message_is_read_as_it_was_stored_with_its_own_key(store, begin, put):
    first, second = begin(), begin(1)
    message = put(first)
    assert store.messages.get(first) == message
    assert (message.title, message.body) == ("a title", "a body\nof two lines")
    assert message.key.startswith("perfsvc-")
    assert put(second).key != message.key


def test_a_night_has_one_message(store, begin, put):
    night = begin()
    first = put(night, ("team", "me"))
    assert put(night, ("team", "others"), title="another title") == first
    assert [delivery.target for delivery in deliveries(store)] == ["me", "team"]


def test_a_message_without_targets_is_stored(store, begin, put):
    night = begin()
    assert put(night, ()) == store.messages.get(night)
    assert store.messages.undelivered(night) == []


def test_attempts_are_counted_until_the_message_is_delivered(store, begin, put):
    night = begin()
    key = put(night, ("me", "team")).key
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
