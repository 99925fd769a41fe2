import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from perfsvc.judge import Alert, watch, watch_many

Floats = NDArray[np.float64]


def noise(nights: int, *, seed: int = 1, deviation: float = 0.01) -> Floats:
    return deviation * np.random.default_rng(seed).standard_normal(nights)


def shapes(alerts: list[Alert]) -> list[tuple[str, str]]:
    return [(alert.kind, alert.direction) for alert in alerts]


# --- one series ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("height", "direction"), [(1.08, "slower"), (0.92, "faster")])
def test_a_step_is_raised_on_its_second_night(height: float, direction: str) -> None:
    series = 1 + noise(120)
    series[100:] *= height
    assert watch(series) == [Alert(100, 101, "step", direction)]


def test_a_recovery_is_an_alert_in_the_other_direction() -> None:
    series = 1 + noise(160)
    series[100:120] *= 1.08
    assert [(alert.index, alert.direction) for alert in watch(series)] == [(100, "slower"), (120, "faster")]


def test_the_first_twenty_nights_are_only_learned_from() -> None:
    series = 1 + noise(40)
    series[10:] *= 1.5
    assert all(alert.night >= 20 for alert in watch(series))
    assert watch(series[:20]) == []


def test_a_spike_of_one_night_raises_nothing_however_high() -> None:
    for height in (1.1, 2.0, 1e6, 1e-6):
        series = 1 + noise(120)
        series[[40, 60, 80, 100]] *= height
        assert watch(series) == []


def test_a_constant_raises_nothing_and_its_change_is_raised() -> None:
    for before, after in ((32.0, 40.0), (0.0, 16.0), (-1.0, 1.0), (1e-5, 1.01e-5)):
        assert watch(np.full(60, before)) == []
        assert watch(np.repeat([before, after], 40)) == [Alert(40, 41, "step", "slower")]
        assert watch(np.repeat([after, before], 40)) == [Alert(40, 41, "step", "faster")]


def test_differences_below_what_equal_processes_have_raise_nothing() -> None:
    assert watch(np.repeat([1.0, 1.0001], 60)) == []


def test_two_states_raise_nothing_until_their_mix_changes() -> None:
    generator = np.random.default_rng(3)
    slow = generator.random(200) < np.repeat([0.3, 0.95], 100)
    series = 1 + 0.05 * slow + noise(200, deviation=0.003)
    assert watch(series[:100]) == []
    assert shapes(watch(series)) == [("cache", "slower")]


def test_a_slow_drift_is_a_trend_before_it_has_added_three_percent() -> None:
    for nights in (30, 60, 100):
        for direction, sign in (("slower", 1), ("faster", -1)):
            series = 1 + noise(200, seed=nights, deviation=0.003)
            series *= 1 + sign * 0.03 * np.clip((np.arange(200) - 79) / nights, 0, 1)
            trends = [alert for alert in watch(series) if alert.kind == "trend"]
            assert trends[0].direction == direction
            assert trends[0].night < 80 + nights


def test_nights_without_a_measurement_are_as_if_they_had_not_been() -> None:
    series = 1 + noise(120)
    series[100:] *= 1.08
    sparse = np.full(240, np.nan)
    sparse[1::2] = series
    assert watch(sparse) == [Alert(201, 203, "step", "slower")]
    assert watch(np.full(50, np.nan)) == []
    assert watch([]) == []


def test_a_segment_starts_anew() -> None:
    series = 1 + noise(120)
    series[60:] *= 1.2
    series[100:] *= 1.08
    drivers = ["535"] * 60 + ["550"] * 60
    assert watch(series, segments=drivers) == [Alert(100, 101, "step", "slower")]
    assert watch(series, segments=np.repeat([1, 2, 1], 40))[0].index == 60


def test_what_cannot_be_a_history_is_refused() -> None:
    with pytest.raises(ValueError, match="infinite"):
        watch([1.0, np.inf])
    with pytest.raises(ValueError, match="one axis, not 2"):
        watch(np.ones((2, 3)))
    with pytest.raises(ValueError, match="an id a night"):
        watch(np.ones(3), segments=[1, 2])
    with pytest.raises(ValueError, match="two axes"):
        watch_many(np.ones(3))
    with pytest.raises(ValueError, match="2 series have as many groups, not 3"):
        watch_many(np.ones((2, 30)), groups=["a", "b", "c"])


