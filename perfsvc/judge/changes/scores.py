"""How strongly the latest runs of a series speak for a new level."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

WINDOWS: Ints = np.array([*range(2, 13), 14, 16, 19, 22, 26, 30, 35, 41, 48, 56, 65, 76, 88, 102, 118])
"""How many of the latest runs are compared with the runs before them. A single run may be a spike and is no window."""

MIN_BEFORE = 2
"""How many runs of the level must come before a window."""

SHORT_WINDOW = 8
"""Windows of up to this many runs must stand without their farthest run."""

SHORT = int((WINDOWS <= SHORT_WINDOW).sum())
"""How many windows are short; they are the first of ``WINDOWS``."""

LENGTH_BONUS = 0.5
"""What the logarithm of a window's length adds to its score: short windows are many and independent, long ones few."""

HEADROOM: Floats = np.ones(WINDOWS.size)
"""Factor for the deviate of each window: without its farthest run, a short window deviates less by chance."""
HEADROOM[:SHORT] = [1.21, 1.0, 1.03, 1.045, 1.04, 1.03, 1.02]  # simulated; two runs of three may be spikes


@dataclass(frozen=True, slots=True)
class LevelSums:
    """Sums over the present level of several series.

    Values are in units of the series' scale, relative to its centre, clipped where spikes begin.

    Attributes:
        runs: how many runs the level has, shape (series,).
        total: the sum of its values, shape (series,).
        squares: the sum of their squares, shape (series,).
        windows: the sum over each of ``WINDOWS``, shape (windows, series); undefined if the window is too long.
        prior_freedom: the degrees of freedom that earlier levels lend to the variance, shape (series,).
        prior_squares: the sum of squares that comes with them, shape (series,).
        min_variance: the smallest variance that is believed, shape (series,).
    """

    runs: Ints
    total: Floats
    squares: Floats
    windows: Floats
    prior_freedom: Floats
    prior_squares: Floats
    min_variance: Floats

    @property
    def freedom(self) -> Floats:
        """The degrees of freedom of the variance, shape (series,)."""
        freedom: Floats = self.runs - 2 + self.prior_freedom
        return freedom


# Arrays of windows and series have a row for each window: NumPy is fastest along rows, and there are fewer windows.
_LENGTHS: Floats = WINDOWS[:, None].astype(np.float64)
_HEADROOM: Floats = HEADROOM[:, None]
_BONUS: Floats = LENGTH_BONUS * np.log(_LENGTHS)


def may_reach(sums: LevelSums, min_score: float) -> Bools:
    """Return which series may have a score of at least ``min_score``, shape (series,).

    This is a cheap upper bound: False is always right. A deviate is at most Student's t, and a difference is at most
    what it is with its farthest run.
    """
    _, _, explained, variance = _differences(sums)
    needed = 2 * (min_score - _BONUS) / _HEADROOM**2
    reachable: Bools = np.any(explained >= needed * variance, axis=0)
    return reachable


