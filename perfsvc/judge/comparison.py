"""Compare two levels by their replicas: slower, faster, unchanged, or inconclusive."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from perfsvc.distributions import student_quantile
from perfsvc.judge.levels import sorted_samples
from perfsvc.judge.nights import NightsLevel
from perfsvc.judge.sides import RESOLUTION, least_variances, level_of_samples
from perfsvc.model import Level, Verdict

ALPHA = 0.01
"""The probability of an interval that misses the true ratio, unless a caller asks for another."""

MIN_ERRORS = 2.0
"""How many standard errors, by each side's own replicas, a change must be away in any case. One wild replica is never
more than one such error away from the other side, however wild."""

MOST_REPLICAS = 100
"""The largest number of replicas that a reason recommends."""

MIN_DEVICES = 2
"""The fewest devices whose spread can be estimated."""

LOPSIDED = 0.1
"""Above this threshold, the reason of an improvement also states the lower limit: 50 % more is undone by 33 % less."""

MORE_REPLICAS = "import three files of each side, or measure both with --replicas 3"
NO_SPREAD = f"one replica on each side shows no spread to judge by: {MORE_REPLICAS}"
SINGLE_REPLICA = f"one replica alone decides nothing, because it may be an outlier: {MORE_REPLICAS}"
NO_CURE = f"not even {MOST_REPLICAS} replicas would settle it"
NO_RATIO = "a ratio needs values above 0 on both sides"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate compared with its baseline.

    Attributes:
        ratio: the candidate's level over the baseline's; above 1 the candidate is slower. Never NaN; infinite if only
            the baseline is 0.
        low: the low end of the ratio's confidence interval; None if the replicas allow no interval.
        high: the high end of the interval; infinite if the replicas set no bound.
        verdict: regression, improvement, unchanged or inconclusive.
        reason: why the verdict is as it is, in words for a person.
        smallest: the smallest change that these replicas could have shown, as a fraction; None if they show none.
        between_nights: the noise between the baseline's nights, as a relative standard deviation; None for one night.
    """

    ratio: float
    low: float | None
    high: float | None
    verdict: Verdict
    reason: str
    smallest: float | None = None
    between_nights: float | None = None


def compare(
    baseline: Sequence[ArrayLike],
    candidate: Sequence[ArrayLike],
    *,
    further: Sequence[ArrayLike] = (),
    threshold: float = 0.01,
    alpha: float = ALPHA,
) -> Comparison:
    """Compare the times of a baseline and a candidate, each measured in several processes (replicas).

    Samples of one process share its memory layout, clocks and temperature; only replicas are independent. So each
    replica counts once, by the logarithm of its median. The interval of the ratio is Student's, with the variance
    between replicas.

    Unlike in Welch's test, the variance is pooled over both sides: they share the case, the device and so the noise.
    Pooling doubles the few degrees of freedom. The deviation of few replicas may be far too small by chance, most of
    all if a process is in one of two states. So the deviation of a side has two lower limits: the step of the clock,
    and a share of the spread of the side's own samples.

    A level counts as changed if the change is significant (the interval excludes 1) and relevant (the ratio lies beyond
    the threshold). The limits are 1 + threshold and 1 / (1 + threshold), so that swapping the sides turns a regression
    into an improvement. A case is unchanged if the whole interval lies between the limits, and inconclusive otherwise.

    A baseline may have several nights: further runs of the same code. Then nights are the unit: replicas of one night
    share the state of the GPU in that night. The baseline's level is the mean of its nights, the variance between
    nights widens the interval, and a noisy or lucky night has little influence (``NightsLevel.of``). The candidate has
    one night, so the interval covers the variance between nights once for the candidate too. A baseline of one night
    shows no such variance, and the interval does not include it.

    A single wild replica decides nothing. Among other replicas it widens the interval by more than it moves the ratio.
    If a side has only one replica, the verdict is inconclusive.

    Args:
        baseline: the times of each replica in seconds, shape (n,).
        candidate: the same for the candidate; the number of replicas and samples may differ.
        further: for each further night of the baseline the median of each replica in seconds, shape (replicas,).
        threshold: the smallest relative change that matters.
        alpha: the probability of an interval that misses the true ratio.

    Raises:
        ValueError: a side without replicas or with times that are not finite or below 0, or a parameter out of range.

    Source:
        Student (1908), The probable error of a mean, Biometrika 6(1); pooled against Welch: G. E. P. Box (1954), Some
        theorems on quadratic forms applied in the study of analysis of variance problems, Ann. Math. Statist. 25(2); a
        lower bound for deviations of few values: V. G. Tusher, R. Tibshirani and G. Chu (2001), Significance analysis
        of microarrays applied to the ionizing radiation response, PNAS 98(9); replicas as the unit: T. Kalibera and R.
        Jones (2013), Rigorous benchmarking in reasonable time, ISMM; a sum of variances: F. E. Satterthwaite (1946), An
        approximate distribution of estimates of variance components, Biometrics Bulletin 2(6).
    """
    if not 0 <= threshold < math.inf:
        raise ValueError(f"a threshold is a fraction from 0 up, unlike {threshold:g}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha lies between 0 and 1, unlike {alpha:g}")
    if not (len(baseline) and len(candidate)):
        raise ValueError("no replicas: a level needs the samples of at least one")
    old, new, nights = (
        [sorted_samples(values, allow_zero=True) for values in side] for side in (baseline, candidate, further)
    )
    before = level_of_samples(old, further=[tuple(night.tolist()) for night in nights])
    return compare_levels(before, level_of_samples(new), threshold=threshold, alpha=alpha)


