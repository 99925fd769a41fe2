import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from perfsvc.judge import Comparison, center_of, compare, level_of_samples
from perfsvc.model import Verdict

Side = list[NDArray[np.float64]]

medians = st.lists(st.floats(1e-6, 2e-6), min_size=1, max_size=5)
sides = medians.map(lambda values: [np.array([value]) for value in values])


def two_level(generator: np.random.Generator, replicas: int, samples: int, *, between: float, within: float) -> Side:
    """Return replicas with their own medians around a microsecond, and samples around those."""
    centers = 1e-6 * np.exp(between * generator.standard_normal(replicas))
    return [center * np.exp(within * generator.standard_normal(samples)) for center in centers]


def scripted(*values: float) -> Side:
    """Return replicas of 20 equal samples, as the fake device makes and the store rounds them."""
    return [np.full(20, value, np.float32).astype(np.float64) for value in values]


# --- scripted times, exactly -----------------------------------------------------------------------------------------


def test_equal_scripted_times_have_a_ratio_of_exactly_1_and_are_unchanged():
    for before, after in [(3, 3), (1, 3), (3, 1), (2, 7)]:
        comparison = compare(scripted(*[1.234e-5] * before), scripted(*[1.234e-5] * after))
        assert (comparison.ratio, comparison.low, comparison.high) == (1.0, 1.0, 1.0), (before, after)
        assert comparison.verdict is Verdict.UNCHANGED, (before, after)
        assert comparison.reason == "within the threshold of 1 %", (before, after)
    assert compare(scripted(1e-5, 1e-5), scripted(1e-5, 1e-5), threshold=0.0).verdict is Verdict.UNCHANGED


def test_five_percent_slower_is_a_regression_and_five_percent_faster_an_improvement() -> None:
    base, slow = scripted(*[1e-5] * 3), scripted(*[1.05e-5] * 3)
    slower, faster = compare(base, slow, threshold=0.03), compare(slow, base, threshold=0.03)
    assert slower.ratio == pytest.approx(1.05, rel=1e-6)
    assert (slower.verdict, faster.verdict) == (Verdict.REGRESSION, Verdict.IMPROVEMENT)
    assert slower.reason == faster.reason == "beyond the threshold of 3 %"


def test_the_reason_of_a_wide_threshold_names_the_limit_downwards() -> None:
    comparison = compare(scripted(*[2e-5] * 3), scripted(*[1.2e-5] * 3), threshold=0.5)
    assert comparison.reason == "beyond the threshold of 50 %: for an improvement, 33.3 % less"


def test_a_change_of_exactly_the_threshold_is_not_beyond_it_whatever_the_rounding() -> None:
    for base in np.linspace(1e-6, 2e-6, 50):
        comparison = compare(scripted(*[base] * 3), scripted(*[base * 1.03] * 3), threshold=0.03)
        assert comparison.verdict is Verdict.UNCHANGED


# --- the three-way answer --------------------------------------------------------------------------------------------


def test_students_pooled_interval_by_hand():
    # Logarithms of (1, 1.1) and (1.2, 1.3): t(2, 99.5 %) = 9.92484 on the pooled variance.
    before, after = np.log([1.0, 1.1]), np.log([1.2, 1.3])
    error = math.sqrt((before.var(ddof=1) + after.var(ddof=1)) / 2)
    comparison = compare([[1.0], [1.1]], [[1.2], [1.3]])
    assert math.log(comparison.low) == pytest.approx(after.mean() - before.mean() - 9.92484 * error, abs=1e-5)


def test_a_change_hidden_by_noise_is_inconclusive_and_names_the_smallest_visible_change() -> None:
    comparison = compare([[1.0], [1.02], [0.98]], [[1.06], [1.03], [1.09]], threshold=0.03)
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert comparison.low < 1 < comparison.high
    smallest = 100 * (comparison.high / comparison.ratio - 1)
    assert f"could have shown is {smallest:.3g} %" in comparison.reason
    assert comparison.smallest == pytest.approx(smallest / 100)
    assert comparison.reason.startswith("noise hides a change")


def test_a_change_on_either_side_of_the_threshold_is_inconclusive() -> None:
    comparison = compare([[1.0], [1.001]], [[1.029], [1.03]], threshold=0.03)
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert "either side of the threshold of 3 %" in comparison.reason
    assert "could have shown is 3 %" in comparison.reason


