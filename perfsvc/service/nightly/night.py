"""A night: these stages, one after the other. A night that was stopped goes on with the first that is not done."""

import contextlib
import platform
from collections.abc import Iterator

from perfsvc.errors import PerfsvcError
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.service.nightly import resume, stages
from perfsvc.service.nightly.lock import locked
from perfsvc.service.nightly.log import NightLog
from perfsvc.service.nightly.request import NightRequest, log_of, restored
from perfsvc.service.nightly.tonight import Tonight
from perfsvc.service.nightly.work import Stage, work_off
from perfsvc.service.progress import Progress, Silent
from perfsvc.store import NightRow, State, Store

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
            tonight.store.end_night(tonight.number, State.INTERRUPTED, None)
        raise