def compare_levels(before: Level, after: Level, *, threshold: float = 0.01, alpha: float = ALPHA) -> Comparison:
    """Return what ``compare`` returns of two levels with replicas; those of ``before.further`` are its nights."""
    nights = [np.asarray(night, np.float64) for night in (before.medians, *before.further)]
    old, new = np.concatenate(nights), np.asarray(after.medians, np.float64)
    if min(old.min(), new.min()) <= 0:
        return _compare_zeros(float(old.max()), float(new.max()))
    # Relative to the logarithm of one median, equal times differ by exactly 0, and have a ratio of exactly 1.
    unit = np.log(old[0])
    step = min(before.step, after.step)
    least, least_of_new = (
        float(least_variances(medians[None, :], np.array([side.spread]), np.array([step]))[0])
        for medians, side in ((nights[0], before), (new, after))
    )
    level = NightsLevel.of([np.log(night) - unit for night in nights], least)
    logs = np.log(new)
    variance = max(float(np.var(logs, ddof=1)), least_of_new) if new.size > 1 else 0.0
    log_ratio = float(np.mean(logs - unit)) - level.center
    noise = _Noise.of(level, new.size, variance, alpha)
    comparison = _conclude(log_ratio, noise, threshold, fewest_replicas=min(old.size, new.size))
    return replace(comparison, between_nights=math.sqrt(level.between_nights)) if before.further else comparison


def compare_at_look(
    baseline: Sequence[ArrayLike],
    candidate: Sequence[ArrayLike],
    *,
    look: int,
    looks: int,
    threshold: float = 0.01,
) -> Comparison:
    """Compare a baseline and a candidate while replicas are still added, as one of several looks that share ``ALPHA``.

    Each look judges all replicas so far, at an equal part of ``ALPHA``. So the chance that the interval of any look
    misses the true ratio is at most ``ALPHA``, whatever the rule for stopping. The number of replicas before a look may
    be any, but must not depend on their times.

    A smaller part for the early looks would find as many changes in the end, but later. On an H200, the first look,
    with three replicas on each side, already finds most changes. Looks share replicas; an interval that used this would
    be narrower by a few per cent, but would need the number of replicas at every look in advance.

    Args:
        baseline: for each replica so far its times in seconds, shape (n,).
        candidate: the same for the candidate.
        look: which look this is, from 1.
        looks: how many looks there are at most.
        threshold: the smallest relative change that matters.

    Raises:
        ValueError: ``look`` is not one of the looks, or ``compare`` refuses a value.

    Source:
        S. J. Pocock (1977), Group sequential methods in the design and analysis of clinical trials, Biometrika 64(2):
        the same level at each look; the levels are added by Bonferroni's inequality.
    """
    if not 1 <= look <= looks:
        raise ValueError(f"look {look} is not one of the looks 1 to {looks}")
    return compare(baseline, candidate, threshold=threshold, alpha=ALPHA / looks)


