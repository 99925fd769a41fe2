"""The daemon: begins a night every day, catches up on what was missed while it was away, and ends when it is told to.

It holds no database open and no settings: each night is a process of its own, which reads them anew. APScheduler says
when; what it is told of the clock is checked every moment, since a clock may be set and a machine may sleep.
"""

import logging
import time as clocks
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any

from perfsvc.errors import MissingPackageError, PerfsvcError
from perfsvc.installation import install_command
from perfsvc.measure.host.device_queue import Stopping
from perfsvc.service.scheduling.child import Child
from perfsvc.service.scheduling.clock import due_after, due_before
from perfsvc.service.scheduling.missed import CatchUp, catch_up
from perfsvc.store import Store

try:
    from apscheduler.events import EVENT_JOB_MISSED, JobExecutionEvent
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.job import Job
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.triggers.base import BaseTrigger
except ImportError as error:
    raise MissingPackageError(f"schedule run needs the package {error.name}", cure=install_command("nightly")) from None

LOOK_S = 0.5
"""Seconds between two looks at the clock and at whether to stop."""
FARTHEST = timedelta(hours=26)
"""A next night that is farther away, for all of summer time and a clock's small steps, was planned before the clock was
set back."""


class Daily(BaseTrigger):  # type: ignore[misc] # APScheduler has no types
    """Due once a day at a time by the clock on the wall."""

    def __init__(self, at: time, zone: tzinfo | None) -> None:
        self._at, self._zone = at, zone

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """When it is due next."""
        return due_after(self._at, self._zone, previous_fire_time or now)


def missed(place: str, host: str, due: datetime, now: datetime, late_s: float) -> CatchUp:
    """What the store says of the nights of a host since one was due.

    Raises:
        DatabaseError: it cannot be read.
    """
    with Store.open(place) as store:
        last = next((night for night in store.nights_held() if night.host == host), None)
        return catch_up(due, now, late_s, last, store.unfinished_night(host))


def serve(
    child: Child,
    at: time,
    zone: tzinfo | None,
    *,
    look_back: Callable[[datetime, datetime], CatchUp],
    late_s: float,
    stopping: Stopping,
    say: Callable[[str], object],
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Holds nights until it is told to stop; then the night that is under way is told to, and waited for.

    An exception that ends it, as a second signal does, ends the night at once.

    Args:
        child: what holds them.
        at: when.
        zone: by which clock; None for this machine's.
        look_back: says what was missed between the moment that a night was due and now.
        late_s: how late a night may begin.
        stopping: whether to stop.
        say: is told what happens.
        now: the time, with its zone.
    """
    scheduler = _scheduler(late_s, say)
    planned = scheduler.add_job(child.run, Daily(at, zone))
    try:
        due = due_before(at, zone, now())
        _catch_up(scheduler, child, due, _looked_back(look_back, due, now(), say), say)
        scheduler.start()
        say(f"the next night begins at {planned.next_run_time.astimezone(zone):%Y-%m-%d %H:%M %Z}")
        while not stopping():
            clocks.sleep(LOOK_S)
            _mind_the_clock(scheduler, planned, at, zone, now())
        scheduler.shutdown(wait=False)
        child.stop()
        if not child.wait(0):
            say("told to stop: the night finishes the case in hand first")
        while not child.wait(LOOK_S):
            pass
    finally:
        if scheduler.running:
            scheduler.shutdown(wait=False)
        child.end()


def _scheduler(late_s: float, say: Callable[[str], object]) -> Any:
    """APScheduler, which says through us what it has to say."""
    logging.getLogger("apscheduler").addHandler(logging.NullHandler())
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(2)},  # one holds a night, the other finds that it is still at work
        job_defaults={"coalesce": True, "max_instances": 2, "misfire_grace_time": max(1, round(late_s))},
        timezone=UTC,
    )

    def tell(event: JobExecutionEvent) -> None:
        say(f"the night of {event.scheduled_run_time:%Y-%m-%d %H:%M} UTC is left out: it is too late for it")

    scheduler.add_listener(tell, EVENT_JOB_MISSED)
    return scheduler


def _looked_back(
    look_back: Callable[[datetime, datetime], CatchUp], due: datetime, now: datetime, say: Callable[[str], object]
) -> CatchUp:
    try:
        return look_back(due, now)
    except PerfsvcError as error:
        say(f"whether a night was missed cannot be told: {error.what}")
        return CatchUp.NOTHING


def _catch_up(scheduler: Any, child: Child, due: datetime, what: CatchUp, say: Callable[[str], object]) -> None:
    if what is not CatchUp.NOTHING:
        done = "was stopped, and is gone on with" if what is CatchUp.RESUME else "was missed, and begins now"
        say(f"the night of {due:%Y-%m-%d %H:%M} UTC {done}")
        scheduler.add_job(child.run, kwargs={"resume": what is CatchUp.RESUME})


def _mind_the_clock(scheduler: Any, planned: Job, at: time, zone: tzinfo | None, now: datetime) -> None:
    """Has the scheduler look again where the clock is not where it was to be when it went to sleep."""
    if planned.next_run_time <= now:
        scheduler.wakeup()
    elif planned.next_run_time - now > FARTHEST:
        planned.modify(next_run_time=due_after(at, zone, now))
