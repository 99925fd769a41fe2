"""Confirm before alarm: measure suspects again, the baseline's stored binary and the candidate's in A/B pairs."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

from perfsvc import judge
from perfsvc.errors import CaseError, NoDeviceError, SuiteError, UsageError
from perfsvc.judge import Comparison
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.measure.plan.order import Task
from perfsvc.model import ENERGY, Cause, ChangeKind, Confirmation, FindingState, Judgement, Suspect
from perfsvc.service import replay
from perfsvc.service.compare.code import SidesOf, sides_of
from perfsvc.service.confirm.pairs import Means, Turns, take_turns
from perfsvc.service.progress import Progress
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
        enough = partial(judge.is_decided, direction=suspect.direction, threshold=asked.threshold)
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
            usual=relevant(asked.suspect, kind, judge.without_override(self._means.threshold)),
            same_code=bool(measured.same_code),
            metric=metric,
        )
        if cause is Cause.KERNEL and asked.suspect.judgement.cause is Cause.TOOLCHAIN:
            cause, reason = Cause.TOOLCHAIN, f"{reason}, of an equal source"
        updates = judge.is_decided(found, asked.suspect.direction, asked.threshold)
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


def relevant(suspect: Suspect, device_kind: str, asked: judge.ThresholdOption) -> float:
    """The smallest change that matters of a suspect, as a fraction.

    That is what a person asked for, or what is usual on the kind of device. An alert may be of a change too small for
    any baseline to show: what matters is then half of what it saw, for all of it would be missed every other time; but
    no less than a rule lays down for its series.
    """
    series = suspect.series
    usual = judge.threshold_of(series.case, series.metric, device_kind, asked)
    if suspect.change is ChangeKind.REGRESSION or not suspect.judgement.ratio:
        return usual
    least = judge.without_override(asked).configured(series.case, series.metric) or 0.0
    return max(least, min(usual, math.expm1(abs(math.log(suspect.judgement.ratio)) / 2)))


def confirm_all(
    store: Store, suspects: Sequence[Suspect], means: Means, progress: Progress, stopping: Stopping = never
) -> list[Confirmation]:
    """Measures suspects again, one after the other.

    What came of each is stored at once. A GPU that cannot be opened any more costs its own suspects, which nobody
    measures again then. From when it is ``stopping`` on none is begun.
    """
    progress.begin("confirming", len(suspects))
    confirmer = Confirmer(store, means)
    confirmations: list[Confirmation] = []
    lost: set[str] = set()
    for suspect in suspects:
        if stopping():
            break
        if suspect.series.device not in lost:
            try:
                confirmations.append(confirmer.confirm(suspect))
                store.put_confirmation(confirmations[-1])
            except NoDeviceError as error:
                lost.add(suspect.series.device)
                progress.say(f"the suspects of {suspect.series.device} are not measured again: {error.what}")
        progress.step(suspect.series.case.id)
    return confirmations


def with_causes(judgements: Iterable[Judgement], confirmations: Iterable[Confirmation]) -> list[Judgement]:
    """Verdicts with the causes that measuring again found; what a verdict did not see move keeps none."""
    causes = {one.suspect.series: one.cause for one in confirmations}
    return [replace(one, cause=causes.get(one.series, one.cause)) if one.cause else one for one in judgements]


LOOKED_AFTER = frozenset({FindingState.OPEN, FindingState.ACKNOWLEDGED})
"""The states of findings whose series are suspects on every night until they are back."""


def told_before(
    store: Store, suspects: Iterable[Suspect], means: Means, sides_of: SidesOf | None = None
) -> Iterator[Confirmation]:
    """The answers to those suspects that an earlier night has had measured again, with nothing new to be learnt.

    Each stands in a finding that laid it to its code, or to the compiler. Both sides have the code, compiler, driver
    and power limit that they had when that was found, and tonight's interval overlaps the one that was found then. So
    a regression that stays for weeks is measured again on its first night alone.

    Args:
        store: holds the findings, and what measuring again has told.
        suspects: of tonight.
        means: what they would be measured again with.
        sides_of: has read the runs' sides, where somebody asked for them before.
    """
    seen = {
        (moved.series, moved.direction): moved.last_run
        for finding in store.findings()
        if finding.state in LOOKED_AFTER
        for moved in finding.moved
        if moved.recovered_run is None
    }
    confirmations, sides_of = cache(store.confirmations), sides_of or SidesOf(store)
    held: list[tuple[Confirmation, Suspect]] = []
    for suspect in suspects:
        last, device = seen.get((suspect.series, suspect.direction)), means.devices.get(suspect.series.device)
        if last is None or device is None:
            continue
        threshold = relevant(suspect, device.kind, means.threshold)
        answers = [one for one in confirmations(last) if one.confirmed and _same_suspect(one.suspect, suspect)]
        if answers and answers[-1].threshold == threshold and _overlap(answers[-1], suspect):
            held.append((answers[-1], suspect))
    sides_of([one for answer, suspect in held for one in _then_and_now(answer, suspect)])  # all are read at once
    return (_carried_over(answer, suspect) for answer, suspect in held if _is_unchanged(answer, suspect, sides_of))


def _same_suspect(one: Suspect, other: Suspect) -> bool:
    return (one.series, one.direction) == (other.series, other.direction)


def _overlap(answer: Confirmation, suspect: Suspect) -> bool:
    """Whether the intervals of then and now do."""
    now = suspect.judgement
    if now.low is None or now.high is None or answer.low is None or answer.high is None:
        return False
    return now.low <= answer.high and answer.low <= now.high


def _then_and_now(answer: Confirmation, suspect: Suspect) -> list[Judgement]:
    """Each side of a suspect against what it was as it was answered, where that is another run."""
    then, now = answer.suspect.judgement, suspect.judgement
    runs = ((then.baseline_run, now.baseline_run), (then.candidate_run, now.candidate_run))
    return [replace(now, baseline_run=before, candidate_run=after) for before, after in runs if before != after]


def _is_unchanged(answer: Confirmation, suspect: Suspect, sides_of: SidesOf) -> bool:
    """Whether both sides ran the same code in the same environment as when the suspect was answered."""
    told = [sides_of([one]).get(one.series) for one in _then_and_now(answer, suspect)]
    return all(sides is not None and sides.code and sides.toolkit and sides.device for sides in told)


def _carried_over(answer: Confirmation, suspect: Suspect) -> Confirmation:
    """The answer as tonight's, of which nothing was measured."""
    run = answer.suspect.judgement.candidate_run
    reason = answer.reason if answer.carried_over else f"{answer.reason}, as run {run} had it measured"
    return replace(answer, suspect=suspect, reason=reason, looks=0, drift=None, wall_s=0.0, baseline=(), candidate=())
