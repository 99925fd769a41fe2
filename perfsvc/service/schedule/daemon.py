"""The daemon of ``perfsvc schedule run``: starts a night every day, catches up on a missed night, and stops on request.

It opens no database and reads no settings: each night is a process of its own that does. APScheduler decides when; the
daemon checks its plan twice a second, because a clock may be set and a machine may sleep.
"""

import logging
import signal
import subprocess
import threading
import time as clocks
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import Any

from perfsvc.errors import MissingPackageError, PerfsvcError
from perfsvc.installation import install_command
from perfsvc.measure.host.device_queue import Stopping
from perfsvc.process.programs import describe_exit
from perfsvc.service.schedule.scheduled_night import STOP_S
from perfsvc.store import NightRow, Store
from perfsvc.units import duration_text

try:
    from apscheduler.events import EVENT_JOB_MISSED, JobExecutionEvent
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.job import Job
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.triggers.base import BaseTrigger
except ImportError as error:
    raise MissingPackageError(f"schedule run needs the package {error.name}", cure=install_command("nightly")) from None

POLL_S = 0.5
"""Seconds between two checks of the clock and of the request to stop."""

KILL_S = 10.0
"""Seconds from the second SIGTERM to SIGKILL, in which a night ends its workers and compilers."""

FARTHEST = timedelta(hours=26)
"""The longest time until the next night: a day, and room for summer time and small corrections of the clock. If the
planned night is farther away, the clock was set back."""

DAY = timedelta(days=1)


# --- when ------------------------------------------------------------------------------------------------------------


def due_before(at: time, zone: tzinfo | None, now: datetime) -> datetime:
    """Return the latest time, not after ``now``, at which a night was due, in UTC.

    If a day skips the time of day because summer time begins, the night is due as many hours after midnight as on other
    days. If a day has the time of day twice, the first one counts.

    Args:
        at: the time of day.
        zone: the time zone of ``at``; None for this machine's zone.
        now: the current time, with its zone.
    """
    return max(due for due in _due_around(at, zone, now) if due <= now)


def due_after(at: time, zone: tzinfo | None, now: datetime) -> datetime:
    """Return the next moment after ``now`` at which a night is due, in UTC."""
    return min(due for due in _due_around(at, zone, now) if due > now)


def _due_around(at: time, zone: tzinfo | None, now: datetime) -> Iterator[datetime]:
    today = now.astimezone(zone).date()
    return (_due_on(today + days * DAY, at, zone) for days in range(-2, 3))


def _due_on(day: date, at: time, zone: tzinfo | None) -> datetime:
    wall = datetime.combine(day, at)
    return (wall.replace(tzinfo=zone) if zone else wall.astimezone()).astimezone(UTC)


class DailyTrigger(BaseTrigger):  # type: ignore[misc] # APScheduler has no types
    """An APScheduler trigger that fires once a day at a time of day."""

    def __init__(self, at: time, zone: tzinfo | None) -> None:
        self._at, self._zone = at, zone

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """Return when the trigger fires next."""
        return due_after(self._at, self._zone, previous_fire_time or now)


# --- what was missed -------------------------------------------------------------------------------------------------


class CatchUp(StrEnum):
    """What a daemon does when it starts: nothing, start a missed night, or resume a stopped one."""

    NOTHING = "nothing"
    START = "start"
    RESUME = "resume"


def catch_up(due: datetime, now: datetime, late_s: float, last: NightRow | None, stopped: NightRow | None) -> CatchUp:
    """Return whether a starting daemon starts a missed night at once, resumes a stopped one, or does nothing.

    If there is no earlier night, no night was missed: the first night begins when it is next due.

    Args:
        due: when the last night was due.
        now: the current time.
        late_s: how late a night may begin.
        last: the last night of this host.
        stopped: the last night of this host, if it was stopped before its end.
    """
    if last is None or (now - due).total_seconds() > late_s:
        return CatchUp.NOTHING
    if last.started < due:
        return CatchUp.START
    return CatchUp.RESUME if stopped else CatchUp.NOTHING


def missed(database: str, host: str, due: datetime, now: datetime, late_s: float) -> CatchUp:
    """Return whether a daemon that starts on ``host`` starts a missed night, resumes a stopped one, or does nothing.

    Raises ``DatabaseError`` if the nights of the host cannot be read.
    """
    with Store.open(database) as store:
        return catch_up(due, now, late_s, store.nights.last(host), store.nights.unfinished(host))


# --- nights as child processes ---------------------------------------------------------------------------------------


