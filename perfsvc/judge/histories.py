"""The present level of many series at once, night by night."""

import numpy as np
from numpy.typing import NDArray

from perfsvc.judge.estimates import median
from perfsvc.judge.shifts import SPIKED, WINDOWS, Floats, Ints, Sums

LEARNING = 20
"""How many nights of a segment are only learned from."""

GROWTH = 1.2
"""A level's centre, scale and skewness are taken anew whenever it has become longer by this factor."""

CUT = 3.5
"""Nights count for no more than so many standard deviations from the centre."""

CUT_SPIKED = 2.3
"""The same where the level has had spikes: two of them within a few nights are then not rare."""

SPIKE = 3.75
"""How many standard deviations from the centre a spike begins."""

PAST = 3
"""After how many nights a night beyond that is known to have been a spike and not the first of a new level."""

LEAST_SCALE = 3e-4
"""The smallest standard deviation that is believed, as a fraction of the level: medians of equal processes differ by
0.03 % and more."""

TINY = 2.0**-300
"""What a deviation is at least, even of a level of zeros: one may divide by its square."""

TOGETHER = 1000
"""How many series are computed at a time: so many fit the processor's cache."""

LENT = 50
"""The most degrees of freedom that the variance of one level lends to the next."""

SKEW_ERRORS = 2.0
"""How many standard errors of the skewness are taken for chance."""


PERSISTENCE_ERRORS = 1.25
"""How many standard errors of the autocorrelation are taken for chance."""


