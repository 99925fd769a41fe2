"""Findings: what a run makes somebody measure again, and what it changes of the changes that someone should look at."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, log

from perfsvc import judge, units
from perfsvc.judge import MOVES
from perfsvc.model import (
    Cause,
    ChangeKind,
    Confirmation,
    Direction,
    Finding,
    FindingState,
    FindingUpdates,
    RootCause,
    Series,
    Suspect,
)
from perfsvc.service.compare.compare import judge_quiet
from perfsvc.service.findings.recovery import OPPOSITE, recovered
from perfsvc.service.findings.root_causes import Origins
from perfsvc.service.findings.suspects import Doubts, doubts
from perfsvc.store import Store

RAISED = frozenset({Cause.KERNEL, Cause.TOOLCHAIN, Cause.ENVIRONMENT})
"""The causes that someone should look at."""


def suspects_of(
    store: Store, run: int, *, threshold: judge.ThresholdOption = None, found: Doubts | None = None
) -> list[Suspect]:
    """The suspects of a run that has been judged, which somebody should measure again; nothing is written.

    They are what lost against its baseline, and what its history raises an alert of (``judge.detect_changes_together``), but nothing
    that was measured again already, that a person wants to hear no more of, or that is no more than the recovery of a
    finding. What moved furthest comes first.

    Args:
        store: holds the run.
        run: which.
        threshold: the smallest relevant change as a fraction, or rules; None for each kind of device's default.
        found: the run's ``doubts``, where somebody has worked them out since its verdicts were stored.
    """
    found = found or doubts(store, run, store.verdicts(run), threshold=threshold)
    if not found.to_confirm:
        return []
    answered, unheard = store.measured_again([run]), ignored(store.findings())
    wanted = [
        one for one in found.to_confirm if one.series not in answered and (one.series, one.direction) not in unheard
    ]
    left = sorted(wanted, key=_size, reverse=True)
    if not left or store.run(run).provenance.dirty:
        return left
    return _untold(store, run, left, _back(store, run, found, threshold))


def update_findings(
    store: Store, run: int, *, threshold: judge.ThresholdOption = None, found: Doubts | None = None
) -> FindingUpdates:
    """Brings the findings up to date with a run that has been judged, by its stored verdicts and confirmations.

    Findings whose series are all back are resolved, by the rules or the usual thresholds and not by a command's. What
    moved at once on a GPU with unchanged code is laid to the environment; what measuring again laid to the code, to a
    new compiler or to the environment is, too. Of each cause there is one finding. A run with uncommitted changes
    raises and resolves nothing: it is an experiment. All is one transaction, and doing it again changes nothing.

    The arguments are those of ``suspects_of``: what is measured again tonight changes nothing of the doubts themselves.
    """
    if store.run(run).provenance.dirty:
        return FindingUpdates()
    found = found or doubts(store, run, store.verdicts(run), threshold=threshold)
    back = _back(store, run, found, threshold)
    blamed = [*_together(store, run, found, back), *_confirmed(store, run)]
    return store.update_findings(run, back, _blames(store, run, blamed))


def ignored(findings: Iterable[Finding]) -> set[tuple[Series, Direction]]:
    """The series of which a person wants to hear no more that they moved in some direction."""
    return {
        (one.series, one.direction)
        for finding in findings
        if finding.state is FindingState.IGNORED
        for one in finding.moved
    }


def _size(suspect: Suspect) -> float:
    """How far a suspect moved, by the logarithm of its ratio; what has none moved furthest."""
    return abs(log(suspect.judgement.ratio)) if suspect.judgement.ratio else inf


# --- what moved ------------------------------------------------------------------------------------------------------


def _together(store: Store, run: int, found: Doubts, back: Collection[tuple[int, Series]]) -> Iterator[Suspect]:
    """What moved at once on a GPU, unless for the most part it is no more than the recovery of what had."""
    for group in found.together:
        untold = _untold(store, run, group, back)
        if 2 * len(untold) > len(group):
            why = f"{units.count(len(group), 'case')} with unchanged code moved at once"
            yield from (replace(one, evidence=why) for one in untold)


def _confirmed(store: Store, run: int) -> list[Suspect]:
    """The suspects that measuring again laid to a cause; of several answers the last that says one."""
    answers = [one for one in store.confirmations(run) if one.cause is not Cause.UNCONFIRMED]
    last = {(one.suspect.series, one.suspect.direction): one for one in answers}
    return [_decided(one) for one in last.values() if one.cause in RAISED]


def _decided(one: Confirmation) -> Suspect:
    """The suspect as measuring it again showed it; of the GPU's doing it has only what the run saw."""
    judged = replace(one.suspect.judgement, cause=one.cause)
    if one.confirmed:
        judged = replace(judged, ratio=one.ratio, low=one.low, high=one.high)
    return replace(one.suspect, judgement=judged, evidence=one.reason)


