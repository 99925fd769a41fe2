"""Suspects: series slower than their baseline or with an alert, unless they only recover from a finding."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import inf, log

from perfsvc import judge, units
from perfsvc.model import (
    Cause,
    ChangeKind,
    Confirmation,
    Direction,
    Finding,
    FindingState,
    Judgement,
    MovedSeries,
    Series,
    Suspect,
    Verdict,
)
from perfsvc.service.compare.compare import cycles_of, judge_against, judge_series
from perfsvc.service.compare.sides import sides_of
from perfsvc.service.findings.alerts import alerts, is_nearer
from perfsvc.service.findings.steps import LARGE, last_steps, steps_of_run
from perfsvc.store import Store

OPPOSITE: Mapping[Direction, Direction] = {
    Direction.SLOWER: Direction.FASTER,
    Direction.FASTER: Direction.SLOWER,
}

FAVOURABLE: Mapping[Direction, frozenset[Verdict]] = {
    Direction.SLOWER: frozenset({Verdict.UNCHANGED, Verdict.IMPROVEMENT}),
    Direction.FASTER: frozenset({Verdict.UNCHANGED, Verdict.REGRESSION}),
}
"""The verdicts with which a series may be back at its old level, by the direction in which it had moved."""

TO_CONFIRM = frozenset({Cause.UNCONFIRMED, Cause.TOOLCHAIN})
"""The causes, as far as stored facts show them, with which a suspect has to be measured again."""

GROWN = 2.0
"""A suspect is new again if its change (of logarithms) is more than so many times as large as when it was measured."""

ALERTED = frozenset(ChangeKind) - {ChangeKind.REGRESSION, ChangeKind.AGAIN}
"""The kinds of change that an alert reports."""

Recovered = tuple[int, Series, int]
"""A finding's number, one of its series, and the step from which the series has recovered."""


@dataclass(frozen=True, slots=True)
class RunChanges:
    """The series that moved in a run.

    Attributes:
        to_confirm: suspects that may be due to the code, and have to be measured again.
        together: series that moved at once with unchanged code, by device and direction.
        judgements: the verdicts of the run; an alert replaces the verdict on its series.
        alerted: the series with an alert.
        ended: the series whose last change in their history was a plateau and is over: its direction and its first run.
    """

    to_confirm: tuple[Suspect, ...]
    together: tuple[tuple[Suspect, ...], ...]
    judgements: tuple[Judgement, ...]
    alerted: frozenset[Series]
    ended: Mapping[Series, tuple[Direction, int]]


def suspects_of(store: Store, run: int, *, threshold: judge.ThresholdOption = None) -> list[Suspect]:
    """Return the suspects of a judged run that have to be measured again, the most urgent first; nothing is stored.

    Suspects are series slower than their baseline, series with an alert, and series of findings that moved again. A
    series that moved again is a suspect twice: against its baseline, and against the level after the last step of its
    finding. A suspect is left out if the run has a confirmation of the suspect, if a user ignores its finding, or if it
    only shows a recovery from a finding.

    New suspects come first, the largest change first. Suspects that earlier runs measured again follow, the least
    recently measured first. So a suspect that stays unconfirmed takes no other suspect's time night after night.

    Args:
        store: the database, with the run and its verdicts.
        run: the run.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of each kind of device.
    """
    changes = changes_of_run(store, run, store.verdicts.of_run(run), threshold=threshold)
    steps = steps_of_run(store, run, threshold=threshold)
    alerts = [suspect for suspect in changes.to_confirm if not steps.shows(suspect)]
    to_confirm = [*alerts, *(step for step in steps.moved if step.judgement.cause in TO_CONFIRM)]
    if not to_confirm:
        return []
    confirmed, unwanted = store.confirmations.of_run(run), ignored(store.findings.active())
    answered = {(answer.suspect.series, answer.suspect.change is ChangeKind.AGAIN) for answer in confirmed}
    suspects = [
        suspect
        for suspect in to_confirm
        if (suspect.series, suspect.change is ChangeKind.AGAIN) not in answered
        and (suspect.series, suspect.direction) not in unwanted
    ]
    last_measured = _last_measured(store, run, suspects)
    suspects.sort(key=lambda suspect: (last_measured.get(suspect, 0), -size_of_change(suspect)))
    if not suspects or store.runs.get(run).provenance.dirty:
        return suspects
    recovered = recovered_series(store, run, changes, threshold)
    return without_recoveries(store, run, suspects, recovered)


