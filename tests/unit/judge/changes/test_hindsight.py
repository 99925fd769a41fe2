"""The levels of a finished history."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from perfsvc.judge import HistoryLevel, split_into_levels
from perfsvc.judge.changes.hindsight import PRICE, _cheapest_divisions
from tests.unit.judge.changes.test_detect import histories, possible

Floats = NDArray[np.float64]


def starts(values: object) -> list[int]:
    """Return the first run of each level after the first."""
    return [level.first for level in split_into_levels(values)[1:]]  # type: ignore[arg-type]


def test_levels_begin_where_the_series_changes() -> None:
    generator = np.random.default_rng(1)
    series = 1 + 0.01 * generator.standard_normal(200)
    series[60:] *= 1.06
    series[140:] *= 0.95
    series[[30, 90, 170]] *= 1.5
    series[100:104] = np.nan
    levels = split_into_levels(series)
    assert [(level.first, level.last) for level in levels] == [(0, 59), (60, 139), (140, 199)]
    assert [level.median for level in levels[:2]] == pytest.approx([1, 1.06], abs=0.005)
    values = generator.normal(1.0, 0.001, 40) * np.repeat([1.0, 1.1], 20)
    values[[0, 20, 39]] = np.nan
    before, after = split_into_levels(values)  # levels begin and end with measured runs
    assert (before.first, before.last, after.first, after.last) == (1, 19, 21, 38)
    assert [before.median, after.median] == pytest.approx([1.0, 1.1], rel=1e-3)


def test_flat_spiked_and_two_state_series_have_one_level() -> None:
    generator = np.random.default_rng(2)
    flat = 1 + 0.01 * generator.standard_normal((40, 100))
    spiked = flat * np.where(generator.random(flat.shape) < 0.01, 1.1, 1.0)
    states = 1 + 0.05 * (generator.random(flat.shape) < 0.3) + flat / 5
    assert sum(map(len, map(starts, [*flat, *spiked, *states]))) <= 1


def test_short_and_constant_series_have_an_answer():
    cases = [
        ([], []),
        ([np.nan], []),
        ([np.nan, 3.0], [HistoryLevel(1, 1, 3.0)]),
        ([1.0, np.nan, 2.0], [HistoryLevel(0, 2, 1.5)]),
        ([0.0] * 50, [HistoryLevel(0, 49, 0.0)]),
        ([0.0] * 10 + [3.0] * 10, [HistoryLevel(0, 9, 0.0), HistoryLevel(10, 19, 3.0)]),
    ]
    assert [split_into_levels(values) for values, _ in cases] == [levels for *_, levels in cases]
    for constant in (0.0, 5e-324, 1e-300, 3.2e-8, 1.0, 1.7e308):
        assert starts([constant]) == starts(np.full(50, constant)) == [], constant


def test_a_history_with_infinite_values_or_two_axes_is_refused() -> None:
    with pytest.raises(ValueError, match="infinite"):
        split_into_levels([1.0, -np.inf])
    with pytest.raises(ValueError, match="one axis"):
        split_into_levels(np.ones((2, 2)))


def moved(levels: list[HistoryLevel], runs: Floats, factor: float = 1.0) -> list[HistoryLevel]:
    """Return levels with other numbers of their runs, in their order, and multiplied medians."""
    ends = [(int(runs[level.first]), int(runs[level.last]), level) for level in levels]
    found = (HistoryLevel(min(a, b), max(a, b), factor * level.median) for a, b, level in ends)
    return sorted(found, key=lambda level: level.first)


@settings(max_examples=25, deadline=None)
@given(histories(), st.sampled_from([2.0**-30, -1.0, 1024.0]))
def test_levels_follow_the_unit_the_sign_the_direction_and_the_gaps_of_a_series(series, unit):
    every, measured = np.arange(series.size), np.flatnonzero(~np.isnan(series))
    levels, packed = split_into_levels(series), split_into_levels(series[measured])
    assert split_into_levels(unit * series) == moved(levels, every, unit)
    assert levels == moved(packed, measured)
    assert split_into_levels(series[measured][::-1]) == moved(packed, np.arange(measured.size)[::-1])


@settings(max_examples=50, deadline=None)
@given(st.lists(possible, max_size=60))
def test_every_possible_history_has_an_answer_without_nan(values: list[float]) -> None:
    levels = split_into_levels(values)
    measured = [run for run, value in enumerate(values) if not np.isnan(value)]
    firsts = [level.first for level in levels[1:]]
    assert firsts == sorted(set(firsts))
    for level in levels[1:]:
        assert level.first in measured[2:-1]  # two runs on either side at least
    assert np.isfinite([level.median for level in levels]).all()


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32), st.lists(st.floats(0.02, 5.0), min_size=2, max_size=5))
def test_a_step_that_is_found_is_found_when_it_is_larger(seed: int, heights: list[float]) -> None:
    noise = 0.01 * np.random.default_rng(seed).standard_normal(60)

    def is_found(height: float) -> bool:
        return any(abs(start - 30) <= 2 for start in starts(1 + noise + height * (np.arange(60) >= 30)))

    found = [is_found(height) for height in sorted(heights)]
    assert found == sorted(found)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(4, 11), st.sampled_from([0.0, 4.0, 20.0]))
def test_the_division_is_the_cheapest_of_all(seed: int, runs: int, height: float) -> None:
    generator = np.random.default_rng(seed)
    units = generator.standard_normal(runs) + height * (np.arange(runs) >= generator.integers(runs))

    def cost(places: tuple[int, ...]) -> float:
        levels = [units[begin:end] for begin, end in itertools.pairwise([0, *places, runs])]
        if min(map(len, levels)) < 2:
            return math.inf
        squares = sum(((level - level.mean()) ** 2).sum() for level in levels)
        return float(squares + len(places) * PRICE * math.log(runs))

    every = itertools.chain.from_iterable(itertools.combinations(range(1, runs), size) for size in range(runs // 2))
    assert cost(tuple(_cheapest_divisions(units[None, :])[0])) == pytest.approx(min(map(cost, every)))
