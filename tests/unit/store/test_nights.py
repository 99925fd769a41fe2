"""Nights: begun, resumed, ended; their stages; and resumed runs."""

import os
import platform
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from perfsvc.errors import NotMeasuredError
from perfsvc.model import EventKind, MessageText, Status
from perfsvc.store import RunState, StageRow, StageState, Store
from perfsvc.store.schema.night_tables import Deliveries
from tests.unit.store.conftest import ON_BOTH, suspect

HOST = platform.node()
STARTED = datetime(2025, 1, 1, 2, tzinfo=UTC)
UNUSED_PID = 2**22 + 1
"""A process id that the kernel never assigns."""


@pytest.fixture
def begin(store):
    def begin_night(host=HOST, **given):
        known = {"suite": "kernels", "command_line": "perfsvc nightly", "settings": {"run": {"replicas": 3}}}
        return store.nights.begin(host=host, started=STARTED, **{**known, **given})

    return begin_night


def kill(story, night, process=UNUSED_PID):
    """Make a stored night look as if its process had been killed."""
    story.execute("UPDATE nights SET pid = :pid, process_start = '' WHERE id = :night", pid=process, night=night)


@ON_BOTH
def test_a_night_is_read_as_it_was_stored(store, begin):
    number = begin()
    night = store.nights.get(number)
    assert (night.state, night.started, night.finished) == (RunState.RUNNING, STARTED, None)
    assert (night.host, night.pid, night.suite, night.command_line) == (HOST, os.getpid(), "kernels", "perfsvc nightly")
    assert night.settings == {"run": {"replicas": 3}}
    assert (night.run, night.commit, night.suite_digest, night.exit_code, night.stages) == (None, "", "", None, ())
    assert store.nights.list() == [night]
    doctor = StageRow("doctor", 2, StageState.FAILED, STARTED, 0.5, "no driver", "install one", 5)
    lock = StageRow("lock", 0, StageState.DONE, STARTED, 0.0, "taken")
    for stage in (StageRow("doctor", 2, StageState.RUNNING, STARTED), lock, doctor):
        store.nights.put_stage(number, stage)
    store.nights.put_revision(number, commit="abc", dirty=True, digest="aa")
    store.nights.end(number, RunState.FINISHED, 1)
    night = store.nights.get(number)
    assert (night.state, night.exit_code) == (RunState.FINISHED, 1)
    assert night.finished.tzinfo is UTC
    assert (night.commit, night.dirty, night.suite_digest) == ("abc", True, "aa")
    assert night.stages == (lock, doctor)  # in their order, each in its last state


def test_a_night_knows_its_run_as_soon_as_it_begins_and_an_unknown_night_is_an_error(story, begin):
    number = begin()
    run = story.store.runs.begin(story.provenance(), night=number)
    assert story.store.nights.get(number).run == run
    story.execute("DELETE FROM runs")
    assert story.store.nights.get(number).run is None
    with pytest.raises(NotMeasuredError, match="there is no night 7"):
        story.store.runs.begin(story.provenance(), night=7)
    assert story.store.runs.list() == []
    for ask in (story.store.nights.get, story.store.nights.resume):
        with pytest.raises(NotMeasuredError, match="there is no night 7"):
            ask(7)


def test_beginning_a_night_interrupts_the_dead_nights_of_the_host(story, begin):
    dead, elsewhere, alive = begin(), begin(host="another"), begin()
    for night in (dead, elsewhere):
        kill(story, night)
    begin()
    states = [story.store.nights.get(night).state for night in (dead, elsewhere, alive)]
    assert states == [RunState.INTERRUPTED, RunState.RUNNING, RunState.RUNNING]


def test_a_night_that_died_can_be_resumed_by_this_process_and_a_running_one_cannot(story, begin):
    nights = story.store.nights
    number = begin()
    assert nights.running(HOST).id == number
    assert nights.running("another") is None
    assert nights.unfinished(HOST) is None
    kill(story, number)
    assert nights.running(HOST) is None
    assert nights.unfinished(HOST).id == number
    nights.end(number, RunState.INTERRUPTED, None)
    assert nights.unfinished(HOST).id == number
    nights.resume(number)
    night = nights.get(number)
    assert (night.state, night.finished, night.pid) == (RunState.RUNNING, None, os.getpid())
    nights.end(number, RunState.INTERRUPTED, None)
    nights.end(begin(), RunState.FINISHED, 0)
    assert nights.unfinished(HOST) is None  # only the newest can be resumed


