"""Confirm before alarm: measure suspects again, the baseline's stored binary and the candidate's in A/B pairs.

All suspects of a device share the processes of their pairs, and all devices work at the same time. Suspects of several
GPUs with the same binaries are measured on one GPU and checked on a second: see ``Group``. A suspect of an open or
acknowledged finding is measured again only if something about it is new: see ``earlier_answers``.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perfsvc import judge, units
from perfsvc.errors import NoDeviceError
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.measure.plan.order import Task
from perfsvc.model import ChangeKind, Confirmation, DeviceInfo, Judgement, Status, Suspect
from perfsvc.service.compare.confirmations import answered
from perfsvc.service.confirm.conclude import REFUSED, Confirmer
from perfsvc.service.confirm.pairs import PairResults, PairSettings, Sides, measure_pairs
from perfsvc.service.findings.suspects import size_of_change
from perfsvc.service.progress import Progress
from perfsvc.store import Store

ABOUT_LARGEST = 0.8
"""A GPU may stand for the others if its change is at least this share of the largest change (of logarithms)."""


@dataclass(slots=True, eq=False)
class Group:
    """Suspects of several GPUs of one model, with the same two binaries on each GPU; or the suspect of a single GPU.

    The first GPU measures until the answer is known. A second GPU checks the answer with one A/B pair. If the code is
    the cause, and the pair shows a similar change, the answer holds on all GPUs of the group. In any other case each
    GPU has to be measured, because chance and the state of a GPU are different on each GPU.

    Attributes:
        first: what the first GPU measures.
        others: what the other GPUs would measure.
        check: what the second GPU measures: one pair of a member of ``others``.
        answer: the confirmation of the first GPU's suspect, once it is known.
        results: the pairs of the first GPU behind ``answer``.
        checked: the pair of the second GPU, once it is known.
    """

    first: Sides
    others: tuple[Sides, ...] = ()
    check: Sides | None = None
    answer: Confirmation | None = None
    results: PairResults | None = None
    checked: PairResults | None = None

    @property
    def measured(self) -> tuple[Sides, ...]:
        """What the first and the second GPU measure."""
        return (self.first,) if self.check is None else (self.first, self.check)

    @property
    def applies(self) -> bool:
        """Whether the answer of the first GPU holds on the other GPUs."""
        if self.answer is None or self.results is None or self.checked is None:
            return False
        pair, metric = self.checked, self.first.metric
        runs = (*pair.baseline, *pair.candidate)
        is_complete = bool(pair.pairs) and all(run.status is Status.OK and run.values_of(metric) for run in runs)
        if not (is_complete and self.answer.confirmed and self.results.comparison):
            return False
        old, new = ([run.values_of(metric) for run in side] for side in (pair.baseline, pair.candidate))
        ratio = judge.compare(old, new, threshold=self.first.threshold).ratio
        return judge.agrees(self.results.comparison, self.results.pairs, ratio, threshold=self.first.threshold)

    def applied(self, unconfirmed: Confirmation) -> Confirmation:
        """Return the confirmation of another GPU's suspect with the answer of the first GPU."""
        answer, check, pair = self.answer, self.check, self.checked
        if answer is None or check is None or pair is None:
            raise ValueError("the answer does not apply to other GPUs")
        device = unconfirmed.suspect.series.device
        own = pair if device == check.baseline.device else PairResults()
        return replace(
            answer,
            suspect=unconfirmed.suspect,
            threshold=unconfirmed.threshold,
            reason=f"{answer.reason}, as on {answer.suspect.series.device}, "
            f"and checked on {check.baseline.device} with one pair",
            drift=None,
            wall_s=own.wall_s,
            baseline=tuple(own.baseline),
            candidate=tuple(own.candidate),
        )


