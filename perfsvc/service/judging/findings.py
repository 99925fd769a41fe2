"""Findings: which changes someone should look at, and when they are over."""

import getpass
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log

from perfsvc import judge
from perfsvc.judge import MOVES
from perfsvc.model import (
    Cause,
    Confirmation,
    Direction,
    Finding,
    FindingState,
    Judgement,
    Moved,
    Series,
    Shift,
    Suspect,
    Verdict,
)
from perfsvc.report import units
from perfsvc.service.judging.compare import judge_quiet
from perfsvc.service.judging.suspects import Doubts, doubts
from perfsvc.store import Store

RAISED = frozenset({Cause.KERNEL, Cause.TOOLCHAIN, Cause.ENVIRONMENT})
"""The causes that someone should look at."""

BACK: Mapping[Direction, frozenset[Verdict]] = {
    Direction.SLOWER: frozenset({Verdict.UNCHANGED, Verdict.IMPROVEMENT}),
    Direction.FASTER: frozenset({Verdict.UNCHANGED, Verdict.REGRESSION}),
}
"""The verdicts that may say that a series is back, by where it had moved."""

OPPOSITE: Mapping[Direction, Direction] = {
    Direction.SLOWER: Direction.FASTER,
    Direction.FASTER: Direction.SLOWER,
}
"""Where a series that had moved goes as it comes back."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What a run changed of findings, by their numbers: those it raised, opened again and resolved."""

    raised: tuple[int, ...] = ()
    reopened: tuple[int, ...] = ()
    resolved: tuple[int, ...] = ()


def suspects_of(store: Store, run: int, *, threshold: judge.Asked = None) -> list[Suspect]:
    """The suspects of a run that has been judged, which somebody should measure again; nothing is written.

    They are what lost against its baseline, and what its history raises an alert of (``judge.watch_many``), but nothing
    that was measured again already or is no more than the recovery of a finding; what moved furthest comes first.
    """
    found = doubts(store, run, store.verdicts(run), threshold=threshold)
    answered = {one.suspect.series for one in store.confirmations(run)}
    left = sorted((one for one in found.to_confirm if one.series not in answered), key=_size, reverse=True)
    return left if store.run(run).provenance.dirty else _untold(store, run, left, _back(store, run, found, threshold))


def settle(store: Store, run: int, *, threshold: judge.Asked = None) -> Settled:
    """Brings the findings up to date with a run that has been judged, by its stored verdicts and confirmations.

    Findings whose series are all back are resolved, by the rules or the usual thresholds and not by a command's. What
    moved at once on a board with unchanged code is raised as one finding of the environment; so is what measuring again
    laid to the code, to a new compiler or to the environment. A run with uncommitted changes raises and resolves
    nothing: it is an experiment. Doing it again changes nothing.
    """
    if store.run(run).provenance.dirty:
        return Settled()
    found = doubts(store, run, store.verdicts(run), threshold=threshold)
    before = {one.id: one.state for one in store.findings(every=True)}
    resolved = store.recover(run, _back(store, run, found, threshold))
    known = [
        number
        for group in found.together
        for number in store.raise_finding(
            run, group, f"{units.count(len(group), 'case')} with unchanged code moved at once"
        )
    ]
    known += _raise_confirmed(store, run, found)
    raised = sorted({one for one in known if one not in before})
    reopened = sorted({one for one in known if before.get(one) is FindingState.RESOLVED})
    return Settled(tuple(raised), tuple(reopened), tuple(resolved))


def _size(suspect: Suspect) -> float:
    """How far a suspect moved, by the logarithm of its ratio; what has none moved furthest."""
    return abs(log(suspect.judgement.ratio)) if suspect.judgement.ratio else inf


def _back(store: Store, run: int, found: Doubts, threshold: judge.Asked) -> list[tuple[int, Series]]:
    """The series of standing findings that a run shows at their old levels, by the findings' numbers."""
    standing = store.findings()
    usual = {one.series: one for one in judge_quiet(store, run, _left(standing), threshold=threshold)}
    moved = {one.series: one for one in found.judgements if one.verdict in MOVES}
    return recovered(standing, (usual | moved).values())