def test_a_resumed_run_is_running_and_has_its_measurements(story):
    run = story.begin()
    story.put(run, story.tiled, samples=(0.5, 0.25))
    story.put(run, story.naive, replica=1, status=Status.WRONG, reason="off by one")
    story.store.runs.end(run, RunState.INTERRUPTED)
    story.store.runs.resume(run)
    row = story.store.runs.get(run)
    assert (row.state, row.finished) == (RunState.RUNNING, None)
    stored = [
        (each.case.id, each.device, each.replica, each.status, each.reason, each.samples_s)
        for each in story.store.measurements.of_run(run)
    ]
    assert stored == [
        (story.tiled.id, "GPU-1", 0, Status.OK, "", (0.5, 0.25)),
        (story.naive.id, "GPU-1", 1, Status.WRONG, "off by one", ()),
    ]
    assert story.store.measurements.of_run(run + 1) == []
    with pytest.raises(NotMeasuredError):
        story.store.runs.resume(run + 1)


@pytest.mark.parametrize("kind", ["postgresql"])
def test_one_connection_holds_the_lock_of_a_hosts_nights_until_it_ends(place, kind):
    with Store.open(place) as first, Store.open(place) as second:
        lock, other = first.nights.lock("box"), second.nights.lock("box")
        assert lock.take()
        assert lock.take()
        assert not other.take()
        elsewhere = second.nights.lock("another")
        assert elsewhere.take()
        elsewhere.release()
        lock.release()
        assert other.take()
        other.release()
        assert lock.take()
        with second.database.writing() as connection:
            ends = "SELECT pg_terminate_backend(pid) FROM pg_locks"
            connection.exec_driver_sql(f"{ends} WHERE locktype = 'advisory' AND pid <> pg_backend_pid()")
        until = time.monotonic() + 10
        while not other.take():
            assert time.monotonic() < until
        other.release()
        lock.release()


def test_nights_of_a_file_need_no_lock(store):
    assert store.nights.lock("box") is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has PID namespaces")
def test_a_night_of_another_container_is_running(story, begin):
    night = begin()
    ((start,),) = story.execute("SELECT process_start FROM nights")
    ticks, namespace = start.split()
    story.execute("UPDATE nights SET process_start = :start", start=f"{int(ticks) + 1} {namespace}")
    assert story.store.nights.running(HOST) is None
    story.execute("UPDATE nights SET process_start = :start", start=f"{ticks} {int(namespace) + 1}")
    assert story.store.nights.running(HOST).id == night


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.fixture
def night_of(store):
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
def test_a_message_is_stored_once_with_its_own_key_for_all_targets_with_its_text(store, night_of, put):
    first, second = night_of(), night_of(1)
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


def test_a_reminder_is_an_event_of_its_finding_stored_once_with_the_messages(store, story, night_of):
    (finding,) = story.raise_finding(story.run(), [suspect(story.series(story.tiled))])
    night = night_of()
    for _ in range(2):
        store.messages.put(night, {"team": MessageText("a title", "a body")}, reminded=[finding], now=STARTED)
    (event,) = [event for event in store.findings.events(finding=finding) if event.kind is EventKind.REMINDED]
    assert (event.at, event.by, event.text) == (STARTED, "", f"in the message of night {night}")


def test_the_newest_message_of_each_target_is_known_by_its_suite(store, night_of):
    first, second, other = night_of(), night_of(1), night_of(2, suite="others")
    text = MessageText("a title", "a body")
    store.messages.put(first, {"team": text, "me": text}, now=STARTED)
    store.messages.put(second, {"team": text}, now=STARTED + timedelta(days=1))
    store.messages.put(other, {"me": text}, now=STARTED + timedelta(days=2))
    assert store.messages.newest("kernels") == {"me": STARTED, "team": STARTED + timedelta(days=1)}


def test_attempts_are_counted_until_the_message_is_delivered(store, night_of, put):
    night = night_of()
    key = put(night, ("me", "team"))[0].key
    store.messages.put_attempt(key, "team", error="the target answered 500")
    assert undelivered(store, night) == [(night, "me", 0, ""), (night, "team", 1, "the target answered 500")]
    store.messages.put_attempt(key, "team")
    assert undelivered(store, night) == [(night, "me", 0, "")]
    (_, delivered) = deliveries(store)
    assert (delivered.attempts, delivered.error, delivered.sent_at) == (2, "", delivered.tried_at)
    assert delivered.sent_at.tzinfo is UTC


def test_a_later_night_of_the_suite_delivers_for_nights_that_ended_or_whose_host_is_gone(store, night_of, put):
    nights = [night_of(day) for day in range(3)]
    for night in nights:
        put(night)
    assert store.messages.undelivered(night_of()) == []  # the first night still runs, and delivers its own
    store.nights.end(nights[1], RunState.FINISHED, 0)
    assert [delivery.night for delivery in store.messages.undelivered(nights[2])] == nights  # oldest first
    assert store.messages.undelivered(night_of(3, suite="others")) == []


def test_messages_are_deleted_with_their_night(store, story, night_of, put):
    night = night_of()
    put(night)
    story.execute("DELETE FROM nights WHERE id = :night", night=night)
    assert story.execute("SELECT * FROM messages") == story.execute("SELECT * FROM deliveries") == []
