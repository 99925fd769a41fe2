"""How strongly the latest nights of a series speak for a level that is not the one before them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

WINDOWS: Ints = np.array([*range(2, 13), 14, 16, 19, 22, 26, 30, 35, 41, 48, 56, 65, 76, 88, 102, 118])
"""How many of the latest nights are held against those before them: one alone may be a spike and is never asked."""

BEFORE = 2
"""How many nights of the level there must be before a window."""

SPIKED = 8
"""Windows of up to so many nights must stand without their farthest night."""

PENALTY = 0.5
"""What the logarithm of a window's length adds to its score: short windows are many and independent, long ones few."""

SHORT = int((WINDOWS <= SPIKED).sum())
"""How many of the windows must stand without their farthest night: the first of them."""

HEADROOM: Floats = np.ones(WINDOWS.size)
"""What a window's deviate is multiplied by, for a window that gives up its farthest night deviates less by chance."""
HEADROOM[:SHORT] = [1.21, 1.0, 1.03, 1.045, 1.04, 1.03, 1.02]  # simulated; of three, two may be spikes


@dataclass(frozen=True, slots=True)
class Sums:
    """What is known of the level of some series, from the first night of the level to the latest.

    Values are in units of the series' scale, from its centre, cut off where spikes begin.

    Attributes:
        nights: how many nights the level has, shape (series,).
        total: the sum of its values, shape (series,).
        squares: the sum of their squares, shape (series,).
        windows: the sum of the values of each of ``WINDOWS``, shape (windows, series); any number where it is too long.
        prior: the degrees of freedom that earlier levels lend to the variance, shape (series,).
        lent: the sum of squares that comes with them, shape (series,).
        least: the smallest variance that is believed, shape (series,).
    """

    nights: Ints
    total: Floats
    squares: Floats
    windows: Floats
    prior: Floats
    lent: Floats
    least: Floats

    def of(self, rows: NDArray[np.bool_]) -> "Sums":
        """Those of some of the series."""
        return Sums(
            self.nights[rows],
            self.total[rows],
            self.squares[rows],
            self.windows[:, rows],
            self.prior[rows],
            self.lent[rows],
            self.least[rows],
        )


# Arrays of windows and series have a row a window: there are fewer of those, and numpy works along the rows.
_LENGTHS: Floats = WINDOWS[:, None].astype(np.float64)
_ROOM: Floats = HEADROOM[:, None]
_BY_LENGTH: Floats = PENALTY * np.log(_LENGTHS)


def _differences(sums: Sums) -> tuple[Floats, Floats, Floats, Floats]:
    """What each window differs by from the nights before it, its weight, what it explains of the squares, the variance.

    All of shape (windows, series). Windows that are too long for their level have weight 0.
    """
    nights = sums.nights.astype(np.float64)
    share = _LENGTHS / nights
    before = nights - _LENGTHS
    fits = before >= BEFORE
    before = np.maximum(before, 1)
    difference = (sums.windows - sums.total * share) / before
    difference *= nights / _LENGTHS
    weight = before * fits * share
    explained = difference * difference * weight
    squares = sums.squares + sums.lent - sums.total * sums.total / nights
    variance = squares - explained
    variance /= _freedom(sums)
    return difference, weight, explained, np.maximum(variance, sums.least, out=variance)


def _freedom(sums: Sums) -> Floats:
    """The degrees of freedom of the variance, shape (series,)."""
    freedom: Floats = sums.nights - 2 + sums.prior
    return freedom


def may_reach(sums: Sums, least: float) -> NDArray[np.bool_]:
    """Which series may have a score of at least ``least``, shape (series,): cheap, and never wrong about a no.

    A deviate is at most Student's t, a shift at most what it is with its farthest night.
    """
    _, _, explained, variance = _differences(sums)
    enough = 2 * (least - _BY_LENGTH) / _ROOM**2
    found: NDArray[np.bool_] = np.any(explained >= enough * variance, axis=0)
    return found


