from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from perfsvc.judge import Alert, detect_changes, detect_changes_together
from perfsvc.model import ChangeKind, Direction

Floats = NDArray[np.float64]


def noise(runs: int, *, seed: int = 1, deviation: float = 0.01) -> Floats:
    return deviation * np.random.default_rng(seed).standard_normal(runs)


def without_ends(alerts: list[Alert]) -> list[Alert]:
    return [replace(alert, end=None) for alert in alerts]


# --- one series ------------------------------------------------------------------------------------------------------


def test_a_plateau_is_one_alert_that_gets_its_end_on_the_second_run_back():
    for runs in [2, 3, 5, 12, 20]:
        series = 1 + noise(160)
        series[100 : 100 + runs] *= 1.08
        (alert,) = detect_changes(series)
        assert alert == Alert(100, 101, ChangeKind.STEP, Direction.SLOWER, end=100 + runs), runs
        assert detect_changes(series[: 102 + runs]) == [alert], runs
        assert detect_changes(series[: 101 + runs]) == [replace(alert, end=None)], runs
    series = 1 + noise(160)
    series[100:115] *= 1.03  # a small plateau needs more runs back
    (alert,) = detect_changes(series)
    assert (alert.direction, alert.end) == ("slower", pytest.approx(115, abs=2))


def test_a_level_that_returns_only_in_part_or_late_is_a_second_alert() -> None:
    series = 1 + noise(160)
    series[100:115] *= 1.2
    series[115:] *= 1.1
    first, second = detect_changes(series, smallest=0.01)
    assert (first.start, first.end) == (100, None)
    assert (second.start, second.direction) == (115, "faster")
    series = 1 + noise(160)
    series[100:125] *= 1.08  # too late to be the end of a plateau
    assert [(alert.start, alert.direction) for alert in detect_changes(series)] == [(100, "slower"), (125, "faster")]


def test_neither_a_single_good_run_nor_a_new_segment_ends_a_plateau() -> None:
    series = 1 + noise(160)
    series[100:] *= 1.08
    series[[105, 110]] /= 1.08
    assert detect_changes(series) == [Alert(100, 101, ChangeKind.STEP, Direction.SLOWER)]
    series = 1 + noise(160)
    series[100:106] *= 1.08
    assert detect_changes(series, np.arange(160) >= 106) == [Alert(100, 101, ChangeKind.STEP, Direction.SLOWER)]


# --- the smallest relevant change ------------------------------------------------------------------------------------


def test_a_step_is_raised_when_its_change_is_relevant() -> None:
    series = 1 + noise(200, deviation=0.001)
    series[100:] *= 1.008
    assert len(detect_changes(series)) == 1
    assert detect_changes(series, smallest=0.01) == []
    assert detect_changes(1 / series, smallest=0.01) == []
    series[130:] *= 1.008
    (alert,) = detect_changes(series, smallest=0.01)
    assert alert.raised >= 130
    assert alert.direction == "slower"


def test_a_drift_is_raised_when_it_is_relevant():
    for drift in [0.02, -0.02]:
        series = (1 + noise(200, deviation=0.001)) * (1 + drift * np.clip((np.arange(200) - 99) / 100, 0, 1))
        early, late = detect_changes(series), detect_changes(series, smallest=0.01)
        assert early[0].raised < 140, drift
        assert 140 <= late[0].raised <= 175, drift


def test_each_series_has_its_own_smallest_relevant_change() -> None:
    matrix = 1 + np.array([noise(120, seed=seed, deviation=0.001) for seed in range(3)])
    matrix[:, 100:] *= 1.03
    together = detect_changes_together(matrix, smallest=[0.01, 0.05, 0.0])
    assert [len(alerts) for alerts in together] == [1, 0, 1]


def test_changes_too_small_to_be_relevant_permit_no_false_alerts() -> None:
    """A change that stays below the threshold is as certain as can be, in each run, and is no discovery."""
    generator = np.random.default_rng(8)
    matrix = 1 + 0.001 * generator.standard_normal((200, 160))
    matrix[:40, 60:] *= 1.006
    together = detect_changes_together(matrix, smallest=[0.01] * 40 + [0.0] * 160)
    alone = detect_changes_together(matrix[40:])
    assert together[:40] == [[]] * 40
    assert sum(map(len, together[40:])) <= sum(map(len, alone))


