"""Recovery: which series of findings a run shows at their old levels again."""

from collections.abc import Container, Iterable, Mapping

from perfsvc.model import Cause, ChangeKind, Direction, Finding, Judgement, MovedSeries, Series, Verdict
from perfsvc.service.findings.changes import is_nearer

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


def recovered(
    findings: Iterable[Finding], judgements: Iterable[Judgement], alerted: Container[Series] = frozenset()
) -> list[tuple[int, Series]]:
    """The series that are back at their old levels, by the findings that they are in.

    Args:
        findings: those that stand.
        judgements: of tonight, with what an alert says in the place of a verdict that did not see it.
        alerted: the series of which one does.
    """
    tonight = {judgement.series: judgement for judgement in judgements}
    return [
        (finding.id, moved.series)
        for finding in findings
        for moved in finding.moved
        if moved.recovered_run is None
        and moved.series in tonight
        and _is_back(moved, tonight[moved.series], finding.cause, alerted=moved.series in alerted)
    ]


def _is_back(moved: MovedSeries, tonight: Judgement, cause: Cause, *, alerted: bool) -> bool:
    """Whether a series is at the level again that it had left; ``cause`` is what its finding is laid to.

    No verdict says so by itself: ``unchanged`` holds of all within a threshold, which may be wide, and of a baseline
    (a new segment's, say) that may be where the series had gone. So tonight's level has to be nearer the old one than
    the new, and its interval, where there is one, must not hold the new. Where noise leaves open whether it is within
    the threshold of its baseline, all of the interval has to be nearer the old level. What is left of a loss counts for
    nothing where it is laid to no code, nor to what the finding is. Of a series whose mix of two
    states changed, each night has one of them, and a good one tells nothing: its history has to say that it went back.
    """
    if moved.change is ChangeKind.MIXTURE and not alerted:
        return False
    near = _is_nearer(moved, tonight.candidate_s) and not _holds(tonight, moved.candidate_s)
    clear = tonight.verdict is Verdict.INCONCLUSIVE and all(_is_nearer(moved, end) for end in _ends(tonight))
    cleared = tonight.cause is not None and tonight.cause.blameless and tonight.cause is not cause
    return near and (clear or cleared or tonight.verdict in BACK[moved.direction])


def _is_nearer(moved: MovedSeries, level: float | None) -> bool:
    """Whether a level is nearer to the old one of a series than to the new one."""
    return is_nearer(level, moved.baseline_s, moved.candidate_s)


def _ends(tonight: Judgement) -> tuple[float | None, float | None]:
    """The levels between which tonight's lies; None where nothing tells them."""
    if not tonight.baseline_s or tonight.low is None or tonight.high is None:
        return None, None
    return tonight.low * tonight.baseline_s, tonight.high * tonight.baseline_s


def _holds(tonight: Judgement, level: float | None) -> bool:
    """Whether a level lies within the interval of tonight's; what has no interval holds none."""
    if not level or not tonight.baseline_s or tonight.low is None or tonight.high is None:
        return False
    return tonight.low <= level / tonight.baseline_s <= tonight.high
