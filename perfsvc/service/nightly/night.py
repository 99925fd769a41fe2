"""A night: its stages, in order."""

import contextlib
import hashlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from perfsvc.errors import InfrastructureError, PerfsvcError
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.measure.host.lock import HostLock
from perfsvc.service.nightly import resume, stages
from perfsvc.service.nightly.log import NightLog
from perfsvc.service.nightly.request import NightRequest, log_of, restored
from perfsvc.service.nightly.stages import Said, ToldToStopError, Tonight
from perfsvc.service.progress import Progress, Silent
from perfsvc.store import NightRow, RunState, StageRow, StageState, Store
from perfsvc.units import duration_text

LOOK_S = 0.2
"""Seconds between two looks at a lock that another night holds."""


@contextlib.contextmanager
def locked(store: Store, host: str, wait_s: float, say: Callable[[str], object], stopping: Stopping) -> Iterator[str]:
    """Holds the lock of a database's nights on this host; gives what it took to get it, in words.

    Raises:
        InfrastructureError: another night holds it, and still did when ``wait_s`` were over or this one was to stop; or
            there is no file to lock.
    """
    name = hashlib.sha256(store.identity.encode()).hexdigest()[:16]
    lock = HostLock(f"night-{name}", "two nights from sharing a database")
    began = time.monotonic()
    taken = lock.take()
    if not taken and wait_s:
        say(f"{_holder(store, host, lock)}: waiting for {duration_text(wait_s)} at most")
    while not taken and time.monotonic() - began < wait_s and not stopping():
        time.sleep(LOOK_S)
        taken = lock.take()
    if not taken:
        cure = "wait for it: perfsvc nightly --wait 2h" if not wait_s else "see what keeps it: its log, or perfsvc runs"
        raise InfrastructureError(_holder(store, host, lock), cure=cure)
    waited_s = time.monotonic() - began
    try:
        yield "taken at once" if waited_s < LOOK_S else f"taken after {duration_text(round(waited_s))}"
    finally:
        lock.release()


def _holder(store: Store, host: str, lock: HostLock) -> str:
    """The night that holds the lock, as far as anybody knows."""
    night = store.nights.running(host)
    if night:
        at = _stage(night)
        return (
            f"night {night.id} (pid {night.pid}) is under way on this host since {night.started:%Y-%m-%d %H:%M} UTC"
            + (f", at its stage {at}" if at else "")
        )
    pid = lock.holder()
    return "another night is under way on this host" + (f" (pid {pid})" if pid else "")


def _stage(night: NightRow) -> str:
    return next((stage.name for stage in night.stages if stage.state is StageState.RUNNING), "")


FAULT = 5
"""The exit code of what nobody foresaw."""
GRAVEST = (5, 2, 4, 1)
"""Exit codes, what has to be cured first before others: a night with holes has not been judged in full."""
CORRECTS = {"confirm": "judge"}
"""Stages whose exit code, once they are done, stands for that of another."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of every night; it is skipped where the one that it needs is not done."""

    name: str
    do: Callable[[Tonight], Said]
    needs: str = ""


def work_off(stages: Sequence[Stage], tonight: Tonight) -> None:
    """Does the stages that are not done yet, until the end or until the night is told to stop."""
    known = {stage.name: stage for stage in tonight.row.stages if stage.state is not StageState.RUNNING}
    for place, stage in enumerate(stages):
        if stage.name in known:
            continue
        try:
            known[stage.name] = _done(stage, place, tonight, known)
        except ToldToStopError:
            tonight.log.say(
                f"night {tonight.number} was told to stop at its stage {stage.name}",
                cure="go on with it: perfsvc nightly --resume",
            )
            tonight.store.nights.end(tonight.number, RunState.INTERRUPTED, None)
            return
    failed = any(stage.state is StageState.FAILED for stage in known.values())
    tonight.store.nights.end(tonight.number, RunState.FAILED if failed else RunState.FINISHED, _exit_code(known))