def compare_with_devices(devices: Sequence[ArrayLike], candidate: ArrayLike, *, threshold: float) -> Comparison:
    """Compare a level with the levels of other devices of its model; each device counts once.

    Devices of one model differ by more than replicas of one device do, so the interval is Student's with the variance
    between the devices. A single wild replica decides nothing: half the width of the interval is at least
    ``MIN_ERRORS`` times the standard error of the candidate's own replicas. If the candidate has one
    replica, the verdict is neither a regression nor an improvement.

    Args:
        devices: for each of two or more devices the median of each replica, above 0, shape (replicas,).
        candidate: the same of the candidate.
        threshold: the smallest relative change that matters.

    Raises:
        ValueError: fewer than two devices.

    Source:
        Student (1908), The probable error of a mean, Biometrika 6(1): the interval of one further value of a sample.
    """
    if len(devices) < MIN_DEVICES:
        raise ValueError(f"a spread of devices needs at least two devices, not {len(devices)}")
    logs = [np.log(np.asarray(medians, np.float64)) for medians in devices]
    unit = logs[0][0]
    before = np.array([(replicas - unit).mean() for replicas in logs])
    after = np.log(np.asarray(candidate, np.float64)) - unit
    spread, count = float(before.std(ddof=1)), before.size
    half = student_quantile(count - 1, 1 - ALPHA / 2) * spread * math.sqrt(1 + 1 / count)
    error = float(after.std(ddof=1)) / math.sqrt(after.size) if after.size > 1 else 0.0
    own = math.hypot(spread / math.sqrt(count), error)
    log_ratio = float(after.mean() - before.mean())
    return _judge_interval(log_ratio, max(half, MIN_ERRORS * own), threshold, fewest_replicas=after.size)