# --- what holds of any series ----------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> Floats:
    """Noise with steps, drifts, spikes and gaps anywhere."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    nights = draw(st.integers(1, 110))
    series = 1 + 0.01 * generator.standard_normal(nights)
    for _ in range(draw(st.integers(0, 3))):
        series[draw(st.integers(0, nights - 1)) :] += draw(st.floats(-0.2, 0.2))
    series += draw(st.floats(-1e-3, 1e-3)) * np.maximum(np.arange(nights) - draw(st.integers(0, nights)), 0)
    series[generator.random(nights) < draw(st.sampled_from([0.0, 0.05]))] *= 1.1
    series[generator.random(nights) < draw(st.sampled_from([0.0, 0.2]))] = np.nan
    return series


@settings(max_examples=60, deadline=None)
@given(histories(), st.data())
def test_the_alerts_of_a_prefix_are_a_prefix_of_the_alerts(series: Floats, data: st.DataObject) -> None:
    whole = watch(series)
    end = data.draw(st.integers(0, series.size))
    assert watch(series[:end]) == [alert for alert in whole if alert.night < end]


@settings(max_examples=30, deadline=None)
@given(histories(), st.sampled_from([2.0**-20, 0.5, 1024.0]))
def test_the_unit_does_not_matter(series: Floats, unit: float) -> None:
    assert watch(unit * series) == watch(series)


@settings(max_examples=30, deadline=None)
@given(histories())
def test_a_series_upside_down_has_its_alerts_in_the_other_direction(series: Floats) -> None:
    swapped = {"slower": "faster", "faster": "slower"}
    mirrored = [Alert(alert.index, alert.night, alert.kind, swapped[alert.direction]) for alert in watch(-series)]
    assert mirrored == watch(series)


@settings(max_examples=60, deadline=None)
@given(histories())
def test_an_alert_names_measured_nights_of_the_past_in_order(series: Floats) -> None:
    alerts = watch(series)
    assert [alert.night for alert in alerts] == sorted({alert.night for alert in alerts})
    for alert in alerts:
        assert alert.index < alert.night
        assert not np.isnan(series[[alert.index, alert.night]]).any()


possible = st.sampled_from([0.0, 5e-324, 1e-300, 1.0, 1.7e308, -1.7e308, np.nan]) | st.floats(allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(st.lists(possible, max_size=8), st.lists(possible, min_size=1, max_size=40), st.data())
def test_every_possible_history_has_an_answer(few: list[float], many: list[float], data: st.DataObject) -> None:
    for series in (many, few + 30 * many[:1] + many, 20 * few[:1] + 20 * many[:1] + few):
        alerts = watch(series)
        for alert in alerts:
            assert 0 <= alert.index < alert.night < len(series)
            assert not np.isnan([series[alert.index], series[alert.night]]).any()
        end = data.draw(st.integers(0, len(series)))
        assert watch(series[:end]) == [alert for alert in alerts if alert.night < end]


def test_a_level_next_to_zero_has_an_answer() -> None:
    assert {alert.night for alert in watch([0.25] + 31 * [5e-324])} <= set(range(1, 32))


@pytest.mark.parametrize("constant", [0.0, 5e-324, 1e-300, 3.2e-8, 1.0, 1.7e308])
def test_a_constant_of_any_size_raises_nothing_and_one_night_is_none(constant: float) -> None:
    assert watch([constant]) == watch(np.full(60, constant)) == []
    if constant:
        assert watch(np.repeat([constant, constant / 2], 30)) == [Alert(30, 31, "step", "faster")] or constant == 5e-324


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.floats(0.05, 3.0), min_size=2, max_size=5))
def test_a_larger_step_is_never_found_later(seed: int, heights: list[float]) -> None:
    noise = 0.01 * np.random.default_rng(seed).standard_normal(80)

    def night(height: float) -> float:
        raised = watch(1 + noise + height * (np.arange(80) >= 40))
        return next((alert.night for alert in raised if alert.night >= 40 and alert.direction == "slower"), np.inf)

    nights = [night(height) for height in sorted(heights)]
    assert nights == sorted(nights, reverse=True)


# --- many series -----------------------------------------------------------------------------------------------------


def test_many_series_of_which_all_move_have_the_alerts_of_each() -> None:
    generator = np.random.default_rng(5)
    matrix = 1 + 0.01 * generator.standard_normal((8, 130))
    matrix[:, 60:] += np.linspace(0.06, 0.1, 8)[:, None]
    matrix[::2, 100:] -= 0.08
    matrix[generator.random(matrix.shape) < 0.1] = np.nan
    segments = np.zeros(matrix.shape, int)
    segments[3, 60:] = 1
    for row, alerts in enumerate(watch_many(matrix, segments=segments)):
        assert alerts == watch(matrix[row], segments[row])
        assert (len(alerts) > 0) == (row != 3)


def test_the_alerts_of_many_are_append_only_as_well() -> None:
    generator = np.random.default_rng(6)
    matrix = 1 + 0.01 * generator.standard_normal((40, 100))
    matrix[:6, 50:] += 0.03
    groups = [row // 5 for row in range(40)]
    whole = watch_many(matrix, groups)
    assert sum(map(len, whole)) >= 6
    for end in (40, 52, 54, 60, 75):
        assert watch_many(matrix[:, :end], groups) == [[one for one in row if one.night < end] for row in whole]


def test_the_order_of_the_series_does_not_matter() -> None:
    generator = np.random.default_rng(7)
    matrix = 1 + 0.01 * generator.standard_normal((30, 90))
    matrix[:8, 50:] += 0.05
    groups = [row % 7 for row in range(30)]
    order = generator.permutation(30)
    shuffled = watch_many(matrix[order], [groups[row] for row in order])
    whole = watch_many(matrix, groups)
    assert any(whole)
    assert shuffled == [whole[row] for row in order]
