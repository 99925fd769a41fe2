"""Findings: which changes someone should look at, and when they are over."""

import getpass
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import log

from perfsvc.model import BESIDE, Cause, Direction, Finding, Judgement, Moved, Series, Suspect, Verdict
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


def after_run(store: Store, run: int, judgements: Sequence[Judgement]) -> list[Suspect]:
    """Looks at a run that has been judged, and returns the suspects that somebody should measure again.

    The suspects are what lost against its baseline, and what its history raises an alert of (``judge.watch_many``).
    Findings whose series are all back are resolved. What moved at once on a board with unchanged code is raised here
    and now, as one finding of the environment; all else waits for ``raise_from``. A run with uncommitted changes raises
    and resolves nothing: it is an experiment.
    """
    found = doubts(store, run, judgements)
    if store.run(run).provenance.dirty:
        return list(found.to_confirm)
    standing = store.findings()
    back = recovered(standing, [*found.judgements, *judge_quiet(store, run, _untold(standing, found.judgements))])
    store.recover(run, back)
    for group in found.together:
        store.raise_finding(run, group, f"{units.count(len(group), 'case')} with unchanged code moved at once")
    told = {series for _, series in back}
    return [suspect for suspect in found.to_confirm if suspect.series not in told]


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


def _untold(findings: Iterable[Finding], judgements: Iterable[Judgement]) -> list[Series]:
    """The series of findings that have no row tonight since they are told of only where they moved."""
    told = {judgement.series for judgement in judgements}
    moved = (one.series for finding in findings for one in finding.moved if one.recovered_run is None)
    return [series for series in moved if series.metric in BESIDE and series not in told]


def _is_back(moved: Moved, tonight: Judgement, direction: Direction) -> bool:
    """Whether a verdict says that a series is at the level again that it had left.

    Against the baseline of then it says so itself. Another baseline (a new segment, say, which began with the series
    where it had gone) tells nothing by ``unchanged``: then it takes a change, to nearer the old level than the new.
    """
    if tonight.verdict not in BACK[direction]:
        return False
    if tonight.baseline_run == moved.baseline_run:
        return True
    return tonight.verdict is not Verdict.UNCHANGED and _is_nearer(moved, tonight.candidate_s)


def _is_nearer(moved: Moved, level: float | None) -> bool:
    """Whether a level is nearer to the old one of a series than to the new one, by ratios."""
    if not level or not moved.baseline_s or not moved.candidate_s:
        return False
    return abs(log(level / moved.baseline_s)) < abs(log(level / moved.candidate_s))