def _done(stage: Stage, place: int, tonight: Tonight, known: Mapping[str, StageRow]) -> StageRow:
    """Does one stage and stores what came of it."""
    if tonight.stopping():
        raise ToldToStopError
    row = StageRow(stage.name, place, StageState.RUNNING, datetime.now(UTC))
    if stage.needs and known[stage.needs].state is not StageState.DONE:
        row = replace(row, state=StageState.SKIPPED, wall_s=0.0, message=f"the stage {stage.needs} was not done")
    else:
        tonight.store.nights.put_stage(tonight.number, row)
        tonight.log.bind(stage=stage.name)
        began = time.monotonic()
        row = replace(_outcome(stage, tonight, row), wall_s=time.monotonic() - began)
    tonight.store.nights.put_stage(tonight.number, row)
    if row.state is not StageState.FAILED:
        tonight.log.say(f"{row.name}: {row.message}", state=row.state, wall_s=row.wall_s)
    return row


def _outcome(stage: Stage, tonight: Tonight, row: StageRow) -> StageRow:
    """What a stage says; an error costs no other stage."""
    try:
        said = stage.do(tonight)
    except PerfsvcError as error:
        tonight.log.fail(error)
        return replace(row, state=StageState.FAILED, message=error.what, cure=error.cure, exit_code=error.exit_code)
    except OSError as error:
        tonight.log.fail(error)
        what = f"{error.filename or stage.name}: {error.strerror or error}"
        return replace(
            row, state=StageState.FAILED, message=what, cure="make room, or let it be written", exit_code=FAULT
        )
    except ToldToStopError:
        raise
    except Exception as error:  # noqa: BLE001 - a fault of ours in one stage must not cost the night the others
        tonight.log.fail(error)
        what, cure = f"{type(error).__name__}: {error}", f"report it, with {tonight.log_file}"
        return replace(row, state=StageState.FAILED, message=what, cure=cure, exit_code=FAULT)
    state = StageState.SKIPPED if said.skipped else StageState.DONE
    return replace(row, state=state, message=said.text, exit_code=said.exit_code)


def _exit_code(known: Mapping[str, StageRow]) -> int:
    """The night's exit code, by those of its stages."""
    corrected = {other for stage, other in CORRECTS.items() if known[stage].state is StageState.DONE}
    codes = {stage.exit_code for stage in known.values() if stage.name not in corrected}
    return next((code for code in GRAVEST if code in codes), 0)


STAGES = (
    Stage("lock", stages.lock),
    Stage("snapshot", stages.snapshot),
    Stage("doctor", stages.doctor),
    Stage("check", stages.check, needs="snapshot"),
    Stage("run", stages.run, needs="snapshot"),
    Stage("judge", stages.judge, needs="run"),
    Stage("confirm", stages.confirm, needs="judge"),
    Stage("profile", stages.profile, needs="confirm"),
    Stage("findings", stages.findings, needs="judge"),
    Stage("report", stages.report, needs="run"),
    Stage("page", stages.page),
    Stage("notify", stages.notify),
    Stage("prune", stages.prune),
)


def nightly(
    request: NightRequest,
    progress: Progress | None = None,
    servers: ForkServers | None = None,
    stopping: Stopping = never,
) -> NightRow:
    """One night, or the rest of one; returns it as it ended, or interrupted where it was told to stop.

    Args:
        request: what is asked for.
        progress: shows what the night's log says.
        servers: where workers are forked; ours where none have started yet.
        stopping: whether it is to stop: it finishes what it has in hand then, and begins nothing.

    Raises:
        UsageError: there is no night to go on with, or its suite is another one by now.
        InfrastructureError: another night is under way, or there is no database.
    """
    shown, host = progress or Silent(), platform.node()
    with contextlib.ExitStack() as held:
        store = held.enter_context(Store.open(request.settings.database))
        lock = held.enter_context(locked(store, host, request.wait_s, shown.say, stopping))
        night = resume.go_on(store, host, request) if request.resume else resume.begin(store, host, request, shown.say)
        settings = restored(night.settings, request.settings.database)
        log = held.enter_context(NightLog(log_of(settings, night.id), night.id, shown))
        log.bind(run=night.run)
        forks = servers or held.enter_context(ForkServers())
        tonight = Tonight(store, night.id, settings, night.command_line, lock, log, forks, stopping)
        log.say(f"night {night.id} " + (f"goes on after {resume.last(night)}" if request.resume else "begins"))
        with _marked(tonight):
            work_off(STAGES, tonight)
        return tonight.row


@contextlib.contextmanager
def _marked(tonight: Tonight) -> Iterator[None]:
    """Marks the night interrupted where anything but its end ends it, as far as the database lets itself be told."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(PerfsvcError):
            tonight.store.nights.end(tonight.number, RunState.INTERRUPTED, None)
        raise
