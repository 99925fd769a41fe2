"""Confirm before alarm: a suspect is measured again, the baseline's stored binary and the candidate's in turn."""

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial

from perfsvc import judge
from perfsvc.errors import CaseError, SuiteError, UsageError
from perfsvc.judge import Comparison
from perfsvc.measure import pool
from perfsvc.measure.alternation import Alternation
from perfsvc.measure.forks import ForkServers
from perfsvc.measure.plan import LeftOut
from perfsvc.measure.sampler import Sampling
from perfsvc.model import TIME, Cause, Confirmation, DeviceInfo, Measurement, Shift, Status, Suspect
from perfsvc.service import replay
from perfsvc.service.replay import Stored
from perfsvc.service.sides import sides_of
from perfsvc.store import Store

BUDGET_S = 20.0
"""Seconds for one suspect at most: on a GPU all the pairs there may be, of whose time opening the device takes most."""


@dataclass(frozen=True, slots=True)
class Means:
    """What suspects are measured with.

    Attributes:
        devices: those that can be had, by UUID.
        sampling: how each of them samples a case.
        instruments: the binaries that they work with, by UUID.
        seed: decides the order of processes.
        threshold: the smallest relevant change as a fraction; None for what suits the kind of device.
        budget_s: seconds for each suspect.
        limit_s: seconds that a case may take in a process before that is killed.
        servers: where workers are forked; None to start some.
        say: is told what a person should know while waiting.
    """

    devices: Mapping[str, DeviceInfo]
    sampling: Callable[[DeviceInfo], Sampling]
    instruments: Mapping[str, bytes]
    seed: int
    threshold: float | None = None
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


