"""Whether a candidate is slower or faster than its baseline, or whether that cannot be told."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from perfsvc.judge.estimates import exp, mean
from perfsvc.judge.ratio import RESOLUTION, Side, half_width, sides_of
from perfsvc.model import Verdict

NO_SPREAD = "one replica on each side shows no spread to judge by: measure both sides with --replicas 3"
LONE = "one replica alone decides nothing, for it may be the wild one: measure both sides with --replicas 3"
NO_RATIO = "a ratio needs values above 0 on both sides"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Candidate over baseline.

    Attributes:
        ratio: of the levels; above 1 the candidate is slower. Never NaN; infinite where only the baseline is 0.
        low: where the confidence interval of the ratio begins; None where the replicas allow no interval.
        high: where it ends; infinite where the replicas set no bound.
        verdict: regression, improvement, unchanged or inconclusive.
        reason: why, in words for a person.
        smallest: the smallest change that these replicas could have shown, as a fraction; None where they show none.
    """

    ratio: float
    low: float | None
    high: float | None
    verdict: Verdict
    reason: str
    smallest: float | None = None


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

    The variance is pooled over both sides rather than Welch's: the noise belongs to the case and the GPU, which both
    sides share, and pooling doubles the few degrees of freedom. Few replicas agree by chance, the more so where
    processes have two states. So no side's deviation counts as less than the clock's step, nor, unless the spread is
    known from elsewhere, than a share of what its own samples differ by.

    A change is called when it is significant (the interval excludes 1) and relevant (the ratio lies beyond the
    threshold). The limits are 1 + threshold and 1 / (1 + threshold), so that swapping the sides turns a regression into
    an improvement. A case is unchanged when the whole interval lies between the limits, and inconclusive otherwise.

    One wild replica decides nothing: among others it widens the interval by more than it moves the ratio, and a side of
    one replica alone is never called changed.

    Args:
        baseline: for each replica its times in seconds, shape (n,).
        candidate: likewise; the number of replicas and samples may differ.
        threshold: the smallest relative change that matters.
        alpha: the probability of an interval that misses the true ratio.
        between_cv: the coefficient of variation between replicas known from elsewhere (the series' history, its model's
            GPUs). It is weighed with the replicas' own spread as ``PRIOR_REPLICAS`` degrees of freedom.

    Raises:
        ValueError: a side without replicas or with times that are not finite or below 0, or a parameter out of range.

    Source:
        Student (1908), The probable error of a mean, Biometrika 6(1); pooled against Welch: G. E. P. Box (1954), Some
        theorems on quadratic forms applied in the study of analysis of variance problems, Ann. Math. Statist. 25(2);
        the weight of a known variance: G. K. Smyth (2004), Linear models and empirical Bayes methods for assessing
        differential expression in microarray experiments, Stat. Appl. Genet. Mol. Biol. 3(1), the moderated t; a floor
        under deviations of few values: V. G. Tusher, R. Tibshirani and G. Chu (2001), Significance analysis of
        microarrays applied to the ionizing radiation response, PNAS 98(9); replicas as the unit: T. Kalibera and R.
        Jones (2013), Rigorous benchmarking in reasonable time, ISMM.
    """
    before, after = sides_of([baseline, candidate])
    return compare_sides(before, after, threshold=threshold, alpha=alpha, between_cv=between_cv)


def compare_sides(
    before: Side, after: Side, *, threshold: float, alpha: float, between_cv: float | None = None
) -> Comparison:
    """What ``compare`` says, for whoever has read the sides already."""
    _check(threshold, alpha, between_cv)
    if min(np.minimum.reduce(before.medians), np.minimum.reduce(after.medians)) <= 0:
        return _of_zeros(before, after)
    return _compared(before, after, threshold, alpha, between_cv)


LOPSIDED = 0.1
"""A threshold from which on so much more is visibly not so much less: 50 % more is undone by 33 % less."""


def said(shift: float, half: float, threshold: float) -> Comparison:
    """What a difference of logarithms says.

    Args:
        shift: candidate less baseline.
        half: half of its interval.
        threshold: the smallest relative change that matters.
    """
    ratio, low, high = exp(shift), exp(shift - half), exp(shift + half)
    verdict = _verdict(ratio, low, high, threshold)
    smallest = max(exp(half) - 1, threshold)
    reason = _reason(verdict, low, high, smallest, threshold)
    return Comparison(ratio, low, high, verdict, reason, smallest if math.isfinite(smallest) else None)


def _compared(before: Side, after: Side, threshold: float, alpha: float, between_cv: float | None) -> Comparison:
    # Relative to one median, equal times have logarithms of exactly zero, and a ratio of exactly one.
    old, new = before.logs, after.logs
    shift = mean(new - old[0]) - mean(old - old[0])
    half = half_width(before, after, alpha, between_cv)
    if half is None:
        return Comparison(exp(shift), None, None, Verdict.INCONCLUSIVE, NO_SPREAD)
    found = said(shift, half, threshold)
    if found.verdict is not Verdict.UNCHANGED and min(before.medians.size, after.medians.size) == 1:
        return Comparison(found.ratio, found.low, found.high, Verdict.INCONCLUSIVE, LONE)
    return found


def _of_zeros(before: Side, after: Side) -> Comparison:
    """What is said where a replica's median is 0, of which there is no logarithm."""
    old, new = float(before.medians.max()), float(after.medians.max())
    if old == new == 0:
        return Comparison(1.0, 1.0, 1.0, Verdict.UNCHANGED, "both are 0")
    return Comparison(new / old if old else math.inf, None, None, Verdict.INCONCLUSIVE, NO_RATIO)


def _check(threshold: float, alpha: float, between_cv: float | None) -> None:
    if not 0 <= threshold < math.inf:
        raise ValueError(f"a threshold is a fraction from 0 up, unlike {threshold:g}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha lies between 0 and 1, unlike {alpha:g}")
    if between_cv is not None and not 0 <= between_cv < math.inf:
        raise ValueError(f"a coefficient of variation is a number from 0 up, unlike {between_cv:g}")


def _verdict(ratio: float, low: float, high: float, threshold: float) -> Verdict:
    limit = (1 + threshold) * (1 + RESOLUTION)
    if ratio > limit and low > 1 + RESOLUTION:
        return Verdict.REGRESSION
    if ratio < 1 / limit and high < 1 / (1 + RESOLUTION):
        return Verdict.IMPROVEMENT
    if low >= 1 / limit and high <= limit:
        return Verdict.UNCHANGED
    return Verdict.INCONCLUSIVE


def _reason(verdict: Verdict, low: float, high: float, smallest: float, threshold: float) -> str:
    limit = f"the threshold of {_percent(threshold)}"
    if verdict is Verdict.UNCHANGED:
        return f"within {limit}"
    if verdict is Verdict.IMPROVEMENT and threshold > LOPSIDED:  # a limit is a ratio, the same either way
        return f"beyond {limit} more, which is {_percent(threshold / (1 + threshold))} less"
    if verdict is not Verdict.INCONCLUSIVE:
        return f"beyond {limit}"
    seen = "noise hides a change" if low <= 1 <= high else f"a change that may lie on either side of {limit}"
    return f"{seen}: the smallest that these replicas could have shown is {_percent(smallest)}; more replicas narrow it"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g} %"
