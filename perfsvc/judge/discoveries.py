"""Which of many chances at once are small enough to be believed."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from perfsvc.judge.shifts import Floats, Ints


def numbered(groups: Sequence[Hashable]) -> Ints:
    """A number for each of some groups, the same where the group is the same; shape (groups,)."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    return np.array([numbers[group] for group in groups], np.intp)


def discoveries(chances: Floats, groups: Ints | None, rate: float) -> NDArray[np.bool_]:
    """The series whose chances are discoveries, with the expected share of false ones among them held to a rate.

    Without groups, those of Benjamini and Hochberg. With groups, first the groups are found that hold anything (each by
    the Simes chance of its series), then the series within each of those, at the rate times the share of groups found:
    the expected share of false discoveries, averaged over the groups found, keeps to the rate. What moved
    in one group lends no room for false discoveries to the others.

    Args:
        chances: of no change, shape (series,).
        groups: the number of the group that each series belongs to, shape (series,).
        rate: the share of false discoveries that is borne.

    Source:
        Y. Benjamini and Y. Hochberg (1995), Controlling the false discovery rate, J. R. Stat. Soc. B 57(1);
        Y. Benjamini and M. Bogomolov (2014), Selective inference on multiple families of hypotheses, J. R. Stat.
        Soc. B 76(1); R. J. Simes (1986), An improved Bonferroni procedure for multiple tests of significance,
        Biometrika 73(3).
    """
    if groups is None or not chances.size:
        return chances <= _limit(chances, rate)
    order = np.lexsort((chances, groups))  # one group after the other, the smallest chance of each first
    begins = np.flatnonzero(np.diff(groups[order], prepend=groups[order[0]] - 1))
    sizes = np.diff(begins, append=order.size)
    places = np.arange(1, order.size + 1) - np.repeat(begins, sizes)
    simes = np.minimum.reduceat(chances[order] * np.repeat(sizes, sizes) / places, begins)
    found = np.zeros(chances.size, bool)
    chosen = np.flatnonzero(simes <= _limit(simes, rate))
    for begin, size in zip(begins[chosen], sizes[chosen], strict=True):
        rows = order[begin : begin + size]
        found[rows] = chances[rows] <= _limit(chances[rows], rate * chosen.size / begins.size)
    return found


def _limit(chances: Floats, rate: float) -> float:
    """The largest chance that is a discovery; below 0 where none is."""
    ordered = np.sort(chances)
    small = np.flatnonzero(ordered <= rate * np.arange(1, ordered.size + 1) / ordered.size)
    return float(ordered[small[-1]]) if small.size else -1.0