def _raise_confirmed(store: Store, run: int, found: Doubts) -> list[int]:
    """Raises what measuring again laid to a cause that someone should look at; returns the findings that tell of it.

    One finding is raised for all points and modes of a variant that moved one way, for they share their code; and one
    for all that a new compiler or the environment moved on a board. What is noise, or remains unconfirmed, raises none.
    """
    judged = {one.series: one for one in found.judgements}
    groups: dict[Hashable, list[Suspect]] = defaultdict(list)
    for confirmation in store.confirmations(run):
        if confirmation.cause in RAISED:
            suspect = _decided(confirmation, judged)
            groups[_cause_of(suspect)].append(suspect)
    return [number for group in groups.values() for number in store.raise_finding(run, group, group[0].evidence)]


def _decided(one: Confirmation, judged: Mapping[Series, Judgement]) -> Suspect:
    """The suspect as measuring it again showed it; of the board's doing it has only what the run saw."""
    suspect = one.suspect
    seen = replace(judged.get(suspect.series, suspect.judgement), cause=one.cause)
    if one.confirmed:
        seen = replace(seen, ratio=one.ratio, low=one.low, high=one.high)
    return replace(suspect, judgement=seen, evidence=one.reason)


def _cause_of(suspect: Suspect) -> Hashable:
    """What suspects share that have one cause."""
    case, cause = suspect.series.case, suspect.judgement.cause
    code = (case.benchmark, case.variant) if cause is Cause.KERNEL else ()
    return suspect.series.device, cause, suspect.shift, suspect.direction, code


def accept(store: Store, number: int, *, reason: str) -> Finding:
    """Makes where the series of a finding are now their level.

    Raises:
        NotMeasuredError: there is no such finding.
        UsageError: it is accepted or resolved already.
    """
    return store.accept_finding(number, reason=reason, by=getpass.getuser())


def recovered(findings: Iterable[Finding], judgements: Iterable[Judgement]) -> list[tuple[int, Series]]:
    """The series that are back at their old levels, by the findings that they are in."""
    tonight = {judgement.series: judgement for judgement in judgements}
    return [
        (finding.id, moved.series)
        for finding in findings
        for moved in finding.moved
        if moved.recovered_run is None
        and moved.series in tonight
        and _is_back(moved, tonight[moved.series], finding.direction)
    ]


def _left(findings: Iterable[Finding]) -> list[Series]:
    """The series of findings that are not back yet."""
    moved = (one for finding in findings for one in finding.moved)
    return list(dict.fromkeys(one.series for one in moved if one.recovered_run is None))


def _untold(store: Store, run: int, suspects: Sequence[Suspect], back: Iterable[tuple[int, Series]]) -> list[Suspect]:
    """The suspects that are more than the recovery of a finding, which a history may see nights after its verdict."""
    if not suspects:
        return []
    tonight = set(back)
    recovered_in: dict[tuple[Series, Direction], int] = {}
    for finding in reversed(store.findings(every=True)):
        for one in finding.moved:
            since = run if (finding.id, one.series) in tonight else one.recovered_run
            if since is not None:
                recovered_in[one.series, finding.direction] = since

    def is_told(suspect: Suspect) -> bool:
        back = recovered_in.get((suspect.series, OPPOSITE[suspect.direction]), 0)
        since = suspect.judgement.baseline_run
        began = suspect.shift is not Shift.LOSS and since is not None and since < back
        return back == run or began

    return [suspect for suspect in suspects if not is_told(suspect)]


def _is_back(moved: Moved, tonight: Judgement, direction: Direction) -> bool:
    """Whether a series is at the level again that it had left.

    No verdict says so by itself: ``unchanged`` holds of all within a threshold, which may be wide, and of a baseline
    (a new segment's, say) that may be where the series had gone. So tonight's level has to be nearer the old one than
    the new, and its interval, where there is one, must not hold the new.
    """
    near = _is_nearer(moved, tonight.candidate_s) and not _holds(tonight, moved.candidate_s)
    return near and tonight.verdict in BACK[direction]


def _is_nearer(moved: Moved, level: float | None) -> bool:
    """Whether a level is nearer to the old one of a series than to the new one, by ratios."""
    if not level or not moved.baseline_s or not moved.candidate_s:
        return False
    return abs(log(level / moved.baseline_s)) < abs(log(level / moved.candidate_s))


def _holds(tonight: Judgement, level: float | None) -> bool:
    """Whether a level lies within the interval of tonight's; what has no interval holds none."""
    if not level or not tonight.baseline_s or tonight.low is None or tonight.high is None:
        return False
    return tonight.low <= level / tonight.baseline_s <= tonight.high
