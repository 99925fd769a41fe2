"""A night: its stages in order, each independent of the failure of the others."""

import contextlib
import hashlib
import http.client
import os
import platform
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from perfsvc.config.settings import NotifySettings
from perfsvc.errors import DatabaseError, InfrastructureError, PerfsvcError, UsageError
from perfsvc.measure.host.device_queue import Stopping
from perfsvc.measure.host.lock import HostLock
from perfsvc.process.fork_servers import ForkServers
from perfsvc.service.expect.memory import NightMemory
from perfsvc.service.nightly import stages
from perfsvc.service.nightly.begin import NightRequest, begin, last_stage, restored, resume
from perfsvc.service.nightly.log import NightLog
from perfsvc.service.nightly.stages import Night, NightStoppedError, StageResult
from perfsvc.service.notify.notify import notify_of_failure
from perfsvc.service.progress import Progress
from perfsvc.store import NightRow, RunState, StageRow, StageState, Store
from perfsvc.store.nights import ServerLock
from perfsvc.text import without_password
from perfsvc.units import duration_text

LIMIT_S = 10.0
"""Seconds after which an attempt counts as failed."""

BEATS = 2

START, FAIL = "start", "fail"
"""What is appended to the path of the URL, as healthchecks.io and its likes understand it; an end appends nothing."""


class Heartbeat:
    """Pings a URL when a night begins, and when it ends or fails. A context manager; an exception is a failure.

    A ping that does not arrive is reported and never fails the night. The URL is a secret: no report contains it.

    Args:
        variable: the environment variable that holds the URL; empty for no heartbeat.
        report: receives a sentence about a ping that did not arrive.
    """

    def __init__(self, variable: str, report: Callable[[str], object]) -> None:
        self._variable, self._report = variable, report
        self._url = os.environ.get(variable, "").strip()
        self.failed = False

    def __enter__(self) -> Self:
        if self._variable and not self._url:
            self._report(f"warning: there is no heartbeat: the environment variable {self._variable} is not set")
        self._ping(START)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ping(FAIL if self.failed or error is not None else "")

    def _ping(self, event: str) -> None:
        """Send an event to the monitor, in at most ``BEATS`` attempts; report a problem if all attempts fail."""
        if not self._url:
            return
        problem = ""
        for _ in range(BEATS):
            problem = _problem_of(self._url, event)
            if not problem:
                return
        self._report(f"warning: the heartbeat did not arrive ({event or 'end'}): {problem}")


def _problem_of(address: str, event: str) -> str:
    """Append an event to the path of a URL, ask for it, and return what went wrong, without the URL; else empty."""
    try:
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"}:
            return "its variable holds no http or https URL"
        url = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{event}")) if event else address
        with contextlib.closing(urllib.request.urlopen(url, timeout=LIMIT_S)):  # noqa: S310 - the scheme is checked
            return ""
    except urllib.error.HTTPError as error:
        error.close()
        return f"the monitor answered {error.code}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return "the monitor did not answer" if isinstance(reason, TimeoutError) else f"{type(reason).__name__}"


Result = TypeVar("Result")

NAME_SUITE = 'change to the folder of your suite, or write into perfsvc.toml: suite = "FOLDER" (perfsvc init writes it)'

POLL_S = 0.2
"""Seconds between two attempts to take a lock that another night holds."""

HANGS = timedelta(days=1)
"""How long a night may keep later nights from beginning before people are told."""

ATTEMPTS, PAUSE_S = 10, 30.0
"""How often a night tries again while its database is locked or does not answer, and the seconds between attempts."""

UNEXPECTED = 5
"""The exit code of an error that is not a ``PerfsvcError``."""

SEVEREST_FIRST = (5, 2, 4, 1)
"""Exit codes, the most urgent first. Failures come before regressions: a night with failures is not fully judged."""

