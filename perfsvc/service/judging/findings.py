"""Findings: which changes someone should look at, and when they are over."""

import getpass
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import log

from perfsvc.judge import MOVES
from perfsvc.model import Cause, Direction, Finding, Judgement, Moved, Series, Shift, Suspect, Verdict
from perfsvc.report import units
from perfsvc.service.judging.compare import judge_quiet
from perfsvc.service.judging.suspects import doubts
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


def after_run(store: Store, run: int, judgements: Sequence[Judgement]) -> list[Suspect]:
    """Looks at a run that has been judged, and returns the suspects that somebody should measure again.

    The suspects are what lost against its baseline, and what its history raises an alert of (``judge.watch_many``).
    Findings whose series are all back are resolved, by the usual thresholds and not by those of the command. What moved
    at once on a board with unchanged code is raised here and now, as one finding of the environment; all else waits for
    ``raise_from``. A run with uncommitted changes raises and resolves nothing: it is an experiment.
    """
    found = doubts(store, run, judgements)
    if store.run(run).provenance.dirty:
        return list(found.to_confirm)
    standing = store.findings()
    usual = {one.series: one for one in judge_quiet(store, run, _left(standing))}
    moved = {one.series: one for one in found.judgements if one.verdict in MOVES}
    back = recovered(standing, (usual | moved).values())
    store.recover(run, back)
    for group in found.together:
        store.raise_finding(run, group, f"{units.count(len(group), 'case')} with unchanged code moved at once")
    return _untold(store, run, found.to_confirm)


def raise_from(store: Store, run: int, confirmed: Iterable[Suspect]) -> list[int]:
    """Raises findings of suspects that were measured again and returns their numbers, known ones included.

    One finding is raised for all points and modes of a variant that moved one way, for they share their code; and one
    for all that a new compiler or the environment moved on a board. What is noise, or remains unconfirmed, raises none,
    and neither does a run with uncommitted changes.

    Args:
        store: holds the run, its measurements included.
        run: what raised the suspects.
        confirmed: with the ratio and the cause that measuring again found, and with what it rests on as evidence.
    """
    if store.run(run).provenance.dirty:
        return []
    groups: dict[Hashable, list[Suspect]] = defaultdict(list)
    for suspect in confirmed:
        if suspect.judgement.cause in RAISED:
            groups[_cause_of(suspect)].append(suspect)
    return [number for group in groups.values() for number in store.raise_finding(run, group, group[0].evidence)]


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


def _untold(store: Store, run: int, suspects: Sequence[Suspect]) -> list[Suspect]:
    """The suspects that are more than the recovery of a finding, which a history may see nights after its verdict."""
    if not suspects:
        return []
    recovered_in = {
        (one.series, finding.direction): one.recovered_run
        for finding in reversed(store.findings(every=True))
        for one in finding.moved
        if one.recovered_run is not None
    }

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