class Confirmer:
    """Measures suspects again and says what that tells of each; the store is only read.

    Args:
        store: holds the binaries of both nights.
        means: what they are measured with.
    """

    def __init__(self, store: Store, means: Means) -> None:
        self._store = store
        self._means = means
        self._levels = cache(store.levels)

    def confirm(self, suspect: Suspect) -> Confirmation:
        """Measures one again, until the answer is known or the budget ends.

        Raises:
            NoDeviceError: its device cannot be opened.
        """
        began = time.monotonic()
        device = self._means.devices[suspect.series.device]
        asked = Confirmation(
            suspect,
            Cause.UNCONFIRMED,
            "",
            threshold=relevant(suspect, device.kind, self._means.threshold),
            seed=self._means.seed,
            budget_s=self._means.budget_s,
        )
        try:
            sides = self._sides(suspect)
            plan = self._plan(suspect, device, sides)
        except (CaseError, SuiteError, UsageError) as error:
            return replace(asked, reason=f"it cannot be measured again: {error.what}")
        turns = self._alternate(plan, device, asked)
        return replace(self._concluded(asked, turns), wall_s=time.monotonic() - began)

    def _sides(self, suspect: Suspect) -> tuple[Stored, Stored]:
        """The baseline's case and the candidate's, as they ran; raises what keeps them from running again."""
        series, judged = suspect.series, suspect.judgement
        if series.metric != TIME:
            raise UsageError("times alone are measured again")
        if judged.baseline_run is None or judged.candidate_run is None:
            raise UsageError("it has no baseline")
        lent = series not in self._levels(judged.baseline_run)
        baseline = replay.find(self._store, series, judged.baseline_run, None if lent else series.device)
        return baseline, replay.find(self._store, series, judged.candidate_run, series.device)

    def _plan(self, suspect: Suspect, device: DeviceInfo, sides: tuple[Stored, Stored]) -> Alternation:
        sampling = self._means.sampling(device)
        return Alternation(
            tuple(replay.task(side, suspect.series, sampling) for side in sides),
            replicas=judge.LOOKS[-1],
            seed=self._means.seed,
            limit_s=self._means.limit_s,
            instruments=self._means.instruments,
            budget_s=self._means.budget_s,
        )

    def _alternate(self, plan: Alternation, device: DeviceInfo, asked: Confirmation) -> Turns:
        """Works off as much of the plan as it takes."""
        baseline = {replica for replica, task in plan.order(device.uuid) if task is plan.tasks[0]}
        turns = Turns()
        look = partial(_look, turns, asked)
        measuring = pool.measure(plan, {device.uuid: device}, self._means.say, self._means.servers)
        with contextlib.closing(measuring) as measured:
            for one in measured:
                if isinstance(one, LeftOut):
                    continue
                (turns.baseline if one.replica in baseline else turns.candidate).append(one)
                if one.status is not Status.OK:
                    return turns
                if turns.pairs == judge.LOOKS[turns.looks] and look():
                    return turns
        if turns.looks and turns.pairs > judge.LOOKS[turns.looks - 1]:
            look()  # the budget ended between two looks
        return turns

    def _concluded(self, asked: Confirmation, turns: Turns) -> Confirmation:
        side, why = turns.fault
        told = sides_of(self._store, [asked.suspect.judgement]).get(asked.suspect.series)
        measured = replace(
            asked,
            same_code=told.code if told else None,
            looks=turns.looks,
            baseline=tuple(turns.baseline),
            candidate=tuple(turns.candidate),
        )
        if side:
            return replace(measured, reason=f"the {side}'s binary has no right result any more: {why}")
        if turns.found is None:
            few = f"inconclusive: the budget of {asked.budget_s:g} s ended after {turns.pairs} pairs, too few to tell"
            return replace(measured, reason=few)
        found, drift = turns.found, self._drift(asked, turns)
        cause, reason = judge.cause_of(
            found,
            drift,
            direction=asked.suspect.direction,
            threshold=asked.threshold,
            same_code=bool(measured.same_code),
        )
        if cause is Cause.KERNEL and asked.suspect.judgement.cause is Cause.TOOLCHAIN:
            cause, reason = Cause.TOOLCHAIN, f"{reason}, of an equal source"
        if cause is Cause.UNCONFIRMED and turns.pairs < judge.LOOKS[-1]:
            reason += f"; the budget of {asked.budget_s:g} s ended after {turns.pairs} pairs"
        return replace(
            measured,
            cause=cause,
            reason=reason,
            verdict=found.verdict,
            ratio=found.ratio,
            low=found.low,
            high=found.high,
            drift=drift.ratio if drift else None,
        )

    def _drift(self, asked: Confirmation, turns: Turns) -> Comparison | None:
        """The baseline's binary now against what the store holds of it on this board."""
        judged = asked.suspect.judgement
        if judged.baseline_run is None:
            return None
        level = self._levels(judged.baseline_run).get(judged.series)
        if level is None or not level.replicas:
            return None
        return judge.compare(level.replicas, [one.samples_s for one in turns.baseline], threshold=asked.threshold)


def relevant(suspect: Suspect, device_kind: str, asked: float | None) -> float:
    """The smallest change that matters of a suspect, as a fraction.

    That is what a person asked for, or what is usual on the kind of device. An alert may be of a change too small for
    any baseline to show: what matters is then half of what it saw, for all of it would be missed every other time.
    """
    usual = judge.default_threshold(device_kind) if asked is None else asked
    if suspect.shift is Shift.LOSS or not suspect.judgement.ratio:
        return usual
    return min(usual, math.expm1(abs(math.log(suspect.judgement.ratio)) / 2))


def _look(turns: Turns, asked: Confirmation) -> bool:
    """Compares both sides once more; returns whether that is enough."""
    turns.looks += 1
    turns.found = judge.interim(
        [one.samples_s for one in turns.baseline],
        [one.samples_s for one in turns.candidate],
        look=turns.looks,
        looks=len(judge.LOOKS),
        threshold=asked.threshold,
    )
    return judge.settled(turns.found, asked.suspect.direction, asked.threshold)