def window_scores(sums: LevelSums, latest: Floats, skew: Floats, persistence: Floats) -> Floats:
    """Return how strongly each window speaks for a new level: about minus the logarithm of its chance.

    Each window is compared with the earlier runs of its level by Student's t with the variance of both, converted to
    the normal deviate z of equal probability. The score is z² / 2 plus a bonus for the length. Three corrections keep
    false alarms about equally rare in series of any kind:

    - a short window gives up its farthest run, so that no single run decides;
    - in a skewed level (two states, one of them rarer) a sum of few runs is skewed the same way;
    - if a run resembles the one before it, a mean of several varies more than a mean of independent ones.

    Args:
        sums: of the series.
        latest: their latest ``SHORT_WINDOW`` runs in units, the newest first, shape (SHORT_WINDOW, series).
        skew: the skewness of each series, shape (series,).
        persistence: the autocorrelation of each series from one run to the next, 0 or above, shape (series,).

    Returns:
        Scores of shape (windows, series), 0 for a window that is too long.

    Source:
        Student (1908), The probable error of a mean, Biometrika 6(1); all windows at once, which is the generalised
        likelihood ratio: D. Siegmund and E. S. Venkatraman (1995), Using the generalized likelihood ratio statistic for
        sequential detection of a change-point, Ann. Statist. 23(1); the deviate: D. L. Wallace (1959), Bounds on normal
        approximations to Student's and the chi-square distributions, Ann. Math. Statist. 30(4); the length bonus:
        G. Walther (2010), Optimal and fast detection of spatial clusters with scan statistics, Ann. Statist. 38(2);
        skewness: P. Hall (1992), On the removal of skewness by transformation, J. R. Stat. Soc. B 54(1); persistence:
        M. S. Bartlett (1935), Some aspects of the time-correlation problem, J. R. Stat. Soc. 98(3).
    """
    difference, weight, _, variance = _differences(sums)
    freedom = sums.freedom
    farthest = np.where(difference[:SHORT] > 0, _farthest(latest), -_farthest(-latest))
    reduced = difference.copy()
    reduced[:SHORT] -= farthest / _LENGTHS[:SHORT]
    reduced[reduced * difference < 0] = 0.0
    t_squared = reduced * reduced * weight / (variance * _inflation(sums, persistence))
    deviate = np.sqrt(freedom * np.log1p(t_squared / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
    skew_towards = np.maximum(skew * np.sign(difference), 0.0)
    imbalance = np.maximum(1 - _LENGTHS / np.maximum(sums.runs - _LENGTHS, 1), 0.0)
    due_to_skew = skew_towards * imbalance * np.maximum(deviate * deviate - 1, 0.0) / (6 * np.sqrt(_LENGTHS))
    deviate = np.maximum(deviate - due_to_skew, 0.0) * _HEADROOM
    scores: Floats = np.where(weight > 0, deviate * deviate / 2 + _BONUS, 0.0)
    return scores


def _differences(sums: LevelSums) -> tuple[Floats, Floats, Floats, Floats]:
    """Compare each window with the runs before it.

    Returns:
        The difference of means, its weight, the squares that it explains, and the variance that remains, each of shape
        (windows, series). The weight of a window that is too long for its level is 0.
    """
    runs = sums.runs.astype(np.float64)
    share = _LENGTHS / runs
    before = runs - _LENGTHS
    fits = before >= MIN_BEFORE
    before = np.maximum(before, 1)
    difference = (sums.windows - sums.total * share) / before
    difference *= runs / _LENGTHS
    weight = before * fits * share
    explained = difference * difference * weight
    squares = sums.squares + sums.prior_squares - sums.total * sums.total / runs
    variance = squares - explained
    variance /= sums.freedom
    return difference, weight, explained, np.maximum(variance, sums.min_variance, out=variance)


def _inflation(sums: LevelSums, persistence: Floats) -> Floats:
    """Return by what factor persistence increases the variance of a difference of means, shape (windows, series).

    If each run repeats a share r of the deviation of the run before, the mean of n runs has the variance of a mean of
    independent runs times (1 + r) / (1 - r) - 2r (1 - rⁿ) / (n (1 - r)²).
    """
    if not persistence.any():
        return np.ones((1, 1))
    before = np.maximum(sums.runs - _LENGTHS, 1)

    def of_mean(runs: Floats) -> Floats:
        edges = 2 * persistence * (1 - persistence**runs) / (runs * (1 - persistence) ** 2)
        factor: Floats = (1 + persistence) / (1 - persistence) - edges
        return factor

    factor: Floats = (of_mean(_LENGTHS) / _LENGTHS + of_mean(before) / before) / (1 / _LENGTHS + 1 / before)
    return factor


def _farthest(latest: Floats) -> Floats:
    """Return how far the highest run of each short window exceeds the second highest, (short windows, series)."""
    highest = np.maximum.accumulate(latest)
    second = np.maximum.accumulate(np.minimum(highest[:-1], latest[1:]))
    lengths = WINDOWS[:SHORT]
    margin: Floats = highest[lengths - 1] - second[lengths - 2]
    return margin