def groups_of(unconfirmed: Mapping[Sides, Confirmation]) -> list[Group]:
    """Return the suspects in groups that share an answer, in the order of their first suspects.

    The first GPU of a group is the GPU with the largest change. If several GPUs show about the same change, it is the
    GPU with the least to measure so far. The second GPU is the remaining GPU with the least to measure.

    Args:
        unconfirmed: what to measure, each with its confirmation before any measurement, the most urgent first.
    """
    by_work: dict[object, list[Sides]] = defaultdict(list)
    for sides, confirmation in unconfirmed.items():
        by_work[_work(sides, confirmation)].append(sides)
    pairs: dict[str, int] = defaultdict(int)  # how many pairs each device measures so far, at least
    groups = []
    for members in by_work.values():
        sizes = {sides: size_of_change(unconfirmed[sides].suspect) for sides in members}
        largest = [sides for sides in members if sizes[sides] >= ABOUT_LARGEST * max(sizes.values())]
        first = _least_busy(largest, pairs)
        pairs[first.baseline.device] += judge.LOOKS[0]
        others = tuple(sides for sides in members if sides is not first)
        check = None
        if others:
            check = replace(_least_busy(others, pairs), most_pairs=1)
            pairs[check.baseline.device] += 1
        groups.append(Group(first, others, check))
    return groups


def _work(sides: Sides, confirmation: Confirmation) -> object:
    """Return a key that is equal for suspects with the same two binaries on GPUs of one model, and one threshold.

    An alert may have a lower threshold than a regression. What its pairs confirm may be too little for the regression.
    """
    suspect = confirmation.suspect
    series, again = suspect.series, suspect.change is ChangeKind.AGAIN
    kind = (series.device_model, series.metric, series.cache, suspect.direction)
    baseline_run = suspect.judgement.baseline_run if again else None  # the reason of a further step names this run
    return kind, again, baseline_run, sides.threshold, _code(sides.baseline), _code(sides.candidate)


def _code(task: Task) -> object:
    return task.record, task.python_source


def _least_busy(candidates: Sequence[Sides], pairs: Mapping[str, int]) -> Sides:
    """Return the first candidate whose device has the fewest pairs to measure."""
    return min(candidates, key=lambda sides: pairs.get(sides.baseline.device, 0))


def confirm_all(
    store: Store, suspects: Sequence[Suspect], settings: PairSettings, progress: Progress, stopping: Stopping = never
) -> tuple[list[Confirmation], list[Suspect]]:
    """Measure suspects again; return their confirmations, and the suspects for which the budget left no time.

    Each confirmation is stored as soon as its suspect is decided. A device that cannot be opened costs only its own
    suspects. Once ``stopping`` is true, no measurement begins, and undecided suspects get no confirmation.

    Args:
        store: holds the binaries of the suspects.
        suspects: the suspects, the most urgent first.
        settings: how to measure.
        progress: receives messages and the number of suspects done.
        stopping: returns whether to stop.
    """
    progress.begin("confirming", len(suspects))
    stage = _Stage(store, settings, progress, stopping)
    began = time.monotonic()
    groups = groups_of(stage.prepared(suspects))
    stage.measure(groups)
    if others := [Group(sides) for group in groups if not group.applies for sides in group.others]:
        stage.settings = replace(settings, budget_s=settings.budget_s - (time.monotonic() - began))
        stage.measure(others)
    return stage.confirmations, stage.over_budget(suspects)


