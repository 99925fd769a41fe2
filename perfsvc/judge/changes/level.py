"""The present level of many series: its centre, scale, skewness and sums, updated run by run."""

import numpy as np

from perfsvc.judge.changes.scores import CLIP, SHORT_WINDOW, WINDOWS, Bools, Floats, Ints, LevelSums, medians

LEARNING = 12
"""From the first runs of a segment, the noise is learned. Meanwhile, only a sudden change counts."""

RELEARNING = 20
"""A level after a change has the noise of the level before it until it has so many runs."""

SUDDEN = 0.1
"""The smallest sudden change, as a fraction of the level before."""

SUDDEN_EARLY = 1.0
"""Before the noise is learned, the smallest sudden change is this over the number of earlier runs: the series may have
a second state that none of them was in."""

SUDDEN_RANGES = 2.0
"""In a sudden change, the latest runs lie beyond all earlier runs of the level by this many times their range."""

SUDDEN_RUNS = 2
"""The latest runs, which all have to show a sudden change."""

MIN_SUDDEN = 3
"""How many runs of the level come at least before a sudden change."""

GROWTH = 1.2
"""The centre, scale and skewness of a level are estimated again whenever it is longer by this factor."""

MIN_SCALE = 3e-4
"""The smallest standard deviation that is believed, as a fraction of the level: medians of equal processes differ by
0.03 % and more."""

TINY = 2.0**-300
"""The smallest scale of a level of zeros; its square can still be divided by."""

MAX_PRIOR_FREEDOM = 50
"""The most degrees of freedom that the variance of one level lends to the next."""

SKEW_ERRORS = 2.0
"""Skewness within this many standard errors is chance."""

PERSISTENCE_ERRORS = 1.25
"""Autocorrelation within this many standard errors is chance."""


