"""A run in the store that is to be measured: a new one, or one that was cut short, with what it holds already."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from perfsvc.model import Measurement, Peak, Provenance
from perfsvc.service.running import provenance
from perfsvc.service.running.request import RunRequest, seed_of
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that is under way.

    Attributes:
        run: its number.
        seed: decides the order of its cases.
        started: when it was begun first.
        held: what it had measured when it was cut short.
        peaks: what it knew of its GPUs then, by UUID.
    """

    run: int
    seed: int
    started: datetime
    held: tuple[Measurement, ...] = ()
    peaks: Mapping[str, Peak] = field(default_factory=dict)


def begin(store: Store, request: RunRequest, *, night: int | None = None) -> Begun:
    """Begins a run, as a night's where it is one."""
    root_cause = _origin(request)
    return Begun(store.begin_run(root_cause, night=night), root_cause.seed, root_cause.started)


def go_on(store: Store, run: int) -> Begun:
    """Goes on with a run that was cut short; its seed puts the cases that are left into the order they had.

    Raises:
        NotMeasuredError: there is no such run.
    """
    store.resume_run(run)
    root_cause = store.run(run).provenance
    return Begun(run, root_cause.seed, root_cause.started, tuple(store.measured(run)), store.peaks(run))


def _origin(request: RunRequest) -> Provenance:
    return provenance.collect(
        request.suite,
        command_line=request.command_line,
        label=request.label,
        scope=provenance.scope_of(request.suite, request.selection, request.points),
        seed=seed_of(request.seed),
        replicas=request.replicas,
    )
