"""Whether a candidate is slower or faster than its baseline, or whether that cannot be told."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from perfsvc.judge.estimates import Floats, exp, replica_medians
from perfsvc.model import Verdict

RESOLUTION = 2.0**-23
"""Levels closer than this are equal: samples are kept as float32, so that a ratio of two is rounded by up to this."""

PRIOR_REPLICAS = 8
"""How many degrees of freedom a ``between_cv`` known from elsewhere weighs."""

NO_SPREAD = "one replica on each side shows no spread to judge by: measure either side with --replicas 3"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Candidate over baseline.

    Attributes:
        ratio: of the levels; above 1 the candidate is slower.
        low: where the confidence interval of the ratio begins; None where the replicas allow no interval.
        high: where it ends; infinite where the replicas set no bound.
        verdict: regression, improvement, unchanged or inconclusive.
        reason: why, in words for a person.
    """

    ratio: float
    low: float | None
    high: float | None
    verdict: Verdict
    reason: str


def compare(
    baseline: Sequence[ArrayLike],
    candidate: Sequence[ArrayLike],
    *,
    threshold: float = 0.01,
    alpha: float = 0.01,
    between_cv: float | None = None,
) -> Comparison:
    """Compares two levels by their replicas.

    Samples of one process share its memory layout, clocks and temperature; only replicas are independent. So each
    replica counts once, by the logarithm of its median, and the ratio's interval is Student's with the variance between
    replicas.

    The variance is pooled over both sides rather than Welch's: the noise belongs to the case and the board, which both
    sides share; pooling doubles the few degrees of freedom and lets a side of a single replica be judged; and with
    equally many replicas, the usual case, the pooled interval hardly suffers where the variances do differ.

    A change is called when it is significant (the interval excludes 1) and relevant (the ratio lies beyond the
    threshold). The limits are 1 + threshold and 1 / (1 + threshold), so that swapping the sides turns a regression into
    an improvement. A case is unchanged when the whole interval lies between the limits, and inconclusive otherwise.

    Args:
        baseline: for each replica its times in seconds, shape (n,).
        candidate: likewise; the number of replicas and samples may differ.
        threshold: the smallest relative change that matters.
        alpha: the probability of an interval that misses the true ratio.
        between_cv: the coefficient of variation between replicas known from elsewhere (the series' history, its model's
            boards). It is weighed with the replicas' own spread as ``PRIOR_REPLICAS`` degrees of freedom.

    Raises:
        ValueError: a side without replicas or with impossible times, or a parameter out of its range.

    Source:
        Student (1908), The probable error of a mean, Biometrika 6(1); pooled against Welch: G. E. P. Box (1954), Some
        theorems on quadratic forms applied in the study of analysis of variance problems, Ann. Math. Statist. 25(2);
        the weight of a known variance: G. K. Smyth (2004), Linear models and empirical Bayes methods for assessing
        differential expression in microarray experiments, Stat. Appl. Genet. Mol. Biol. 3(1), the moderated t;
        replicas as the unit: T. Kalibera and R. Jones (2013), Rigorous benchmarking in reasonable time, ISMM.
    """
    _check(threshold, alpha, between_cv)
    before, after = replica_medians(baseline), replica_medians(candidate)
    # Relative to one median, equal times have logarithms of exactly zero, and a ratio of exactly one.
    unit = before[0]
    before, after = np.log(before / unit), np.log(after / unit)
    shift = float(after.mean() - before.mean())
    half = _half_width(before, after, alpha, between_cv)
    if half is None:
        return Comparison(exp(shift), None, None, Verdict.INCONCLUSIVE, NO_SPREAD)
    ratio, low, high = exp(shift), exp(shift - half), exp(shift + half)
    verdict = _verdict(ratio, low, high, threshold)
    return Comparison(ratio, low, high, verdict, _reason(verdict, low, high, half, threshold))


def _check(threshold: float, alpha: float, between_cv: float | None) -> None:
    if not 0 <= threshold < math.inf:
        raise ValueError(f"a threshold is a fraction from 0 up, unlike {threshold:g}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha lies between 0 and 1, unlike {alpha:g}")
    if between_cv is not None and not 0 <= between_cv < math.inf:
        raise ValueError(f"a coefficient of variation is a number from 0 up, unlike {between_cv:g}")


def _half_width(before: Floats, after: Floats, alpha: float, between_cv: float | None) -> float | None:
    """Half the interval of the difference of mean logarithms; None where nothing tells the variance."""
    freedom = len(before) + len(after) - 2
    squares = ((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum()
    if between_cv is not None:
        freedom += PRIOR_REPLICAS
        squares += PRIOR_REPLICAS * math.log1p(between_cv**2)  # the variance of the logarithm of a lognormal
    if not freedom:
        return None
    error = math.sqrt(squares / freedom * (1 / len(before) + 1 / len(after)))
    return float(stdtrit(freedom, 1 - alpha / 2)) * error


def _verdict(ratio: float, low: float, high: float, threshold: float) -> Verdict:
    limit = (1 + threshold) * (1 + RESOLUTION)
    if ratio > limit and low > 1 + RESOLUTION:
        return Verdict.REGRESSION
    if ratio < 1 / limit and high < 1 / (1 + RESOLUTION):
        return Verdict.IMPROVEMENT
    if low >= 1 / limit and high <= limit:
        return Verdict.UNCHANGED
    return Verdict.INCONCLUSIVE


def _reason(verdict: Verdict, low: float, high: float, half: float, threshold: float) -> str:
    limit = f"the threshold of {_percent(threshold)}"
    if verdict is Verdict.UNCHANGED:
        return f"within {limit}"
    if verdict is not Verdict.INCONCLUSIVE:
        return f"beyond {limit}"
    smallest = _percent(max(exp(half) - 1, threshold))
    seen = "noise hides a change" if low <= 1 <= high else f"a change that may lie on either side of {limit}"
    return f"{seen}: the smallest that these replicas could have shown is {smallest}; more replicas narrow it"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g} %"