def ignored(findings: Iterable[Finding]) -> set[tuple[Series, Direction]]:
    """Return the series of ignored findings that have not recovered, each with the direction in which it moved."""
    return {
        (moved.series, moved.direction)
        for finding in findings
        if finding.state is FindingState.IGNORED
        for moved in finding.standing
    }


def size_of_change(suspect: Suspect) -> float:
    """Return the logarithm of a suspect's ratio, without its sign; infinite without a ratio."""
    return abs(log(suspect.judgement.ratio)) if suspect.judgement.ratio else inf


def _last_measured(store: Store, run: int, suspects: Collection[Suspect]) -> dict[Suspect, int]:
    """Return the newest run before ``run`` that measured each suspect again; new suspects are absent.

    A suspect whose change is more than ``GROWN`` times as large as it was then is new. A confirmation that was carried
    over from an earlier run measured nothing.
    """
    earlier: dict[tuple[Series, Direction], list[Confirmation]] = defaultdict(list)
    for answer in store.confirmations.of_series({suspect.series for suspect in suspects}):
        if (answer.suspect.judgement.candidate_run or run) < run and not answer.carried_over:
            earlier[answer.suspect.series, answer.suspect.direction].append(answer)
    return {
        suspect: max(runs)
        for suspect in suspects
        if (
            runs := [
                answer.suspect.judgement.candidate_run or 0
                for answer in earlier[suspect.series, suspect.direction]
                if size_of_change(suspect) <= GROWN * size_of_change(answer.suspect)
            ]
        )
    }


def changes_of_run(
    store: Store, run: int, judgements: Iterable[Judgement], *, threshold: judge.ThresholdOption = None
) -> RunChanges:
    """Return the series that moved in a run, by the run's verdicts and by the alerts of the series' histories.

    A series with the same code on both sides is not measured again: its environment changed, or the change is noise.
    An improvement is measured again only if an alert reports it.
    """
    judged = {judgement.series: judgement for judgement in judgements}
    histories = alerts(store, run, judged, threshold)
    raised = _with_further_steps(store, run, histories.suspects)
    if not raised and not any(judgement.verdict in judge.MOVES for judgement in judged.values()):
        return RunChanges((), (), tuple(judged.values()), frozenset(), histories.ended)
    alerted = {series: suspect.judgement for series, suspect in raised.items()}
    # All series of the run are needed to see whether most cases of a device moved together.
    every = (judged | alerted).values()
    sides = sides_of(store, every)
    caused = judge.with_causes(every, sides, cycles_of(store, alerted.values()))
    current = judged | {judgement.series: judgement for judgement in caused if judgement.series in raised}
    suspects = {
        series: _suspect(judgement, raised.get(series))
        for series, judgement in current.items()
        if judgement.verdict in judge.MOVES
    }
    groups = judge.moved_together(current.values(), sides).values()
    return RunChanges(
        to_confirm=tuple(
            suspect
            for series, suspect in suspects.items()
            if (suspect.direction is Direction.SLOWER or series in raised) and suspect.judgement.cause in TO_CONFIRM
        ),
        together=tuple(tuple(_by_environment(suspects[judgement.series]) for judgement in group) for group in groups),
        judgements=tuple(current.values()),
        alerted=frozenset(raised),
        ended=histories.ended,
    )


