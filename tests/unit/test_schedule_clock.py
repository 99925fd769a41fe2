"""When nights are due, what was missed, and a daemon that begins them: with clocks that jump and nights that fail."""

import os
import signal
import sys
import threading
import time as clocks
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from perfsvc.errors import DatabaseError
from perfsvc.service.scheduling import child as children
from perfsvc.service.scheduling import daemon
from perfsvc.service.scheduling.child import Child
from perfsvc.service.scheduling.clock import due_after, due_before
from perfsvc.service.scheduling.missed import CatchUp, catch_up
from perfsvc.store import NightRow, State

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = timedelta(hours=1)
NIGHT = datetime(2026, 3, 10, 2, tzinfo=UTC)


def utc(*numbers):
    return datetime(*numbers, tzinfo=UTC)


# --- when ------------------------------------------------------------------------------------------------------------


def test_a_night_is_due_every_day_by_the_clock_on_the_wall():
    assert due_before(time(2), UTC, NIGHT) == NIGHT
    assert due_before(time(2), UTC, NIGHT - timedelta(seconds=1)) == NIGHT - 24 * HOUR
    assert due_after(time(2), UTC, NIGHT) == NIGHT + 24 * HOUR
    assert due_after(time(2), BERLIN, utc(2026, 1, 5, 12)) == utc(2026, 1, 6, 1)
    assert due_after(time(2), BERLIN, utc(2026, 7, 5, 12)) == utc(2026, 7, 6, 0)


def test_a_night_in_the_hour_that_summer_time_takes_is_due_in_the_next_one():
    assert due_after(time(2, 30), BERLIN, utc(2026, 3, 28, 12)) == utc(2026, 3, 29, 1, 30)  # 03:30 there


def test_a_night_in_the_hour_that_winter_time_repeats_is_due_once():
    first = due_after(time(2, 30), BERLIN, utc(2026, 10, 24, 12))
    assert first == utc(2026, 10, 25, 0, 30)
    assert due_after(time(2, 30), BERLIN, first) == utc(2026, 10, 26, 1, 30)


@pytest.mark.parametrize("zone", [BERLIN, ZoneInfo("Pacific/Kiritimati"), ZoneInfo("Pacific/Pago_Pago"), None])
def test_between_two_nights_lies_a_day_and_never_none(zone):
    now = utc(2026, 1, 1)
    for _ in range(366):
        due = due_after(time(2, 30), zone, now)
        assert timedelta(0) < due - now <= 25 * HOUR
        assert due_before(time(2, 30), zone, due) == due
        now = due


# --- what was missed -------------------------------------------------------------------------------------------------


def held(started, state=State.FINISHED):
    return NightRow(
        id=1,
        state=state,
        started=started,
        finished=None,
        host="here",
        pid=1,
        process_start="",
        suite="kernels",
        commit="",
        dirty=False,
        suite_digest="",
        run=None,
        command_line="",
        settings={},
        exit_code=None,
        stages=(),
    )


@pytest.mark.parametrize(
    ("last", "stopped", "after", "what"),
    [
        (None, False, 1, CatchUp.NOTHING),  # there never was one
        (held(NIGHT), False, 1, CatchUp.NOTHING),
        (held(NIGHT - 24 * HOUR), False, 1, CatchUp.START),
        (held(NIGHT - 24 * HOUR), False, 7, CatchUp.NOTHING),  # too late
        (held(NIGHT + HOUR, State.INTERRUPTED), True, 2, CatchUp.RESUME),
        (held(NIGHT + HOUR, State.INTERRUPTED), True, 7, CatchUp.NOTHING),
        (held(NIGHT - 24 * HOUR, State.INTERRUPTED), True, 1, CatchUp.START),  # a new one is due
    ],
)
def test_what_was_missed_is_told_by_the_last_night(last, stopped, after, what):
    assert catch_up(NIGHT, NIGHT + after * HOUR, 6 * 3600, last, last if stopped else None) is what


# --- nights as children ----------------------------------------------------------------------------------------------


class Nights:
    """Nights that do as a test tells them, and what is said of them."""

    def __init__(self, folder):
        self.folder, self.said = folder, []
        (folder / "began").write_text("")

    def child(self, body="pass", limit_s=60.0):
        script = self.folder / "night.py"
        script.write_text(
            f"import os, signal, sys, time\nopen('began', 'a').write(' '.join(sys.argv[1:]) + '.')\n{body}\n"
        )
        return Child((sys.executable, str(script)), self.folder, limit_s, self.said.append)

    @property
    def began(self):
        return (self.folder / "began").read_text()


@pytest.fixture
def nights(tmp_path):
    return Nights(tmp_path)


def wait_for(condition):
    deadline = clocks.monotonic() + 60
    while not condition():
        assert clocks.monotonic() < deadline, "it never came"
        clocks.sleep(0.02)


PATIENT = """
def stop(*_):
    open('told', 'a').write('.')
    if os.path.getsize('told') == 2: os._exit(7)
    while not os.path.exists('finish'): time.sleep(0.01)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
open('ready', 'w')
time.sleep(60)
"""
"""A night that finishes what it is at when it is told to end, and ends at once when it is told again."""


def begun(nights, child, **given):
    """A thread that holds a night, which is ready."""
    thread = threading.Thread(target=child.run, kwargs=given)
    thread.start()
    wait_for((nights.folder / "ready").exists)
    return thread


def test_a_night_runs_to_its_end_whatever_that_is(nights):
    nights.child("sys.exit(4)").run()
    nights.child("os.kill(os.getpid(), signal.SIGKILL)").run(resume=True)
    assert nights.began == ".--resume."
    assert nights.said[1::2] == ["the night ended with exit code 4", "the night ended with SIGKILL"]


def test_a_night_that_cannot_be_started_is_told(nights):
    Child(("/not/there",), nights.folder, 60.0, nights.said.append).run()
    assert nights.said == ["the night could not be started: [Errno 2] No such file or directory: '/not/there'"]


def test_a_night_that_finds_another_at_work_is_left_out(nights, monkeypatch):
    monkeypatch.setattr(children, "AT_ONCE_S", 0.3)
    child = nights.child(PATIENT)
    thread = begun(nights, child)
    child.run()
    assert nights.said[-1] == "the night before is still at work: this one is left out"
    child.end()
    thread.join()
    assert nights.began == "."


def test_a_night_that_is_told_to_stop_is_waited_for_and_no_other_begins(nights):
    child = nights.child(PATIENT)
    thread = begun(nights, child)
    child.stop()
    wait_for((nights.folder / "told").exists)
    assert not child.wait(0.1)
    (nights.folder / "finish").touch()
    thread.join()
    assert child.wait(0)
    assert nights.said[-1] == "the night ended with exit code 143"
    child.run()
    assert nights.began == "."


def test_a_night_that_is_to_end_at_once_is_told_twice(nights):
    child = nights.child(PATIENT)
    thread = begun(nights, child)
    child.stop()
    wait_for((nights.folder / "told").exists)
    child.end()
    thread.join()
    assert nights.said[-1] == "the night ended with exit code 7"


STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); open('ready', 'w'); time.sleep(60)"


def test_a_night_that_does_not_heed_signals_is_killed(nights, monkeypatch):
    monkeypatch.setattr(children, "AT_ONCE_S", 0.3)
    child = nights.child(STUBBORN)
    thread = begun(nights, child)
    child.end()
    thread.join()
    assert nights.said[-1] == "the night ended with SIGKILL"


@pytest.mark.parametrize(
    ("body", "stop_s", "said"),
    [
        ("time.sleep(60)", 60.0, ["the night ended with SIGTERM"]),
        (STUBBORN, 0.2, ["the night does not end, and is killed", "the night ended with SIGKILL"]),
    ],
)
def test_a_night_that_takes_too_long_is_told_to_end(nights, monkeypatch, body, stop_s, said):
    monkeypatch.setattr(children, "STOP_S", stop_s)
    nights.child(body, limit_s=2.0).run()
    assert nights.said[1:] == ["the night is told to end, after 2s", *said]


# --- the daemon ------------------------------------------------------------------------------------------------------


class Clock:
    """The time, which a test can set."""

    def __init__(self, now):
        self.offset = now - datetime.now(UTC)

    def __call__(self):
        return datetime.now(UTC) + self.offset


@pytest.fixture
def serve(nights, monkeypatch):
    """Runs the daemon in a thread until the test has seen enough; APScheduler goes by the test's clock as well."""
    monkeypatch.setattr(daemon, "LOOK_S", 0.02)
    stop, threads = threading.Event(), []

    def of(child, clock, look_back=lambda due, now: CatchUp.NOTHING, late_s=3600.0):
        class Set(datetime):
            @classmethod
            def now(cls, tz=None):
                return clock().astimezone(tz)

        monkeypatch.setattr("apscheduler.schedulers.base.datetime", Set)
        monkeypatch.setattr("apscheduler.executors.base.datetime", Set)
        monkeypatch.setattr("apscheduler.triggers.date.datetime", Set)
        given = {"look_back": look_back, "late_s": late_s, "stopping": stop.is_set, "say": nights.said.append}
        thread = threading.Thread(
            target=daemon.serve, args=(child, time(2), UTC), kwargs={**given, "now": clock}, daemon=True
        )
        thread.start()
        threads.append(thread)
        wait_for(lambda: any("next night" in line for line in nights.said))
        return stop

    yield of
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def ended(nights, count):
    return lambda: sum("the night ended" in line for line in nights.said) == count


def test_a_night_begins_when_it_is_due_and_the_next_one_after_it_failed(nights, serve):
    clock = Clock(NIGHT - timedelta(seconds=1))
    serve(nights.child("sys.exit(5)"), clock)
    assert nights.said == ["the next night begins at 2026-03-10 02:00 UTC"]
    wait_for(ended(nights, 1))
    clock.offset += 24 * HOUR
    wait_for(ended(nights, 2))
    assert nights.said[-1] == "the night ended with exit code 5"


def test_after_a_sleep_of_days_one_night_is_caught_up_on(nights, serve):
    clock = Clock(NIGHT - 12 * HOUR)
    serve(nights.child(), clock)
    clock.offset += 3 * 24 * HOUR - 11.5 * HOUR  # half past two, three days later
    wait_for(ended(nights, 1))
    clocks.sleep(0.3)
    assert nights.began == "."


def test_a_night_for_which_it_is_too_late_is_left_out_and_told(nights, serve):
    clock = Clock(NIGHT - 12 * HOUR)
    serve(nights.child(), clock)
    clock.offset += 14 * HOUR
    wait_for(lambda: "the night of 2026-03-10 02:00 UTC is left out: it is too late for it" in nights.said)
    assert nights.began == ""


def test_a_clock_that_is_set_back_by_days_misses_no_night(nights, serve):
    clock = Clock(NIGHT + 10 * 24 * HOUR)
    serve(nights.child(), clock)
    clock.offset -= 10 * 24 * HOUR + HOUR
    clocks.sleep(0.2)
    clock.offset += HOUR
    wait_for(ended(nights, 1))


def test_a_clock_that_is_set_back_by_seconds_repeats_no_night(nights, serve):
    clock = Clock(NIGHT - timedelta(seconds=0.5))
    serve(nights.child(), clock)
    wait_for(ended(nights, 1))
    clock.offset -= timedelta(seconds=10)
    clocks.sleep(0.2)
    clock.offset += timedelta(seconds=10)
    clocks.sleep(0.2)
    assert nights.began == "."


@pytest.mark.parametrize(
    ("what", "said", "began"),
    [
        (CatchUp.START, "the night of 2026-03-10 02:00 UTC was missed, and begins now", "."),
        (CatchUp.RESUME, "the night of 2026-03-10 02:00 UTC was stopped, and is gone on with", "--resume."),
    ],
)
def test_what_was_missed_while_it_was_away_is_caught_up_on(nights, serve, what, said, began):
    serve(nights.child(), Clock(NIGHT + HOUR), look_back=lambda due, now: what)
    wait_for(ended(nights, 1))
    assert nights.said[0] == said
    assert nights.began == began


def test_a_database_that_cannot_be_read_keeps_no_night_from_beginning(nights, serve):
    def look_back(due, now):
        raise DatabaseError("no server there", cure="start it")

    serve(nights.child(), Clock(NIGHT - timedelta(seconds=1)), look_back=look_back)
    wait_for(ended(nights, 1))
    assert nights.said[0] == "whether a night was missed cannot be told: no server there"


def test_the_night_under_way_is_told_to_stop_and_waited_for(nights, serve):
    stop = serve(nights.child(PATIENT), Clock(NIGHT - timedelta(seconds=0.5)))
    wait_for((nights.folder / "ready").exists)
    stop.set()
    wait_for((nights.folder / "told").exists)
    wait_for(lambda: "told to stop: the night finishes the case in hand first" in nights.said)
    assert not ended(nights, 1)()
    (nights.folder / "finish").touch()
    wait_for(ended(nights, 1))
    assert nights.said[-1] == "the night ended with exit code 143"


def test_a_child_is_no_part_of_the_terminals_group(nights):
    child = nights.child("open('group', 'w').write(str(os.getpgrp()))")
    child.run()
    assert int((nights.folder / "group").read_text()) != os.getpgrp()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