class _Stage:
    """Measures suspects again, and stores each confirmation at once.

    Args:
        store: holds the binaries of the suspects.
        settings: how to measure.
        progress: receives messages and the number of suspects done.
        stopping: returns whether to stop.

    Attributes:
        settings: how to measure what is left.
        confirmations: what was stored so far.
    """

    def __init__(self, store: Store, settings: PairSettings, progress: Progress, stopping: Stopping) -> None:
        self.settings = settings
        self.confirmations: list[Confirmation] = []
        self._store = store
        self._confirmer = Confirmer(store, settings)
        self._progress = progress
        self._stopping = stopping
        self._lost: set[str] = set()
        self._unconfirmed: dict[Sides, Confirmation] = {}

    def prepared(self, suspects: Iterable[Suspect]) -> dict[Sides, Confirmation]:
        """Return what to measure, each with its confirmation before any measurement.

        A suspect that cannot be measured gets its final confirmation at once.
        """
        for suspect in suspects:
            if self._stopping():
                break
            device = suspect.series.device
            if device in self._lost:
                continue
            if device not in self.settings.devices:  # a resumed night may find that the GPU was exchanged
                what = f"{suspect.series.device_model} ({device}) is no longer here"
                self._lose(device, NoDeviceError(what, cure="see which GPUs there are: perfsvc doctor"))
                continue
            unconfirmed, sides = self._confirmer.prepare(suspect)
            if sides is None:
                self._put(unconfirmed)
            else:
                self._unconfirmed[sides] = unconfirmed
        return self._unconfirmed

    def measure(self, groups: Sequence[Group]) -> None:
        """Measure the suspects of groups, and store the confirmations that follow."""
        of_sides = {sides: group for group in groups for sides in group.measured}
        if not of_sides or self.settings.budget_s <= 0:
            return
        for sides, results in measure_pairs(list(of_sides), self.settings, self._stopping, self._on_loss):
            group = of_sides[sides]
            if sides is group.check:
                group.checked = results
            elif self._is_answered(sides, results):
                group.results, group.answer = results, self._confirmer.conclude(self._unconfirmed[sides], results)
                self._put(group.answer)
            if group.applies:
                for other in group.others:
                    self._put(group.applied(self._unconfirmed[other]))

    def over_budget(self, suspects: Sequence[Suspect]) -> list[Suspect]:
        """Return the suspects for which the budget left no time."""
        if self._stopping():
            return []
        answered = {confirmation.suspect for confirmation in self.confirmations}
        return [suspect for suspect in suspects if suspect not in answered and suspect.series.device not in self._lost]

    def _is_answered(self, sides: Sides, results: PairResults) -> bool:
        """Return whether there is an answer: the suspect is decided, or its budget ended after a look."""
        ended = not self._stopping() and sides.baseline.device not in self._lost
        return results.decided or (ended and results.comparison is not None)

    def _put(self, confirmation: Confirmation) -> None:
        self._store.confirmations.put(confirmation)
        self.confirmations.append(confirmation)
        self._progress.step(confirmation.suspect.series.case.id)

    def _on_loss(self, device: DeviceInfo, error: NoDeviceError) -> None:
        self._lose(device.uuid, error)

    def _lose(self, device: str, error: NoDeviceError) -> None:
        self._lost.add(device)
        self._progress.report(f"the suspects of {device} are not measured again: {error.what}")


def not_measured(over_budget: Sequence[Suspect]) -> str:
    """Return how many suspects the budget left unmeasured, in words: ``2 suspects were not measured again``."""
    were = "was" if len(over_budget) == 1 else "were"
    return f"{units.count(len(over_budget), 'suspect')} {were} not measured again"


def refusals(confirmations: Iterable[Confirmation]) -> list[str]:
    """Return the reasons of the confirmations whose code was not run, because no trusted key has signed it."""
    reasons = (confirmation.reason for confirmation in confirmations)
    return [reason.removeprefix(REFUSED) for reason in reasons if reason.startswith(REFUSED)]


def with_causes(judgements: Iterable[Judgement], confirmations: Iterable[Confirmation]) -> list[Judgement]:
    """Return the judgements, each with the cause and the reason that the confirmation of its series found.

    A judgement without a cause stays as it is. A confirmation of a further step of a finding is not used, because the
    whole change may have another cause. A second call changes nothing.
    """
    answers = {
        confirmation.suspect.series: confirmation
        for confirmation in confirmations
        if confirmation.suspect.change is not ChangeKind.AGAIN
    }

    return [
        answered(judgement, answers.get(judgement.series)) if judgement.cause else judgement for judgement in judgements
    ]
