"""Confirm before alarm: measure suspects again, the baseline's stored binary and the candidate's in A/B pairs.

All suspects of a device share the processes of their pairs, and all devices work at the same time. Suspects of several
GPUs with the same binaries are measured on one GPU and checked on a second: see ``Group``. A suspect of an open or
acknowledged finding is measured again only if something about it is new: see ``earlier_answers``.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from perfsvc import units
from perfsvc.errors import NoDeviceError
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.model import ChangeKind, Confirmation, DeviceInfo, Judgement, Suspect
from perfsvc.service.confirm.conclude import REFUSED, Confirmer
from perfsvc.service.confirm.gpus import Group, groups_of
from perfsvc.service.confirm.pairs import PairResults, PairSettings, Sides, measure_pairs
from perfsvc.service.progress import Progress
from perfsvc.store import Store


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

    def with_cause(judgement: Judgement) -> Judgement:
        """Return a judgement with its confirmation's cause and reason; a second call does not add the reason again."""
        answer = answers.get(judgement.series)
        if answer is None or judgement.cause is None:
            return judgement
        has_reason = answer.reason in judgement.reason
        reason = judgement.reason if has_reason else "; ".join(filter(None, [judgement.reason, answer.reason]))
        return replace(judgement, cause=answer.cause, reason=reason)

    return [with_cause(judgement) for judgement in judgements]
