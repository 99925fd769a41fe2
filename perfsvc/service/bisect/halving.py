"""Halve a history: which commit may be the first bad one, and which commit to measure next. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import reduce
from operator import or_


class CommitState(Enum):
    """What is known of a commit."""

    GOOD = auto()
    BAD = auto()
    SKIPPED = auto()


@dataclass(frozen=True, slots=True)
class Remaining:
    """What remains of a history; commits are given by their names.

    Attributes:
        first: the oldest commit known to be bad so far.
        below: the newest good ancestor of ``first``; None for the good commit that the history began with.
        suspects: the commits that may be the first bad one, oldest first; ``first`` is among them.
        ask: the suspect to measure next: good or bad, it rules out about half of the suspects. None if all suspects
            but ``first`` are skipped, so that no measurement helps.
    """

    first: str
    below: str | None
    suspects: tuple[str, ...]
    ask: str | None


def narrow(
    history: Mapping[str, Sequence[str]], states: Mapping[str, CommitState], unchanged: Collection[str]
) -> Remaining:
    """Return the commits that are still suspects, and the commit to measure next.

    A good commit clears all its ancestors, so if the case moved back and forth, the newest change counts. A bad commit
    clears every commit that is not its ancestor. A commit with the code of one of its parents changed nothing.

    Args:
        history: the parents of each commit between a good one (not included) and a bad one, parents before children;
            parents outside the history are ignored.
        states: which commits are good, bad or skipped, as far as known; the last commit of the history is bad.
        unchanged: commits that cannot be the first bad one because a parent has the same code.

    Source:
        ``git bisect`` chooses the same way: it takes the commit that has half of the suspects among its ancestors, so
        that about half are removed, whether the commit is good or bad (C. Couder, Fighting regressions with git bisect,
        2009).
    """
    # A set of commits is an integer with one bit for each commit.
    bit = {name: 1 << place for place, name in enumerate(history)}
    ancestors: dict[str, int] = {}
    for name, parents in history.items():
        ancestors[name] = reduce(or_, (ancestors.get(parent, 0) for parent in parents), bit[name])
    known = {state: [name for name in history if states.get(name) is state] for state in CommitState}
    cleared = reduce(or_, (ancestors[name] for name in known[CommitState.GOOD]), 0)
    bad = [name for name in known[CommitState.BAD] if not bit[name] & cleared]
    first = min(bad, key=lambda name: (ancestors[name] & ~cleared).bit_count())
    changing = reduce(or_, (bit[name] for name in history if name not in unchanged), bit[first])
    suspected = ancestors[first] & ~cleared & changing
    suspects = tuple(name for name in history if bit[name] & suspected)

    def halves(name: str) -> int:
        """Return how many suspects are removed at least, whether a commit turns out good or bad."""
        older = (ancestors[name] & suspected).bit_count()
        return min(older, len(suspects) - older)

    good = [name for name in known[CommitState.GOOD] if bit[name] & ancestors[first]]
    ask = max((name for name in suspects if name not in states), key=halves, default=None)
    return Remaining(first, good[-1] if good else None, suspects, ask)