def _with_further_steps(store: Store, run: int, alerted: Mapping[Series, Suspect]) -> dict[Series, Suspect]:
    """Return the alerts; those of series that moved again since the last step of their finding are further steps."""
    last = last_steps(store.findings.active(), run) if alerted else {}

    def is_further(suspect: Suspect) -> bool:
        _, step = last.get(suspect.series, (None, None))
        before = suspect.judgement.baseline_run or 0
        return step is not None and suspect.direction is step.direction and before >= (step.first_run or before + 1)

    return {
        series: replace(suspect, change=ChangeKind.AGAIN) if is_further(suspect) else suspect
        for series, suspect in alerted.items()
    }


def _suspect(judgement: Judgement, alert: Suspect | None) -> Suspect:
    """Return the suspect of a judgement that moved: its alert if there is one, else a regression or improvement."""
    if alert:
        return replace(alert, judgement=judgement)
    change = "" if judgement.ratio is None else f"{units.percent(judgement.ratio)} "
    evidence = f"{change}against {judgement.against}"
    return Suspect(judgement, ChangeKind.REGRESSION, judge.MOVES[judgement.verdict], evidence)


def _by_environment(suspect: Suspect) -> Suspect:
    return replace(suspect, judgement=replace(suspect.judgement, cause=Cause.ENVIRONMENT))


# --- recovery --------------------------------------------------------------------------------------------------------


def recovered_series(
    store: Store,
    run: int,
    changes: RunChanges,
    threshold: judge.ThresholdOption,
) -> list[Recovered]:
    """Return the steps of active findings whose series have recovered in a run, back to the level before the step.

    Args:
        store: the database, with the run's verdicts.
        run: the run.
        changes: the series that moved in the run.
        threshold: the smallest relevant change, or rules; None for the default of each kind of device.
    """
    active = store.findings.active()
    unrecovered = {moved.series for finding in active for moved in finding.moved if moved.recovered_run is None}
    if not unrecovered:
        return []
    # Stored verdicts have the causes that confirmations found.
    causes = {judgement.series: judgement.cause for judgement in store.verdicts.of_run(run)}
    current = {
        judgement.series: replace(judgement, cause=causes.get(judgement.series) or judgement.cause)
        for judgement in changes.judgements
        if judgement.verdict in judge.MOVES
    }
    unmoved = judge_series(store, run, unrecovered - current.keys(), threshold=threshold)
    current |= {judgement.series: judgement for judgement in unmoved}
    further: dict[int, dict[Series, int]] = defaultdict(dict)
    for finding in active:
        for moved in finding.moved:
            if moved.step > 1 and moved.recovered_run is None and moved.baseline_run is not None:
                further[moved.step][moved.series] = moved.baseline_run
    rules = judge.without_override(threshold)
    by_step = {
        (judgement.series, step): judgement
        for step, baselines in further.items()
        for judgement in judge_against(store, run, baselines, threshold=rules)
    }
    return recovered(active, current.values(), changes.alerted, changes.ended, by_step)


def recovered(
    findings: Iterable[Finding],
    judgements: Iterable[Judgement],
    alerted: AbstractSet[Series],
    ended: Mapping[Series, tuple[Direction, int]],
    by_step: Mapping[tuple[Series, int], Judgement],
) -> list[Recovered]:
    """Return the steps of findings whose series have recovered, back to the level before the step.

    Args:
        findings: the findings.
        judgements: the judgements of a run against the baselines, which are the levels before first steps.
        alerted: the series with an alert.
        ended: the series whose last change in their history was a plateau and is over: its direction and its first run.
        by_step: by series and step, the judgements against the levels before later steps.
    """
    current = {judgement.series: judgement for judgement in judgements}
    back = []
    for finding in findings:
        for moved in finding.moved:
            judgement = by_step.get((moved.series, moved.step)) or current.get(moved.series)
            if moved.recovered_run is not None or judgement is None:
                continue
            if moved.direction is Direction.BROKEN:
                is_back = judgement.candidate_s is not None
            elif _plateau_is_over(moved, ended.get(moved.series)):
                is_back = is_nearer(judgement.candidate_s, moved.baseline_s, moved.candidate_s)
            else:
                is_back = _is_back(moved, judgement, finding.cause, alerted=moved.series in alerted)
            if is_back:
                back.append((finding.id, moved.series, moved.step))
    return back