def test_the_verdict_turns_at_the_smallest_visible_change() -> None:
    base = [[1.0], [1.02], [0.98]]
    first = compare(base, base, threshold=0.03)
    assert first.verdict is Verdict.INCONCLUSIVE
    for factor, verdict in ((0.999, Verdict.INCONCLUSIVE), (1.001, Verdict.REGRESSION)):
        moved = [[sample * first.high * factor for sample in replica] for replica in base]
        assert compare(base, moved, threshold=0.03).verdict is verdict


def test_a_significant_change_that_does_not_matter_is_unchanged() -> None:
    comparison = compare([[1.0], [1.0001]], [[1.01], [1.0101]], threshold=0.03)
    assert comparison.low > 1
    assert comparison.verdict is Verdict.UNCHANGED


def test_one_replica_on_each_side_cannot_be_judged_and_names_the_cure() -> None:
    comparison = compare(scripted(1e-5), scripted(2e-5))
    assert (comparison.low, comparison.high, comparison.verdict) == (None, None, Verdict.INCONCLUSIVE)
    assert comparison.ratio == pytest.approx(2.0)
    assert "--replicas 3" in comparison.reason


def test_a_single_replica_is_never_called_changed_because_it_may_be_wild() -> None:
    for sides in [([[1.0], [1.001], [0.999]], [[1.1]]), ([[1.1]], [[1.0], [1.001], [0.999]])]:
        comparison = compare(*sides, threshold=0.03)
        assert (comparison.verdict, comparison.smallest) == (Verdict.INCONCLUSIVE, None)
        assert "--replicas 3" in comparison.reason
    assert compare([[1.0], [1.001], [0.999]], [[1.0]], threshold=0.03).verdict is Verdict.UNCHANGED


def test_replicas_that_agree_more_closely_than_their_samples_are_assumed_to_agree_by_chance() -> None:
    spread = np.linspace(0.95, 1.05, 101)  # the median of its deviations is 2.5 %
    base = [spread, spread, spread]
    comparison = compare(base, [1.02 * replica for replica in base])
    # t(4, 99.5 %) = 4.60409 on 0.3 of 1.4826 times the median deviation.
    floor = 0.3 * 1.4826 * np.median(np.abs(np.log(spread)))
    assert math.log(comparison.ratio / comparison.low) == pytest.approx(4.60409 * floor * math.sqrt(2 / 3), rel=1e-4)


def test_replicas_without_a_bound_give_an_infinite_end_and_no_overflow() -> None:
    comparison = compare([[1.0], [1e280]], [[1.0]], alpha=0.001)
    assert comparison.high == math.inf
    assert comparison.verdict is Verdict.INCONCLUSIVE


def test_parameters_out_of_range_and_impossible_times_are_refused() -> None:
    for options in ({"threshold": -0.1}, {"threshold": math.nan}, {"alpha": 0.0}, {"alpha": 1.0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            compare([[1.0]], [[1.0]], **options)
    for baseline, candidate in [([], [[1.0]]), ([[1.0]], []), ([[-1.0]], [[1.0]]), ([[1.0]], [[]])]:
        with pytest.raises(ValueError, match=r"no replicas|no samples|not below zero"):
            compare(baseline, candidate)
    for wrong in (math.inf, -math.inf, math.nan):
        with pytest.raises(ValueError, match="a sample is not a finite number"):
            compare([[1.0, wrong]], [[1.0]])


def test_zeros_are_unchanged_among_themselves_and_have_no_ratio_to_anything_else() -> None:
    assert compare([[0.0], [0.0]], [[0.0, 0.0]]).verdict is Verdict.UNCHANGED
    up, down = compare([[0.0]] * 3, [[1.0]] * 3), compare([[1.0]] * 3, [[0.0]] * 3)
    assert (up.ratio, up.verdict) == (math.inf, Verdict.INCONCLUSIVE)
    assert (down.ratio, down.verdict) == (0.0, Verdict.INCONCLUSIVE)
    assert "above 0 on both sides" in up.reason


# --- invariances -----------------------------------------------------------------------------------------------------


def same(left: Comparison, right: Comparison) -> bool:
    ends = [(left.ratio, right.ratio), (left.low, right.low), (left.high, right.high)]
    return all(a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9)) for a, b in ends)


@given(sides, sides, st.floats(1.0, 100.0))
def test_an_unchanged_case_stays_unchanged_with_a_wider_threshold_and_whatever_the_unit(a, b, factor):
    narrow = compare(a, b, threshold=0.02)
    assert same(narrow, compare([factor * replica for replica in a], [factor * replica for replica in b]))
    if narrow.verdict is Verdict.UNCHANGED:
        assert compare(a, b, threshold=0.02 * factor).verdict is Verdict.UNCHANGED


