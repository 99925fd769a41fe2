"""What holds of the change points of any series."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from perfsvc.judge import ChangePoint, change_points

Floats = NDArray[np.float64]


@st.composite
def histories(draw: st.DrawFn) -> Floats:
    """Noise with steps, spikes and gaps anywhere."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    nights = draw(st.integers(1, 90))
    series = 1 + 0.01 * generator.standard_normal(nights)
    for _ in range(draw(st.integers(0, 4))):
        series[draw(st.integers(0, nights - 1)) :] += draw(st.floats(-0.2, 0.2))
    series[generator.random(nights) < draw(st.sampled_from([0.0, 0.05]))] *= 1.1
    series[generator.random(nights) < draw(st.sampled_from([0.0, 0.2]))] = np.nan
    return series


possible = st.lists(
    st.sampled_from([0.0, 5e-324, 1e-300, 1.0, 1.7e308, -1.7e308, np.nan]) | st.floats(allow_infinity=False),
    max_size=60,
)


@settings(deadline=None)
@given(histories(), st.sampled_from([2.0**-30, 0.5, 1024.0]))
def test_the_unit_does_not_matter(series: Floats, unit: float) -> None:
    scaled = [ChangePoint(one.index, unit * one.before, unit * one.after) for one in change_points(series)]
    assert change_points(unit * series) == scaled


@settings(deadline=None)
@given(histories())
def test_a_series_upside_down_has_its_changes_upside_down(series: Floats) -> None:
    mirrored = [ChangePoint(one.index, -one.before, -one.after) for one in change_points(series)]
    assert change_points(-series) == mirrored


@settings(deadline=None)
@given(histories())
def test_a_series_read_backwards_has_its_changes_backwards(series: Floats) -> None:
    measured = series[~np.isnan(series)]
    backwards = [ChangePoint(measured.size - one.index, one.after, one.before) for one in change_points(measured)]
    assert change_points(measured[::-1]) == backwards[::-1]


@settings(deadline=None)
@given(histories())
def test_nights_without_a_measurement_are_as_if_they_had_not_been(series: Floats) -> None:
    nights = np.flatnonzero(~np.isnan(series))
    packed = change_points(series[nights])
    assert change_points(series) == [ChangePoint(int(nights[one.index]), one.before, one.after) for one in packed]


@settings(deadline=None)
@given(possible)
def test_every_possible_history_has_an_answer_without_nan(values: list[float]) -> None:
    found = change_points(values)
    measured = [night for night, value in enumerate(values) if not np.isnan(value)]
    assert [one.index for one in found] == sorted({one.index for one in found})
    for one in found:
        assert one.index in measured[2:-1]  # two nights on either side at least
        assert np.isfinite([one.before, one.after]).all()


@pytest.mark.parametrize("constant", [0.0, 5e-324, 1e-300, 3.2e-8, 1.0, 1.7e308])
def test_a_constant_has_none(constant: float) -> None:
    assert change_points([constant]) == change_points(np.full(50, constant)) == []


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.lists(st.floats(0.02, 5.0), min_size=2, max_size=5))
def test_a_step_that_is_found_is_found_when_it_is_larger(seed: int, heights: list[float]) -> None:
    noise = 0.01 * np.random.default_rng(seed).standard_normal(60)

    def found(height: float) -> bool:
        return any(abs(one.index - 30) <= 2 for one in change_points(1 + noise + height * (np.arange(60) >= 30)))

    said = [found(height) for height in sorted(heights)]
    assert said == sorted(said)
