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

Floats = NDArray[np.float64]


@st.composite
def histories(draw: st.DrawFn) -> Floats:
    """Draw noise with steps, spikes and gaps anywhere."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    runs = draw(st.integers(1, 90))
    series = 1 + 0.01 * generator.standard_normal(runs)
    for _ in range(draw(st.integers(0, 4))):
        series[draw(st.integers(0, runs - 1)) :] += draw(st.floats(-0.2, 0.2))
    series[generator.random(runs) < draw(st.sampled_from([0.0, 0.05]))] *= 1.1
    series[generator.random(runs) < draw(st.sampled_from([0.0, 0.2]))] = np.nan
    return series


possible = st.lists(
    st.sampled_from([0.0, 5e-324, 1e-300, 1.0, 1.7e308, -1.7e308, np.nan]) | st.floats(allow_infinity=False),
    max_size=60,
)


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


def test_levels_begin_and_end_with_measured_runs() -> None:
    noise = np.random.default_rng(1).normal(1.0, 0.001, 40)
    values = noise * np.repeat([1.0, 1.1], 20)
    values[[0, 20, 39]] = np.nan
    before, after = split_into_levels(values)
    assert (before.first, before.last, after.first, after.last) == (1, 19, 21, 38)
    assert [before.median, after.median] == pytest.approx([1.0, 1.1], rel=1e-3)


def test_flat_spiked_and_two_state_series_have_one_level() -> None:
    generator = np.random.default_rng(2)
    flat = 1 + 0.01 * generator.standard_normal((40, 100))
    spiked = flat * np.where(generator.random(flat.shape) < 0.01, 1.1, 1.0)
    states = 1 + 0.05 * (generator.random(flat.shape) < 0.3) + flat / 5
    assert sum(map(len, map(starts, [*flat, *spiked, *states]))) <= 1


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        ([], []),
        ([np.nan], []),
        ([np.nan, 3.0], [HistoryLevel(1, 1, 3.0)]),
        ([1.0, np.nan, 2.0], [HistoryLevel(0, 2, 1.5)]),
        ([0.0] * 50, [HistoryLevel(0, 49, 0.0)]),
        ([0.0] * 10 + [3.0] * 10, [HistoryLevel(0, 9, 0.0), HistoryLevel(10, 19, 3.0)]),
    ],
)
def test_short_and_constant_series_have_an_answer(values: list[float], levels: list[HistoryLevel]) -> None:
    assert split_into_levels(values) == levels


def test_a_history_with_infinite_values_or_two_axes_is_refused() -> None:
    with pytest.raises(ValueError, match="infinite"):
        split_into_levels([1.0, -np.inf])
    with pytest.raises(ValueError, match="one axis"):
        split_into_levels(np.ones((2, 2)))


@pytest.mark.parametrize("constant", [0.0, 5e-324, 1e-300, 3.2e-8, 1.0, 1.7e308])
def test_a_constant_of_any_size_has_one_level(constant: float) -> None:
    assert starts([constant]) == starts(np.full(50, constant)) == []


@settings(deadline=None)
@given(histories(), st.sampled_from([2.0**-30, 0.5, 1024.0]))
def test_the_unit_does_not_matter(series: Floats, unit: float) -> None:
    levels = split_into_levels(series)
    scaled = [HistoryLevel(level.first, level.last, unit * level.median) for level in levels]
    assert split_into_levels(unit * series) == scaled


@settings(deadline=None)
@given(histories())
def test_a_series_upside_down_has_its_levels_upside_down(series: Floats) -> None:
    levels = split_into_levels(series)
    mirrored = [HistoryLevel(level.first, level.last, -level.median) for level in levels]
    assert split_into_levels(-series) == mirrored


@settings(deadline=None)
@given(histories())
def test_a_series_read_backwards_has_its_levels_backwards(series: Floats) -> None:
    measured = series[~np.isnan(series)]
    last = measured.size - 1
    levels = split_into_levels(measured)
    backwards = [HistoryLevel(last - level.last, last - level.first, level.median) for level in levels]
    assert split_into_levels(measured[::-1]) == backwards[::-1]


@settings(deadline=None)
@given(histories())
def test_runs_without_a_measurement_are_skipped(series: Floats) -> None:
    runs = np.flatnonzero(~np.isnan(series))
    packed = split_into_levels(series[runs])
    spread = [HistoryLevel(int(runs[level.first]), int(runs[level.last]), level.median) for level in packed]
    assert split_into_levels(series) == spread


@settings(deadline=None)
@given(possible)
def test_every_possible_history_has_an_answer_without_nan(values: list[float]) -> None:
    levels = split_into_levels(values)
    measured = [run for run, value in enumerate(values) if not np.isnan(value)]
    firsts = [level.first for level in levels[1:]]
    assert firsts == sorted(set(firsts))
    for level in levels[1:]:
        assert level.first in measured[2:-1]  # two runs on either side at least
    assert np.isfinite([level.median for level in levels]).all()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.lists(st.floats(0.02, 5.0), min_size=2, max_size=5))
def test_a_step_that_is_found_is_found_when_it_is_larger(seed: int, heights: list[float]) -> None:
    noise = 0.01 * np.random.default_rng(seed).standard_normal(60)

    def is_found(height: float) -> bool:
        return any(abs(start - 30) <= 2 for start in starts(1 + noise + height * (np.arange(60) >= 30)))

    found = [is_found(height) for height in sorted(heights)]
    assert found == sorted(found)


@settings(max_examples=40, deadline=None)
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
