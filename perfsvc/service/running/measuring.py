"""Measuring a run that was begun: its plan is made and worked off, from the start or from where it was cut short."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from perfsvc.measure.host import pool
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.measure.plan.order import OverBudget
from perfsvc.model import Measurement
from perfsvc.service.progress import Progress
from perfsvc.service.running.beginning import Begun
from perfsvc.service.running.planning import plan
from perfsvc.service.running.record import Recorder
from perfsvc.service.running.resolving import Resolved
from perfsvc.service.running.targets import Binaries
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class Workers:
    """What a run is measured with.

    Attributes:
        servers: where workers are forked.
        ended: closing it waits for the workers, which end while something else may have begun.
        stopping: whether the run is to stop; the cases in hand are measured then, and nothing else is begun.
    """

    servers: ForkServers
    ended: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    stopping: Stopping = never


def measure(
    resolved: Resolved, binaries: Binaries, *, store: Store, begun: Begun, workers: Workers, progress: Progress
) -> Recorder:
    """Measures what a run does not hold yet; measurements are committed as they arrive.

    The run ends as finished, or as interrupted where it was told to stop.

    Raises:
        InfrastructureError: no device can be opened, or there is no compiler for what one works with.
    """
    recorder = Recorder(store, begun, resolved.targets, progress.say)
    with recorder.recording(workers.stopping):
        planned = plan(
            resolved.request, resolved.targets, binaries, inputs=resolved.inputs, store=store, recorder=recorder
        )
        progress.begin("measuring", sum(len(planned.order(uuid)) for uuid in resolved.devices))
        measured = workers.ended.enter_context(
            pool.measuring(planned, resolved.devices, progress.say, workers.servers, workers.stopping)
        )
        _record(measured, recorder, progress)
    return recorder


def _record(arriving: Iterable[Measurement | OverBudget], recorder: Recorder, progress: Progress) -> None:
    """Commit each measurement as it arrives."""
    for arrived in arriving:
        if isinstance(arrived, OverBudget):
            recorder.leave_over_budget(arrived)
        else:
            recorder.put([arrived])
            progress.step(arrived.case.id)
