"""Recovery: which series of a finding are back at their old level, and which suspects show nothing but that."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from perfsvc import judge
from perfsvc.model import Cause, ChangeKind, Direction, Finding, Judgement, MovedSeries, Series, Suspect, Verdict
from perfsvc.service.compare.compare import judge_series
from perfsvc.service.findings.alerts import is_nearer
from perfsvc.store import Store

OPPOSITE: Mapping[Direction, Direction] = {
    Direction.SLOWER: Direction.FASTER,
    Direction.FASTER: Direction.SLOWER,
}

FAVOURABLE: Mapping[Direction, frozenset[Verdict]] = {
    Direction.SLOWER: frozenset({Verdict.UNCHANGED, Verdict.IMPROVEMENT}),
    Direction.FASTER: frozenset({Verdict.UNCHANGED, Verdict.REGRESSION}),
}
"""The verdicts with which a series may be back, by the direction in which it had moved."""

Recovered = tuple[int, Series]
"""The number of a finding, and a series of it that is back."""


def recovered_series(
    store: Store,
    run: int,
    judgements: Iterable[Judgement],
    alerted: AbstractSet[Series],
    threshold: judge.ThresholdOption,
) -> list[Recovered]:
    """Return the series of standing findings that a run shows at their old levels.

    Args:
        store: the database, with the run's verdicts.
        run: the run.
        judgements: its verdicts, replaced by its alerts if these report a change.
        alerted: the series with an alert.
        threshold: the smallest relevant change, or rules; None for the default of each kind of device.
    """
    standing = store.findings.active()
    left = {moved.series for finding in standing for moved in finding.moved if moved.recovered_run is None}
    if not left:
        return []
    causes = {
        judgement.series: judgement.cause for judgement in store.verdicts.of_run(run)
    }  # with those of confirmations
    current = {
        judgement.series: replace(judgement, cause=causes.get(judgement.series) or judgement.cause)
        for judgement in judgements
        if judgement.verdict in judge.MOVES
    }
    unmoved = judge_series(store, run, left - current.keys(), threshold=threshold)
    current |= {judgement.series: judgement for judgement in unmoved}
    return recovered(standing, current.values(), alerted)


def recovered(
    findings: Iterable[Finding], judgements: Iterable[Judgement], alerted: AbstractSet[Series] = frozenset()
) -> list[Recovered]:
    """Return the series of findings that are back at their old levels, by the judgements of a run."""
    current = {judgement.series: judgement for judgement in judgements}
    return [
        (finding.id, moved.series)
        for finding in findings
        for moved in finding.moved
        if moved.recovered_run is None
        and moved.series in current
        and _is_back(moved, current[moved.series], finding.cause, alerted=moved.series in alerted)
    ]


def _is_back(moved: MovedSeries, judgement: Judgement, cause: Cause, *, alerted: bool) -> bool:
    """Return whether a series of a finding is back at its old level; ``cause`` is that of the finding.

    The verdict alone does not tell: ``unchanged`` includes everything within a threshold, which may be wide, and the
    baseline (of a new segment, say) may be the level that the series had moved to. So the level has to be nearer to the
    old level than to the new one, and its interval must not contain the new one. In addition, one of these holds:

    - the verdict is unchanged or goes back,
    - it is inconclusive, and all of its interval is nearer to the old level,
    - what is left of the change has another cause than the finding, and no code is to blame for it.

    A series that mixes two states shows one of them in each run, so a single run tells nothing: its history has to
    report the way back.
    """
    if moved.change is ChangeKind.MIXTURE and not alerted:
        return False
    old, new = moved.baseline_s, moved.candidate_s
    if not is_nearer(judgement.candidate_s, old, new):
        return False
    low = high = None
    if judgement.baseline_s and judgement.low is not None and judgement.high is not None:
        low, high = judgement.low * judgement.baseline_s, judgement.high * judgement.baseline_s
        if new and low <= new <= high:
            return False
    if judgement.verdict in FAVOURABLE[moved.direction]:
        return True
    if judgement.verdict is Verdict.INCONCLUSIVE and is_nearer(low, old, new) and is_nearer(high, old, new):
        return True
    return judgement.cause is not None and judgement.cause.blameless and judgement.cause is not cause


def without_recoveries(
    store: Store, run: int, suspects: Sequence[Suspect], recovered: Collection[Recovered]
) -> list[Suspect]:
    """Return the suspects that show more than the recovery of a finding, which a history may see some runs late.

    Args:
        store: the database.
        run: the run of the suspects.
        suspects: the suspects.
        recovered: the series that the run shows at their old level, which is not stored yet.
    """
    recovered_in: dict[tuple[Series, Direction], int] = {}
    for finding in reversed(store.findings.all()):
        for moved in finding.moved:
            recovered_run = run if (finding.id, moved.series) in recovered else moved.recovered_run
            if recovered_run is not None:
                recovered_in[moved.series, moved.direction] = recovered_run

    def is_recovery(suspect: Suspect) -> bool:
        recovered_run = recovered_in.get((suspect.series, OPPOSITE[suspect.direction]), 0)
        before = suspect.judgement.baseline_run
        is_older_alert = suspect.change is not ChangeKind.REGRESSION and before is not None and before < recovered_run
        return recovered_run == run or is_older_alert

    return [suspect for suspect in suspects if not is_recovery(suspect)]
