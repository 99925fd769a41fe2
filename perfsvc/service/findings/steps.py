"""What several nights show together: series of findings that moved again, and changes that two nights agree on."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import islice

from perfsvc import judge, units
from perfsvc.model import (
    FIRST_RUNS,
    Cause,
    ChangeKind,
    Direction,
    Finding,
    FindingState,
    Judgement,
    MovedSeries,
    Series,
    Suspect,
    Verdict,
)
from perfsvc.service.compare.compare import cycles_of, judge_against
from perfsvc.service.compare.sides import sides_of
from perfsvc.store import Store

LOOK_BACK = 14
"""The most runs that are searched for the last one that measured a series."""

RUNS_BEFORE = 5
"""A series that moved with unchanged code has to be slower than in most of these runs before."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The series of active findings that a run measured, judged against the levels that their last steps left.

    Attributes:
        moved: the series that seem to have moved again, each with its cause as far as the stored facts show it.
        together: the series of ``moved`` that moved at once on one GPU, and whose findings already name the environment
            as the cause.
        rebased: the series whose next step is judged against this run, because the series is faster than after its last
            step, or because the environment changed.
        current: the series whose last step is the second or a later one, judged against the level before that step.
    """

    moved: tuple[Suspect, ...] = ()
    together: tuple[Suspect, ...] = ()
    rebased: AbstractSet[Series] = frozenset()
    current: Mapping[Series, Judgement] = field(default_factory=dict)

    @property
    def moved_again(self) -> AbstractSet[Series]:
        """The series that seem to have moved again, whatever the reason."""
        return frozenset(suspect.series for suspect in self.moved)


def last_steps(findings: Iterable[Finding], run: int) -> dict[Series, tuple[Finding, MovedSeries]]:
    """For each series that became slower before a run and has not recovered, return its finding and its last step.

    Ignored findings are left out. Mixtures of two levels are left out too: each run shows one of the two levels, which
    is no step.
    """
    last: dict[Series, tuple[Finding, MovedSeries]] = {}
    for finding in findings:
        for moved in finding.moved if finding.state is not FindingState.IGNORED else ():
            stands = moved.recovered_run is None and (moved.first_run or 0) < run and moved.last_run <= run
            if not stands or moved.direction is not Direction.SLOWER or moved.change is ChangeKind.MIXTURE:
                continue
            if moved.series not in last or last[moved.series][1].step < moved.step:
                last[moved.series] = finding, moved
    return last


def steps_of_run(store: Store, run: int, *, threshold: judge.ThresholdOption = None) -> Steps:
    """Return which series of active findings moved again in a run; a run with uncommitted changes shows none.

    Args:
        store: the database, with the run.
        run: the run.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of each kind of device.
    """
    last = last_steps(store.findings.active(), run)
    if not last or store.runs.get(run).provenance.dirty:
        return Steps()
    levels = {series: moved.level_run or moved.last_run for series, (_, moved) in last.items()}
    earlier = {series: level_run for series, level_run in levels.items() if level_run < run}
    judgements = judge_against(store, run, earlier, threshold=threshold)
    sides = sides_of(store, judgements)
    caused = judge.with_causes(judgements, sides, cycles_of(store, judgements))
    by_environment = {series for series, (finding, _) in last.items() if finding.cause is Cause.ENVIRONMENT}
    groups = judge.moved_together([judged for judged in caused if judged.series in by_environment], sides)
    together = {
        judged.series for (_, direction), group in groups.items() if direction is Direction.SLOWER for judged in group
    }
    moved: list[Suspect] = []
    rebased: set[Series] = set()
    for judged in caused:
        series, same = judged.series, sides.get(judged.series)
        if judged.verdict not in judge.MOVES:
            continue
        other_environment = same is not None and same.code and not same.device
        improved = judged.verdict is Verdict.IMPROVEMENT and not (judged.cause and judged.cause.blameless)
        if (other_environment and series not in together) or improved:
            rebased.add(series)
        elif judged.verdict is Verdict.REGRESSION:
            evidence = f"{_change(judged)} against run {judged.baseline_run}, the level of step {last[series][1].step}"
            moved.append(Suspect(judged, ChangeKind.AGAIN, Direction.SLOWER, evidence))
    baselines = {series: step.baseline_run for series, (_, step) in last.items() if step.step > 1}
    with_baseline = {series: baseline for series, baseline in baselines.items() if baseline is not None}
    current = judge_against(store, run, with_baseline, threshold=threshold)
    return Steps(
        tuple(moved),
        tuple(_by_environment(suspect, "the code is unchanged") for suspect in moved if suspect.series in together),
        frozenset(rebased),
        {judged.series: judged for judged in current},
    )


# --- two nights that agree -------------------------------------------------------------------------------------------


def agreed(
    store: Store, run: int, suspects: Sequence[Suspect], *, threshold: judge.ThresholdOption = None
) -> list[Suspect]:
    """Return the suspects that the previous run shows too, each with the number of that run (``since``).

    The previous run is the newest earlier run of the scope (suite and selection), without uncommitted changes, that
    measured the series. This run shows a suspect too if the series moved there in the same direction from the same
    baseline, significantly and by more than the threshold, and if no A/B pairs have cleared this change. If the suspect
    is an alert, an earlier run must have raised the alert already.
    """
    alerts = [suspect for suspect in suspects if suspect.since is not None]
    others = {suspect.series: suspect for suspect in suspects if suspect.since is None}
    runs_before = list(islice(store.runs.commits(run), 1, 1 + LOOK_BACK)) if others else []
    before: dict[tuple[int, bool], dict[Series, int]] = defaultdict(dict)
    for series, earlier in _last_measured(store, others, runs_before).items():
        baseline_run = others[series].judgement.baseline_run
        if baseline_run is not None and baseline_run < earlier:
            before[earlier, others[series].change is not ChangeKind.AGAIN][series] = baseline_run
    result = list(alerts)
    for (earlier, many_nights), baselines in before.items():
        cleared = {
            (confirmation.suspect.series, confirmation.suspect.judgement.baseline_run)
            for confirmation in store.confirmations.of_run(earlier)
            if confirmation.cleared
        }
        result += [
            replace(others[judged.series], since=earlier)
            for judged in judge_against(store, earlier, baselines, threshold=threshold, many_nights=many_nights)
            if judge.MOVES.get(judged.verdict) is others[judged.series].direction
            and (judged.series, judged.baseline_run) not in cleared
        ]
    return result


def unchanged_code_agreed(
    store: Store, run: int, suspects: Sequence[Suspect], *, threshold: judge.ThresholdOption = None
) -> list[Suspect]:
    """Return the suspects that two runs show although they have the baseline's code; the cause is the environment.

    A change in two runs is more than noise. But a baseline of fewer than ``FIRST_RUNS`` runs may be lucky. Then the
    series must also be slower than in most of the ``RUNS_BEFORE`` runs before these two runs.
    """
    lasting = {suspect.series: suspect for suspect in agreed(store, run, suspects, threshold=threshold)}
    before = [replace(suspect.judgement, candidate_run=suspect.since) for suspect in lasting.values()]
    sides = sides_of(store, before)
    lasting = {series: suspect for series, suspect in lasting.items() if series in sides and sides[series].code}
    if not lasting:
        return []
    slower: dict[Series, list[bool]] = defaultdict(list)
    for earlier in islice(store.runs.commits(run), 1, 1 + LOOK_BACK):
        wanted = {
            series: earlier
            for series, suspect in lasting.items()
            if suspect.judgement.baseline_runs < FIRST_RUNS
            and suspect.since is not None
            and earlier < suspect.since
            and len(slower[series]) < RUNS_BEFORE
        }
        for judged in judge_against(store, run, wanted, threshold=threshold) if wanted else ():
            if judged.verdict in judge.COMPARED:
                slower[judged.series].append(judged.verdict is Verdict.REGRESSION)
    return [
        _by_environment(suspect, "the code is unchanged")
        for series, suspect in lasting.items()
        if suspect.judgement.baseline_runs >= FIRST_RUNS or 2 * sum(slower[series]) > len(slower[series])
    ]


def in_both_runs(suspect: Suspect) -> str:
    """Return in words the change that two runs show: ``+300.0 % against run 1 in runs 2 and 3``."""
    judged = suspect.judgement
    return f"{_change(judged)} against run {judged.baseline_run} in runs {suspect.since} and {judged.candidate_run}"


def _last_measured(store: Store, series: Collection[Series], runs: Iterable[int]) -> dict[Series, int]:
    """Return, for each series, the first run in ``runs`` that measured it; absent if none did."""
    missing, measured = set(series), dict[Series, int]()
    for run in runs:
        if not missing:
            break
        in_run = store.series.levels_of(dict.fromkeys(missing, run)).keys()
        measured |= dict.fromkeys(in_run, run)
        missing -= in_run
    return measured


def _by_environment(suspect: Suspect, why: str) -> Suspect:
    """Return a suspect with the environment as its cause; ``why`` ends its evidence."""
    evidence = f"{in_both_runs(suspect) if suspect.since is not None else suspect.evidence}, and {why}"
    return replace(suspect, judgement=replace(suspect.judgement, cause=Cause.ENVIRONMENT), evidence=evidence)


def _change(judgement: Judgement) -> str:
    return "moved" if judgement.ratio is None else units.percent(judgement.ratio)
