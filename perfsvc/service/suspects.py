"""Suspects: what lost against its baseline tonight."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perfsvc import judge
from perfsvc.model import Cause, Direction, Judgement, Shift, Suspect
from perfsvc.report import units
from perfsvc.service.sides import sides_of
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class Doubts:
    """What moved in a run.

    Attributes:
        to_confirm: what might be the code's doing, for somebody to measure again.
        together: what moved at once with unchanged code, by board and direction.
    """

    to_confirm: tuple[Suspect, ...]
    together: tuple[tuple[Suspect, ...], ...]


def doubts(store: Store, judgements: Iterable[Judgement]) -> Doubts:
    """The suspects of a run that has been judged.

    What ran the same code on both sides is none: it is for the environment, or noise. Neither is an improvement: the
    verdict has told of it.
    """
    judged = {judgement.series: judgement for judgement in judgements}
    sides = sides_of(store, judged.values())
    found = {series: _suspect(one) for series, one in judged.items() if one.verdict in judge.MOVES}
    groups = judge.together(judged.values(), sides).values()
    return Doubts(
        tuple(filter(_to_confirm, found.values())),
        tuple(tuple(_by_environment(found[one.series]) for one in group) for group in groups),
    )


def _by_environment(suspect: Suspect) -> Suspect:
    return replace(suspect, judgement=replace(suspect.judgement, cause=Cause.ENVIRONMENT))


def _suspect(judgement: Judgement) -> Suspect:
    return Suspect(judgement, Shift.LOSS, judge.MOVES[judgement.verdict], _loss(judgement))


def _loss(judgement: Judgement) -> str:
    change = "" if judgement.ratio is None else f"{units.percent(judgement.ratio)} "
    return f"{change}against run {judgement.baseline_run}"


def _to_confirm(suspect: Suspect) -> bool:
    """Whether somebody should measure a suspect again."""
    return suspect.direction is Direction.SLOWER and suspect.judgement.cause in {Cause.UNCONFIRMED, Cause.TOOLCHAIN}
