"""Suspects: what lost against its baseline tonight, and what the history of a series raises an alert of."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perfsvc import judge, units
from perfsvc.model import Cause, ChangeKind, Direction, Judgement, Series, Suspect
from perfsvc.service.compare.code import SidesOf
from perfsvc.service.compare.compare import cycles_of
from perfsvc.service.findings.alerts import alerts
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class Doubts:
    """What moved in a run.

    Attributes:
        to_confirm: what might be the code's doing, for somebody to measure again.
        together: what moved at once with unchanged code, by GPU and direction.
        judgements: of the run, with what its alerts say in the place of verdicts that did not see it.
        alerted: the series of which an alert says something.
    """

    to_confirm: tuple[Suspect, ...]
    together: tuple[tuple[Suspect, ...], ...]
    judgements: tuple[Judgement, ...]
    alerted: frozenset[Series]


def doubts(
    store: Store,
    run: int,
    judgements: Iterable[Judgement],
    *,
    threshold: judge.ThresholdOption = None,
    sides_of: SidesOf | None = None,
) -> Doubts:
    """The suspects of a run that has been judged.

    What ran the same code on both sides is none: it is for the environment, or noise. Neither is an improvement that
    the verdict has told of already.
    """
    judged = {judgement.series: judgement for judgement in judgements}
    sides_of = sides_of or SidesOf(store)
    raised = alerts(store, run, judged, judge.without_override(threshold), sides_of)
    alerted = {series: one.judgement for series, one in raised.items()}
    if not raised and not any(one.verdict in judge.MOVES for one in judged.values()):
        return Doubts((), (), tuple(judged.values()), frozenset())
    sides = sides_of([*judged.values(), *alerted.values()])
    # What most cases of a GPU do shows only beside those that raised nothing.
    caused = judge.with_causes((judged | alerted).values(), sides, cycles_of(store.levels_of, alerted.values()))
    now = judged | {one.series: one for one in caused if one.series in raised}
    found = {series: _suspect(one, raised.get(series)) for series, one in now.items() if one.verdict in judge.MOVES}
    groups = judge.moved_together(now.values(), sides).values()
    return Doubts(
        tuple(one for series, one in found.items() if _to_confirm(one, told=series not in raised)),
        tuple(tuple(_by_environment(found[one.series]) for one in group) for group in groups),
        tuple(now.values()),
        frozenset(raised),
    )


def _by_environment(suspect: Suspect) -> Suspect:
    return replace(suspect, judgement=replace(suspect.judgement, cause=Cause.ENVIRONMENT))


def _suspect(judgement: Judgement, alert: Suspect | None) -> Suspect:
    if alert:
        return replace(alert, judgement=judgement)
    return Suspect(judgement, ChangeKind.REGRESSION, judge.MOVES[judgement.verdict], _loss(judgement))


def _loss(judgement: Judgement) -> str:
    change = "" if judgement.ratio is None else f"{units.percent(judgement.ratio)} "
    return f"{change}against run {judgement.baseline_run}"


def _to_confirm(suspect: Suspect, *, told: bool) -> bool:
    """Whether somebody should measure a suspect again; ``told`` is what the verdict says already."""
    wanted = suspect.direction is Direction.SLOWER or not told
    return wanted and suspect.judgement.cause in {Cause.UNCONFIRMED, Cause.TOOLCHAIN}