SUPERSEDES = {"confirm": "judge"}
"""By stage, the earlier stage whose exit code it replaces once it is done: a confirmation may clear a verdict."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of every night; it is skipped unless the stage that it needs is done."""

    name: str
    do: Callable[[Night], StageResult]
    needs: str = ""


STAGES = (
    Stage("lock", stages.lock),
    Stage("revision", stages.revision),
    Stage("doctor", stages.doctor),
    Stage("check", stages.check, needs="revision"),
    Stage("run", stages.run, needs="revision"),
    Stage("judge", stages.judge, needs="run"),
    Stage("confirm", stages.confirm, needs="judge"),
    Stage("profile", stages.profile, needs="judge"),
    Stage("findings", stages.findings, needs="judge"),
    Stage("expect", stages.expect),
    Stage("report", stages.report, needs="run"),
    Stage("page", stages.page),
    Stage("notify", stages.notify),
    Stage("prune", stages.prune),
)


def nightly(
    request: NightRequest,
    progress: Progress,
    servers: ForkServers,
    stopping: Stopping,
) -> NightRow:
    """Execute a night, or resume a stopped one, and return its stored row.

    The row's state is ``INTERRUPTED`` if the night was stopped.

    Args:
        request: the options.
        progress: shows the lines of the night's log.
        servers: fork the workers.
        stopping: returns whether to stop: the night then finishes the current case and begins nothing else.

    Raises:
        UsageError: there is no night to resume, the suite of that night has changed, or the settings or the suite of
            this host's last night here are gone.
        InfrastructureError: another night is running, or there is no database, or it does not hold that last night.
    """
    host = platform.node()
    with contextlib.ExitStack() as stack:
        heartbeat = stack.enter_context(Heartbeat(request.settings.nightly.heartbeat, progress.report))
        wait = partial(patiently, progress.report, stopping)
        memory = NightMemory(request.place, progress.report, new=request.new, nights=request.settings.nightly.folder)
        store: Store | None = None
        try:
            memory.require_settings()
            if request.place and not request.place.suite and not request.resume:
                raise UsageError("perfsvc.toml names no suite, and there is no folder ./kernels here", cure=NAME_SUITE)
            opened, lost = wait(partial(memory.open, request.settings.database))
            store = stack.enter_context(opened)
            lock = wait(lambda: stack.enter_context(_locked(opened, host, request.wait_s, progress.report, stopping)))
            row = wait(
                lambda: (
                    resume(opened, host, request) if request.resume else begin(opened, host, request, progress.report)
                )
            )
        except PerfsvcError as error:
            if _concerns_people(error, request, store, host):
                notify_of_failure(
                    error, f"perfsvc nightly on {host}", request.settings.notify, memory.targets, progress.report
                )
            raise
        settings = restored(row.settings, request.settings.database)
        remember = partial(memory.remember, host, row.id, row.started, settings.notify.targets)
        if not lost:
            remember()
        if dropped := memory.dropped(settings.notify.targets):
            last_message = UsageError(
                f"notify.targets does not name {', '.join(dropped)} any more: this is the last message",
                cure="if that is not on purpose, name the target again in perfsvc.toml",
            )
            notify_of_failure(
                last_message, f"night {row.id} on {host}", NotifySettings(), dropped, progress.report, stage="notify"
            )
        log = stack.enter_context(NightLog(settings.nightly.folder, row.id, progress))
        log.bind(run=row.run)
        night = Night(store, row.id, settings, row.command_line, lock, log, servers, stopping, lost)
        log.report(f"night {row.id} " + (f"resumes after {last_stage(row)}" if request.resume else "begins"))
        try:
            _do_stages(night, STAGES)
        except BaseException:
            with contextlib.suppress(PerfsvcError):  # the database may be what failed
                store.nights.end(row.id, RunState.INTERRUPTED, None)
            raise
        row = night.row
        if lost and row.state is not RunState.INTERRUPTED:  # the stage expect has told it
            remember()
        heartbeat.failed = row.state is not RunState.FINISHED
        return row