class Histories:
    """What is known of each series at the end of a night; knows nothing of nights to come.

    The nights on which a series was measured are packed, without gaps: *places* count those. A level is a stretch of
    places that ends with the latest. Its values are kept in units of its scale, from its centre, cut off where spikes
    begin; both are estimated from the level itself.

    Args:
        series: how many.
        nights: how many there will be.
    """

    def __init__(self, series: int, nights: int) -> None:
        self.values = np.zeros((series, nights))
        self.nights = np.zeros((series, nights), np.intp)
        self.filled = np.zeros(series, np.intp)
        self.first = np.zeros(series, np.intp)
        self._due = np.full(series, LEARNING)
        self._learned = np.zeros(series, bool)
        self._center, self._scale = np.zeros(series), np.ones(series)
        self._cut, self._skew, self._persistence = np.full(series, CUT), np.zeros(series), np.zeros(series)
        self._prior, self._lent, self._least = np.zeros(series), np.zeros(series), np.ones(series)
        # Of a level only differences of sums are used, so that they may begin anywhere.
        self._sums, self._squares = np.zeros((series, nights + 1)), np.zeros((series, nights + 1))

    def forget(self, rows: Ints) -> None:
        """A segment begins: nothing of the nights before counts."""
        self.first[rows] = self.filled[rows]
        self._due[rows] = self.filled[rows] + LEARNING
        self._learned[rows] = False
        self._prior[rows] = self._lent[rows] = 0.0

    def add(self, rows: Ints, values: Floats, night: int) -> Ints:
        """Adds tonight's values of some series; returns those that have learned enough to be judged.

        A series learns what it can from a night only after it has been judged: see ``learn``.
        """
        places = self.filled[rows]
        self.values[rows, places] = values
        self.nights[rows, places] = night
        units = self._units(rows, values)
        self._sums[rows, places + 1] = self._sums[rows, places] + units
        self._squares[rows, places + 1] = self._squares[rows, places] + units * units
        self.filled[rows] = places + 1
        return rows[self._learned[rows]]

    def learn(self, rows: Ints) -> None:
        """Takes the centre, scale and skewness anew of those series whose level has grown enough since the last time.

        And of those that had a spike: one that is ``PAST`` nights ago and was not the beginning of anything.
        """
        rows = rows[(self._due[rows] <= self.filled[rows]) | self._had_a_spike(rows)]
        for begin in range(0, rows.size, TOGETHER):
            self._estimate(rows[begin : begin + TOGETHER])
        if rows.size:
            nights = self.filled[rows] - self.first[rows]
            self._due[rows] = self.first[rows] + np.maximum(nights + 3, (GROWTH * nights).astype(np.intp))
            self._learned[rows] = True

    def _had_a_spike(self, rows: Ints) -> NDArray[np.bool_]:
        """Which series have had their first spike ``PAST`` nights ago."""
        ago = self.filled[rows] - 1 - PAST
        known = self._learned[rows] & (ago >= self.first[rows] + LEARNING) & (self._cut[rows] > CUT_SPIKED)
        distance = np.abs(self.values[rows, np.maximum(ago, 0)] - self._center[rows])
        spiked: NDArray[np.bool_] = known & (distance > SPIKE * self._scale[rows])
        return spiked

    def restart(self, row: int, place: int, around: float | None) -> None:
        """A new level of one series begins at a place; it borrows the variance of the one before until it has its own.

        Args:
            row: the series.
            place: of the first night of the new level.
            around: the sum of squares (in units) that the change leaves unexplained in the level that ends; None where
                that level is no better than the ones before, whose variance is then kept.
        """
        freedom, variance = self._prior[row], 1.0
        if around is not None:
            freedom += self.filled[row] - self.first[row] - 2
            variance = max((around + self._lent[row]) / freedom, self._least[row])
        self._scale[row] = max(self._scale[row] * np.sqrt(variance), TINY)
        self._least[row] /= variance
        self._prior[row] = self._lent[row] = min(freedom, LENT)
        self.first[row] = place
        self._center[row] = median(self.level(row))
        self._due[row] = self.first[row] + LEARNING
        self._sum_up(row, place, self.units(row))

    def sums(self, rows: Ints) -> Sums:
        """The sums of the levels of some series."""
        ends, first = self.filled[rows], self.first[rows]
        total = self._sums[rows, ends]
        width = self._sums.shape[1]  # of the flat array it is twice as fast
        until = np.take(self._sums, rows * width + ends - WINDOWS[:, None], mode="clip")
        return Sums(
            nights=ends - first,
            total=total - self._sums[rows, first],
            squares=self._squares[rows, ends] - self._squares[rows, first],
            windows=total - until,
            prior=self._prior[rows],
            lent=self._lent[rows],
            least=self._least[rows],
        )

    def latest(self, rows: Ints) -> Floats:
        """The latest nights of some series in units, the last one first, shape (SPIKED, series)."""
        places = np.maximum(self.filled[rows] - 1 - np.arange(SPIKED)[:, None], 0)
        return self._units(rows, self.values[rows, places])

    def skew(self, rows: Ints) -> Floats:
        """The skewness of some series beyond what is chance, shape (series,)."""
        return self._skew[rows]

    def persistence(self, rows: Ints) -> Floats:
        """The autocorrelation of some series from night to night beyond what is chance, shape (series,)."""
        return self._persistence[rows]

    def level(self, row: int) -> Floats:
        """The values of the present level of one series, shape (nights,)."""
        return self.values[row, self.first[row] : self.filled[row]]

    def units(self, row: int) -> Floats:
        """The same, in units of its scale."""
        return self.in_units(row, self.level(row))

    def in_units(self, row: int, values: Floats) -> Floats:
        """Values of one series in units of its present scale, shape (nights,)."""
        return self._units(row, values)

    def _units(self, series: int | Ints | tuple[Ints, None], values: Floats) -> Floats:
        """Values in units of their series' scales; ``series`` is an index that gives these the values' axes."""
        cut = self._cut[series]
        with np.errstate(over="ignore"):  # far beyond the cut is the cut
            units = (values - self._center[series]) / self._scale[series]
        found: Floats = np.minimum(np.maximum(units, -cut), cut)
        return found

    def _estimate(self, rows: Ints) -> None:
        begin, end = self.first[rows].min(), self.filled[rows].max()
        values, places = self.values[rows, begin:end], np.arange(begin, end)
        inside = (places >= self.first[rows, None]) & (places < self.filled[rows, None])
        center, scale = center_and_scale(values, inside)
        # A level of zeros, or next to it, has no scale of its own: whatever is not there then lies beyond the cut.
        least = LEAST_SCALE * np.abs(center)
        least = np.where(least == 0, TINY, least)
        scale = np.maximum(scale, least)
        beyond = (np.abs(values - center[:, None]) > SPIKE * scale[:, None]) & inside
        self._center[rows], self._scale[rows] = center, scale
        self._cut[rows] = np.where(beyond.any(axis=1), CUT_SPIKED, CUT)
        self._least[rows] = np.maximum(least / scale, TINY) ** 2
        self._prior[rows] = self._lent[rows] = 0.0  # it has nights enough of its own
        units = np.where(inside, self._units((rows, None), values), 0.0)
        offsets, count = offsets_of(units, inside)
        self._skew[rows], self._persistence[rows] = skewness(offsets, count), persistence(offsets, count)
        self._sum_up(rows, begin, units)

    def _sum_up(self, rows: int | Ints, begin: int, units: Floats) -> None:
        """Brings the sums of one series or some into line with their units from a place on, 0 outside of their levels.

        Args:
            rows: which series.
            begin: the place.
            units: shape (nights,) of one, (series, nights) of some.
        """
        after = slice(begin + 1, begin + 1 + units.shape[-1])
        for sums, terms in ((self._sums, units), (self._squares, units * units)):
            sums[rows, begin] = 0.0
            sums[rows, after] = np.cumsum(terms, axis=-1)