def test_neither_a_spike_however_high_nor_a_tiny_difference_raises_anything() -> None:
    series = 1 + noise(20)
    series[10:] *= 1.05  # too small to be sudden: the noise is not known yet
    assert all(alert.raised >= 12 for alert in detect_changes(series))
    assert detect_changes(series[:12]) == []
    assert detect_changes(np.repeat([1.0, 1.0001], 60)) == []  # as small as between equal processes
    assert {alert.raised for alert in detect_changes([0.25] + 31 * [5e-324])} <= set(range(1, 32))
    for height in (1.1, 2.0, 1e6, 1e-6):
        series = 1 + noise(120)
        series[[40, 60, 80, 100]] *= height
        assert detect_changes(series) == []


def test_a_constant_raises_nothing_and_its_change_is_raised() -> None:
    for before, after in (
        (32.0, 40.0),
        (0.0, 16.0),
        (-1.0, 1.0),
        (1e-5, 1.01e-5),
        (5e-301, 1e-300),
        (8.5e307, 1.7e308),
    ):
        assert detect_changes(np.full(60, before)) == []
        assert detect_changes(np.repeat([before, after], 40)) == [Alert(40, 41, ChangeKind.STEP, Direction.SLOWER)]
        assert detect_changes(np.repeat([after, before], 40)) == [Alert(40, 41, ChangeKind.STEP, Direction.FASTER)]


def test_two_states_raise_nothing_until_their_shares_change() -> None:
    generator = np.random.default_rng(3)
    slow = generator.random(200) < np.repeat([0.3, 0.95], 100)
    series = 1 + 0.05 * slow + noise(200, deviation=0.003)
    assert detect_changes(series[:100]) == []
    assert [(alert.kind, alert.direction) for alert in detect_changes(series)] == [("mixture", "slower")]


def test_runs_without_a_measurement_are_skipped() -> None:
    series = 1 + noise(120)
    series[100:] *= 1.08
    sparse = np.full(240, np.nan)
    sparse[1::2] = series
    assert detect_changes(sparse) == [Alert(201, 203, ChangeKind.STEP, Direction.SLOWER)]
    assert detect_changes(np.full(50, np.nan)) == []
    assert detect_changes([]) == []


def test_a_segment_starts_anew() -> None:
    series = 1 + noise(120)
    series[60:] *= 1.2
    series[100:] *= 1.08
    drivers = ["535"] * 60 + ["550"] * 60
    assert detect_changes(series, segments=drivers) == [Alert(100, 101, ChangeKind.STEP, Direction.SLOWER)]
    assert detect_changes(series, segments=np.repeat([1, 2, 1], 40))[0].start == 60


def test_arrays_that_are_no_history_are_refused() -> None:
    with pytest.raises(ValueError, match="infinite"):
        detect_changes([1.0, np.inf])
    with pytest.raises(ValueError, match="one axis, not 2"):
        detect_changes(np.ones((2, 3)))
    with pytest.raises(ValueError, match="one segment id a run"):
        detect_changes(np.ones(3), segments=[1, 2])
    with pytest.raises(ValueError, match="two axes"):
        detect_changes_together(np.ones(3))
    with pytest.raises(ValueError, match="2 series need 2 groups, not 3"):
        detect_changes_together(np.ones((2, 30)), groups=["a", "b", "c"])


