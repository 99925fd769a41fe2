"""How strongly the latest runs of a series speak for a new level, and whether that is a step, a trend or a mixture."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from perfsvc.model import ChangeKind, Direction

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

MIN_SCORE = 11.1
"""The score of an alert."""

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
HEADROOM[:SHORT] = [1.19, 1.0, 1.03, 1.045, 1.04, 1.03, 1.02]  # simulated; two runs of three may be spikes

MIN_SKEW = 1e-3
"""A sum that is less skewed than this counts as this skewed, which changes no score."""


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

    A cheap upper bound of the score decides, so False is always right, and True may be wrong. The bound leaves out the
    corrections of ``window_scores`` that only lower a score.
    """
    _, _, explained, variance = _differences(sums)
    needed = 2 * (min_score - _BONUS) / _HEADROOM**2
    reachable: Bools = np.any(explained >= needed * variance, axis=0)
    return reachable


def window_scores(sums: LevelSums, latest: Floats, skew: Floats, persistence: Floats) -> Floats:
    """Return how strongly each window speaks for a new level: minus the logarithm of its chance without one.

    Each window is compared with the earlier runs of its level by Student's t. The variance comes from both parts. Then
    t is converted to the normal deviate z of equal probability. The score is z² / 2 plus a bonus for the length. Three
    corrections keep false alarms about equally rare in series of any kind:

    - a short window gives up its farthest run, so that no single run decides;
    - in a skewed level (two states, one of them rarer, or a long tail) a sum of few runs is skewed the same way;
    - if each run resembles the run before it, a mean of several runs varies more than a mean of independent runs.

    Args:
        sums: the sums over the present level of each series.
        latest: the latest ``SHORT_WINDOW`` runs of each series in units, the newest first, shape (SHORT_WINDOW,
            series).
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
        skewness: E. B. Wilson and M. M. Hilferty (1931), The distribution of chi-square, Proc. Natl. Acad. Sci. 17(12);
        persistence: M. S. Bartlett (1935), Some aspects of the time-correlation problem, J. R. Stat. Soc. 98(3).
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
    deviate = normal_deviate(deviate, skew_towards * imbalance / np.sqrt(_LENGTHS)) * _HEADROOM
    scores: Floats = np.where(weight > 0, deviate * deviate / 2 + _BONUS, 0.0)
    return scores


def _differences(sums: LevelSums) -> tuple[Floats, Floats, Floats, Floats]:
    """Compare the mean of each window with the mean of the runs of its level before it.

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


def normal_deviate(deviate: Floats, skew: Floats) -> Floats:
    """Return the normal deviates that are as rare as deviates of a skewed sum, 0 or above.

    The cube root of a gamma variate is almost normal. A larger deviate always has a larger normal deviate, so skewness
    delays a large step, but never hides it.

    Args:
        deviate: the distance of the sum from its mean in standard deviations, 0 or above.
        skew: the skewness of the sum in the direction of the deviate, 0 or above.
    """
    some = np.maximum(skew, MIN_SKEW)
    normal = 6 / some * (np.cbrt(1 + some * deviate / 2) - 1) + some / 6
    result: Floats = np.minimum(normal, deviate)
    return result


