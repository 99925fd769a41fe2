"""Measuring a run that was begun: its plan is made and worked off, from the start or from where it was cut short."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from perfsvc.measure import pool
from perfsvc.measure.lane import Stopping, never
from perfsvc.measure.plan import LeftOut
from perfsvc.measure.workers import Servers
from perfsvc.model import Measurement
from perfsvc.service.progress import Progress
from perfsvc.service.running.beginning import Begun
from perfsvc.service.running.planning import plan
from perfsvc.service.running.record import Recorder
from perfsvc.service.running.resolving import Resolved
from perfsvc.service.running.targets import Binaries
from perfsvc.store import Store

TOGETHER_S = 0.1
"""For how many seconds what arrives without a pause is held, to be committed together: a commit takes as long as a case
of the fake device. Where a case takes longer than a moment, each is committed as it arrives."""


@dataclass(frozen=True, slots=True)
class Workers:
    """What a run is measured with.

    Attributes:
        servers: where workers are forked.
        ended: closing it waits for the workers, which end while something else may have begun.
        stopping: whether the run is to stop; the cases in hand are measured then, and nothing else is begun.
    """

    servers: Servers
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
            pool.measuring(
                planned, resolved.devices, progress.say, workers.servers, workers.stopping, together_s=TOGETHER_S
            )
        )
        _record(measured, recorder, progress)
    return recorder


def _record(arriving: Iterable[Sequence[Measurement | LeftOut]], recorder: Recorder, progress: Progress) -> None:
    for arrived in arriving:
        measured = [one for one in arrived if isinstance(one, Measurement)]
        recorder.put(measured)
        for one in measured:
            progress.step(one.case.id)
        for left_out in arrived:
            if isinstance(left_out, LeftOut):
                recorder.leave_out(left_out)
