from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from perfsvc.judge import estimate, level_of, levels_of, levels_of_estimates
from perfsvc.judge.levels import median
from perfsvc.model import Estimate

times = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=60)


def test_the_median_lies_within_its_interval() -> None:
    level = estimate([3.0, 1.0, 2.0])
    assert (level.median_s, level.low_s, level.high_s, level.samples) == (2.0, 1.0, 3.0, 3)


@pytest.mark.parametrize(
    ("samples", "rank"),
    [(5, 1), (6, 1), (8, 1), (9, 2), (20, 6), (30, 10), (100, 40)],
)
def test_the_ranks_are_those_of_the_sign_test_tables(samples: int, rank: int) -> None:
    level = estimate(np.arange(1.0, samples + 1))
    assert (level.low_s, level.high_s) == (rank, samples + 1 - rank)


def test_too_few_samples_give_their_range() -> None:
    assert estimate([2.0]).low_s == estimate([2.0]).high_s == 2.0
    assert estimate([1.0, 9.0], confidence=0.99).high_s == 9.0


def test_the_interval_covers_the_true_median_as_often_as_its_confidence() -> None:
    generator = np.random.default_rng(20)
    draws = generator.lognormal(sigma=1.0, size=(2000, 41))
    estimates = [estimate(row) for row in draws]
    covered = np.mean([e.low_s <= 1.0 <= e.high_s for e in estimates])
    assert 0.95 - 0.015 < covered < 0.985


@given(times, st.floats(0.5, 0.999))
def test_the_order_does_not_matter_and_the_median_is_inside(samples: list[float], confidence: float) -> None:
    level = estimate(samples, confidence)
    assert level == estimate(samples[::-1], confidence)
    assert min(samples) <= level.low_s <= level.median_s <= level.high_s <= max(samples)


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([], "at least one"),
        ([1.0, float("nan")], "not a finite number"),
        ([1.0, float("inf")], "not a finite number"),
        ([1.0, 0.0], "above zero"),
        ([1.0, -1.0], "above zero"),
    ],
)
def test_impossible_times_are_refused(samples: list[float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        estimate(samples)


def test_samples_of_more_than_one_axis_are_refused() -> None:
    with pytest.raises(ValueError, match="one axis, not 2"):
        estimate(np.ones((2, 2)))


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 95.0])
def test_a_confidence_outside_0_to_1_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        estimate([1.0], confidence)


def estimate_level(replicas: Sequence[Sequence[float]]) -> Estimate:
    return level_of([estimate(replica) for replica in replicas])


def test_a_level_is_the_geometric_mean_of_the_replicas_medians() -> None:
    level = estimate_level([[1.0, 1.0, 50.0], [4.0]])
    assert level.median_s == pytest.approx(2.0)
    assert level.samples == 4


def test_equal_replicas_make_an_exact_level() -> None:
    level = estimate_level([[1.234e-5] * 3] * 3)
    assert (level.median_s, level.low_s, level.high_s) == (1.234e-5, 1.234e-5, 1.234e-5)


def test_the_interval_of_a_level_is_students() -> None:
    # Logarithms 0 and 0.2: mean 0.1, standard error 0.1, and t(1 degree of freedom, 97.5 %) = 12.7062.
    level = estimate_level([[1.0], [float(np.exp(0.2))]])
    assert np.log([level.low_s, level.high_s]) == pytest.approx([0.1 - 1.27062, 0.1 + 1.27062], abs=1e-5)


def test_levels_of_estimates_are_those_of_each_alone() -> None:
    random = np.random.default_rng(3)
    runs = [
        [estimate(random.lognormal(-9, 0.1, 5)) for _ in range(count)] for count in random.integers(1, 12, 60).tolist()
    ]
    assert levels_of_estimates(runs) == [level_of(replicas) for replicas in runs]
    assert levels_of_estimates([]) == []
    wrong = replace(runs[0][0], median_s=0.0)
    with pytest.raises(ValueError, match="times are above zero"):
        levels_of_estimates([*runs, [runs[0][0], wrong]])


def test_a_level_of_one_replica_has_the_interval_of_its_median() -> None:
    assert estimate_level([[3.0, 1.0, 2.0]]) == estimate([3.0, 1.0, 2.0])


def test_a_level_without_replicas_is_refused() -> None:
    with pytest.raises(ValueError, match="no replicas"):
        estimate_level([])


# --- metrics, and levels of levels -----------------------------------------------------------------------------------


def level_of_metric(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the level of a metric from one value a replica, and the ends of its interval."""
    (center,), (low,), (high,) = levels_of(np.array([values]))
    return center, low, high


def test_a_metric_has_a_level_like_a_time() -> None:
    values = [1.0, 4.0, 2.0]
    level = estimate_level([[value] for value in values])
    assert level_of_metric(values) == (level.median_s, level.low_s, level.high_s)


def test_a_metric_that_may_be_zero_has_an_arithmetic_mean_with_students_interval() -> None:
    center, low, high = level_of_metric([-1.0, 0.0, 1.0])
    assert center == 0.0
    assert high == pytest.approx(4.302653 / 3**0.5, rel=1e-6)  # Student's table: 2 degrees of freedom, 97.5 %
    assert low == -high
    assert level_of_metric([0.0])[0] == 0.0


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=300))
def test_the_median_equals_numpys(numbers: list[float]) -> None:
    values = np.array(numbers)
    assert median(values) == np.median(values)


# --- many runs at once ----------------------------------------------------------------------------------------------

run_values = st.lists(st.floats(1e-7, 10.0), min_size=2, max_size=5)


@given(st.lists(run_values, min_size=1, max_size=6))
def test_the_levels_of_many_runs_equal_the_level_of_each(runs):
    values = np.full((len(runs), 5), np.nan)
    for row, run in zip(values, runs, strict=True):
        row[: len(run)] = run
    levels = np.transpose(levels_of(values))
    for ends, run in zip(levels, runs, strict=True):
        alone = estimate_level([[value] for value in run])
        assert ends == pytest.approx([alone.median_s, alone.low_s, alone.high_s], rel=1e-6)


@given(st.lists(st.floats(-5.0, 5.0), min_size=2, max_size=5).filter(lambda run: min(run) <= 0))
def test_a_run_with_a_value_of_zero_or_below_has_the_arithmetic_mean(run):
    half = stats.t.ppf(0.975, len(run) - 1) * stats.sem(run)
    expected = [np.mean(run), np.mean(run) - half, np.mean(run) + half]
    assert level_of_metric(run) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_a_run_with_one_replica_has_a_level_without_an_interval():
    (center,), (low,), (high,) = levels_of(np.array([[np.nan, 2.0]]))
    assert center == pytest.approx(2.0)
    assert np.isnan([low, high]).all()


def test_a_run_without_replicas_has_no_level():
    assert np.isnan(levels_of(np.full((1, 3), np.nan))).all()