class NightRunner:
    """Starts nights, one at a time, each as a child process, and ends them.

    Args:
        command: the command of a night.
        folder: the working directory of a night.
        limit_s: seconds after which a night is terminated.
        report: receives a sentence about each event.
    """

    def __init__(self, command: Sequence[str], folder: Path, limit_s: float, report: Callable[[str], object]) -> None:
        self._command = list(command)
        self._folder = folder
        self._limit_s = limit_s
        self._report = report
        self._running = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()

    def run(self, *, resume: bool = False) -> None:
        """Run or resume a night and wait for its end. If another night still runs, report the new night as skipped."""
        if not self._running.acquire(blocking=False):
            self._report("the previous night is still running: this night is skipped")
            return
        try:
            if not self._stopping.is_set():
                self._run([*self._command, "--resume"] if resume else self._command)
        finally:
            self._running.release()

    def stop(self) -> None:
        """Ask the night to exit after its current case, by SIGTERM; start no other night."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait for the night to end, and return whether no night runs."""
        if self._running.acquire(timeout=seconds):
            self._running.release()
            return True
        return False

    def end(self) -> None:
        """End the night without waiting for its current case: by a second SIGTERM, then by SIGKILL."""
        if self.wait(0):
            return
        if not self._stopping.is_set():
            self.stop()
        self._signal(signal.SIGTERM)  # the second SIGTERM
        if not self.wait(KILL_S):
            self._signal(signal.SIGKILL)
            self.wait(KILL_S)

    def _run(self, command: Sequence[str]) -> None:
        """Start a night as a child process and wait for its end; report its start and its exit code."""
        try:
            # The night has a session of its own, because the daemon passes on the signals of a terminal.
            process = subprocess.Popen(command, cwd=self._folder, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            self._report(f"the night could not be started: {error}")
            return
        self._process = process
        if self._stopping.is_set():  # ``stop`` was called when there was no process to signal yet
            self._signal(signal.SIGTERM)
        self._report(f"a night begins (pid {process.pid})")
        status = self._exit_status(process)
        ended = f"exit code {status}" if status >= 0 else describe_exit(status)
        self._report(f"the night ended with {ended}")

    def _exit_status(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for a night, terminate it if it takes too long, and return its exit status."""
        try:
            return process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            self._report(f"the night is terminated after {duration_text(self._limit_s)}")
            self._signal(signal.SIGTERM)
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._report("the night does not terminate, and is killed")
            self._signal(signal.SIGKILL)
        return process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process:
            self._process.send_signal(number)


# --- the daemon ------------------------------------------------------------------------------------------------------


def serve(
    nights: NightRunner,
    at: time,
    zone: tzinfo | None,
    *,
    look_back: Callable[[datetime, datetime], CatchUp],
    late_s: float,
    stopping: Stopping,
    report: Callable[[str], object],
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Start a night every day until ``stopping`` returns True; then wait for the current night to finish its case.

    An exception, such as the one that a second signal raises, ends the night at once.

    Args:
        nights: starts the nights.
        at: the time of day at which a night begins.
        zone: the time zone of ``at``; None for this machine's zone.
        look_back: takes the time at which the last night was due and the current time; returns whether to start or
            resume this night.
        late_s: how late a night may begin.
        stopping: returns whether to stop.
        report: receives a sentence about each event.
        now: returns the current time, with its zone.
    """
    scheduler = _scheduler(late_s, report)
    planned = scheduler.add_job(nights.run, DailyTrigger(at, zone))
    try:
        due = due_before(at, zone, now())
        try:
            to_catch_up = look_back(due, now())
        except PerfsvcError as error:
            report(f"it is unknown whether a night was missed: {error.what}")
            to_catch_up = CatchUp.NOTHING
        if to_catch_up is not CatchUp.NOTHING:
            resumes = to_catch_up is CatchUp.RESUME
            what = "was stopped, and is resumed" if resumes else "was missed, and begins now"
            report(f"the night of {due:%Y-%m-%d %H:%M} UTC {what}")
            scheduler.add_job(nights.run, kwargs={"resume": resumes})
        scheduler.start()
        report(f"the next night begins at {planned.next_run_time.astimezone(zone):%Y-%m-%d %H:%M %Z}")
        while not stopping():
            clocks.sleep(POLL_S)
            _follow_the_clock(scheduler, planned, at, zone, now())
        scheduler.shutdown(wait=False)
        nights.stop()
        if not nights.wait(0):
            report("stopping: the night finishes the current case first")
        while not nights.wait(POLL_S):
            pass
    finally:
        if scheduler.running:
            scheduler.shutdown(wait=False)
        nights.end()


def _scheduler(late_s: float, report: Callable[[str], object]) -> Any:
    """Return an APScheduler scheduler that skips and reports a night that would begin too late; it logs nothing."""
    logging.getLogger("apscheduler").addHandler(logging.NullHandler())
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(2)},  # the second thread reports that a night still runs
        job_defaults={"coalesce": True, "max_instances": 2, "misfire_grace_time": max(1, round(late_s))},
        timezone=UTC,
    )

    def report_missed(event: JobExecutionEvent) -> None:
        report(f"the night of {event.scheduled_run_time:%Y-%m-%d %H:%M} UTC is skipped: it is too late for it")

    scheduler.add_listener(report_missed, EVENT_JOB_MISSED)
    return scheduler


def _follow_the_clock(scheduler: Any, planned: Job, at: time, zone: tzinfo | None, now: datetime) -> None:
    """Wake the scheduler if the planned night is due; plan the night anew if the clock was set back meanwhile."""
    if planned.next_run_time <= now:
        scheduler.wakeup()
    elif planned.next_run_time - now > FARTHEST:
        planned.modify(next_run_time=due_after(at, zone, now))