def _concerns_people(error: PerfsvcError, request: NightRequest, store: Store | None, host: str) -> bool:
    """Return whether people are told why a night did not begin.

    They are not told of what a person typed to resume a night, or of another night that has run for less than a day.
    """
    if request.resume and isinstance(error, UsageError):
        return False
    with contextlib.suppress(PerfsvcError):
        other = store.nights.running(host) if store else None
        return other is None or datetime.now(UTC) - other.started > HANGS
    return True


# --- the stages ------------------------------------------------------------------------------------------------------


def _do_stages(night: Night, stages: Sequence[Stage]) -> None:
    """Do the stages that are not done yet, in order, and store how the night ended. A stopped night ends early."""
    done = {row.name: row for row in night.row.stages if row.state is not StageState.RUNNING}
    for position, stage in enumerate(stages):
        if stage.name in done:
            continue
        try:
            done[stage.name] = _do(stage, position, night, done)
        except NightStoppedError:
            night.log.report(
                f"night {night.number} was stopped at its stage {stage.name}",
                cure="resume it: perfsvc nightly --resume",
            )
            night.store.nights.end(night.number, RunState.INTERRUPTED, None)
            return
        except DatabaseError as error:
            night.log.report(
                f"night {night.number} was stopped at its stage {stage.name}: {error.what}",
                cure="when the database answers again, resume the night: perfsvc nightly --resume",
            )
            raise
    failed = any(row.state is StageState.FAILED for row in done.values())
    state = RunState.FAILED if failed else RunState.FINISHED
    _patiently_at(night, lambda: night.store.nights.end(night.number, state, _exit_code(done)))


def _do(stage: Stage, position: int, night: Night, done: Mapping[str, StageRow]) -> StageRow:
    """Do a stage, or skip it if the stage that it needs was not done; store and return its result."""
    if night.stopping():
        raise NightStoppedError
    row = StageRow(stage.name, position, StageState.RUNNING, datetime.now(UTC))
    if stage.needs and done[stage.needs].state is not StageState.DONE:
        row = replace(row, state=StageState.SKIPPED, wall_s=0.0, message=f"the stage {stage.needs} was not done")
    else:
        _store_stage(night, row)
        night.log.bind(stage=stage.name)
        began = time.monotonic()
        result = _patiently_at(night, partial(_with_result, row, stage, night))
        row = replace(result, wall_s=time.monotonic() - began)
    _store_stage(night, row)
    if row.state is not StageState.FAILED:
        night.log.report(f"{row.name}: {row.message}", state=row.state, wall_s=row.wall_s)
    return row


def _store_stage(night: Night, row: StageRow) -> None:
    _patiently_at(night, lambda: night.store.nights.put_stage(night.number, row))


def _patiently_at(night: Night, act: Callable[[], Result]) -> Result:
    return patiently(night.log.report, night.stopping, act)


def patiently(report: Callable[[str], object], stopping: Stopping, act: Callable[[], Result]) -> Result:
    """Call a function and return its result; while the database does not answer, wait and call it again.

    Raises:
        DatabaseError: the database did not answer in ``ATTEMPTS`` attempts; the night can be resumed later.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return act()
        except DatabaseError as error:
            if not error.again or stopping():
                raise
            report(f"{error.what}: the night waits {duration_text(PAUSE_S)} and tries again")
            time.sleep(PAUSE_S)
    return act()


def _with_result(row: StageRow, stage: Stage, night: Night) -> StageRow:
    """Do a stage, and return its row with the result. An error fails this stage only.

    Raises:
        DatabaseError: the database is locked or does not answer, so that the stage can be repeated.
    """
    failed = replace(row, state=StageState.FAILED, exit_code=UNEXPECTED)
    try:
        result = stage.do(night)
    except PerfsvcError as error:
        if isinstance(error, DatabaseError) and error.again:
            raise
        night.log.fail(error)
        return replace(failed, message=error.what, cure=error.cure, exit_code=error.exit_code)
    except OSError as error:
        night.log.fail(error)
        what = f"{error.filename or stage.name}: {error.strerror or error}"
        return replace(failed, message=what, cure="free some space, or permit writing")
    except NightStoppedError:
        raise
    except Exception as error:  # noqa: BLE001 - a bug in one stage must not cost the night the others
        night.log.fail(error)
        what = without_password(f"{type(error).__name__}: {error}")
        return replace(failed, message=what, cure=f"report it, with {night.log.path}")
    state = StageState.SKIPPED if result.skipped else StageState.DONE
    return replace(row, state=state, message=result.text, exit_code=result.exit_code)


def _exit_code(done: Mapping[str, StageRow]) -> int:
    """Return the night's exit code: the most urgent one of its stages, without stages that a later one supersedes."""
    superseded = {earlier for stage, earlier in SUPERSEDES.items() if done[stage].state is StageState.DONE}
    codes = {row.exit_code for row in done.values() if row.name not in superseded}
    return next((code for code in SEVEREST_FIRST if code in codes), 0)


