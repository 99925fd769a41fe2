"""The baseline's level and noise from the replicas of several runs (nights) of the same code."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfsvc.judge.levels import Floats, median

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


@dataclass(frozen=True, slots=True)
class NightsLevel:
    """The level of a baseline and its noise, as logarithms.

    Attributes:
        center: the level.
        variance: the variance between the replicas of a night.
        freedom: the degrees of freedom of ``variance``.
        inverse_size: the variance of ``center`` that the replicas cause, as a share of ``variance``.
        nights: how many nights there are.
        between_nights: the variance between nights, beyond what the replicas explain.
        most_replicas: the number of replicas of the night that has most.
    """

    center: float
    variance: float
    freedom: int
    inverse_size: float
    nights: int
    between_nights: float
    most_replicas: int

    @classmethod
    def of(cls, nights: Sequence[Floats], least_variance: float) -> "NightsLevel":
        """Compute the level and the noise of a baseline from the logarithms of each night's replicas.

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
            nights: for each night the logarithm of each replica's level, shape (replicas,).
            least_variance: the variance between replicas counts as at least this.

        Source:
            Variance components by subtraction: S. R. Searle, G. Casella and C. E. McCulloch (1992), Variance
            Components, Wiley, chapter 3; drawn towards a prior value: G. K. Smyth (2004), Linear models and empirical
            Bayes methods for assessing differential expression in microarray experiments, Stat. Appl. Genet. Mol. Biol.
            3(1); means far away drawn towards the others: W. J. Dixon and J. W. Tukey (1968), Approximate behavior of
            the distribution of Winsorized t, Technometrics 10(1).
        """
        sizes = np.array([night.size for night in nights])
        means = np.array([float(np.mean(night)) for night in nights])
        inverse = float(np.mean(1 / sizes))
        several = sizes > 1
        freedom, variance = int((sizes - 1).sum()), 0.0
        if freedom:
            variances = np.array([float(np.var(night, ddof=1)) for night in nights if night.size > 1])
            if variances.size >= ROBUST_FROM:
                variances = np.minimum(variances, MOST_VARIANCES * max(median(variances), least_variance))
            variance = max(float(np.sum((sizes[several] - 1) * variances)) / freedom, least_variance)
        means = without_wild(means, math.sqrt(variance * inverse))
        count = len(nights)
        between = 0.0
        if count > 1:
            spread = float(np.var(means, ddof=1))
            if freedom:
                between = max(spread - variance * inverse, 0.0)
            else:
                freedom, variance = count - 1, max(spread, least_variance)
        return cls(float(means.mean()), variance, freedom, inverse / count, count, between, int(sizes.max()))

    @property
    def counted_freedom(self) -> int:
        """The degrees of freedom that count in a variance pooled with the candidate's; of one night, all do."""
        return self.freedom if self.nights == 1 else min(self.freedom, max(MOST_FREEDOM, self.most_replicas - 1))

    @property
    def error_of_nights(self) -> float:
        """The variance that nights add to the difference of a candidate's one night and this level."""
        shrunk = self.between_nights * (self.nights - 1) / (self.nights - 1 + PRIOR_NIGHTS)
        return shrunk * (1 + 1 / self.nights)

    @property
    def freedom_of_nights(self) -> int:
        """The degrees of freedom of ``error_of_nights``."""
        return self.nights - 1 + PRIOR_NIGHTS


def without_wild(means: Floats, error: float) -> Floats:
    """Return the nights' means; those that may be wild are drawn towards the median (``WILD_FACTOR``).

    Args:
        means: the mean of each night, shape (nights,).
        error: the standard error of a night's mean that its replicas cause. Nights within twice this error of the
            median are not wild, however well the other nights agree.
    """
    if means.size < ROBUST_FROM:
        return means
    center = median(means)
    distances = np.sort(np.abs(means - center))
    wild = max(means.size // WILD_SHARE, 1)
    limit = WILD_FACTOR * max(float(distances[-wild - 1]), error)
    return np.clip(means, center - limit, center + limit)
