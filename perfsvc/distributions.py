"""Quantiles of Student's distribution, and the binomial distribution of a fair coin.

perfsvc needs no other distribution. To import SciPy for them would take longer than most commands.
"""

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MANY = 1e4
"""The degrees of freedom from which the expansion around the normal distribution is exact to 14 digits."""
_TINY = 1e-300


def student_quantile(freedom: float, probability: float) -> float:
    """Return a quantile of Student's distribution; NaN if there are no degrees of freedom.

    The relative error is below 1e-11.

    Args:
        freedom: the degrees of freedom, which need not be a whole number.
        probability: from 0.5 to below 1.

    Source:
        Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.1 (the tail as an incomplete beta function) and
        26.7.5 (many degrees of freedom).
    """
    return _student_quantile(float(freedom), float(probability))


def student_quantiles(freedom: NDArray[Any], probability: float) -> Floats:
    """Return ``student_quantile`` for each of many degrees of freedom, which may repeat; same shape."""
    different, places = np.unique(freedom, return_inverse=True)
    quantiles = np.array([_student_quantile(float(each), probability) for each in different])
    return quantiles[places].reshape(np.shape(freedom))


@lru_cache(maxsize=10_000)
def _student_quantile(freedom: float, probability: float) -> float:
    if not freedom > 0:
        return math.nan
    tail = 1 - probability
    z = -normal_quantile(tail)
    if freedom >= _MANY:
        terms = (
            z,
            (z**3 + z) / 4,
            (5 * z**5 + 16 * z**3 + 3 * z) / 96,
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        )
        return sum(term / freedom**power for power, term in enumerate(terms))
    if tail == 0.5:  # noqa: PLR2004 - the median, which has no logarithm
        return 0.0
    # Newton's method on the logarithms of tail and quantile: the tail is nearly a power of the quantile.
    position = math.log(max(z, 1e-3))
    for _ in range(100):
        value = math.exp(position)
        here = _student_tail(value, freedom)
        slope = value * _student_density(value, freedom) / here
        step = math.log(here / tail) / slope
        position += max(-1.0, min(step, 1.0)) if slope < 1 else step
        if abs(step) < 1e-14:  # noqa: PLR2004 - the precision of a float
            break
    return math.exp(position)


def _student_tail(value: float, freedom: float) -> float:
    """Return the probability of more than a positive value."""
    square = value * value
    x, rest = freedom / (freedom + square), square / (freedom + square)
    a, b = freedom / 2, 0.5
    front = math.exp(_log_gamma_step(a) - 0.5 * math.log(math.pi) - a * math.log1p(square / freedom)) * math.sqrt(rest)
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a / 2
    return (1 - front * _beta_fraction(b, a, rest) / b) / 2


def _student_density(value: float, freedom: float) -> float:
    a = freedom / 2
    return math.exp(_log_gamma_step(a) - (a + 0.5) * math.log1p(value * value / freedom)) / math.sqrt(math.pi * freedom)


def _log_gamma_step(a: float) -> float:
    """Return the logarithm of gamma(a + 1/2) / gamma(a)."""
    if a < 20:  # noqa: PLR2004 - below, the series is less precise than the difference
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return 0.5 * math.log(a) - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5) + 17 / (14336 * a**7)


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method (DLMF 8.17.22)."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            d = 1 / (1 + term * d or _TINY)
            c = 1 + term / c or _TINY
            change = c * d
            fraction *= change
        if abs(change - 1) < 1e-16:  # noqa: PLR2004 - the precision of a float
            break
    return fraction


def coin_probabilities(tosses: int) -> Floats:
    """Return the probabilities of at most k heads in the tosses of a fair coin, for each k below half of the tosses.

    Shape ((tosses + 1) // 2,).
    """
    k = np.arange(1, tosses // 2 + 1)
    logarithms = np.concatenate(([0.0], np.cumsum(np.log((tosses - k + 1) / k))))
    weights = np.exp(logarithms - logarithms[-1])  # relative to the likeliest number: the sum of all is known
    lower = weights[: (tosses + 1) // 2]
    middle = 0.0 if tosses % 2 else float(weights[-1])
    below: Floats = np.cumsum(lower) / (2 * lower.sum() + middle)
    return below


def normal_quantile(probability: float) -> float:
    """Return a quantile of the normal distribution, in standard deviations."""
    return NormalDist().inv_cdf(probability)