# --- one night at a time ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _locked(
    store: Store, host: str, wait_s: float, report: Callable[[str], object], stopping: Stopping
) -> Iterator[str]:
    """Hold a lock that allows one night at a time on this host and database.

    Yield a sentence on how the lock was taken.

    The operating system releases the lock when the process ends. Two containers may have the same host name and no
    common folder for locks. So a second lock lies beside the file of SQLite, or in PostgreSQL.

    Raises:
        InfrastructureError: another night still holds the lock after ``wait_s`` seconds, or when ``stopping`` becomes
            true; or the lock's file cannot be made.
    """
    name = hashlib.sha256(os.fsencode(store.identity)).hexdigest()[:16]
    purpose = "two nights from sharing a database"
    lock = HostLock(f"night-{name}", purpose)
    locks: list[HostLock | ServerLock] = [lock]
    if file := store.file:
        locks.append(HostLock(f"{file.resolve().name}-night-{host}", purpose, file.resolve().parent))
    elif in_database := store.nights.lock(host):
        locks.append(in_database)
    with contextlib.ExitStack() as stack:
        for held in locks:
            stack.callback(held.release)
        yield _take(locks, partial(_holder, store, host, locks), wait_s, report, stopping)


def _take(
    locks: Sequence[HostLock | ServerLock],
    holder: Callable[[], str],
    wait_s: float,
    report: Callable[[str], object],
    stopping: Stopping,
) -> str:
    """Take all locks of a night, and return a sentence on how they were taken.

    Raises ``InfrastructureError`` if another night still holds a lock after ``wait_s`` seconds.
    """
    began = time.monotonic()
    taken = all(lock.take() for lock in locks)
    if not taken and wait_s:
        report(f"{holder()}: waiting for {duration_text(wait_s)} at most")
    while not taken and time.monotonic() - began < wait_s and not stopping():
        time.sleep(POLL_S)
        taken = all(lock.take() for lock in locks)
    if not taken:
        cure = "see what it does: its log, or perfsvc runs" if wait_s else "wait for it: perfsvc nightly --wait 2h"
        raise InfrastructureError(holder(), cure=cure)
    waited_s = time.monotonic() - began
    return "taken at once" if waited_s < POLL_S else f"taken after {duration_text(round(waited_s))}"


def _holder(store: Store, host: str, locks: Sequence[HostLock | ServerLock]) -> str:
    """Return a sentence about the night that holds the lock; if the night is not stored, only its process is named."""
    night = store.nights.running(host)
    if night is None:
        pid = next((lock.holder() for lock in locks if isinstance(lock, HostLock) and not lock.held), None)
        return "another night is under way on this host" + (f" (pid {pid})" if pid else "")
    stage = next((stage.name for stage in night.stages if stage.state is StageState.RUNNING), "")
    return f"night {night.id} (pid {night.pid}) is under way on this host since {night.started:%Y-%m-%d %H:%M} UTC" + (
        f", at its stage {stage}" if stage else ""
    )