@given(sides, sides)
def test_swapped_sides_have_the_inverse_ratio_of_their_levels_and_the_opposite_verdict(baseline, candidate):
    there, back = compare(baseline, candidate), compare(candidate, baseline)
    before, after = (center_of(level_of_samples(side).medians) for side in (baseline, candidate))
    assert there.ratio == pytest.approx(after / before)
    assert there.ratio * back.ratio == pytest.approx(1.0)
    assert (there.low is None, there.high is None) == (back.low is None, back.high is None)
    if there.low is not None:
        assert there.low <= there.ratio <= there.high
        assert (there.low * back.high, there.high * back.low) == pytest.approx((1.0, 1.0))
    turned = {Verdict.REGRESSION: Verdict.IMPROVEMENT, Verdict.IMPROVEMENT: Verdict.REGRESSION}
    assert turned.get(there.verdict, there.verdict) is back.verdict
    assert (there.smallest is None) == (back.smallest is None)


full = st.lists(st.lists(st.floats(1e-6, 2e-6), min_size=1, max_size=7), min_size=1, max_size=5)
times = st.one_of(
    st.just(0.0), st.just(5e-324), st.just(1.7e308), st.floats(0.0, allow_infinity=False, allow_nan=False)
)
any_side = st.lists(st.lists(times, min_size=1, max_size=4), min_size=1, max_size=4)


@settings(max_examples=40)
@given(full, full, st.randoms(use_true_random=False))
def test_the_order_of_replicas_and_of_their_samples_does_not_matter(baseline, candidate, random):
    shuffled = [sorted(replica, key=lambda _: random.random()) for replica in baseline]
    mixed = sorted(shuffled, key=lambda _: random.random())
    assert compare(baseline, candidate) == compare(shuffled, [replica[::-1] for replica in candidate])
    assert same(compare(baseline, candidate), compare(mixed, candidate[::-1]))


@given(full, full, st.lists(st.floats(0.2, 5.0), min_size=2, max_size=6))
def test_a_larger_effect_never_gets_a_milder_verdict(baseline, candidate, factors):
    order = {Verdict.IMPROVEMENT: -1, Verdict.UNCHANGED: 0, Verdict.INCONCLUSIVE: 0, Verdict.REGRESSION: 1}
    scaled = [[factor * np.array(times) for times in candidate] for factor in sorted(factors)]
    verdicts = [order[compare(baseline, side).verdict] for side in scaled]
    assert verdicts == sorted(verdicts)


@given(any_side, any_side)
def test_every_possible_time_has_an_answer_without_nan(baseline, candidate):
    comparison = compare(baseline, candidate)
    numbers = [comparison.ratio, comparison.low, comparison.high, comparison.smallest]
    assert not any(number is not None and math.isnan(number) for number in numbers)
    assert comparison.smallest is None or math.isfinite(comparison.smallest)
    assert comparison.reason


# --- by simulation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("draws", "limit"), [(200, 6), pytest.param(2000, 33, marks=pytest.mark.slow)])
def test_equal_levels_are_called_changed_no_more_often_than_alpha_says(draws, limit):
    for before, after in [(3, 3), (1, 3), (2, 5)]:
        # 40 % of noise between replicas hides everything from three of them; a test that took samples as independent
        # would call nearly all of these changed.
        generator = np.random.default_rng(2)
        changed = 0
        for _ in range(draws):
            sides = [two_level(generator, count, 50, between=0.4, within=0.05) for count in (before, after)]
            changed += compare(*sides).verdict in {Verdict.REGRESSION, Verdict.IMPROVEMENT}
        assert changed <= limit, (before, after)  # three standard deviations above the expected 1 %


def test_more_replicas_shrink_the_interval_and_more_samples_of_each_do_not() -> None:
    def width(replicas: int, samples: int) -> float:
        generator = np.random.default_rng(3)
        comparisons = [
            compare(*[two_level(generator, replicas, samples, between=0.05, within=0.01) for _ in range(2)])
            for _ in range(50)
        ]
        return float(np.mean([math.log(comparison.high / comparison.low) for comparison in comparisons]))

    assert width(3, 2_000) == pytest.approx(width(3, 100), rel=0.15)
    assert width(30, 20) < width(3, 20) / 3


@pytest.mark.slow
def test_the_interval_covers_the_true_ratio_as_often_as_alpha_says():
    generator = np.random.default_rng(1)
    covered = []
    for _ in range(2000):
        before, after = (two_level(generator, 3, 30, between=0.02, within=0.01) for _ in range(2))
        comparison = compare(before, [1.1 * replica for replica in after], alpha=0.05)
        covered.append(comparison.low <= 1.1 <= comparison.high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)  # three standard errors of 2000 trials