@dataclass(frozen=True, slots=True)
class _Noise:
    """The noise of a comparison, from which the width of its interval follows.

    Attributes:
        level: the level of the baseline and its noise.
        variance: the variance between replicas, pooled over both sides.
        freedom: the degrees of freedom of ``variance``.
        candidate_replicas: the number of the candidate's replicas.
        own: the variance of the difference from each side's own variances.
        alpha: the probability of an interval that misses the true ratio.
    """

    level: NightsLevel
    variance: float
    freedom: int
    candidate_replicas: int
    own: float
    alpha: float

    @classmethod
    def of(cls, level: NightsLevel, count: int, variance: float, alpha: float) -> "_Noise | None":
        """Pool the noise of both sides; None if no side has two replicas.

        Args:
            level: the baseline.
            count: the number of the candidate's replicas.
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
    def half_width(self) -> float:
        """Half the width of the interval of the difference of logarithms.

        If one side has few replicas and the other many, the pooled variance is almost the variance of the side with
        many. So the half width is never below ``MIN_ERRORS`` times the standard error from each side's own variance.
        """
        error = self.variance * (self.level.inverse_size + 1 / self.candidate_replicas)
        return max(self._student(error, self.freedom), MIN_ERRORS * math.sqrt(self.own))

    def replicas_to_settle(self, half: float) -> int | None:
        """Return with how many replicas half the interval would be at most ``half`` wide; None if too many.

        If the baseline has one night, this is the number of replicas of both sides, else that of the candidate.
        """
        more = range(self.candidate_replicas + 1, MOST_REPLICAS + 1)
        return next((replicas for replicas in more if self._half_width_with(replicas) <= half), None)

    def _half_width_with(self, replicas: int) -> float:
        if self.level.nights == 1:
            return self._student(self.variance * 2 / replicas, 2 * replicas - 2)
        freedom = self.freedom + replicas - self.candidate_replicas
        return self._student(self.variance * (self.level.inverse_size + 1 / replicas), freedom)

    def _student(self, of_replicas: float, freedom: float) -> float:
        """Return half the width of Student's interval.

        Its variance has two parts: that of the replicas and that of the baseline's nights. Satterthwaite's formula
        gives the degrees of freedom of their sum.

        Args:
            of_replicas: the variance that the replicas cause.
            freedom: the degrees of freedom of this variance.
        """
        of_nights = self.level.error_of_nights
        error = of_replicas + of_nights
        if of_nights:
            parts = of_replicas / error, of_nights / error
            freedom = 1 / (parts[0] ** 2 / freedom + parts[1] ** 2 / self.level.freedom_of_nights)
        return student_quantile(freedom, 1 - self.alpha / 2) * math.sqrt(error)


def _compare_zeros(old: float, new: float) -> Comparison:
    """Compare two sides if some median is 0 and so has no logarithm; ``old`` and ``new`` are their largest medians."""
    if old == new == 0:
        return Comparison(1.0, 1.0, 1.0, Verdict.UNCHANGED, "both are 0")
    return Comparison(new / old if old else math.inf, None, None, Verdict.INCONCLUSIVE, NO_RATIO)


def _conclude(log_ratio: float, noise: _Noise | None, threshold: float, *, fewest_replicas: int) -> Comparison:
    """Return the comparison that follows from the logarithm of a ratio and its noise, with what would settle it."""
    if noise is None:
        return Comparison(exp(log_ratio), None, None, Verdict.INCONCLUSIVE, NO_SPREAD)
    comparison = _judge_interval(log_ratio, noise.half_width, threshold, fewest_replicas=fewest_replicas)
    if comparison.verdict is Verdict.INCONCLUSIVE and comparison.smallest is not None:
        return replace(comparison, reason=f"{comparison.reason}; {_cure(noise, log_ratio, threshold)}")
    return comparison


def _judge_interval(log_ratio: float, half: float, threshold: float, *, fewest_replicas: int) -> Comparison:
    """Return the comparison that follows from the logarithm of a ratio and half the width of its interval.

    Args:
        log_ratio: the candidate's mean logarithm minus the baseline's.
        half: half the width of the interval of ``log_ratio``.
        threshold: the smallest relative change that matters.
        fewest_replicas: the number of replicas of the side that has fewer; with only one, no change is certain.
    """
    ratio, low, high = exp(log_ratio), exp(log_ratio - half), exp(log_ratio + half)
    verdict = _verdict(ratio, low, high, threshold)
    if fewest_replicas == 1 and verdict is not Verdict.UNCHANGED:
        return Comparison(ratio, low, high, Verdict.INCONCLUSIVE, SINGLE_REPLICA)
    smallest = max(exp(half) - 1, threshold)
    why = reason(verdict, low, high, smallest, threshold)
    return Comparison(ratio, low, high, verdict, why, smallest if math.isfinite(smallest) else None)


def _verdict(ratio: float, low: float, high: float, threshold: float) -> Verdict:
    """Return the verdict on a ratio with the ends of its interval.

    The verdict is regression or improvement if the ratio lies beyond the threshold and the interval excludes 1, and
    unchanged if the interval lies within the threshold. Differences up to ``RESOLUTION`` are rounding.
    """
    limit = (1 + threshold) * (1 + RESOLUTION)
    if ratio > limit and low > 1 + RESOLUTION:
        return Verdict.REGRESSION
    if ratio < 1 / limit and high < 1 / (1 + RESOLUTION):
        return Verdict.IMPROVEMENT
    if low >= 1 / limit and high <= limit:
        return Verdict.UNCHANGED
    return Verdict.INCONCLUSIVE


def reason(verdict: Verdict, low: float, high: float, smallest: float, threshold: float) -> str:
    """Return the reason of a verdict in words; ``smallest`` is the smallest change that the replicas could show."""
    limit = f"the threshold of {percent_of(threshold)}"
    if verdict is Verdict.UNCHANGED:
        return f"within {limit}"
    if verdict is Verdict.IMPROVEMENT and threshold > LOPSIDED:  # its limit is 1 / (1 + threshold)
        return f"beyond {limit}: for an improvement, {percent_of(threshold / (1 + threshold))} less"
    if verdict is not Verdict.INCONCLUSIVE:
        return f"beyond {limit}"
    doubt = "noise hides a change" if low <= 1 <= high else f"a change that may lie on either side of {limit}"
    return f"{doubt}: the smallest that these replicas could have shown is {percent_of(smallest)}"


def _cure(noise: _Noise, log_ratio: float, threshold: float) -> str:
    """Return what would settle an inconclusive comparison, if the ratio stays as it is.

    A ratio beyond the threshold has to become significant; the interval of any other has to fit within the threshold.
    """
    limit, distance = math.log1p(threshold), abs(log_ratio)
    replicas = noise.replicas_to_settle(distance if distance > limit else limit - distance)
    if noise.level.nights == 1:
        return cure_of_pair(replicas)
    if replicas is not None:
        return f"{replicas} replicas would settle it"
    nights = math.sqrt(noise.level.between_nights)
    if nights > 0:
        differ = f"nights differ by {percent_of(nights)}, which more replicas do not change"
        return f"{differ}: measure both sides in one night (perfsvc confirm)"
    return NO_CURE


def cure_of_pair(replicas: int | None) -> str:
    """Return what would settle an inconclusive comparison with a single run: so many replicas, or None if too many."""
    return NO_CURE if replicas is None else f"{replicas} replicas on each side would settle it"


def percent_of(fraction: float) -> str:
    """Return a share of at most three digits: ``1 %``, ``0.25 %``."""
    return f"{100 * fraction:.3g} %"


def exp(exponent: float) -> float:
    """Return the exponential, or infinity beyond the range of a float."""
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf
