from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsvc.judge import estimate, level_of_samples, levels_of
from perfsvc.judge.levels import median

times = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=60)


def test_the_ranks_are_those_of_the_sign_test_tables_and_too_few_samples_give_their_range() -> None:
    level = estimate([3.0, 1.0, 2.0])
    assert (level.median_s, level.low_s, level.high_s, level.samples) == (2.0, 1.0, 3.0, 3)
    ranks = {5: 1, 6: 1, 8: 1, 9: 2, 20: 6, 30: 10, 100: 40}
    levels = {samples: estimate(np.arange(1.0, samples + 1)) for samples in ranks}
    assert {samples: level.low_s for samples, level in levels.items()} == ranks
    assert {samples: samples + 1 - level.high_s for samples, level in levels.items()} == ranks
    assert estimate([2.0]).low_s == estimate([2.0]).high_s == 2.0


def test_the_interval_covers_the_true_median_as_often_as_its_confidence() -> None:
    draws = np.random.default_rng(20).lognormal(sigma=1.0, size=(2000, 41))
    covered = np.mean([level.low_s <= 1.0 <= level.high_s for level in map(estimate, draws)])
    assert 0.95 - 0.015 < covered < 0.985


@given(times)
def test_the_order_does_not_matter_and_the_median_is_inside(samples: list[float]) -> None:
    level = estimate(samples)
    assert level == estimate(samples[::-1])
    assert level.median_s == median(np.array(samples)) == np.median(samples)
    assert min(samples) <= level.low_s <= level.median_s <= level.high_s <= max(samples)


def test_impossible_samples_are_refused():
    for samples, says in [
        ([], "at least one"),
        ([1.0, float("nan")], "not a finite number"),
        ([1.0, float("inf")], "not a finite number"),
        ([1.0, 0.0], "above zero"),
        ([1.0, -1.0], "above zero"),
    ]:
        with pytest.raises(ValueError, match=says):
            estimate(samples)
    with pytest.raises(ValueError, match="one axis, not 2"):
        estimate(np.ones((2, 2)))


def estimate_level(replicas: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return the level of some replicas' samples, and the ends of its interval."""
    (center,), (low,), (high,) = levels_of(np.array([level_of_samples(replicas).medians]))
    return center, low, high


def test_a_level_is_the_geometric_mean_of_the_replicas_medians_with_students_interval() -> None:
    assert estimate_level([[1.0, 1.0, 50.0], [4.0]])[0] == pytest.approx(2.0)
    assert estimate_level([[1.234e-5] * 3] * 3) == (1.234e-5, 1.234e-5, 1.234e-5)
    # Logarithms 0 and 0.2: mean 0.1, standard error 0.1, and t(1 degree of freedom, 97.5 %) = 12.7062.
    _, low, high = estimate_level([[1.0], [float(np.exp(0.2))]])
    assert np.log([low, high]) == pytest.approx([0.1 - 1.27062, 0.1 + 1.27062], abs=1e-5)
    assert estimate_level([[3.0, 1.0, 2.0]])[0] == estimate([3.0, 1.0, 2.0]).median_s


# --- metrics, and levels of levels -----------------------------------------------------------------------------------


def level_of_metric(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the level of a metric from one value a replica, and the ends of its interval."""
    (center,), (low,), (high,) = levels_of(np.array([values]))
    return center, low, high


def test_a_metric_that_may_be_zero_has_an_arithmetic_mean_with_students_interval() -> None:
    center, low, high = level_of_metric([-1.0, 0.0, 1.0])
    assert center == 0.0
    assert high == pytest.approx(4.302653 / 3**0.5, rel=1e-6)  # Student's table: 2 degrees of freedom, 97.5 %
    assert low == -high
    assert level_of_metric([0.0])[0] == 0.0


# --- many runs at once ----------------------------------------------------------------------------------------------

run_values = st.lists(st.floats(1e-7, 10.0), min_size=2, max_size=5)


@given(st.lists(run_values, min_size=1, max_size=6))
def test_the_levels_of_many_runs_equal_the_level_of_each(runs):
    values = np.full((len(runs), 5), np.nan)
    for row, run in zip(values, runs, strict=True):
        row[: len(run)] = run
    for ends, run in zip(np.transpose(levels_of(values)), runs, strict=True):
        assert ends == pytest.approx(estimate_level([[value] for value in run]), rel=1e-6)


@settings(max_examples=20)
@given(st.lists(st.floats(-5.0, 5.0), min_size=2, max_size=5).filter(lambda run: min(run) <= 0))
def test_a_run_with_a_value_of_zero_or_below_has_the_arithmetic_mean(run):
    quantile = {2: 12.706205, 3: 4.302653, 4: 3.182446, 5: 2.776445}[len(run)]  # Student's table: 97.5 %
    half = quantile * np.std(run, ddof=1) / len(run) ** 0.5
    expected = [np.mean(run), np.mean(run) - half, np.mean(run) + half]
    assert level_of_metric(run) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_run_with_one_replica_has_a_level_without_an_interval_and_one_without_replicas_has_no_level():
    (center,), (low,), (high,) = levels_of(np.array([[np.nan, 2.0]]))
    assert center == pytest.approx(2.0)
    assert np.isnan([low, high]).all()
    assert np.isnan(levels_of(np.full((1, 3), np.nan))).all()
