"""The levels of baselines from the replicas of several runs (nights) of the same code, and the noise of comparisons."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfsvc.distributions import student_quantiles
from perfsvc.judge.levels import Floats

ROBUST_FROM = 3
"""The fewest nights of which a wild night can be recognised: of two, either may be the wild night."""

WILD_SHARE = 4
"""Of every four nights, the night furthest from the median may be wild; of three nights, one may be wild too."""

WILD_FACTOR = 2.5
"""A night that may be wild counts as at most this many times as far from the median as the furthest other night."""

MOST_VARIANCES = 6.0
"""The variance of a night's replicas counts as at most this many times the median of all nights' variances. The
variance of three normal values exceeds this limit in 1.6 % of nights."""

PRIOR_NIGHTS = 4
"""The variance between nights is estimated as if so many further nights had shown none (see ``NightsLevel.of``)."""

MOST_FREEDOM = 8
"""The baseline's degrees of freedom that count in the variance of the candidate's replicas. With more, the baseline's
many nights would hide that the candidate's replicas scatter more."""

MIN_ERRORS = 2.0
"""How many standard errors, by each side's own replicas, a change must be away in any case. One wild replica is never
more than one such error away from the other side, however wild."""

MOST_REPLICAS = 100
"""The largest number of replicas that a reason recommends."""


@dataclass(frozen=True, slots=True)
class NightsLevel:
    """The levels of many baselines and their noise, as logarithms. All baselines have nights of the same sizes.

    Attributes:
        center: the level of each baseline, shape (baselines,).
        variance: the variance between the replicas of a night, likewise.
        freedom: the degrees of freedom of ``variance``.
        inverse_size: the variance of ``center`` that the replicas cause, as a share of ``variance``.
        nights: how many nights there are.
        between_nights: the variance between nights, beyond what the replicas explain, shape (baselines,).
        most_replicas: the number of replicas of the night that has most.
    """

    center: Floats
    variance: Floats
    freedom: int
    inverse_size: float
    nights: int
    between_nights: Floats
    most_replicas: int

    @classmethod
    def of(cls, nights: Sequence[Floats], least_variance: Floats) -> "NightsLevel":
        """Compute the levels and the noise of baselines from the logarithms of each night's replicas.

        Replicas of one night share the state of the GPU and the host of that night, so each night counts once, by the
        mean of its replicas. The level is the mean of the nights.

        The variance between nights is the variance of the nights' means, minus the part that their replicas explain,
        or 0 if the difference is negative. Few nights estimate it badly: two nights may agree by chance, or differ by
        chance. So the estimate is drawn towards 0, as if ``PRIOR_NIGHTS`` further nights had shown no variance. One
        night has no variance between nights at all.

        From three nights on, neither a noisy nor a lucky night decides: the means of nights far from the median are
        drawn towards it, and the variance of a noisy night's replicas is limited.

        If all nights have one replica, the variance of the replicas is that of the nights.

        Args:
            nights: for each night the logarithm of each replica's level, shape (baselines, replicas).
            least_variance: the variance between replicas counts as at least this, shape (baselines,).

        Source:
            Variance components by subtraction: S. R. Searle, G. Casella and C. E. McCulloch (1992), Variance
            Components, Wiley, chapter 3; drawn towards a prior value: G. K. Smyth (2004), Linear models and empirical
            Bayes methods for assessing differential expression in microarray experiments, Stat. Appl. Genet. Mol. Biol.
            3(1); means far away drawn towards the others: W. J. Dixon and J. W. Tukey (1968), Approximate behavior of
            the distribution of Winsorized t, Technometrics 10(1).
        """
        sizes = np.array([night.shape[1] for night in nights])
        means = np.stack([night.mean(axis=1) for night in nights], axis=1)
        inverse = float(np.mean(1 / sizes))
        several = sizes > 1
        freedom, variance = int((sizes - 1).sum()), np.zeros(len(means))
        if freedom:
            variances = np.stack([np.var(night, axis=1, ddof=1) for night in nights if night.shape[1] > 1], axis=1)
            if variances.shape[1] >= ROBUST_FROM:
                most = MOST_VARIANCES * np.maximum(np.median(variances, axis=1), least_variance)
                variances = np.minimum(variances, most[:, None])
            variance = np.maximum(np.sum((sizes[several] - 1) * variances, axis=1) / freedom, least_variance)
        means = without_wild(means, np.sqrt(variance * inverse))
        count, between = len(nights), np.zeros(len(means))
        if count > 1:
            spread = np.var(means, axis=1, ddof=1)
            if freedom:
                between = np.maximum(spread - variance * inverse, 0.0)
            else:
                freedom, variance = count - 1, np.maximum(spread, least_variance)
        return cls(means.mean(axis=1), variance, freedom, inverse / count, count, between, int(sizes.max()))

    @property
    def counted_freedom(self) -> int:
        """The degrees of freedom that count in a variance pooled with the candidate's; of one night, all do."""
        return self.freedom if self.nights == 1 else min(self.freedom, max(MOST_FREEDOM, self.most_replicas - 1))

    @property
    def error_of_nights(self) -> Floats:
        """The variance that nights add to the difference of a candidate's one night and each level."""
        shrunk = self.between_nights * (self.nights - 1) / (self.nights - 1 + PRIOR_NIGHTS)
        return shrunk * (1 + 1 / self.nights)

    @property
    def freedom_of_nights(self) -> int:
        """The degrees of freedom of ``error_of_nights``."""
        return self.nights - 1 + PRIOR_NIGHTS


