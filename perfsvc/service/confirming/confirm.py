"""Confirm before alarm: a suspect is measured again, the baseline's stored binary and the candidate's in turn."""

import math
import time
from dataclasses import replace
from functools import cache, partial

from perfsvc import judge
from perfsvc.errors import CaseError, NoDeviceError, SuiteError, UsageError
from perfsvc.judge import Comparison
from perfsvc.measure.plan.order import Task
from perfsvc.model import ENERGY, Cause, ChangeKind, Confirmation, Suspect
from perfsvc.service.confirming import replay
from perfsvc.service.confirming.turns import Means, Turns, take_turns
from perfsvc.service.judging.sides import sides_of
from perfsvc.store import Store


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
            NoDeviceError: its device cannot be opened, or is not here any more.
        """
        began = time.monotonic()
        device = self._means.devices.get(suspect.series.device)
        if device is None:  # a night that goes on may find another GPU in its place
            what = f"{suspect.series.device_model} ({suspect.series.device}) is not here any more"
            raise NoDeviceError(what, cure="see which GPUs there are: perfsvc doctor")
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
        except (CaseError, SuiteError, UsageError) as error:
            return replace(asked, reason=f"it cannot be measured again: {error.what}")
        enough = partial(judge.settled, direction=suspect.direction, threshold=asked.threshold)
        turns = take_turns(sides, self._means, threshold=asked.threshold, enough=enough, metric=suspect.series.metric)
        return replace(self._concluded(asked, turns), wall_s=time.monotonic() - began)

    def _sides(self, suspect: Suspect) -> tuple[Task, Task]:
        """What measures the baseline's case and the candidate's as they ran; raises what keeps them from it."""
        series, judged = suspect.series, suspect.judgement
        if judged.baseline_run is None or judged.candidate_run is None:
            raise UsageError("it has no baseline")
        lent = series not in self._levels(judged.baseline_run)
        baseline = replay.find(self._store, series, judged.baseline_run, None if lent else series.device)
        candidate = replay.find(self._store, series, judged.candidate_run, series.device)
        usual = self._means.sampling(self._means.devices[series.device])
        sampling = replace(usual, energy=series.metric == ENERGY)
        return replay.task(baseline, series, sampling), replay.task(candidate, series, sampling)

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
        metric = asked.suspect.series.metric
        if lacking := [one for one in (*turns.baseline, *turns.candidate) if not one.values_of(metric)]:
            return replace(measured, reason=f"measured again it has no {metric}: {lacking[0].note or 'none was told'}")
        if turns.found is None:
            few = f"inconclusive: the budget of {asked.budget_s:g} s ended after {turns.pairs} pairs, too few to tell"
            return replace(measured, reason=few)
        found, drift = turns.found, self._drift(asked, turns)
        kind = self._means.devices[asked.suspect.series.device].kind
        cause, reason = judge.cause_of(
            found,
            drift,
            direction=asked.suspect.direction,
            threshold=asked.threshold,
            usual=relevant(asked.suspect, kind, judge.lasting(self._means.threshold)),
            same_code=bool(measured.same_code),
            metric=metric,
        )
        if cause is Cause.KERNEL and asked.suspect.judgement.cause is Cause.TOOLCHAIN:
            cause, reason = Cause.TOOLCHAIN, f"{reason}, of an equal source"
        updates = judge.settled(found, asked.suspect.direction, asked.threshold)
        if cause is Cause.UNCONFIRMED and not updates and turns.pairs < judge.LOOKS[-1]:
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
        """The baseline's binary now against what the store holds of it on this GPU."""
        judged = asked.suspect.judgement
        if judged.baseline_run is None:
            return None
        level = self._levels(judged.baseline_run).get(judged.series)
        if level is None or not level.replicas:
            return None
        now = [one.values_of(judged.series.metric) for one in turns.baseline]
        return judge.compare(level.replicas, now, threshold=asked.threshold)


def relevant(suspect: Suspect, device_kind: str, asked: judge.Asked) -> float:
    """The smallest change that matters of a suspect, as a fraction.

    That is what a person asked for, or what is usual on the kind of device. An alert may be of a change too small for
    any baseline to show: what matters is then half of what it saw, for all of it would be missed every other time; but
    no less than a rule lays down for its series.
    """
    series = suspect.series
    usual = judge.threshold_of(series.case, series.metric, device_kind, asked)
    if suspect.change is ChangeKind.REGRESSION or not suspect.judgement.ratio:
        return usual
    least = judge.lasting(asked).laid_down(series.case, series.metric) or 0.0
    return max(least, min(usual, math.expm1(abs(math.log(suspect.judgement.ratio)) / 2)))