def _inflation(sums: LevelSums, persistence: Floats) -> Floats:
    """Return by what factor persistence increases the variance of a difference of means, shape (windows, series).

    Suppose each run repeats a share r of the previous run's deviation. Then the variance of a mean of n runs is larger
    than for independent runs by the factor (1 + r) / (1 - r) - 2r (1 - rⁿ) / (n (1 - r)²).
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
    """Return how far the highest run of each short window exceeds the second highest."""
    highest = np.maximum.accumulate(latest)
    second = np.maximum.accumulate(np.minimum(highest[:-1], latest[1:]))
    lengths = WINDOWS[:SHORT]
    margin: Floats = highest[lengths - 1] - second[lengths - 2]
    return margin


MIN_RAMP = 8
"""A change that took fewer runs than this is a step, whatever its shape."""

APART = 3.0
"""Two states are distinct if each mean is this many of their standard deviations from the point between them."""

MIN_SHARE = 0.15
"""The smallest share of the runs that makes a state of its own; at least two runs."""

TREND_LEAD = 0.5
"""By how much better (log-likelihood) a trend must explain a change than a step to be called a trend."""

SURE_TREND_LEAD = 1.0
"""The same margin for calling an already raised step a trend, or a change within a trend a step."""

CLIP = 3.5
"""Runs are clipped at this many standard deviations from the centre of their level."""

MIN_RUNS = 2
"""A step has so many runs on either side."""

CLIPPED_RISE = 2.5
"""A fitted step of so many standard deviations may be higher in truth, because values are clipped."""

MOST_BEYOND = 0.5
"""By how much of a step a run counts at most as beyond its levels."""

MIN_RESIDUAL = 2.0**-300
"""Divisor in place of a residual of 0."""


@dataclass(frozen=True, slots=True)
class FittedChange:
    """The likeliest change within some runs.

    Attributes:
        start: the first run of the change, counted from the first of these runs.
        kind: step, trend or mixture.
        direction: ``SLOWER`` if the values grew, else ``FASTER``.
        residual: the sum of squares that the change leaves unexplained.
        trend_lead: how much better (log-likelihood) a trend explains the runs than a step does; negative if the step
            explains them better.
    """

    start: int
    kind: ChangeKind
    direction: Direction
    residual: float
    trend_lead: float


def fit_changes(values: Floats, units: Floats, *, sure: bool = False) -> list[FittedChange]:
    """Return the likeliest change in each of several levels of equal length.

    Args:
        values: as measured, shape (levels, runs), four runs or more.
        units: the same values in units of each level's scale, with spikes clipped.
        sure: require the larger margin ``SURE_TREND_LEAD`` before calling a change a trend.

    Source:
        A step compared with a hinge by the squares that each explains, both having one place, one height and one level:
        D. V. Hinkley (1971), Inference in two-phase regression, J. Am. Stat. Assoc. 66.
    """
    step_start, step_residual, by_step, rise = fit_step(units)
    shapes, residual_of_shapes = units, step_residual
    clipped = np.logical_and.accumulate(np.abs(units[:, ::-1]) >= CLIP, axis=1).sum(axis=1)  # the latest runs
    high = np.flatnonzero((np.abs(rise) >= CLIPPED_RISE) | (clipped >= MIN_RUNS))
    if high.size:
        likely = np.where(clipped[high] >= MIN_RUNS, units.shape[1] - clipped[high], step_start[high])
        shapes = units.copy()
        shapes[high] = rise[high, None] * _shares(values[high], np.maximum(likely, MIN_RUNS))
        step_start, residual_of_shapes, by_step, _ = fit_step(shapes)
        step_residual[high] = _residual(units[high], step_start[high])
    ramp_start, by_ramp = fit_ramp(shapes)
    lead = (by_ramp - by_step) * units.shape[1] / 2 / np.maximum(residual_of_shapes, MIN_RESIDUAL)
    mixture = is_mixture(values, step_start)
    trend = ~mixture & (lead > (SURE_TREND_LEAD if sure else TREND_LEAD))
    start = np.where(trend, ramp_start, step_start)
    residual = np.where(trend, step_residual + by_step - by_ramp, step_residual)
    trend_lead = np.where(mixture, 0.0, lead)
    return [
        FittedChange(
            int(start[row]),
            ChangeKind.MIXTURE if mixture[row] else ChangeKind.TREND if trend[row] else ChangeKind.STEP,
            Direction.SLOWER if rise[row] > 0 else Direction.FASTER,
            float(residual[row]),
            float(trend_lead[row]),
        )
        for row in range(len(units))
    ]


def fit_step(units: Floats) -> tuple[Ints, Floats, Floats, Floats]:
    """Fit the likeliest step to each level, with at least ``MIN_RUNS`` runs on either side.

    Args:
        units: the values of the levels, shape (levels, runs), four runs or more.

    Returns:
        Four arrays of shape (levels,): the first run after the step; the sum of squares around the two means; how much
        smaller this sum is than the sum around one mean; the second mean minus the first.
    """
    runs = units.shape[1]
    before = np.arange(2.0, runs - 1)
    after = runs - before
    head = units.cumsum(axis=1)[:, 1:-2]
    total = np.add.reduce(units, axis=1, keepdims=True)
    difference = (total - head) / after - head / before
    explained = difference * difference * before * after / runs
    best, rows = explained.argmax(axis=1), np.arange(len(units))
    offsets = units - total / runs
    residual = np.add.reduce(offsets * offsets, axis=1) - explained[rows, best]
    return best + 2, np.maximum(residual, 0.0), explained[rows, best], difference[rows, best]


def _shares(values: Floats, starts: Ints) -> Floats:
    """Return how far each run has come from the median before a start to the median after it, shape (levels, runs).

    Clipped values cannot tell a run of the old level that is slightly high from one of a new level that is far away.

    Args:
        values: as measured, shape (levels, runs), four runs or more.
        starts: where each step roughly is, shape (levels,).
    """
    after = np.arange(values.shape[1]) >= starts[:, None]
    old, new = medians(values, ~after)[:, None], medians(values, after)[:, None]
    with np.errstate(over="ignore"):  # an overflow is clipped
        shares: Floats = np.clip((values - old) / np.where(new == old, 1.0, new - old), -MOST_BEYOND, 1 + MOST_BEYOND)
    return shares


def _residual(units: Floats, starts: Ints) -> Floats:
    """Return the sum of squares around the means before and after the start of each level, shape (levels,)."""
    after = np.arange(units.shape[1]) >= starts[:, None]
    squares = np.zeros(len(units))
    for side in (after, ~after):
        inside = np.where(side, units, 0.0)
        squares += (inside * inside).sum(axis=1) - inside.sum(axis=1) ** 2 / side.sum(axis=1)
    return np.maximum(squares, 0.0)


def medians(values: Floats, inside: Bools) -> Floats:
    """Return the median of the values that count in each row; values are halved before adding, so no sum overflows."""
    count, rows = inside.sum(axis=1), np.arange(len(values))
    ordered = np.sort(np.where(inside, values, np.inf), axis=1)
    halves: Floats = ordered[rows, (count - 1) // 2] / 2 + ordered[rows, count // 2] / 2
    return halves


def fit_ramp(units: Floats) -> tuple[Ints, Floats]:
    """Fit the likeliest trend that lasts until the latest run to each level.

    Args:
        units: the values of the levels, shape (levels, runs).

    Returns:
        Two arrays of shape (levels,): the first run beyond the flat part; the sum of squares that the trend explains, 0
        if the level is too short for a trend.
    """
    levels, runs = units.shape
    if runs <= MIN_RAMP:
        return np.zeros(levels, np.intp), np.zeros(levels)
    offsets = units - np.add.reduce(units, axis=1, keepdims=True) / runs
    along = offsets[:, ::-1].cumsum(axis=1).cumsum(axis=1)[:, : MIN_RAMP - 2 : -1]
    explained = along * along / _ramp_squares(runs)
    return explained.argmax(axis=1), explained.max(axis=1)


@cache
def _ramp_squares(runs: int) -> Floats:
    """Return the sum of squares around the mean of a trend 0, …, 0, 1, 2, …, for each run at which it may begin."""
    length = runs - np.arange(runs - MIN_RAMP + 1)
    risen = length * (length + 1) / 2
    squares: Floats = risen * (2 * length + 1) / 3 - risen * risen / runs
    return squares


def is_mixture(values: Floats, starts: Ints) -> Bools:
    """Return for which levels the runs before and after a change are the same two states in different shares.

    A level is a mixture if all its runs fall into two distinct groups, and at least one side of the change has runs of
    both groups. A step has one state on each side.

    Args:
        values: as measured, shape (levels, runs), four runs or more.
        starts: the first run after each level's change, shape (levels,).

    Source:
        The two groups are those with the largest variance between them: N. Otsu (1979), A threshold selection method
        from gray-level histograms, IEEE Trans. Syst. Man Cybern. 9(1).
    """
    runs = values.shape[1]
    ordered = np.sort(values, axis=1)
    first_high, residual, _, gap = fit_step(ordered)
    rows = np.arange(len(values))
    limit = ordered[rows, first_high - 1] / 2 + ordered[rows, first_high] / 2
    distinct = gap > 2 * APART * np.sqrt(residual / runs)
    high = (values > limit[:, None]) & distinct[:, None]
    before = np.add.reduce(high & (np.arange(runs) < starts[:, None]), axis=1)
    after = np.add.reduce(high, axis=1) - before
    return _has_both_states(before, starts) | _has_both_states(after, runs - starts)


def _has_both_states(high: Ints, runs: Ints) -> Bools:
    """Return which levels have enough runs of both states on one side of the change."""
    has_both: Bools = np.minimum(high, runs - high) >= np.maximum(2, MIN_SHARE * runs)
    return has_both