def without_wild(means: Floats, error: Floats) -> Floats:
    """Return the nights' means; those that may be wild are drawn towards the median (``WILD_FACTOR``).

    Args:
        means: the mean of each night, shape (baselines, nights).
        error: the standard error of a night's mean that its replicas cause, shape (baselines,). Nights within twice
            this error of the median are not wild, however well the other nights agree.
    """
    count = means.shape[1]
    if count < ROBUST_FROM:
        return means
    center = np.median(means, axis=1, keepdims=True)
    distances = np.sort(np.abs(means - center), axis=1)
    wild = max(count // WILD_SHARE, 1)
    limit = WILD_FACTOR * np.maximum(distances[:, -wild - 1], error)[:, None]
    return np.clip(means, center - limit, center + limit)


@dataclass(frozen=True, slots=True)
class PooledNoise:
    """The noise of comparisons, from which the widths of their intervals follow.

    Attributes:
        level: the levels of the baselines and their noise.
        variance: the variance between replicas, pooled over both sides, shape (comparisons,).
        freedom: the degrees of freedom of ``variance``.
        candidate_replicas: the number of each candidate's replicas.
        own: the variance of the difference from each side's own variances, shape (comparisons,).
        alpha: the probability of an interval that misses the true ratio.
    """

    level: NightsLevel
    variance: Floats
    freedom: int
    candidate_replicas: int
    own: Floats
    alpha: float

    @classmethod
    def of(cls, level: NightsLevel, count: int, variance: Floats, alpha: float) -> "PooledNoise | None":
        """Pool the noise of both sides; None if no side has two replicas.

        Args:
            level: the baselines.
            count: the number of each candidate's replicas.
            variance: the variance between the candidate's replicas; 0 for one replica.
            alpha: the probability of an interval that misses the true ratio.
        """
        counted = level.counted_freedom
        freedom = counted + count - 1
        if not freedom:
            return None
        squares = counted * level.variance + (count - 1) * variance
        own = level.error_of_nights + level.variance * level.inverse_size + variance / count
        return cls(level, squares / freedom, freedom, count, own, alpha)

    @property
    def half_widths(self) -> Floats:
        """Half the width of the interval of each difference of logarithms.

        If one side has few replicas and the other many, the pooled variance is almost the variance of the side with
        many. So the half width is never below ``MIN_ERRORS`` times the standard error from each side's own variance.
        """
        error = self.variance * (self.level.inverse_size + 1 / self.candidate_replicas)
        widths: Floats = np.maximum(self._student(error, self.freedom), MIN_ERRORS * np.sqrt(self.own))
        return widths

    def replicas_to_settle(self, halves: Floats) -> list[int | None]:
        """Return with how many replicas half of each interval would be at most so wide; None if too many.

        If the baseline has one night, this is the number of replicas of both sides, else that of the candidate.
        """
        fewest = np.full(halves.size, self.candidate_replicas + 1)
        most = np.full(halves.size, MOST_REPLICAS + 1)
        while (fewest < most).any():  # more replicas make an interval narrower
            middle = (fewest + most) // 2
            fits = self._half_widths_with(middle) <= halves
            most, fewest = np.where(fits, middle, most), np.where(fits, fewest, np.minimum(middle + 1, most))
        return [count if count <= MOST_REPLICAS else None for count in most.tolist()]

    def _half_widths_with(self, replicas: NDArray[np.int64]) -> Floats:
        if self.level.nights == 1:
            return self._student(self.variance * 2 / replicas, 2 * replicas - 2)
        freedom = self.freedom + replicas - self.candidate_replicas
        return self._student(self.variance * (self.level.inverse_size + 1 / replicas), freedom)

    def _student(self, of_replicas: Floats, freedom: int | NDArray[np.int64]) -> Floats:
        """Return half the widths of Student's intervals.

        Their variances have two parts: that of the replicas and that of the baseline's nights. Satterthwaite's formula
        gives the degrees of freedom of their sum.

        Args:
            of_replicas: the variances that the replicas cause.
            freedom: the degrees of freedom of these variances.
        """
        of_nights = self.level.error_of_nights
        error = of_replicas + of_nights
        freedoms = np.broadcast_to(np.float64(freedom), error.shape).copy()
        several = of_nights > 0
        parts = (of_replicas[several] / error[several]) ** 2, (of_nights[several] / error[several]) ** 2
        freedoms[several] = 1 / (parts[0] / freedoms[several] + parts[1] / self.level.freedom_of_nights)
        widths: Floats = student_quantiles(freedoms, 1 - self.alpha / 2) * np.sqrt(error)
        return widths

    def where(self, at: NDArray[np.intp]) -> "PooledNoise":
        """Return the noise of some of the comparisons."""
        level = replace(
            self.level,
            center=self.level.center[at],
            variance=self.level.variance[at],
            between_nights=self.level.between_nights[at],
        )
        return replace(self, level=level, variance=self.variance[at], own=self.own[at])
