"""The confirmations of earlier nights that still hold tonight, so that their suspects need not be measured again."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from perfsvc.model import ChangeKind, Confirmation, Direction, FindingState, Series, Suspect
from perfsvc.service.compare.sides import sides_of
from perfsvc.service.confirm.conclude import relevant_change
from perfsvc.service.confirm.pairs import PairSettings
from perfsvc.store import Store

STANDING = frozenset({FindingState.OPEN, FindingState.ACKNOWLEDGED})
"""The states of findings whose series are suspects every night until they recover."""


def earlier_answers(store: Store, suspects: Iterable[Suspect], settings: PairSettings) -> list[Confirmation]:
    """Return the confirmations of earlier nights that still hold for tonight's suspects.

    A confirmation holds if all of this is true:

    - its suspect is in an open or acknowledged finding;
    - its cause is the code or the compiler;
    - both sides still have the same code and environment;
    - tonight's interval overlaps the confirmed interval.

    A regression that lasts for weeks is therefore measured again only on its first night.

    Args:
        store: holds the findings and confirmations.
        suspects: tonight's suspects.
        settings: how the suspects would be measured again.
    """
    last_run: dict[tuple[Series, Direction], int] = {}
    for finding in store.findings.active():
        for moved in finding.moved if finding.state in STANDING else ():
            if moved.recovered_run is None:
                key = moved.series, moved.direction
                last_run[key] = max(moved.last_run, last_run.get(key, 0))
    confirmations_of = cache(store.confirmations.of_run)
    answers = []
    for suspect in suspects:
        run, device = last_run.get((suspect.series, suspect.direction)), settings.devices.get(suspect.series.device)
        if run is None or device is None:
            continue
        earlier = [
            confirmation
            for confirmation in confirmations_of(run)
            if confirmation.confirmed
            and confirmation.suspect.series == suspect.series
            and confirmation.suspect.direction == suspect.direction
            and (confirmation.suspect.change is ChangeKind.AGAIN) is (suspect.change is ChangeKind.AGAIN)
        ]
        if not earlier:
            continue
        same_threshold = earlier[-1].threshold == relevant_change(suspect, device.kind, settings.threshold)
        if same_threshold and _overlap(earlier[-1], suspect) and _is_unchanged(store, earlier[-1], suspect):
            answers.append(_carried_over(earlier[-1], suspect))
    return answers


def _overlap(answer: Confirmation, suspect: Suspect) -> bool:
    """Return whether the confirmed interval of an earlier night overlaps tonight's interval of the suspect."""
    now = suspect.judgement
    if now.low is None or now.high is None or answer.low is None or answer.high is None:
        return False
    return now.low <= answer.high and answer.low <= now.high


def _is_unchanged(store: Store, answer: Confirmation, suspect: Suspect) -> bool:
    """Return whether tonight's baseline and candidate have the code and environment of those that were confirmed."""
    then, now = answer.suspect.judgement, suspect.judgement
    runs = ((then.baseline_run, now.baseline_run), (then.candidate_run, now.candidate_run))
    for before, after in runs:
        if before == after:
            continue
        judgement = replace(now, baseline_run=before, candidate_run=after)
        sides = sides_of(store, [judgement]).get(suspect.series)
        if sides is None or not (sides.code and sides.toolkit and sides.device):
            return False
    return True


def _carried_over(answer: Confirmation, suspect: Suspect) -> Confirmation:
    """Return an earlier night's confirmation as the answer for tonight's suspect, without the measurements."""
    run = answer.suspect.judgement.candidate_run
    reason = answer.reason if answer.carried_over else f"{answer.reason}, as run {run} had it measured"
    return replace(answer, suspect=suspect, reason=reason, looks=0, drift=None, wall_s=0.0, baseline=(), candidate=())