class LevelTracker:
    """Tracks the present level of each series.

    The runs that measured a series are numbered without gaps: the number of a run is its *position*. A level is a range
    of positions that ends with the latest position. Values are judged in units: the distance from the level's centre
    over its scale, clipped where spikes begin. Centre and scale are estimated from the level itself, and stay until
    they are estimated again.

    Args:
        series: how many series there are.
        runs: how many runs there will be at most.

    Attributes:
        values: by position, shape (series, runs).
        runs: the run that measured each position, shape (series, runs).
        filled: how many positions each series has so far, shape (series,).
        first: the first position of each series' level, shape (series,).
        learned: which series have learned enough to be judged, shape (series,).
        scale: the standard deviation of each series' level, shape (series,).
    """

    def __init__(self, series: int, runs: int) -> None:
        self.values, self.runs = np.zeros((series, runs)), np.zeros((series, runs), np.intp)
        self.filled, self.first = np.zeros(series, np.intp), np.zeros(series, np.intp)
        self.learned = np.zeros(series, bool)
        self.skew, self.persistence = np.zeros(series), np.zeros(series)
        self._due = np.full(series, LEARNING)  # the number of positions at which the next estimate is due
        self._center, self.scale = np.zeros(series), np.ones(series)
        self._prior_freedom, self._prior_squares = np.zeros(series), np.zeros(series)
        self._min_variance = np.ones(series)
        # The range of the present level's runs, less the latest ones, which a sudden change has to leave.
        self._lowest, self._highest = np.full(series, np.inf), np.full(series, -np.inf)
        # Running sums by position. Only differences within a level are used, so the sums may start anywhere.
        self._sums, self._squares = np.zeros((series, runs + 1)), np.zeros((series, runs + 1))

    def begin_segments(self, rows: Ints) -> None:
        """Forget the past of some series, whose next run begins a new segment."""
        self.first[rows] = self.filled[rows]
        self._lowest[rows], self._highest[rows] = np.inf, -np.inf
        self._due[rows] = self.filled[rows] + LEARNING
        self.learned[rows] = False
        self._prior_freedom[rows] = self._prior_squares[rows] = 0.0

    def add(self, run: int, rows: Ints, values: Floats) -> None:
        """Add the values of one run, shape (rows,); ``rows`` are the series that the run measured.

        A series learns from the run only when ``learn`` is called, after the run has been judged.
        """
        position = self.filled[rows]
        self.values[rows, position], self.runs[rows, position] = values, run
        units = self.in_units(rows, values[:, None])[:, 0]
        self._sums[rows, position + 1] = self._sums[rows, position] + units
        self._squares[rows, position + 1] = self._squares[rows, position] + units * units
        self.filled[rows] += 1
        settled = rows[self.filled[rows] - self.first[rows] > SUDDEN_RUNS]
        value = self.values[settled, self.filled[settled] - 1 - SUDDEN_RUNS]
        self._lowest[settled] = np.minimum(self._lowest[settled], value)
        self._highest[settled] = np.maximum(self._highest[settled], value)

    def sudden(self, rows: Ints) -> Bools:
        """Return which series have left all earlier runs of their level so far behind that no noise explains it.

        This takes no estimate of the noise, so it is known from the first runs on. Shape (rows,).
        """
        found = np.zeros(rows.size, bool)
        runs = self.filled[rows] - self.first[rows] - SUDDEN_RUNS
        some = np.flatnonzero(runs >= MIN_SUDDEN)
        if some.size:
            longer = rows[some]
            latest = self.latest_values(longer, SUDDEN_RUNS)
            lowest, highest = self._lowest[longer], self._highest[longer]
            change = np.maximum(latest.min(axis=1) - highest, lowest - latest.max(axis=1))
            early = np.where(self.learned[longer], 0.0, SUDDEN_EARLY / runs[some])
            level = np.minimum(np.abs(latest).max(axis=1), np.maximum(np.abs(lowest), np.abs(highest)))
            far = change >= np.maximum(np.maximum(SUDDEN, early) * level, SUDDEN_RANGES * (highest - lowest))
            found[some] = far & (change > 0)
        return found

    def learn_early(self, rows: Ints) -> None:
        """Estimate the level before a sudden change of series that have not learned their noise yet."""
        values, inside = self._level(rows)
        center, scale = center_and_scale(values, inside & self._is_settled(rows, inside))
        self._center[rows], self.scale[rows] = center, np.maximum(scale, np.maximum(MIN_SCALE * np.abs(center), TINY))
        self._sum_up(rows, values, inside)

    def learn(self) -> None:
        """Estimate each level that has grown enough since its last estimate."""
        rows = np.flatnonzero(self._due <= self.filled)
        if not rows.size:
            return
        values, inside = self._level(rows)
        center, scale = center_and_scale(values, inside)
        # A level at or near zero has no scale of its own: any other value then lies beyond the clip.
        min_scale = MIN_SCALE * np.abs(center)
        min_scale = np.where(min_scale == 0, TINY, min_scale)
        scale = np.maximum(scale, min_scale)
        self._center[rows], self.scale[rows] = center, scale
        self._min_variance[rows] = np.maximum(min_scale / scale, TINY) ** 2
        self._prior_freedom[rows] = self._prior_squares[rows] = 0.0  # the level has enough runs of its own
        length = self.filled[rows] - self.first[rows]
        self._due[rows] = self.first[rows] + np.maximum(length + 3, (GROWTH * length).astype(np.intp))
        units = self._sum_up(rows, values, inside)
        offsets, count = offsets_from_mean(units, inside)
        self.skew[rows], self.persistence[rows] = skewness(offsets, count), persistence(offsets, count)
        self.learned[rows] = True

    def begin_levels(self, rows: Ints, positions: Ints, residual: Floats | None) -> None:
        """Begin new levels; each uses the variance of the level before it until it has a variance of its own.

        Args:
            rows: the series.
            positions: the first position of each new level.
            residual: the sum of squares that each change leaves unexplained in the level that ends, in squares of its
                scale, shape (rows,). None keeps the variance with which the ending levels began.
        """
        freedom, variance = self._prior_freedom[rows], np.ones(rows.size)
        if residual is not None:
            freedom += self.filled[rows] - self.first[rows] - 2
            variance = np.maximum((residual + self._prior_squares[rows]) / freedom, self._min_variance[rows])
        self.scale[rows] = np.maximum(self.scale[rows] * np.sqrt(variance), TINY)
        self._min_variance[rows] /= variance
        self._prior_freedom[rows] = self._prior_squares[rows] = np.minimum(freedom, MAX_PRIOR_FREEDOM)
        self.first[rows] = positions
        self._due[rows] = positions + np.where(self.learned[rows], RELEARNING, LEARNING)
        values, inside = self._level(rows)
        settled = inside & self._is_settled(rows, inside)
        self._lowest[rows] = np.where(settled, values, np.inf).min(axis=1)
        self._highest[rows] = np.where(settled, values, -np.inf).max(axis=1)
        self._center[rows] = medians(values, inside)
        self._sum_up(rows, values, inside)

    def sums(self, rows: Ints) -> LevelSums:
        """Return the sums over the levels of some series."""
        first, end = self.first[rows], self.filled[rows]
        total = self._sums[rows, end]
        return LevelSums(
            runs=end - first,
            total=total - self._sums[rows, first],
            squares=self._squares[rows, end] - self._squares[rows, first],
            windows=total - self._sums[rows, np.maximum(end - WINDOWS[:, None], 0)],
            prior_freedom=self._prior_freedom[rows],
            prior_squares=self._prior_squares[rows],
            min_variance=self._min_variance[rows],
        )

    def latest_units(self, rows: Ints) -> Floats:
        """Return the latest runs of some series in units, the newest first, shape (SHORT_WINDOW, rows)."""
        positions = self.filled[rows, None] - 1 - np.arange(SHORT_WINDOW)
        return self.in_units(rows, self.values[rows[:, None], np.maximum(positions, 0)]).T

    def latest_values(self, rows: Ints, count: int) -> Floats:
        """Return the latest values of some series, oldest first, shape (rows, count)."""
        latest: Floats = self.values[rows[:, None], self.filled[rows, None] + np.arange(-count, 0)]
        return latest

    def in_units(self, rows: Ints, values: Floats) -> Floats:
        """Return values of some series, shape (rows, runs), in units of their present levels."""
        with np.errstate(over="ignore"):  # an overflow is clipped
            units = (values - self._center[rows, None]) / self.scale[rows, None]
        clipped: Floats = np.minimum(np.maximum(units, -CLIP), CLIP)
        return clipped

    def _level(self, rows: Ints) -> tuple[Floats, Bools]:
        """Return the values around the present levels of some series, and a mask of the values that belong to a level.

        Both have the shape (rows, positions); the first position is the earliest at which one of the levels begins.
        """
        positions = np.arange(self.first[rows].min(), self.filled[rows].max())
        inside = (positions >= self.first[rows, None]) & (positions < self.filled[rows, None])
        return self.values[rows, positions[0] : positions[-1] + 1], inside

    def _is_settled(self, rows: Ints, inside: Bools) -> Bools:
        """Return a mask of the runs of ``_level`` that come before the latest ones, in which a change may be sudden."""
        positions = self.first[rows].min() + np.arange(inside.shape[1])
        settled: Bools = positions < self.filled[rows, None] - SUDDEN_RUNS
        return settled

    def _sum_up(self, rows: Ints, values: Floats, inside: Bools) -> Floats:
        """Recompute the running sums of some levels; return the values in units. The arguments come from ``_level``."""
        units = self.in_units(rows, values)
        begin = int(self.first[rows].min())
        end = begin + units.shape[1]
        counted = np.where(inside, units, 0.0)
        for sums, terms in ((self._sums, counted), (self._squares, counted * counted)):
            sums[rows, begin] = 0.0
            sums[rows, begin + 1 : end + 1] = np.cumsum(terms, axis=1)
        return units


