"""The stopping rules, to the exact number."""

import math

import numpy as np
import pytest
from scipy.special import bdtr

from perfsvc.judge.estimates import estimate
from perfsvc.measure.stopping import Precision, SampleCap, TimeCap, first_reached, interval, rank, step_of


@pytest.mark.parametrize("count", [*range(1, 200), 1000, 9999, 100_000])
def test_the_rank_is_that_of_the_binomial_distribution(count):
    k = rank(count)
    assert k == 0 or bdtr(k - 1, count, 0.5) <= 0.025
    assert bdtr(k, count, 0.5) > 0.025


def test_the_interval_runs_from_the_kth_smallest_to_the_kth_largest_sample():
    assert interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == (1.0, 3.5, 6.0)
    assert interval([float(number) for number in range(1, 51)]) == (18.0, 25.5, 33.0)


def test_too_few_samples_have_an_interval_without_end():
    assert interval([3.0, 1.0, 2.0, 5.0, 4.0]) == (-math.inf, 3.0, math.inf)


@pytest.mark.parametrize("count", [6, 7, 50, 51, 1000])
def test_the_sampler_and_the_judge_see_one_interval(count):
    samples = np.random.default_rng(count).lognormal(size=count)
    judged = estimate(samples)
    assert interval(samples.tolist()) == (judged.low_s, judged.median_s, judged.high_s)


# --- precision --------------------------------------------------------------------------------------------------------


def evenly(count, half_spread):
    """``count`` distinct samples around 1 s, from ``1 - half_spread`` to ``1 + half_spread``."""
    return np.linspace(1 - half_spread, 1 + half_spread, count).tolist()


def reached(samples, share=0.002, least=50):
    return Precision(share, least).reached(samples, 0.0)


def test_it_is_precise_enough_where_the_interval_is_narrow_to_both_sides():
    # Of 51 samples the interval ends at the 19th on either side, 7 of 25 places from the median.
    said = "precision: the median is known within ±0.18 % (asked: ±0.2 %)"
    assert reached(evenly(51, 0.0018 * 25 / 7)) == said
    assert reached(evenly(51, 0.0021 * 25 / 7)) == ""


def test_the_wider_side_counts():
    samples = evenly(51, 0.0018 * 25 / 7)
    lopsided = [1 + 2 * (sample - 1) if sample > 1 else sample for sample in samples]
    assert reached(lopsided) == ""
    assert reached([2 - sample for sample in lopsided]) == ""


def test_no_interval_is_believed_before_enough_samples():
    assert reached(evenly(49, 1e-4)) == ""
    assert reached(evenly(50, 1e-4)) != ""
    assert reached([1.0] * 49) == ""


def test_fewer_than_six_samples_are_never_enough():
    assert reached([1.0] * 5, least=1) == ""
    assert reached([1.0] * 6, least=1) != ""


# --- clocks that are coarse -------------------------------------------------------------------------------------------


def test_equal_samples_claim_no_width():
    assert reached([4e-6] * 50) == "precision: all 50 samples are equal, as finely as the clock tells"


def test_a_median_is_known_no_better_than_half_a_step_of_the_clock():
    # 30 of 50 samples are 1000 steps, so that the interval has no width.
    samples = [0.999] * 10 + [1.0] * 30 + [1.001] * 10
    assert interval(samples) == (1.0, 1.0, 1.0)
    assert reached(samples) == "precision: the median is known within ±0.05 % (asked: ±0.2 %)"


def test_an_interval_without_width_is_enough_though_a_step_is_more_than_was_asked_for():
    samples = [0.9] * 10 + [1.0] * 30 + [1.1] * 10
    assert reached(samples) == "precision: the median is known to a step of the clock, ±5 % (asked: ±0.2 %)"


def test_an_interval_of_one_step_is_enough_for_it_may_never_be_narrower():
    assert reached([1.0] * 30 + [1.032] * 30) == (
        "precision: the median is known to a step of the clock, ±1.6 % (asked: ±0.2 %)"
    )
    assert reached([1.0] * 26 + [1.032] * 24).startswith(
        "precision: the median is known to a step of the clock, ±3.2 %"
    )


def test_an_interval_of_two_steps_is_not():
    assert reached([0.968] * 20 + [1.0] * 10 + [1.032] * 20) == ""


@pytest.mark.parametrize(
    ("samples", "step"),
    [
        ([1.0, 1.0, 1.5, 1.75], 0.25),
        ([1.0, 1.0 + 1e-9, 1.5], 0.5),  # equal, but for the rounding
        ([1.0, 1.2, 1.5], 0.0),
        ([1.0, 1.0, 1.0], None),
        ([1.0, 1.0 + 1e-9], None),
    ],
)
def test_the_step_of_a_clock_shows_in_what_it_gives(samples, step):
    assert step_of(samples) == pytest.approx(step)


# --- caps -------------------------------------------------------------------------------------------------------------


def test_caps_say_so_when_they_are_reached():
    assert SampleCap(1000).reached([1.0] * 999, 0.0) == ""
    assert SampleCap(1000).reached([1.0] * 1000, 0.0) == "sample cap of 1000"
    assert TimeCap(2.0).reached([1.0], 1.999) == ""
    assert TimeCap(2.0).reached([1.0], 2.0) == "time cap of 2 s"


def test_the_first_rule_that_has_seen_enough_speaks():
    rules = (Precision(0.002, 6), SampleCap(10), TimeCap(0.5))
    assert first_reached(rules, evenly(9, 0.5), 0.4) == ""
    assert first_reached(rules, evenly(9, 0.5), 0.6) == "time cap of 0.5 s"
    assert first_reached(rules, evenly(10, 0.5), 0.6) == "sample cap of 10"
    assert first_reached(rules, [1.0] * 10, 0.6).startswith("precision: all 10 samples")
