"""Which of many chances at once are small enough to be believed."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from perfsvc.judge.shifts import Floats


def discoveries(chances: Floats, groups: Sequence[Hashable] | None, rate: float) -> NDArray[np.bool_]:
    """The series whose chances are discoveries, with the expected share of false ones among them held to a rate.

    Without groups, those of Benjamini and Hochberg. With groups, first the groups are found that hold anything (each by
    the Simes chance of its series), then the series within each of those, at the rate times the share of groups found:
    the expected share of false discoveries, averaged over the groups found, keeps to the rate. What moved
    in one group lends no room for false discoveries to the others.

    Args:
        chances: of no change, shape (series,).
        groups: to which group each series belongs, (series,).
        rate: the share of false discoveries that is borne.

    Source:
        Y. Benjamini and Y. Hochberg (1995), Controlling the false discovery rate, J. R. Stat. Soc. B 57(1);
        Y. Benjamini and M. Bogomolov (2014), Selective inference on multiple families of hypotheses, J. R. Stat.
        Soc. B 76(1); R. J. Simes (1986), An improved Bonferroni procedure for multiple tests of significance,
        Biometrika 73(3).
    """
    if groups is None or not chances.size:
        return chances <= _limit(chances, rate)
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    labels = np.array([numbers[group] for group in groups], np.intp)
    order = np.argsort(labels, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    simes = np.array([_simes(chances[rows]) for rows in members])
    found = np.zeros(chances.size, bool)
    chosen = np.flatnonzero(simes <= _limit(simes, rate))
    for group in chosen:
        rows = members[group]
        found[rows] = chances[rows] <= _limit(chances[rows], rate * chosen.size / len(members))
    return found


def _limit(chances: Floats, rate: float) -> float:
    """The largest chance that is a discovery; below 0 where none is."""
    ordered = np.sort(chances)
    small = np.flatnonzero(ordered <= rate * np.arange(1, ordered.size + 1) / ordered.size)
    return float(ordered[small[-1]]) if small.size else -1.0


def _simes(chances: Floats) -> float:
    ordered = np.sort(chances)
    return float((ordered * ordered.size / np.arange(1, ordered.size + 1)).min())