# --- invariances ----------------------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> Floats:
    """Draw noise with steps, drifts, spikes and gaps anywhere."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    runs = draw(st.integers(1, 110))
    series = 1 + 0.01 * generator.standard_normal(runs)
    for _ in range(draw(st.integers(0, 3))):
        series[draw(st.integers(0, runs - 1)) :] += draw(st.floats(-0.2, 0.2))
    series += draw(st.floats(-1e-3, 1e-3)) * np.maximum(np.arange(runs) - draw(st.integers(0, runs)), 0)
    series[generator.random(runs) < draw(st.sampled_from([0.0, 0.05]))] *= 1.1
    series[generator.random(runs) < draw(st.sampled_from([0.0, 0.2]))] = np.nan
    return series


@settings(max_examples=25, deadline=None)
@given(histories(), st.data())
def test_the_alerts_of_a_prefix_are_a_prefix_of_the_alerts(series: Floats, data: st.DataObject) -> None:
    whole = detect_changes(series)
    end = data.draw(st.integers(0, series.size))
    prefix = detect_changes(series[:end])
    assert without_ends(prefix) == without_ends([alert for alert in whole if alert.raised < end])
    for early, late in zip(prefix, whole, strict=False):
        assert early.end in {None, late.end}
        assert early.end is None or early.end < end


@settings(max_examples=20, deadline=None)
@given(histories(), st.sampled_from([2.0**-20, 0.5, 1024.0]))
def test_alerts_name_measured_runs_in_order_and_turn_with_the_series_whatever_the_unit(series, unit):
    alerts = detect_changes(series)
    assert [alert.raised for alert in alerts] == sorted({alert.raised for alert in alerts})
    for alert in alerts:
        assert alert.start < alert.raised
        assert alert.end is None or alert.start < alert.end
        assert not np.isnan(series[[alert.start, alert.raised, alert.end or alert.raised]]).any()
    assert detect_changes(unit * series) == alerts
    swapped = {Direction.SLOWER: Direction.FASTER, Direction.FASTER: Direction.SLOWER}
    assert [replace(alert, direction=swapped[alert.direction]) for alert in detect_changes(-series)] == alerts


possible = st.sampled_from([0.0, 5e-324, 1e-300, 1.0, 1.7e308, -1.7e308, np.nan]) | st.floats(allow_infinity=False)


@settings(max_examples=20, deadline=None)
@given(st.lists(possible, max_size=8), st.lists(possible, min_size=1, max_size=40), st.data())
def test_every_possible_history_has_an_answer(few: list[float], many: list[float], data: st.DataObject) -> None:
    for series in (many, few + 30 * many[:1] + many, 20 * few[:1] + 20 * many[:1] + few):
        alerts = detect_changes(series)
        for alert in alerts:
            assert 0 <= alert.start < alert.raised < len(series)
            assert not np.isnan([series[alert.start], series[alert.raised]]).any()
        end = data.draw(st.integers(0, len(series)))
        early = detect_changes(series[:end])
        assert without_ends(early) == without_ends([alert for alert in alerts if alert.raised < end])


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.floats(0.05, 3.0), min_size=2, max_size=5))
def test_a_larger_step_is_never_found_later(seed: int, heights: list[float]) -> None:
    noise = 0.01 * np.random.default_rng(seed).standard_normal(80)

    def raised_at(height: float) -> float:
        raised = detect_changes(1 + noise + height * (np.arange(80) >= 40))
        return next((alert.raised for alert in raised if alert.raised >= 40 and alert.direction == "slower"), np.inf)

    runs = [raised_at(height) for height in sorted(heights)]
    assert runs == sorted(runs, reverse=True)


# --- many series -----------------------------------------------------------------------------------------------------


def test_the_alerts_of_many_series_have_those_of_a_prefix_as_their_prefix_and_keep_their_order() -> None:
    generator = np.random.default_rng(6)
    matrix = 1 + 0.01 * generator.standard_normal((40, 100))
    matrix[:6, 50:] += 0.03
    groups = [row // 5 for row in range(40)]
    whole = detect_changes_together(matrix, groups)
    assert sum(map(len, whole)) >= 6
    for end in (40, 52, 54, 60, 75):
        until = [without_ends([alert for alert in alerts if alert.raised < end]) for alerts in whole]
        assert [*map(without_ends, detect_changes_together(matrix[:, :end], groups))] == until
    order = generator.permutation(40)
    shuffled = detect_changes_together(matrix[order], [groups[row] for row in order])
    assert shuffled == [whole[row] for row in order]