def center_and_scale(values: Floats, inside: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """The median of each row and its standard deviation with spikes cut off, each of shape (series,).

    The deviation is found from above: what lies beyond ``CUT`` of it is cut, and it is taken again. A few spikes so
    lose their weight; a second state that is more than a tenth of the nights keeps it, for it is no spike.

    Args:
        values: shape (series, nights).
        inside: which of them count, likewise; two of each row at least.

    Source:
        P. J. Huber (1964), Robust estimation of a location parameter, Ann. Math. Statist. 35(1), proposal 2.
    """
    count = inside.sum(axis=1)
    ordered = np.sort(np.where(inside, values, np.inf), axis=1)
    row = np.arange(len(values))
    center = ordered[row, (count - 1) // 2] / 2 + ordered[row, count // 2] / 2
    offsets = np.where(inside, np.abs(values - center[:, None]), 0.0)
    squares = offsets * offsets
    scale = np.sqrt(squares.sum(axis=1) / (count - 1))
    for _ in range(6):
        cut = CUT * scale[:, None]
        scale = np.sqrt(np.minimum(squares, cut * cut).sum(axis=1) / (count - 1))
    return center, scale


def offsets_of(units: Floats, inside: NDArray[np.bool_]) -> tuple[Floats, Ints]:
    """What the nights of each row that count are off its mean by, 0 where they do not, and how many do, (series,)."""
    count: Ints = inside.sum(axis=1)
    mean = np.where(inside, units, 0.0).sum(axis=1) / count
    return np.where(inside, units - mean[:, None], 0.0), count


def skewness(offsets: Floats, count: Ints) -> Floats:
    """The skewness of each row beyond its standard error, shape (series,); 0 where there is no more than chance.

    Args:
        offsets: from the mean, 0 where a night does not count, shape (series, nights).
        count: how many nights do, shape (series,).

    Source:
        H. Cramér (1946), Mathematical Methods of Statistics, Princeton, section 27.7 (the error, √(6 / n)).
    """
    deviation = np.sqrt((offsets**2).sum(axis=1) / count)[:, None]
    deviates = np.divide(offsets, deviation, out=np.zeros_like(offsets), where=deviation > 0)
    skew = (deviates * deviates * deviates).sum(axis=1) / count  # a power takes forty times as long
    found: Floats = np.sign(skew) * np.maximum(np.abs(skew) - SKEW_ERRORS * np.sqrt(6 / count), 0.0)
    return found


def persistence(offsets: Floats, count: Ints) -> Floats:
    """The autocorrelation of each row from one night to the next beyond its standard error, shape (series,).

    0 where there is no more than chance: where nights alternate, they are taken as independent.

    Args:
        offsets: from the mean, 0 where a night does not count, shape (series, nights).
        count: how many nights do, shape (series,).

    Source:
        M. S. Bartlett (1946), On the theoretical specification and sampling properties of autocorrelated time-series,
        Suppl. J. R. Stat. Soc. 8(1) (the error, √(1 / n)).
    """
    squares, products = (offsets**2).sum(axis=1), (offsets[:, 1:] * offsets[:, :-1]).sum(axis=1)
    found = np.divide(products, squares, out=np.zeros_like(squares), where=squares > 0)
    beyond: Floats = np.maximum(found + 1 / count - PERSISTENCE_ERRORS / np.sqrt(count), 0.0)
    return beyond
