"""Suspects: the series of a run that got slower than their baseline, or whose history raises an alert."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf, log

from perfsvc import judge, units
from perfsvc.model import Cause, ChangeKind, Direction, Finding, FindingState, Judgement, Series, Suspect
from perfsvc.service.compare.code import sides_of
from perfsvc.service.compare.compare import cycles_of
from perfsvc.service.findings.alerts import alerts
from perfsvc.service.findings.recovery import recovered_series, without_recoveries
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class RunChanges:
    """The series that moved in a run.

    Attributes:
        to_confirm: suspects that may be due to the code, and have to be measured again.
        together: series that moved at once with unchanged code, by device and direction.
        judgements: the verdicts of the run, replaced by its alerts if these report a change.
        alerted: the series with an alert.
    """

    to_confirm: tuple[Suspect, ...]
    together: tuple[tuple[Suspect, ...], ...]
    judgements: tuple[Judgement, ...]
    alerted: frozenset[Series]


def suspects_of(store: Store, run: int, *, threshold: judge.ThresholdOption = None) -> list[Suspect]:
    """Return the suspects of a judged run that have to be measured again, the largest change first; nothing is stored.

    They are series slower than their baseline, and series with an alert. Excluded are series that were measured again,
    that a user ignores, or that only recover from a finding.

    Args:
        store: the database, with the run and its verdicts.
        run: the run.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of each kind of device.
    """
    changes = changes_of_run(store, run, store.verdicts.of_run(run), threshold=threshold)
    if not changes.to_confirm:
        return []
    confirmed, unwanted = store.confirmations.series([run]), ignored(store.findings.active())
    suspects = [
        suspect
        for suspect in changes.to_confirm
        if suspect.series not in confirmed and (suspect.series, suspect.direction) not in unwanted
    ]
    suspects.sort(key=size_of_change, reverse=True)
    if not suspects or store.runs.get(run).provenance.dirty:
        return suspects
    recovered = recovered_series(store, run, changes.judgements, changes.alerted, threshold)
    return without_recoveries(store, run, suspects, recovered)


def ignored(findings: Iterable[Finding]) -> set[tuple[Series, Direction]]:
    """Return the series that a user ignores, each with the direction in which it moved."""
    return {
        (moved.series, moved.direction)
        for finding in findings
        if finding.state is FindingState.IGNORED
        for moved in finding.moved
    }


def size_of_change(suspect: Suspect) -> float:
    """Return the logarithm of a suspect's ratio, without its sign; infinite without a ratio."""
    return abs(log(suspect.judgement.ratio)) if suspect.judgement.ratio else inf


def changes_of_run(
    store: Store, run: int, judgements: Iterable[Judgement], *, threshold: judge.ThresholdOption = None
) -> RunChanges:
    """Return the series that moved in a run, by its verdicts and by the alerts of their histories.

    A series with the same code on both sides is no suspect: the environment changed, or it is noise. Neither is an
    improvement that the verdict reports already.
    """
    judged = {judgement.series: judgement for judgement in judgements}
    raised = alerts(store, run, judged, judge.without_override(threshold))
    if not raised and not any(judgement.verdict in judge.MOVES for judgement in judged.values()):
        return RunChanges((), (), tuple(judged.values()), frozenset())
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
        tuple(
            suspect for series, suspect in suspects.items() if _has_to_be_confirmed(suspect, is_alert=series in raised)
        ),
        tuple(tuple(_by_environment(suspects[judgement.series]) for judgement in group) for group in groups),
        tuple(current.values()),
        frozenset(raised),
    )


def _suspect(judgement: Judgement, alert: Suspect | None) -> Suspect:
    if alert:
        return replace(alert, judgement=judgement)
    change = "" if judgement.ratio is None else f"{units.percent(judgement.ratio)} "
    evidence = f"{change}against run {judgement.baseline_run}"
    return Suspect(judgement, ChangeKind.REGRESSION, judge.MOVES[judgement.verdict], evidence)


def _has_to_be_confirmed(suspect: Suspect, *, is_alert: bool) -> bool:
    wanted = suspect.direction is Direction.SLOWER or is_alert
    return wanted and suspect.judgement.cause in {Cause.UNCONFIRMED, Cause.TOOLCHAIN}


def _by_environment(suspect: Suspect) -> Suspect:
    return replace(suspect, judgement=replace(suspect.judgement, cause=Cause.ENVIRONMENT))