def _blames(store: Store, run: int, suspects: Collection[Suspect]) -> list[RootCause]:
    """Suspects by what moved them, each with the evidence of that which moved furthest."""
    if not suspects:
        return []
    origins = Origins(store, run)
    groups: dict[tuple[Cause | None, str], list[Suspect]] = defaultdict(list)
    for suspect in sorted(suspects, key=_size, reverse=True):
        groups[suspect.judgement.cause, origins.of(suspect)].append(suspect)
    return [RootCause(root_cause, _evidence(group), tuple(group)) for (_, root_cause), group in groups.items()]


def _evidence(group: Sequence[Suspect]) -> str:
    first = group[0]
    same = all(one.evidence == first.evidence for one in group)
    return first.evidence if same else f"{first.series.case.id}: {first.evidence}"


# --- what is back ----------------------------------------------------------------------------------------------------


def _back(store: Store, run: int, found: Doubts, threshold: judge.ThresholdOption) -> list[tuple[int, Series]]:
    """The series of standing findings that a run shows at their old levels, by the findings' numbers."""
    standing = store.findings()
    left = _left(standing)
    if not left:
        return []
    told = {one.series: one.cause for one in store.verdicts(run)}  # measuring again has told more since
    moved = {
        one.series: replace(one, cause=told.get(one.series) or one.cause)
        for one in found.judgements
        if one.verdict in MOVES
    }
    still = [one for one in left if one not in moved]
    usual = {one.series: one for one in judge_quiet(store, run, still, threshold=threshold)}
    return recovered(standing, (usual | moved).values(), found.alerted)


def _left(findings: Iterable[Finding]) -> list[Series]:
    """The series of findings that are not back yet."""
    moved = (one for finding in findings for one in finding.moved)
    return list(dict.fromkeys(one.series for one in moved if one.recovered_run is None))


def _untold(store: Store, run: int, suspects: Sequence[Suspect], back: Iterable[tuple[int, Series]]) -> list[Suspect]:
    """The suspects that are more than the recovery of a finding, which a history may see nights after its verdict."""
    recovered_in = _recovered_in(store.findings(every=True), run, set(back))

    def is_told(suspect: Suspect) -> bool:
        back = recovered_in.get((suspect.series, OPPOSITE[suspect.direction]), 0)
        since = suspect.judgement.baseline_run
        began = suspect.change is not ChangeKind.REGRESSION and since is not None and since < back
        return back == run or began

    return [suspect for suspect in suspects if not is_told(suspect)]


def _recovered_in(
    findings: Sequence[Finding], run: int, tonight: Collection[tuple[int, Series]]
) -> Mapping[tuple[Series, Direction], int]:
    """The run in which each series was back, by where it had moved, of its newest finding; tonight's are not stored."""
    found: dict[tuple[Series, Direction], int] = {}
    for finding in reversed(findings):
        for one in finding.moved:
            since = run if (finding.id, one.series) in tonight else one.recovered_run
            if since is not None:
                found[one.series, one.direction] = since
    return found