def scores(sums: Sums, latest: Floats, skew: Floats, persistence: Floats) -> Floats:
    """How strongly each window speaks for a new level, shape (windows, series): about minus the logarithm of a chance.

    Each window is held against the nights of its level before it by Student's t with the variance of both, as the
    normal deviate z of equal probability; the score is z² / 2 and a little for the length. Corrections make chance
    about as rare in series of any kind: a short window gives up its farthest night, so that no single one decides;
    where the level is skewed (two states, of which one is rarer), a sum of few nights is skewed the same way; where a
    night resembles the one before, a mean of several varies more than that of as many independent ones.

    Args:
        sums: of the series.
        latest: their latest ``SPIKED`` nights, the last one first, shape (SPIKED, series).
        skew: the skewness of each series, shape (series,).
        persistence: their autocorrelation from one night to the next, 0 or above, shape (series,).

    Source:
        Student (1908), The probable error of a mean, Biometrika 6(1); all windows at once, which is the generalised
        likelihood ratio: D. Siegmund and E. S. Venkatraman (1995), Using the generalized likelihood ratio statistic for
        sequential detection of a change-point, Ann. Statist. 23(1); the deviate: D. L. Wallace (1959), Bounds on normal
        approximations to Student's and the chi-square distributions, Ann. Math. Statist. 30(4); the length's share:
        G. Walther (2010), Optimal and fast detection of spatial clusters with scan statistics, Ann. Statist. 38(2);
        skewness: P. Hall (1992), On the removal of skewness by transformation, J. R. Stat. Soc. B 54(1); resemblance:
        M. S. Bartlett (1935), Some aspects of the time-correlation problem, J. R. Stat. Soc. 98(3).
    """
    difference, weight, _, variance = _differences(sums)
    freedom = _freedom(sums)
    spikes = np.where(difference[:SHORT] > 0, _farthest(latest), -_farthest(-latest))
    without = difference.copy()
    without[:SHORT] -= spikes / _LENGTHS[:SHORT]
    without[without * difference < 0] = 0.0
    squared = without * without * weight / (variance * _inflation(sums, persistence))
    deviate = np.sqrt(freedom * np.log1p(squared / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
    towards = np.maximum(skew * np.sign(difference), 0.0)
    uneven = np.maximum(1 - _LENGTHS / np.maximum(sums.nights - _LENGTHS, 1), 0.0)
    by_skewness = towards * uneven * np.maximum(deviate * deviate - 1, 0.0) / (6 * np.sqrt(_LENGTHS))
    deviate = np.maximum(deviate - by_skewness, 0.0) * _ROOM
    found: Floats = np.where(weight > 0, deviate * deviate / 2 + _BY_LENGTH, 0.0)
    return found


def _inflation(sums: Sums, share: Floats) -> Floats:
    """By what factor a difference of means varies more than one of independent nights, shape (windows, series).

    The mean of n nights, each of which repeats a share r of what the night before was off by, has the variance of that
    of independent ones times (1 + r) / (1 - r) - 2r (1 - rⁿ) / (n (1 - r)²).
    """
    if not share.any():
        return np.ones((1, 1))
    before = np.maximum(sums.nights - _LENGTHS, 1)

    def of_mean(nights: Floats) -> Floats:
        ends = 2 * share * (1 - share**nights) / (nights * (1 - share) ** 2)
        found: Floats = (1 + share) / (1 - share) - ends
        return found

    found: Floats = (of_mean(_LENGTHS) / _LENGTHS + of_mean(before) / before) / (1 / _LENGTHS + 1 / before)
    return found


def _farthest(latest: Floats) -> Floats:
    """By how much the highest night of each short window exceeds the second highest, shape (short windows, series)."""
    highest = np.maximum.accumulate(latest)
    second = np.maximum.accumulate(np.minimum(highest[:-1], latest[1:]))
    lengths = WINDOWS[:SHORT]
    found: Floats = highest[lengths - 1] - second[lengths - 2]
    return found
