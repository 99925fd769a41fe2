"""The stopping rules, to the exact number."""

import math

import numpy as np
import pytest
from scipy.special import bdtr

from perfsvc.judge import estimate
from perfsvc.measure.worker.sampling.stopping import (
    Precision,
    SampleCap,
    TimeCap,
    first_reached,
    interval,
    rank,
    step_of,
)


def test_the_rank_is_that_of_the_binomial_distribution():
    for count in (*range(1, 200), 1000, 9999, 100_000):
        k = rank(count)
        assert k == 0 or bdtr(k - 1, count, 0.5) <= 0.025, count
        assert bdtr(k, count, 0.5) > 0.025, count


def test_the_interval_runs_from_the_kth_smallest_to_the_kth_largest_sample():
    assert interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == (1.0, 3.5, 6.0)
    assert interval([float(number) for number in range(1, 51)]) == (18.0, 25.5, 33.0)


def test_too_few_samples_have_an_infinite_interval():
    assert interval([3.0, 1.0, 2.0, 5.0, 4.0]) == (-math.inf, 3.0, math.inf)


def test_the_sampler_and_the_judge_compute_the_same_interval():
    for count in (6, 7, 50, 51, 1000):
        samples = np.random.default_rng(count).lognormal(size=count)
        judged = estimate(samples)
        assert interval(samples.tolist()) == (judged.low_s, judged.median_s, judged.high_s)


# --- precision --------------------------------------------------------------------------------------------------------


def evenly(count, half_spread):
    """``count`` distinct samples around 1 s, from ``1 - half_spread`` to ``1 + half_spread``."""
    return np.linspace(1 - half_spread, 1 + half_spread, count).tolist()


def reached(samples, share=0.002, least=50):
    return Precision(share, least).reached(samples, 0.0)


def test_it_is_precise_enough_if_the_interval_is_narrow_on_both_sides():
    # The interval of 51 samples ends at the 19th on either side, 7 of 25 places from the median.
    reason = "precision: the median is known within ±0.18 % (asked: ±0.2 %)"
    assert reached(evenly(51, 0.0018 * 25 / 7)) == reason
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


US = 1e-6


def in_us(*samples):
    return [US * sample for sample in samples]


def test_a_median_is_known_no_better_than_half_a_step_of_the_clock():
    # 30 of 50 samples are 1000 steps, so that the interval has no width.
    samples = in_us(*[99.9] * 10, *[100] * 30, *[100.1] * 10)
    assert interval(samples) == (100 * US, 100 * US, 100 * US)
    assert reached(samples) == "precision: the median is known within ±0.05 % (asked: ±0.2 %)"


def test_an_interval_without_width_is_enough_although_a_step_exceeds_the_asked_precision():
    samples = in_us(*[0.9] * 10, *[1.0] * 30, *[1.1] * 10)
    assert reached(samples) == "precision: the median is known to a step of the clock, ±5 % (asked: ±0.2 %)"


def test_an_interval_of_one_clock_step_is_enough():
    for shorter, longer, share in ((30, 30, "1.6"), (26, 24, "3.2")):
        reason = f"precision: the median is known to a step of the clock, ±{share} % (asked: ±0.2 %)"
        assert reached(in_us(*[1.0] * shorter, *[1.032] * longer)) == reason


def test_an_interval_of_two_clock_steps_is_not_enough():
    assert reached(in_us(*[0.968] * 20, *[1.0] * 10, *[1.032] * 20)) == ""


def test_a_kernel_with_two_typical_times_does_not_show_the_clock_step():
    assert reached(in_us(*[900] * 26, *[1000] * 24)) == ""
    assert reached(in_us(*[900] * 35, *[1000] * 15)) != ""


def test_the_clock_step_is_found_from_samples():
    steps = {
        (1.0, 1.0, 1.5, 1.75): 0.25,
        (1.0, 1.0 + 1e-9, 1.5): 0.5,  # equal except for rounding
        (1.0, 1.2, 1.5): 0.0,
        (7.0, 7.0, 8.0): 1.0,
        (7.0, 7.0, 8.1): 0.0,  # too coarse for a clock
        (1.0, 1.0, 1.0): None,
        (1.0, 1.0 + 1e-9): None,
    }
    found = {samples: step_of(in_us(*samples)) for samples in steps}
    assert {samples: step and step / US for samples, step in found.items()} == pytest.approx(steps)


# --- what an interval claims ------------------------------------------------------------------------------------------


DRAWS = {
    "normal": lambda rng, count: 1e-4 * (1 + 0.008 * rng.standard_normal(count)),
    "skewed": lambda rng, count: 1e-4 * (1 + 0.01 * (rng.standard_exponential(count) - math.log(2))),
    "two humps": lambda rng, count: (
        1e-4 * (1 + 0.004 * rng.standard_normal(count) + 0.004 * rng.choice((-1, 1), count))
    ),
}
"""Samples whose median is 100 µs."""


def test_nineteen_of_twenty_intervals_contain_the_median():
    shares = {}
    for name, draw in DRAWS.items():
        for count in (6, 20, 50, 101):
            rng = np.random.default_rng(count)
            held = [low <= 1e-4 <= high for low, _, high in (interval(draw(rng, count)) for _ in range(2000))]
            shares[name, count] = np.mean(held)
    assert {case: share for case, share in shares.items() if share <= 0.94} == {}


def test_intervals_contain_the_median_even_if_sampling_stops_as_soon_as_they_are_narrow():
    for name, draw in DRAWS.items():
        rng, rule, held, counts = np.random.default_rng(1), Precision(0.002, 50), [], set()
        for _ in range(1000):
            samples, count = draw(rng, 1600).tolist(), 50
            while not rule.reached(samples[:count], 0.0) and count < len(samples):
                count *= 2
            low, _, high = interval(samples[:count])
            held.append(low <= 1e-4 <= high)
            counts.add(count)
        assert np.mean(held) > 0.93, name
        assert len(counts) > 2  # it was asked several times


# --- caps -------------------------------------------------------------------------------------------------------------


def test_caps_report_when_they_are_reached():
    assert SampleCap(1000).reached([1.0] * 999, 0.0) == ""
    assert SampleCap(1000).reached([1.0] * 1000, 0.0) == "sample cap of 1000"
    assert TimeCap(2.0).reached([1.0], 1.999) == ""
    assert TimeCap(2.0).reached([1.0], 2.0) == "time cap of 2 s"


def test_the_first_satisfied_rule_gives_the_reason():
    rules = (Precision(0.002, 6), SampleCap(10), TimeCap(0.5))
    assert first_reached(rules, evenly(9, 0.5), 0.4) == ""
    assert first_reached(rules, evenly(9, 0.5), 0.6) == "time cap of 0.5 s"
    assert first_reached(rules, evenly(10, 0.5), 0.6) == "sample cap of 10"
    assert first_reached(rules, [1.0] * 10, 0.6).startswith("precision: all 10 samples")


def test_precision_waits_for_its_least_time():
    rule = Precision(share=0.1, least=10, least_s=0.5)
    assert rule.reached([1.0] * 100, 0.49) == ""
    assert rule.reached([1.0] * 100, 0.5).startswith("precision: ")
    assert rule.reached([1.0] * 9, 0.5) == ""
