"""Suspects that stand in a finding: what measuring them again has told holds for as long as nothing else changes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from perfsvc.model import Confirmation, FindingState, Judgement, Suspect
from perfsvc.service.confirming.confirm import relevant
from perfsvc.service.confirming.turns import Means
from perfsvc.service.judging.sides import SidesOf
from perfsvc.store import Store

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
    return all(sides is not None and sides.code and sides.toolkit and sides.board for sides in told)


def _carried_over(answer: Confirmation, suspect: Suspect) -> Confirmation:
    """The answer as tonight's, of which nothing was measured."""
    run = answer.suspect.judgement.candidate_run
    reason = answer.reason if answer.carried_over else f"{answer.reason}, as run {run} had it measured"
    return replace(answer, suspect=suspect, reason=reason, looks=0, drift=None, wall_s=0.0, baseline=(), candidate=())
