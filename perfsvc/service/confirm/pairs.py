"""Two cases measured in turn on one device, each time in a fresh process, until the answer is known."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from perfsvc import judge
from perfsvc.judge import Comparison
from perfsvc.measure.host import pool
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.measure.plan.order import AlternatingPlan, OverBudget, Task
from perfsvc.measure.worker.sampling.sampler import Sampling
from perfsvc.model import TIME, DeviceInfo, Measurement, Status

BUDGET_S = 20.0
"""Seconds for one answer at most: on a GPU all the pairs there may be, of whose time opening the device takes most."""


@dataclass(frozen=True, slots=True)
class Means:
    """What sides are measured in turn with.

    Attributes:
        devices: those that can be had, by UUID.
        sampling: how each of them samples a case.
        helper_kernels: the binaries that they work with, by UUID.
        seed: decides the order of processes.
        threshold: the smallest relevant change as a fraction, or rules; None for what suits the kind of device.
        budget_s: seconds for each answer.
        limit_s: seconds that a case may take in a process before that is killed.
        servers: where workers are forked; None to start some.
        say: is told what a person should know while waiting.
    """

    devices: Mapping[str, DeviceInfo]
    sampling: Callable[[DeviceInfo], Sampling]
    helper_kernels: Mapping[str, bytes]
    seed: int
    threshold: judge.ThresholdOption = None
    budget_s: float = BUDGET_S
    limit_s: float = 60.0
    servers: ForkServers | None = None
    say: Callable[[str], object] = lambda _: None


@dataclass(slots=True)
class Turns:
    """What was measured in turn so far."""

    baseline: list[Measurement] = field(default_factory=list)
    candidate: list[Measurement] = field(default_factory=list)
    looks: int = 0
    found: Comparison | None = None

    @property
    def pairs(self) -> int:
        """How many times both sides were measured."""
        return min(len(self.baseline), len(self.candidate))

    @property
    def fault(self) -> tuple[str, str]:
        """The side that has no right result and why; empty where both have."""
        sides = {"baseline": self.baseline, "candidate": self.candidate}
        faults = [(name, one.reason) for name, side in sides.items() for one in side if one.status is not Status.OK]
        return faults[0] if faults else ("", "")


def take_turns(
    sides: tuple[Task, Task],
    means: Means,
    *,
    threshold: float,
    enough: Callable[[Comparison], bool],
    metric: str = TIME,
) -> Turns:
    """Measures a baseline and a candidate in turn, and compares them at each of ``judge.LOOKS``.

    It ends when a look is enough, when a side has no right result or none of the metric, or when the budget does.

    Args:
        sides: the baseline and the candidate, both on one device.
        means: what they are measured with.
        threshold: the smallest relevant change, as a fraction.
        enough: whether a look is the last one.
        metric: what is compared.

    Raises:
        NoDeviceError: the device cannot be opened.
    """
    device = means.devices[sides[0].device]
    plan = AlternatingPlan(
        sides,
        replicas=judge.LOOKS[-1],
        seed=means.seed,
        limit_s=means.limit_s,
        helper_kernels=means.helper_kernels,
        budget_s=means.budget_s,
    )
    baseline = {replica for replica, task in plan.order(device.uuid) if task is sides[0]}
    turns = Turns()
    with contextlib.closing(pool.measure(plan, {device.uuid: device}, means.say, means.servers)) as measured:
        for one in measured:
            if isinstance(one, OverBudget):
                continue
            (turns.baseline if one.replica in baseline else turns.candidate).append(one)
            if one.status is not Status.OK or not one.values_of(metric):
                return turns
            if turns.pairs == judge.LOOKS[turns.looks] and enough(_look(turns, threshold, metric)):
                return turns
    if turns.looks and turns.pairs > judge.LOOKS[turns.looks - 1]:
        _look(turns, threshold, metric)  # the budget ended between two looks
    return turns


def _look(turns: Turns, threshold: float, metric: str) -> Comparison:
    """Compares both sides once more."""
    turns.looks += 1
    turns.found = judge.compare_at_look(
        [one.values_of(metric) for one in turns.baseline],
        [one.values_of(metric) for one in turns.candidate],
        look=turns.looks,
        looks=len(judge.LOOKS),
        threshold=threshold,
    )
    return turns.found
