"""Halving a history: which commit may have been the first bad one, and which is best asked next. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import reduce
from operator import or_


class Standing(Enum):
    """What is known of a commit."""

    GOOD = auto()
    BAD = auto()
    SKIPPED = auto()


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a history, all by their names.

    Attributes:
        first: the oldest commit known to be bad, as far as the search went.
        below: the newest good commit that it descends from; None where that is the one the history began with.
        suspects: those of which one is the first bad one, oldest first; ``first`` is among them.
        ask: which one halves them best; None where no more can be learned: all but ``first`` are skipped.
    """

    first: str
    below: str | None
    suspects: tuple[str, ...]
    ask: str | None


def narrow(
    history: Mapping[str, Sequence[str]], standings: Mapping[str, Standing], unchanged: Collection[str] = ()
) -> Left:
    """What is left to suspect.

    A commit that is good clears all its ancestors, so that of several changes to and fro the newest counts; a bad one
    clears all that are not its ancestors. A commit with the code of one of its parents moved nothing.

    Args:
        history: the commits between a good one, which is left out, and a bad one, parents before children: each with
            its parents, of which those that are not in it do not matter.
        standings: of those that are known; at least of the last one, that it is bad.
        unchanged: commits that cannot be the first bad one, since a parent has their code.

    Source:
        The choice of ``git bisect``: the commit of which as many suspects are ancestors as are not, whichever way the
        answer goes (C. Couder, Fighting regressions with git bisect, 2009).
    """
    bit = {name: 1 << place for place, name in enumerate(history)}
    ancestors: dict[str, int] = {}
    for name, parents in history.items():
        ancestors[name] = reduce(or_, (ancestors.get(parent, 0) for parent in parents), bit[name])
    known = {state: [name for name in history if standings.get(name) is state] for state in Standing}
    cleared = reduce(or_, (ancestors[name] for name in known[Standing.GOOD]), 0)
    bad = [name for name in known[Standing.BAD] if not bit[name] & cleared]
    first = min(bad, key=lambda name: (ancestors[name] & ~cleared).bit_count())
    movers = reduce(or_, (bit[name] for name in history if name not in unchanged), bit[first])
    within = ancestors[first] & ~cleared & movers
    suspects = tuple(name for name in history if bit[name] & within)

    def halves(name: str) -> int:
        older = (ancestors[name] & within).bit_count()
        return min(older, len(suspects) - older)

    good = [name for name in known[Standing.GOOD] if bit[name] & ancestors[first]]
    ask = max((name for name in suspects if name not in standings), key=halves, default=None)
    return Left(first, good[-1] if good else None, suspects, ask)