def _plateau_is_over(moved: MovedSeries, plateau: tuple[Direction, int] | None) -> bool:
    """Return whether a step of a finding is a plateau that is over, given by its direction and its first run."""
    if plateau is None or moved.change not in ALERTED or moved.first_run is None:
        return False
    direction, first_run = plateau
    return moved.direction is direction and moved.first_run >= first_run


def _is_back(moved: MovedSeries, judgement: Judgement, cause: Cause, *, alerted: bool) -> bool:
    """Return whether a series of a finding is back at its old level; ``cause`` is that of the finding.

    The verdict alone is not enough. ``unchanged`` includes everything within a threshold, which may be wide. And the
    baseline may be the level that the series had moved to, for example in a new segment. So the series' level must be
    nearer to the old level than to the new level, and its interval must not contain the new level. One of these must
    hold as well:

    - the verdict is unchanged or a move back,
    - the verdict is inconclusive, and the whole interval is nearer to the old level,
    - the remaining change has another cause than the finding, and this cause is not the code.

    A mixture shows one of its two states in each run. A single run therefore proves nothing: an alert must report the
    return.
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
        # Against a baseline within the change, what is left of the change does not show.
        is_other = judgement.baseline_run != moved.baseline_run and moved.direction is Direction.SLOWER
        left = judgement.candidate_s / old if judgement.candidate_s and old else 1.0
        return not (is_other and left >= 1 + LARGE)
    if judgement.verdict is Verdict.INCONCLUSIVE and is_nearer(low, old, new) and is_nearer(high, old, new):
        return True
    return judgement.cause is not None and judgement.cause.blameless and judgement.cause is not cause


def without_recoveries(
    store: Store, run: int, suspects: Sequence[Suspect], recovered: Collection[Recovered]
) -> list[Suspect]:
    """Return the suspects, except suspects that only show a recovery from a finding.

    A recovery changes the times of a series too. The change detector may notice this change only some runs later, and
    then raises an alert. Such an alert is no new change, so its suspect is left out.

    Args:
        store: the database.
        run: the run of the suspects.
        suspects: the suspects.
        recovered: the steps from which series have recovered in this run; the store does not hold them yet.
    """
    excluded = {
        (exclusion.run, exclusion.case) for exclusion in store.exclusions.all() if exclusion.included_at is None
    }
    recovered_in: dict[tuple[Series, Direction], int] = {}
    for finding in reversed(store.findings.all()):
        for moved in finding.moved:
            is_back = (finding.id, moved.series, moved.step) in recovered
            recovered_run = run if is_back else moved.recovered_run
            # A series that left its finding because its data was excluded has not recovered.
            is_excluded = not excluded.isdisjoint({(recovered_run, ""), (recovered_run, moved.series.case.id)})
            if recovered_run is not None and not is_excluded:
                recovered_in[moved.series, moved.direction] = recovered_run

    def is_recovery(suspect: Suspect) -> bool:
        """Return whether a suspect only shows that its series recovered from a change in the opposite direction.

        The series recovered in this run, or the suspect is an alert whose baseline run is older than the recovery.
        """
        recovered_run = recovered_in.get((suspect.series, OPPOSITE[suspect.direction]), 0)
        before = suspect.judgement.baseline_run
        is_older_alert = suspect.change in ALERTED and before is not None and before < recovered_run
        return recovered_run == run or is_older_alert

    return [suspect for suspect in suspects if not is_recovery(suspect)]
