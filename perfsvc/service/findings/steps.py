"""What several nights show together: series of findings that moved again, and changes that two nights agree on."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import islice
from math import log

from perfsvc import judge, units
from perfsvc.model import (
    FIRST_RUNS,
    OF_THE_MACHINE,
    Cause,
    ChangeKind,
    Direction,
    Finding,
    FindingState,
    Judgement,
    MovedSeries,
    Series,
    Status,
    Suspect,
    Verdict,
)
from perfsvc.service.compare.compare import cycles_of, judge_against, threshold_of_series
from perfsvc.service.compare.sides import sides_of
from perfsvc.store import Store

LOOK_BACK = 14
"""The most runs that are searched for the last one that measured a series."""

LARGE = 0.08
"""A change of this share always reaches a person, whether something explains it or not; so does every change of 10 %,
which noise may make a little smaller."""

CODE_WAS = "the code was unchanged in run "
"""How the reason of a change begins that an earlier run showed with unchanged code, and this run with other code."""

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
        of_machine: the series of findings that blame the machine.
    """

    moved: tuple[Suspect, ...] = ()
    together: tuple[Suspect, ...] = ()
    rebased: AbstractSet[Series] = frozenset()
    current: Mapping[Series, Judgement] = field(default_factory=dict)
    of_machine: AbstractSet[Series] = frozenset()

    @property
    def moved_again(self) -> AbstractSet[Series]:
        """The series that seem to have moved again, whatever the reason."""
        return frozenset(suspect.series for suspect in self.moved)

    def shows(self, alert: Suspect) -> bool:
        """Return whether a further step that an alert reports is among the series that moved again."""
        return alert.change is ChangeKind.AGAIN and alert.series in self.moved_again


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
    by_environment = {series for series, (finding, _) in last.items() if finding.cause in OF_THE_MACHINE}
    groups = judge.moved_together([judged for judged in caused if judged.series in by_environment], sides)
    together = {
        judged.series for (_, direction), group in groups.items() if direction is Direction.SLOWER for judged in group
    }
    moved: list[Suspect] = []
    rebased: set[Series] = set()
    for judged in caused:
        series, same = judged.series, sides.get(judged.series)
        other_environment = same is not None and same.code and not same.device
        if judged.verdict is Verdict.IMPROVEMENT and (
            other_environment or not (judged.cause and judged.cause.blameless)
        ):
            rebased.add(series)
        elif judged.verdict is Verdict.REGRESSION:
            evidence = f"{_change(judged)} against run {judged.baseline_run}, the level of step {last[series][1].step}"
            moved.append(Suspect(judged, ChangeKind.AGAIN, Direction.SLOWER, evidence))
    baselines = {series: step.baseline_run for series, (_, step) in last.items() if step.step > 1}
    with_baseline = {series: baseline for series, baseline in baselines.items() if baseline is not None}
    current = judge_against(store, run, with_baseline, threshold=threshold)
    return Steps(
        tuple(moved),
        tuple(
            of_unchanged_code(replace(suspect, judgement=replace(suspect.judgement, cause=Cause.ENVIRONMENT)))
            for suspect in moved
            if suspect.series in together
        ),
        frozenset(rebased),
        {judged.series: judged for judged in current},
        by_environment,
    )


# --- nights that agree -----------------------------------------------------------------------------------------------


def lasting(store: Store, run: int, *, threshold: judge.ThresholdOption = None) -> list[Suspect]:
    """Return the series that a run and the run before show slower than one baseline, each with a suspected cause.

    The run before is the newest earlier run of the scope (suite and selection), without uncommitted changes, that
    measured the series. Its stored verdict counts. This run is compared with the same baseline, even if its own
    baseline is another one by now: a new environment begins a new baseline, and slow nights become part of a baseline
    whose code they share. A single replica has no interval, so changes of single replicas count only if they are
    ``LARGE``, and if three runs show them; all three are compared with the baseline of the first.

    What A/B pairs have cleared in the run before does not count, unless it is ``LARGE``. A series does not count either
    if a person has pinned its baseline or accepted its level since then.
    """
    now = {judged.series: judged for judged in store.verdicts.of_run(run)}
    before: dict[Series, list[Judgement]] = {series: [] for series in now}
    slower: set[Series] = set(now)
    for earlier in islice(store.runs.commits(run), 1, 1 + LOOK_BACK):
        wanted = {series for series in slower if len(before[series]) < _runs_needed(before[series])}
        if not wanted:
            break
        cleared = {answer.suspect.series for answer in store.confirmations.of_run(earlier) if answer.cleared}
        for judged in store.verdicts.of_run(earlier):
            if judged.series in wanted and judged.verdict in judge.COMPARED:
                of_series, is_cleared = before[judged.series], judged.series in cleared
                of_series.append(replace(judged, cause=None) if is_cleared else judged)
                waits = len(of_series) < _runs_needed(of_series)
                if not (waits or _is_slower(judged)) or (is_cleared and not is_large(judged)):
                    slower.discard(judged.series)
    shown = {
        series: verdicts
        for series in slower
        if (verdicts := before[series]) and len(verdicts) == _runs_needed(verdicts)
    }
    return _still_slower(store, run, now, _not_settled(store, _first_of(store, shown, threshold)), threshold)


