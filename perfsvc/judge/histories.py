"""The present level of many series at once, night by night."""

import numpy as np
from numpy.typing import NDArray

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

TOGETHER = 400
"""How many series, or nights of series, are computed at a time: what is in between then fits the processor's cache, and
no allocation of it is so large that it goes back to the system each time, which makes each cost four times as much."""

LENT = 50
"""The most degrees of freedom that the variance of one level lends to the next."""

SKEW_ERRORS = 2.0
"""How many standard errors of the skewness are taken for chance."""


PERSISTENCE_ERRORS = 1.25
"""How many standard errors of the autocorrelation are taken for chance."""


NONE: Ints = np.zeros(0, np.intp)
"""No series."""


class Histories:
    """What is known of each series at the end of a night; what it tells of one depends on no later one.

    The nights on which a series was measured are packed, without gaps: *places* count those. A level is a stretch of
    places that ends with the latest. Its values are kept in units of its scale, from its centre, cut off where spikes
    begin; both are estimated from the level itself.

    Until they are estimated again, or another level begins, they stay what they are. So all that nights will add to a
    level's sums until then is worked out at once, and waits for its night; and a series that nobody asks for until its
    next estimate may have that before its night, together with others.

    Args:
        matrix: one finite value a series and night, shape (series, nights); NaN where a series was not measured.
        begins: on which nights a segment begins, other than the first, shape (series, nights).

    Attributes:
        values: of each place, shape (series, nights).
        nights: in which each place was measured, shape (series, nights).
        filled: how many places each series has tonight, shape (series,).
        first: the first place of each series' level, shape (series,).
    """

    def __init__(self, matrix: Floats, begins: NDArray[np.bool_]) -> None:
        series, nights = matrix.shape
        measured = ~np.isnan(matrix)
        rows, of_rows = np.nonzero(measured)
        places = measured.cumsum(axis=1)[measured] - 1
        self.values, self.nights = np.zeros((series, nights)), np.zeros((series, nights), np.intp)
        self.values[rows, places], self.nights[rows, places] = matrix[measured], of_rows
        self.filled, self.first = np.zeros(series, np.intp), np.zeros(series, np.intp)
        self._measured = np.ascontiguousarray(measured.T)
        self._filled = self._measured.cumsum(axis=0)
        self._begins = np.ascontiguousarray(begins.T)
        ends = np.where(self._begins[1:], self._filled[:-1], nights)
        self._ends = np.minimum.accumulate(np.vstack([ends, self._filled[-1:]])[::-1])[::-1]
        self._known, self._due = np.zeros(series, np.intp), np.full(series, LEARNING)
        self._learned = np.zeros(series, bool)
        self._center, self._scale = np.zeros(series), np.ones(series)
        self._cut, self._skew, self._persistence = np.full(series, CUT), np.zeros(series), np.zeros(series)
        self._prior, self._lent, self._least = np.zeros(series), np.zeros(series), np.ones(series)
        # Of a level only differences of sums are used, so that they may begin anywhere.
        self._sums, self._squares = np.zeros((series, nights + 1)), np.zeros((series, nights + 1))

    def add(self, night: int) -> Ints:
        """Adds a night; a series learns what it can from it only after it has been judged: see ``learn``.

        Returns:
            The series in which a segment begins with it: nothing of the nights before counts.
        """
        begun = np.flatnonzero(self._begins[night])
        if begun.size:
            self.first[begun] = self.filled[begun]
            self._due[begun] = self.filled[begun] + LEARNING
            self._learned[begun] = False
            self._prior[begun] = self._lent[begun] = 0.0
        self.filled, self._end = self._filled[night], self._ends[night]
        return begun

    def judged(self, night: int) -> Ints:
        """The series that a night measured and that have learned enough to be judged."""
        return np.flatnonzero(self._measured[night] & self._learned)

    def learn(self, asked: Ints) -> Ints:
        """Takes the centre, scale and skewness anew of those series whose level has grown enough since the last time.

        And of those that had a spike: one that is ``PAST`` nights ago and was not the beginning of anything. Together
        with them those are taken that will be due before anybody asks for them: there are fewer, larger batches so.

        Args:
            asked: with how many places each series is asked for next, shape (series,).

        Returns:
            Which series they are.
        """
        due = self._due <= self.filled
        if not due.any():
            return NONE
        rows = np.flatnonzero(due | (self._learned & (self._due < asked) & (self._due <= self._end)))
        self._known[rows] = np.maximum(self._due[rows], self.filled[rows])
        for begin in range(0, rows.size, TOGETHER):
            self._estimate(rows[begin : begin + TOGETHER])
        self._learned[rows] = True
        return rows

    def ahead(self, rows: Ints) -> tuple[Ints, Ints]:
        """The nights of this segment that some series will be judged on by what is known of them now.

        Returns:
            The series of each such night, and how many places that will have then; both of shape (nights,).
        """
        many = np.maximum(np.minimum(self._due[rows], self._end[rows]) - self._known[rows], 0)
        begins = np.repeat(self._known[rows] - (many.cumsum() - many), many)
        return np.repeat(rows, many), begins + np.arange(1, begins.size + 1)

    def restart(self, rows: Ints, places: Ints, around: Floats | None) -> None:
        """New levels of some series begin; they borrow the variance of the ones before until they have their own.

        Args:
            rows: the series.
            places: of the first night of each new level.
            around: the sum of squares (in units) that each change leaves unexplained in the level that ends, shape
                (rows,); None where those levels are no better than the ones before, whose variance is then kept.
        """
        freedom, variance = self._prior[rows], np.ones(rows.size)
        if around is not None:
            freedom += self.filled[rows] - self.first[rows] - 2
            variance = np.maximum((around + self._lent[rows]) / freedom, self._least[rows])
        self._scale[rows] = np.maximum(self._scale[rows] * np.sqrt(variance), TINY)
        self._least[rows] /= variance
        self._prior[rows] = self._lent[rows] = np.minimum(freedom, LENT)
        self.first[rows], self._known[rows] = places, self.filled[rows]
        self._due[rows] = places + LEARNING
        begin, end = int(places.min()), int(self.filled[rows].max())
        ordered = np.sort(np.where(self._inside(rows, begin, end), self.values[rows, begin:end], np.inf), axis=1)
        count, each = self.filled[rows] - places, np.arange(rows.size)
        self._center[rows] = (ordered[each, (count - 1) // 2] + ordered[each, count // 2]) / 2
        self._sum_up(rows, begin, self.in_units(rows, self.values[rows, begin : self._due[rows].max()]))

    def sums(self, rows: Ints, ends: Ints) -> Sums:
        """The sums of the levels of some series up to some number of places, each of shape (rows,)."""
        first = self.first[rows]
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

    def latest(self, rows: Ints, ends: Ints) -> Floats:
        """The last of some number of nights of some series in units, the latest first, shape (SPIKED, series)."""
        places = np.maximum(ends - 1 - np.arange(SPIKED)[:, None], 0)
        return self._units(rows, self.values[rows, places])

    def skew(self, rows: Ints) -> Floats:
        """The skewness of some series beyond what is chance, shape (series,)."""
        return self._skew[rows]

    def persistence(self, rows: Ints) -> Floats:
        """The autocorrelation of some series from night to night beyond what is chance, shape (series,)."""
        return self._persistence[rows]

    def last(self, rows: Ints, many: int) -> Floats:
        """The values of the latest nights of some series, shape (rows, many)."""
        found: Floats = self.values[rows[:, None], self.filled[rows, None] + np.arange(-many, 0)]
        return found

    def in_units(self, rows: Ints, values: Floats) -> Floats:
        """Values of some series in units of their present scales, shape (rows, nights)."""
        return self._units((rows, None), values)

    def _units(self, series: Ints | tuple[Ints, None], values: Floats) -> Floats:
        """Values in units of their series' scales; ``series`` is an index that gives these the values' axes."""
        cut = self._cut[series]
        with np.errstate(over="ignore"):  # far beyond the cut is the cut
            units = (values - self._center[series]) / self._scale[series]
        found: Floats = np.minimum(np.maximum(units, -cut), cut)
        return found

    def _inside(self, rows: Ints, begin: int, end: int) -> NDArray[np.bool_]:
        """Which of some places are known to be of the levels of some series, shape (rows, places)."""
        places = np.arange(begin, end)
        return (places >= self.first[rows, None]) & (places < self._known[rows, None])

    def _estimate(self, rows: Ints) -> None:
        begin, end = int(self.first[rows].min()), int(self._known[rows].max())
        inside = self._inside(rows, begin, end)
        center, scale = center_and_scale(self.values[rows, begin:end], inside)
        # A level of zeros, or next to it, has no scale of its own: whatever is not there then lies beyond the cut.
        least = LEAST_SCALE * np.abs(center)
        least = np.where(least == 0, TINY, least)
        scale = np.maximum(scale, least)
        self._center[rows], self._scale[rows] = center, scale
        self._least[rows] = np.maximum(least / scale, TINY) ** 2
        self._prior[rows] = self._lent[rows] = 0.0  # it has nights enough of its own
        units = self._until_due(rows, begin)
        offsets, count = offsets_of(units[:, : end - begin], inside)
        self._skew[rows], self._persistence[rows] = skewness(offsets, count), persistence(offsets, count)
        self._sum_up(rows, begin, units)

    def _until_due(self, rows: Ints, begin: int) -> Floats:
        """Settles where some series are cut off and when they are taken anew; returns their units until then.

        Args:
            rows: the series.
            begin: the place of which the units are the first, shape (rows, nights).
        """
        first, known = self.first[rows], self._known[rows]
        nights = known - first
        due = first + np.maximum(nights + 3, (GROWTH * nights).astype(np.intp))
        values = self.values[rows, begin : due.max()]
        beyond = np.abs(values - self._center[rows, None]) > SPIKE * self._scale[rows, None]
        beyond &= np.arange(begin, begin + values.shape[1]) >= first[:, None]
        spike = np.where(beyond.any(axis=1), begin + beyond.argmax(axis=1), due)
        spiked = spike < known
        self._cut[rows] = np.where(spiked, CUT_SPIKED, CUT)
        self._due[rows] = np.where(spiked, due, np.minimum(due, spike + PAST + 1))
        return self._units((rows, None), values)

    def _sum_up(self, rows: Ints, begin: int, units: Floats) -> None:
        """Brings the sums of some series into line with their units from a place on, 0 before their levels.

        Args:
            rows: which series.
            begin: the place.
            units: shape (rows, nights).
        """
        nights = units.shape[1]
        units = np.where(np.arange(begin, begin + nights) >= self.first[rows, None], units, 0.0)
        for sums, terms in ((self._sums, units), (self._squares, units * units)):
            sums[rows, begin] = 0.0
            sums[rows, begin + 1 : begin + 1 + nights] = np.cumsum(terms, axis=1)


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
        cut, before = CUT * scale[:, None], scale
        scale = np.sqrt(np.minimum(squares, cut * cut).sum(axis=1) / (count - 1))
        if (scale == before).all():  # it would be for ever
            break
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