def center_and_scale(values: Floats, inside: Bools) -> tuple[Floats, Floats]:
    """Return the median of each row and its standard deviation with spikes clipped, each of shape (series,).

    Values beyond ``CLIP`` standard deviations are clipped, and the deviation is computed again, up to six
    times. So a few spikes lose their weight. Runs in a second state keep their weight if they are more than a tenth of
    all runs.

    Args:
        values: shape (series, runs).
        inside: which values count, same shape; at least two values count in each row.

    Source:
        P. J. Huber (1964), Robust estimation of a location parameter, Ann. Math. Statist. 35(1), proposal 2.
    """
    count = inside.sum(axis=1)
    center = medians(values, inside)
    offsets = np.where(inside, np.abs(values - center[:, None]), 0.0)
    squares = offsets * offsets
    scale = np.sqrt(squares.sum(axis=1) / (count - 1))
    for _ in range(6):
        limit, before = CLIP * scale[:, None], scale
        scale = np.sqrt(np.minimum(squares, limit * limit).sum(axis=1) / (count - 1))
        if (scale == before).all():
            break
    return center, scale


def offsets_from_mean(units: Floats, inside: Bools) -> tuple[Floats, Ints]:
    """Return the deviations from each row's mean (0 if a run does not count), and the number of runs that count."""
    count: Ints = inside.sum(axis=1)
    mean = np.where(inside, units, 0.0).sum(axis=1) / count
    return np.where(inside, units - mean[:, None], 0.0), count


def skewness(offsets: Floats, count: Ints) -> Floats:
    """Return by how much the skewness of each row exceeds ``SKEW_ERRORS`` standard errors, shape (series,).

    Args:
        offsets: the deviations from the mean, 0 if a run does not count, shape (series, runs).
        count: how many runs count, shape (series,).

    Source:
        H. Cramér (1946), Mathematical Methods of Statistics, Princeton, section 27.7 (the error, √(6 / n)).
    """
    deviation = np.sqrt((offsets**2).sum(axis=1) / count)[:, None]
    deviates = np.divide(offsets, deviation, out=np.zeros_like(offsets), where=deviation > 0)
    skew = (deviates * deviates * deviates).sum(axis=1) / count  # ** takes forty times as long
    beyond: Floats = np.sign(skew) * np.maximum(np.abs(skew) - SKEW_ERRORS * np.sqrt(6 / count), 0.0)
    return beyond


def persistence(offsets: Floats, count: Ints) -> Floats:
    """Return by how much the autocorrelation of each row from run to run exceeds its error limit.

    The limit is ``PERSISTENCE_ERRORS`` standard errors. The result is never negative: runs that alternate are taken as
    independent.

    Args:
        offsets: the deviations from the mean, 0 if a run does not count, shape (series, runs).
        count: how many runs count, shape (series,).

    Source:
        M. S. Bartlett (1946), On the theoretical specification and sampling properties of autocorrelated time-series,
        Suppl. J. R. Stat. Soc. 8(1) (the error, √(1 / n)).
    """
    squares, products = (offsets**2).sum(axis=1), (offsets[:, 1:] * offsets[:, :-1]).sum(axis=1)
    correlation = np.divide(products, squares, out=np.zeros_like(squares), where=squares > 0)
    beyond: Floats = np.maximum(correlation + 1 / count - PERSISTENCE_ERRORS / np.sqrt(count), 0.0)
    return beyond