def _runs_needed(before: Sequence[Judgement]) -> int:
    """Return how many runs before a run have to show a change, by the newest of their verdicts."""
    # A single replica is "unchanged" in the second run with a new driver: only the run before tells.
    if not before or before[0].verdict is Verdict.REGRESSION:
        return 1
    return 2 if 1 in {before[0].baseline_replicas, before[0].candidate_replicas} else 1


def _first_of(
    store: Store, shown: Mapping[Series, Sequence[Judgement]], threshold: judge.ThresholdOption
) -> dict[Series, Judgement]:
    """Return the oldest verdict of each series, unless a newer one is not slower than the baseline of the oldest."""
    moved = {series: verdicts[-1] for series, verdicts in shown.items()}
    between: dict[tuple[int, int], dict[Series, int]] = defaultdict(dict)
    for series, (newest, *older) in shown.items():
        if older and newest.candidate_run and older[-1].candidate_run and older[-1].baseline_run:
            between[newest.candidate_run, older[-1].candidate_run][series] = older[-1].baseline_run
    for (run, first), baselines in between.items():
        judgements = judge_against(store, run, baselines, threshold=threshold, nights_before=first)
        slower = {judged.series for judged in judgements if _is_slower(judged)}
        moved = {series: judged for series, judged in moved.items() if series not in baselines or series in slower}
    return moved


def is_large(judgement: Judgement) -> bool:
    """Return whether a change is so large that a person has to know of it, even if nothing explains it."""
    return judgement.ratio is not None and abs(log(judgement.ratio)) >= log(1 + LARGE)


def _is_slower(judgement: Judgement, least: float = LARGE) -> bool:
    """Return whether a verdict is a regression, or only a second replica is missing to make it one of ``least``."""
    if judgement.verdict is Verdict.INCONCLUSIVE:
        return judge.move_of_one_replica(judgement, least) is Verdict.REGRESSION
    return judgement.verdict is Verdict.REGRESSION


def _not_settled(store: Store, moved: Mapping[Series, Judgement]) -> dict[Series, Judgement]:
    """Return the moves, except those from an older baseline than the level that a person has pinned or accepted."""
    if not moved:
        return {}
    settled = {pin.series: pin.run for pin in store.baselines.pins()}
    for finding in store.findings.all():
        if finding.state is FindingState.ACCEPTED:
            settled |= {row.series: max(row.last_run, settled.get(row.series, 0)) for row in finding.standing}
    return {series: judged for series, judged in moved.items() if settled.get(series, 0) <= (judged.baseline_run or 0)}


def _still_slower(
    store: Store,
    run: int,
    now: Mapping[Series, Judgement],
    moved: Mapping[Series, Judgement],
    threshold: judge.ThresholdOption,
) -> list[Suspect]:
    """Return the moves of runs before that a run shows too, as suspects with what its stored facts say of the cause."""
    current = {
        series: now[series]
        for series, before in moved.items()
        if now[series].verdict is Verdict.REGRESSION and now[series].baseline_run == before.baseline_run
    }
    to_judge: dict[int, dict[Series, int]] = defaultdict(dict)
    for series in moved.keys() - current.keys():
        before = moved[series]
        if before.baseline_run is not None and before.candidate_run is not None:
            to_judge[before.candidate_run][series] = before.baseline_run
    limit = threshold_of_series(store, threshold)
    for earlier, baselines in to_judge.items():
        judgements = judge_against(store, run, baselines, threshold=threshold, nights_before=earlier)
        # Against the same baseline this run's own verdict counts, unless the change is large.
        slower = [
            replace(judged, verdict=Verdict.REGRESSION)
            for judged in judgements
            if _is_slower(judged, max(LARGE, limit(judged.series)))
            and (is_large(judged) or now[judged.series].baseline_run != moved[judged.series].baseline_run)
        ]
        caused = judge.with_causes(slower, sides_of(store, slower), cycles_of(store, slower))
        for judged in caused:
            before = moved[judged.series]
            is_new_code = not (judged.cause and judged.cause.blameless)
            if is_new_code and before.cause is Cause.ENVIRONMENT:
                # The new environment had slowed the old code; what is beyond that level is a change of its own.
                code_was = f"{CODE_WAS}{before.candidate_run}"
                shown = before if now[judged.series].verdict in judge.MOVES else judged
                environment = replace(shown, candidate_run=run, cause=Cause.ENVIRONMENT, reason=code_was)
                current[judged.series] = environment
            else:
                current[judged.series] = judged
    suspects = [
        Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER, since=moved[series].candidate_run)
        for series, judged in current.items()
        if _may_have_one_cause(moved[series].cause, judged.cause)
    ]
    return _without_lucky_baselines(store, run, suspects, threshold)


