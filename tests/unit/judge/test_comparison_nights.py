"""A baseline of several nights, compared with a night of the candidate."""

import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from perfsvc.judge import compare
from perfsvc.judge.nights import NightsLevel, without_wild
from perfsvc.model import Verdict

Night = NDArray[np.float64]

WITHIN = 0.0025


def draw(
    generator: np.random.Generator, nights: int, *, between: float = 0.0, within: float = WITHIN, replicas: int = 3
) -> list[Night]:
    """Return the medians of the replicas of some nights, around 100 µs."""
    levels = between * generator.standard_normal(nights)
    return [1e-4 * np.exp(level + within * generator.standard_normal(replicas)) for level in levels]


def judged(nights: Sequence[Night], candidate: Night, threshold: float = 0.01):
    return compare(
        [[value] for value in nights[0]], [[value] for value in candidate], further=nights[1:], threshold=threshold
    )


# --- against a naive version -----------------------------------------------------------------------------------------


def naive_interval(nights: Sequence[Night], candidate: Night) -> tuple[float, float]:
    """Return the log ratio and half the width of its interval, step by step, for nights of equally many replicas."""
    from scipy.stats import t

    logs = [[math.log(value) for value in night] for night in nights]
    count, replicas = len(logs), len(logs[0])
    variances = [statistics.variance(night) for night in logs]
    if count >= 3:
        limit = 6 * statistics.median(variances)
        variances = [min(variance, limit) for variance in variances]
    variance = statistics.mean(variances)
    means = [statistics.mean(night) for night in logs]
    if count >= 3:
        center = statistics.median(means)
        distances = sorted(abs(mean - center) for mean in means)
        others = distances[: count - max(count // 4, 1)]
        limit = 2.5 * max(others[-1], math.sqrt(variance / replicas))
        means = [center + math.copysign(min(abs(mean - center), limit), mean - center) for mean in means]
    spread = max(statistics.variance(means) - variance / replicas, 0.0) if count > 1 else 0.0
    of_nights = spread * (count - 1) / (count + 3) * (1 + 1 / count)
    after = [math.log(value) for value in candidate]
    counted = count * (replicas - 1) if count == 1 else min(count * (replicas - 1), 8)
    freedom = counted + len(after) - 1
    pooled = (counted * variance + (len(after) - 1) * statistics.variance(after)) / freedom
    of_replicas = pooled * (1 / (count * replicas) + 1 / len(after))
    error = of_replicas + of_nights
    if of_nights:
        freedom = error**2 / (of_replicas**2 / freedom + of_nights**2 / (count + 3))
    own = of_nights + variance / (count * replicas) + statistics.variance(after) / len(after)
    half = max(t.ppf(0.995, freedom) * math.sqrt(error), 2 * math.sqrt(own))
    return statistics.mean(after) - statistics.mean(means), half


def test_the_interval_is_that_of_the_naive_version():
    for count in [1, 2, 3, 4, 5, 8, 13, 30]:
        generator = np.random.default_rng(count)
        for between in (0.0, 0.002, 0.02):
            nights = draw(generator, count, between=between, replicas=4)
            nights[0] = nights[0] * np.array([1, 1, 1, generator.choice([1.0, 1.2])])
            (candidate,) = draw(generator, 1)
            ratio, half = naive_interval(nights, candidate)
            comparison = judged(nights, candidate)
            ends = (comparison.ratio, comparison.low, comparison.high)
            assert ends == pytest.approx([math.exp(ratio), math.exp(ratio - half), math.exp(ratio + half)], rel=1e-9)


def test_nights_of_different_sizes_count_equally():
    level = NightsLevel.of([np.array([[0.0, 0.2]]), np.array([[1.0]]), np.array([[0.4, 0.5, 0.6, 0.5]])], np.zeros(1))
    assert level.center == pytest.approx((0.1 + 1.0 + 0.5) / 3)
    assert level.inverse_size == pytest.approx((1 / 2 + 1 + 1 / 4) / 9)
    assert (level.freedom, level.nights) == (4, 3)


def test_nights_of_one_replica_have_the_noise_between_them():
    level = NightsLevel.of([np.array([[value]]) for value in (0.1, 0.2, 0.3)], np.zeros(1))
    assert (level.freedom, level.between_nights) == (2, 0.0)
    assert level.variance == pytest.approx(0.01)
    candidate = np.array([1.1e-4, 1.101e-4, 1.102e-4])
    assert judged([np.array([value]) for value in (1e-4, 1.001e-4, 0.999e-4)], candidate).verdict is Verdict.REGRESSION


# --- one night, equal nights -----------------------------------------------------------------------------------------


def test_equal_nights_have_a_ratio_of_exactly_1_one_night_shows_no_noise_and_a_zero_has_no_ratio():
    night = np.full(3, 1.234e-5, np.float32).astype(float)
    comparison = judged([night] * 6, night)
    assert (comparison.ratio, comparison.low, comparison.high, comparison.between_nights) == (1.0, 1.0, 1.0, 0.0)
    assert comparison.verdict is Verdict.UNCHANGED
    before, after = draw(np.random.default_rng(1), 2)
    alone = judged([before], after)
    assert alone.between_nights is None
    assert alone == compare([[value] for value in before], [[value] for value in after])
    assert judged([night, np.array([1e-4, 0.0, 1e-4])], night).verdict is Verdict.INCONCLUSIVE


# --- noise between nights --------------------------------------------------------------------------------------------


def test_the_noise_between_nights_is_estimated():
    generator = np.random.default_rng(2)
    found = [judged(draw(generator, 30, between=0.005), draw(generator, 1)[0]).between_nights for _ in range(20)]
    assert np.mean(found) == pytest.approx(0.005, rel=0.15)
    found = [judged(draw(generator, 30), draw(generator, 1)[0]).between_nights for _ in range(20)]
    assert np.mean(found) < 0.001


def test_the_interval_widens_with_the_noise_of_nights_and_of_the_candidate_and_narrows_with_more_nights():
    generator = np.random.default_rng(3)
    nights, restless = draw(generator, 30), draw(generator, 10, between=0.01)
    calm, wild = (1e-4 * (1 + noise * np.array([-1, 0, 1])) for noise in (0.002, 0.02))
    assert judged(restless, calm, 0.0).smallest > 3 * judged(nights[:10], calm, 0.0).smallest
    assert judged(nights, wild, 0.0).smallest > 3 * judged(nights, calm, 0.0).smallest
    assert judged(nights, calm * np.array([1, 1, 5]), 0.005).verdict is Verdict.INCONCLUSIVE
    widths = [
        np.mean([judged(draw(generator, count), draw(generator, 1)[0], 0).smallest for _ in range(40)])
        for count in (1, 2, 5, 30)
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.6 * widths[0]


# --- wild nights -----------------------------------------------------------------------------------------------------


def test_a_wild_night_is_drawn_towards_the_others():
    calm, error = [0.0, 0.001, -0.001, 0.002], np.full(2, 0.001)
    means = np.array([[*calm, 0.5], [*calm, 0.001]])
    assert without_wild(means, error).tolist() == [[*calm, 0.001 + 2.5 * 0.002], [*calm, 0.001]]
    assert without_wild(np.array([calm, calm]), error).tolist() == [calm, calm]
    pair = [[0.0, 0.5], [0.5, 0.0]]
    assert without_wild(np.array(pair), error).tolist() == pair  # either of two may be wild


def test_a_wild_first_night_hides_no_change_from_the_fifth_night_on():
    for first in [0.97, 1.03, np.array([1, 1, 1.3])]:
        generator = np.random.default_rng(7)
        found = []
        for _ in range(20):
            nights = draw(generator, 5, between=0.0005)
            nights[0] = nights[0] * first
            found.append(judged(nights, draw(generator, 1)[0] * 1.02).verdict)
            assert judged(nights, draw(generator, 1)[0]).verdict in {Verdict.UNCHANGED, Verdict.INCONCLUSIVE}, first
        assert found.count(Verdict.REGRESSION) >= 19, first


# --- how often it is wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("times", "limit"), [(50, 0.04), pytest.param(1000, 0.02, marks=pytest.mark.slow)])
def test_alike_nights_are_seldom_called_changed_and_nights_that_differ_the_less_often_the_more_there_are(times, limit):
    """With a threshold of 0, every significant difference is a false change. Small versions of docs/measured."""

    def false(nights: int, between: float = 0.0) -> float:
        generator = np.random.default_rng(8)
        pairs = [
            (draw(generator, nights, between=between), draw(generator, 1, between=between)[0]) for _ in range(times)
        ]
        verdicts = [judged(before, after, 0.0).verdict for before, after in pairs]
        return sum(verdict in {Verdict.REGRESSION, Verdict.IMPROVEMENT} for verdict in verdicts) / times

    assert max(map(false, (1, 2, 3, 5, 10, 30) if times == 1000 else (1, 5))) <= limit
    assert false(1, 0.005) > 0.15  # a single night cannot show that nights differ
    assert false(10, 0.005) < 0.08


# --- what would settle it --------------------------------------------------------------------------------------------


def test_an_inconclusive_comparison_says_how_many_replicas_would_settle_it():
    before, after = 1e-4 * np.array([0.995, 1.0, 1.005]), 1e-4 * np.array([1.01, 1.015, 1.02])
    comparison = judged([before], after)
    assert comparison.reason == (
        "noise hides a change: the smallest that these replicas could have shown is 1.88 %; "
        "4 replicas on each side would settle it"
    )
    more = [np.tile(side, 4)[:8] for side in (before, after)]
    assert judged(more[:1], more[1]).verdict is Verdict.REGRESSION
    assert judged([before], 1.0099 * before).reason.endswith("; not even 100 replicas would settle it")


def test_replicas_do_not_settle_what_differs_from_night_to_night():
    nights = [1e-4 * level * np.array([0.9999, 1.0, 1.0001]) for level in (0.98, 0.99, 1.0, 1.01, 1.02)]
    comparison = judged(nights, 1.03e-4 * np.array([0.9999, 1.0, 1.0001]))
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert comparison.reason.endswith(
        "; nights differ by 1.58 %, which more replicas do not change: "
        "measure both sides in one night (perfsvc confirm)"
    )
