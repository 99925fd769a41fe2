"""When nights are due, what was missed, and the daemon: with clocks that jump and nights that fail."""

import os
import sys
import threading
import time as clocks
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from perfsvc.errors import DatabaseError
from perfsvc.service.schedule import daemon
from perfsvc.service.schedule.daemon import CatchUp, NightRunner, catch_up, due_after, due_before
from perfsvc.store import NightRow, RunState

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = timedelta(hours=1)
NIGHT = datetime(2026, 3, 10, 2, tzinfo=UTC)


def utc(*numbers):
    return datetime(*numbers, tzinfo=UTC)


# --- when ------------------------------------------------------------------------------------------------------------


def test_a_night_is_due_every_day_at_its_local_time():
    assert due_before(time(2), UTC, NIGHT) == NIGHT
    assert due_before(time(2), UTC, NIGHT - timedelta(seconds=1)) == NIGHT - 24 * HOUR
    assert due_after(time(2), UTC, NIGHT) == NIGHT + 24 * HOUR
    assert due_after(time(2), BERLIN, utc(2026, 1, 5, 12)) == utc(2026, 1, 6, 1)
    assert due_after(time(2), BERLIN, utc(2026, 7, 5, 12)) == utc(2026, 7, 6, 0)


def test_a_night_in_the_hour_that_summer_time_skips_is_due_an_hour_later_and_in_a_repeated_one_once():
    assert due_after(time(2, 30), BERLIN, utc(2026, 3, 28, 12)) == utc(2026, 3, 29, 1, 30)  # 03:30 there
    first = due_after(time(2, 30), BERLIN, utc(2026, 10, 24, 12))
    assert first == utc(2026, 10, 25, 0, 30)
    assert due_after(time(2, 30), BERLIN, first) == utc(2026, 10, 26, 1, 30)


@pytest.mark.parametrize("zone", [BERLIN, ZoneInfo("Pacific/Kiritimati"), ZoneInfo("Pacific/Pago_Pago"), None])
def test_two_nights_are_about_a_day_apart(zone):
    now = utc(2026, 3, 1)
    for _ in range(250):
        due = due_after(time(2, 30), zone, now)
        assert timedelta(0) < due - now <= 25 * HOUR
        assert due_before(time(2, 30), zone, due) == due
        now = due


# --- what was missed -------------------------------------------------------------------------------------------------


def night(started, state=RunState.FINISHED):
    return NightRow(1, state, started, None, "here", 1, "", "kernels", "", False, "", None, "", {}, None)


STOPPED = night(NIGHT + HOUR, RunState.INTERRUPTED)
EARLIER = night(NIGHT - 24 * HOUR, RunState.INTERRUPTED)


def test_the_last_night_decides_what_to_catch_up_on():
    def after(hours, last, stopped=None):
        return catch_up(NIGHT, NIGHT + hours * HOUR, 6 * 3600, last, stopped)

    assert after(1, None) is CatchUp.NOTHING  # no night was ever begun
    assert after(1, night(NIGHT)) is CatchUp.NOTHING
    assert after(1, night(NIGHT - 24 * HOUR)) is CatchUp.START
    assert after(7, night(NIGHT - 24 * HOUR)) is CatchUp.NOTHING  # too late
    assert after(2, STOPPED, STOPPED) is CatchUp.RESUME
    assert after(7, STOPPED, STOPPED) is CatchUp.NOTHING
    assert after(1, EARLIER, EARLIER) is CatchUp.START  # a new one is due


# --- nights as child processes ---------------------------------------------------------------------------------------


class Nights:
    """Nights that run a script of a test, and what is reported about them."""

    def __init__(self, folder):
        self.folder, self.reported = folder, []
        (folder / "began").write_text("")

    def runner(self, body="pass", limit_s=60.0):
        script = self.folder / "night.py"
        script.write_text(
            f"import os, signal, sys, time\nopen('began', 'a').write(' '.join(sys.argv[1:]) + '.')\n{body}\n"
        )
        return NightRunner((sys.executable, str(script)), self.folder, limit_s, self.reported.append)

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
    open('signalled', 'a').write('.')
    if os.path.getsize('signalled') == 2: os._exit(7)
    while not os.path.exists('finish'): time.sleep(0.01)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
open('ready', 'w')
time.sleep(60)
"""
"""A night that finishes its case on a first SIGTERM, and ends at once on a second."""


def started(nights, runner, **given):
    """Return a thread that runs a night, once the night is ready."""
    thread = threading.Thread(target=runner.run, kwargs=given)
    thread.start()
    wait_for((nights.folder / "ready").exists)
    return thread


def test_the_end_of_a_night_is_reported_and_it_is_not_in_the_process_group_of_the_terminal(nights):
    nights.runner("open('group', 'w').write(str(os.getpgrp()))\nsys.exit(4)").run()
    assert int((nights.folder / "group").read_text()) != os.getpgrp()
    nights.runner("os.kill(os.getpid(), signal.SIGKILL)").run(resume=True)
    assert nights.began == ".--resume."
    assert nights.reported[1::2] == ["the night ended with exit code 4", "the night ended with SIGKILL"]
    NightRunner(("/not/there",), nights.folder, 60.0, nights.reported.append).run()
    missing = "the night could not be started: [Errno 2] No such file or directory: '/not/there'"
    assert nights.reported[4:] == [missing]


def test_a_night_is_skipped_while_another_runs_which_a_second_signal_ends_at_once(nights):
    runner = nights.runner(PATIENT)
    thread = started(nights, runner)
    runner.run()
    assert nights.reported[-1] == "the previous night is still running: this night is skipped"
    runner.stop()
    wait_for((nights.folder / "signalled").exists)
    runner.end()
    thread.join()
    assert nights.began == "."
    assert nights.reported[-1] == "the night ended with exit code 7"


def test_a_stopped_night_finishes_its_case_and_no_other_begins(nights):
    runner = nights.runner(PATIENT)
    thread = started(nights, runner)
    runner.stop()
    wait_for((nights.folder / "signalled").exists)
    assert not runner.wait(0.1)
    (nights.folder / "finish").touch()
    thread.join()
    assert runner.wait(0)
    assert nights.reported[-1] == "the night ended with exit code 143"
    runner.run()
    assert nights.began == "."


STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); open('ready', 'w'); time.sleep(60)"


def test_a_night_that_ignores_signals_is_killed(nights, monkeypatch):
    monkeypatch.setattr(daemon, "KILL_S", 0.3)
    runner = nights.runner(STUBBORN)
    thread = started(nights, runner)
    runner.end()
    thread.join()
    assert nights.reported[-1] == "the night ended with SIGKILL"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "stop_s", "reported"),
    [
        ("time.sleep(60)", 60.0, ["the night ended with SIGTERM"]),
        (STUBBORN, 0.2, ["the night does not terminate, and is killed", "the night ended with SIGKILL"]),
    ],
)
def test_a_night_that_takes_too_long_is_ended(nights, monkeypatch, body, stop_s, reported):
    monkeypatch.setattr(daemon, "STOP_S", stop_s)
    nights.runner(body, limit_s=2.0).run()
    assert nights.reported[1:] == ["the night is terminated after 2s", *reported]


# --- the daemon ------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that a test can set."""

    def __init__(self, now):
        self.offset = now - datetime.now(UTC)

    def __call__(self):
        return datetime.now(UTC) + self.offset


@pytest.fixture
def serve(nights, monkeypatch):
    """Return a function that runs the daemon in a thread until the test ends; APScheduler uses the test's clock too."""
    monkeypatch.setattr(daemon, "POLL_S", 0.02)
    stop, threads = threading.Event(), []

    def serve_in_thread(runner, clock, look_back=lambda due, now: CatchUp.NOTHING, late_s=3600.0):
        class SetClock(datetime):
            @classmethod
            def now(cls, tz=None):
                return clock().astimezone(tz)

        monkeypatch.setattr("apscheduler.schedulers.base.datetime", SetClock)
        monkeypatch.setattr("apscheduler.executors.base.datetime", SetClock)
        monkeypatch.setattr("apscheduler.triggers.date.datetime", SetClock)
        given = {"look_back": look_back, "late_s": late_s, "stopping": stop.is_set, "report": nights.reported.append}
        thread = threading.Thread(
            target=daemon.serve, args=(runner, time(2), UTC), kwargs={**given, "now": clock}, daemon=True
        )
        thread.start()
        threads.append(thread)
        wait_for(lambda: any("next night" in line for line in nights.reported))
        return stop

    yield serve_in_thread
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def ended(nights, count):
    return lambda: sum("the night ended" in line for line in nights.reported) == count


def test_a_night_begins_when_it_is_due_and_another_after_it_failed_even_without_a_database(nights, serve):
    def look_back(due, now):
        raise DatabaseError("no server there", cure="start it")

    clock = Clock(NIGHT - timedelta(seconds=0.5))
    serve(nights.runner("sys.exit(5)"), clock, look_back=look_back)
    assert nights.reported == [
        "it is unknown whether a night was missed: no server there",
        "the next night begins at 2026-03-10 02:00 UTC",
    ]
    wait_for(ended(nights, 1))
    clock.offset += 24 * HOUR
    wait_for(ended(nights, 2))
    assert nights.reported[-1] == "the night ended with exit code 5"


def test_after_days_of_sleep_a_single_night_is_caught_up_on(nights, serve):
    clock = Clock(NIGHT - 12 * HOUR)
    serve(nights.runner(), clock)
    clock.offset += 3 * 24 * HOUR - 11.5 * HOUR  # half past two, three days later
    wait_for(ended(nights, 1))
    clocks.sleep(0.3)
    assert nights.began == "."


def test_a_night_that_is_too_late_is_skipped_and_reported(nights, serve):
    clock = Clock(NIGHT - 12 * HOUR)
    serve(nights.runner(), clock)
    clock.offset += 14 * HOUR
    wait_for(lambda: "the night of 2026-03-10 02:00 UTC is skipped: it is too late for it" in nights.reported)
    assert nights.began == ""


def test_a_clock_set_back_by_days_misses_no_night(nights, serve):
    clock = Clock(NIGHT + 10 * 24 * HOUR)
    serve(nights.runner(), clock)
    clock.offset -= 10 * 24 * HOUR + HOUR
    clocks.sleep(0.2)
    clock.offset += HOUR
    wait_for(ended(nights, 1))


def test_a_clock_set_back_by_seconds_repeats_no_night(nights, serve):
    clock = Clock(NIGHT - HOUR)
    serve(nights.runner(), clock)
    clock.offset += HOUR
    wait_for(ended(nights, 1))
    clock.offset -= timedelta(seconds=10)
    clocks.sleep(0.1)
    clock.offset += timedelta(seconds=10)
    clocks.sleep(0.1)
    assert nights.began == "."


@pytest.mark.parametrize(
    ("missed", "reported", "began"),
    [
        (CatchUp.START, "the night of 2026-03-10 02:00 UTC was missed, and begins now", "."),
        (CatchUp.RESUME, "the night of 2026-03-10 02:00 UTC was stopped, and is resumed", "--resume."),
    ],
)
def test_a_night_that_was_missed_before_the_start_is_caught_up_on(nights, serve, missed, reported, began):
    serve(nights.runner(), Clock(NIGHT + HOUR), look_back=lambda due, now: missed)
    wait_for(ended(nights, 1))
    assert nights.reported[0] == reported
    assert nights.began == began


def test_stopping_lets_the_running_night_finish_its_case(nights, serve):
    clock = Clock(NIGHT - HOUR)
    stop = serve(nights.runner(PATIENT), clock)
    clock.offset += HOUR
    wait_for((nights.folder / "ready").exists)
    stop.set()
    wait_for((nights.folder / "signalled").exists)
    wait_for(lambda: "stopping: the night finishes the current case first" in nights.reported)
    assert not ended(nights, 1)()
    (nights.folder / "finish").touch()
    wait_for(ended(nights, 1))
    assert nights.reported[-1] == "the night ended with exit code 143"