def _may_have_one_cause(before: Cause | None, now: Cause | None) -> bool:
    """Return whether two runs may show one change: code that moved a series is no reason once it is taken back."""
    return before is None or now is None or before.blameless is now.blameless


def agreed(
    store: Store, run: int, suspects: Sequence[Suspect], *, threshold: judge.ThresholdOption = None
) -> list[Suspect]:
    """Return the series that moved again that the run before shows too, each with the number of that run (``since``).

    Both runs are compared with the level after the finding's last step. What A/B pairs have cleared does not count, nor
    does a level of unchanged code that was lucky.
    """
    of_series = {suspect.series: suspect for suspect in suspects}
    runs_before = list(islice(store.runs.commits(run), 1, 1 + LOOK_BACK)) if suspects else []
    before: dict[int, dict[Series, int]] = defaultdict(dict)
    for series, earlier in _last_measured(store, of_series, runs_before).items():
        baseline_run = of_series[series].judgement.baseline_run
        if baseline_run is not None and baseline_run < earlier:
            before[earlier][series] = baseline_run
    result = []
    for earlier, baselines in before.items():
        cleared = {
            (confirmation.suspect.series, confirmation.suspect.judgement.baseline_run)
            for confirmation in store.confirmations.of_run(earlier)
            if confirmation.cleared
        }
        result += [
            replace(of_series[judged.series], since=earlier)
            for judged in judge_against(store, earlier, baselines, threshold=threshold)
            if judge.MOVES.get(judged.verdict) is of_series[judged.series].direction
            and (judged.series, judged.baseline_run) not in cleared
        ]
    return _without_lucky_baselines(store, run, result, threshold)


def _without_lucky_baselines(
    store: Store, run: int, suspects: Sequence[Suspect], threshold: judge.ThresholdOption
) -> list[Suspect]:
    """Return the suspects with what both runs show as evidence, except those of unchanged code with a lucky baseline.

    A baseline of fewer than ``FIRST_RUNS`` runs is lucky if the series is slower than in at most half of the
    ``RUNS_BEFORE`` runs before the two runs that show the change. A ``LARGE`` change counts if there is no such run, or
    if the environment changed.
    """
    by_series = {
        suspect.series: suspect
        for suspect in suspects
        if suspect.judgement.cause
        and suspect.judgement.cause.blameless
        and suspect.judgement.baseline_runs < FIRST_RUNS
        and not (suspect.judgement.cause is Cause.ENVIRONMENT and is_large(suspect.judgement))
    }
    slower: dict[Series, list[bool]] = {series: [] for series in by_series}
    for earlier in islice(store.runs.commits(run), 1, 1 + LOOK_BACK):
        wanted = {
            series: earlier
            for series, results in slower.items()
            if earlier < (by_series[series].since or 0) and len(results) < RUNS_BEFORE
        }
        for judged in judge_against(store, run, wanted, threshold=threshold) if wanted else ():
            if judged.verdict in judge.COMPARED:
                slower[judged.series].append(_is_slower(judged))
    lucky = {
        series
        for series, results in slower.items()
        if (2 * sum(results) <= len(results) if results else not is_large(by_series[series].judgement))
    }
    return [replace(suspect, evidence=in_both_runs(suspect)) for suspect in suspects if suspect.series not in lucky]


def in_both_runs(suspect: Suspect) -> str:
    """Return in words the change that two runs show: ``+300.0 % against run 1 in runs 2 and 3``."""
    judged = suspect.judgement
    return f"{_change(judged)} against run {judged.baseline_run} in runs {suspect.since} and {judged.candidate_run}"


def of_unchanged_code(suspect: Suspect) -> Suspect:
    """Return a suspect of unchanged code: by its inputs or the environment if these changed, else unexplained."""
    known = suspect.judgement.cause in {Cause.INPUTS, Cause.ENVIRONMENT}
    judgement = suspect.judgement if known else replace(suspect.judgement, cause=Cause.UNEXPLAINED)
    code = judgement.reason if judgement.reason.startswith(CODE_WAS) else "the code is unchanged"
    return replace(suspect, judgement=judgement, evidence=f"{suspect.evidence}, and {code}")


def _last_measured(store: Store, series: Collection[Series], runs: Iterable[int]) -> dict[Series, int]:
    """Return, for each series, the first run in ``runs`` with a correct result of it; absent if none has one."""
    missing, measured = set(series), dict[Series, int]()
    for run in runs:
        if not missing:
            break
        levels = store.series.levels_of(dict.fromkeys(missing, run))
        correct = {series for series, level in levels.items() if level.status is Status.OK}
        measured |= dict.fromkeys(correct, run)
        missing -= correct
    return measured


def _change(judgement: Judgement) -> str:
    return "moved" if judgement.ratio is None else units.percent(judgement.ratio)
