"""Levels of many runs at once are those of each alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc import judge
from perfsvc.judge.many_levels import Stretch, levels_of, stretches

times = st.lists(st.floats(1e-7, 10.0), min_size=2, max_size=5)


@given(st.lists(times, min_size=1, max_size=6))
def test_each_level_is_what_it_is_alone(runs):
    values = np.full((len(runs), 5), np.nan)
    for row, run in zip(values, runs, strict=True):
        row[: len(run)] = run
    found = np.transpose(levels_of(values))
    for ends, run in zip(found, runs, strict=True):
        alone = judge.estimate_metric(run)
        assert ends == pytest.approx([alone.median_s, alone.low_s, alone.high_s], rel=1e-6)


@given(st.lists(st.floats(-5.0, 5.0), min_size=2, max_size=5).filter(lambda run: min(run) <= 0))
def test_a_run_with_a_value_of_zero_or_below_has_the_arithmetic_mean(run):
    alone = judge.estimate_metric(run)
    (center,), (low,), (high,) = levels_of(np.array([run]))
    assert [center, low, high] == pytest.approx([alone.median_s, alone.low_s, alone.high_s], rel=1e-6, abs=1e-9)


def test_one_replica_has_a_level_and_no_spread_to_see():
    (center,), (low,), (high,) = levels_of(np.array([[np.nan, 2.0]]))
    assert center == pytest.approx(2.0)
    assert np.isnan([low, high]).all()


def test_a_run_without_replicas_has_no_level():
    assert np.isnan(levels_of(np.full((1, 3), np.nan))).all()


def test_the_levels_of_a_series_are_parted_by_its_change_points():
    noise = np.random.default_rng(1).normal(1.0, 0.001, 40)
    values = noise * np.repeat([1.0, 1.1], 20)
    values[[0, 20, 39]] = np.nan
    before, after = stretches(values)
    assert (before.first, before.last, after.first, after.last) == (1, 19, 21, 38)
    assert [before.level, after.level] == pytest.approx([1.0, 1.1], rel=1e-3)


@pytest.mark.parametrize(("values", "found"), [([np.nan], []), ([np.nan, 3.0], [Stretch(1, 1, 3.0)])])
def test_few_nights_are_one_level_or_none(values, found):
    assert stretches(np.array(values)) == found
