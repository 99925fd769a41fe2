"""The detector's vectorised parts against plain versions of the same."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsvc.judge import detect_changes, detect_changes_together
from perfsvc.judge.changes.detect import detect_changes_in_each, discoveries
from perfsvc.judge.changes.level import (
    CLIP,
    LEARNING,
    PERSISTENCE_ERRORS,
    LevelTracker,
    center_and_scale,
    offsets_from_mean,
    persistence,
    skewness,
)
from perfsvc.judge.changes.scores import (
    HEADROOM,
    LENGTH_BONUS,
    SHORT_WINDOW,
    WINDOWS,
    fit_ramp,
    fit_step,
    may_reach,
    normal_deviate,
    window_scores,
)

seeds = st.integers(0, 2**32)


def tracked(series: np.ndarray) -> LevelTracker:
    """Return a tracker that has seen some runs, shape (series, runs), and learned from all but the last."""
    tracker, rows = LevelTracker(*series.shape), np.arange(len(series))
    for run, values in enumerate(series.T):
        if run:
            tracker.learn()
        tracker.add(run, rows, values)
    return tracker


def scores_of(tracker: LevelTracker, rows: np.ndarray) -> np.ndarray:
    return window_scores(tracker.sums(rows), tracker.latest_units(rows), tracker.skew[rows], tracker.persistence[rows])


def plain_inflation(before: int, window: int, share: float) -> float:
    """Return the variance of a difference of means over that of independent runs, covariance by covariance."""

    def of_mean(runs: int) -> float:
        positions = np.arange(runs)
        return float((share ** np.abs(positions - positions[:, None])).mean())

    return (of_mean(before) + of_mean(window)) / (1 / before + 1 / window)


def plain_score(units: np.ndarray, window: int, skew: float, persistence: float) -> float:
    """Return Student's t of a window against the runs before it, as a score."""
    from scipy import stats

    before, after = units[:-window], units[-window:]
    if len(before) < 2:
        return 0.0
    freedom = len(units) - 2
    difference = after.mean() - before.mean()
    sign = 1 if difference > 0 else -1
    variance = (((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum()) / freedom
    if window <= SHORT_WINDOW:  # the farthest counts for no more than the next
        ordered = sorted(sign * after)
        difference = sign * np.mean([*ordered[:-1], ordered[-2]]) - before.mean()
    if difference * sign <= 0:
        return LENGTH_BONUS * math.log(window)
    variance *= plain_inflation(len(before), window, persistence)
    t = abs(difference) / math.sqrt(variance * (1 / len(before) + 1 / len(after)))
    deviate = -stats.norm.ppf(stats.t.sf(t, freedom))
    imbalance = max(1 - window / len(before), 0)
    deviate = float(normal_deviate(np.array(deviate), np.array(max(skew * sign, 0) * imbalance / math.sqrt(window))))
    headroom = HEADROOM[list(WINDOWS).index(window)]
    return (deviate * headroom) ** 2 / 2 + LENGTH_BONUS * math.log(window)


@settings(max_examples=3, deadline=None)
@given(seeds, st.integers(LEARNING + 1, 90), st.sampled_from([0.0, 0.03, 0.08]), st.sampled_from([0.0, 0.04]))
def test_the_score_of_every_window_is_students(seed: int, runs: int, step: float, spikes: float) -> None:
    generator = np.random.default_rng(seed)
    series = 1 + 0.01 * generator.standard_normal((3, runs))
    series[1:] += 0.02 * np.sin(np.arange(runs))  # each run resembles the one before
    series[:, -4:] += step
    series[generator.random(series.shape) < spikes] *= 1.1
    tracker, rows = tracked(series), np.arange(3)
    scores = scores_of(tracker, rows)
    for row, units in enumerate(tracker.in_units(rows, series)):
        for place, window in enumerate(WINDOWS):
            expected = plain_score(units, window, tracker.skew[row], tracker.persistence[row])
            assert scores[place, row] == pytest.approx(expected, abs=0.02, rel=0.01)


@settings(max_examples=12, deadline=None)
@given(seeds, st.integers(LEARNING + 1, 60), st.floats(0, 0.06))
def test_a_series_that_may_not_reach_a_score_does_not(seed: int, runs: int, step: float) -> None:
    series = 1 + 0.01 * np.random.default_rng(seed).standard_normal((20, runs))
    series[:, -5:] += step
    tracker, rows = tracked(series), np.arange(20)
    reached = scores_of(tracker, rows).max(axis=0)
    for least in (4.0, 8.0, 11.0):
        assert (may_reach(tracker.sums(rows), least) | (reached < least)).all()


@given(st.floats(0.05, 2), st.floats(1, 8))
def test_a_deviate_of_a_skewed_sum_becomes_the_normal_deviate_of_equal_chance(skew: float, deviate: float) -> None:
    from scipy import stats

    shape = 4 / skew**2
    expected = -stats.norm.ppf(stats.gamma.sf(shape + deviate * math.sqrt(shape), shape))
    normal = float(normal_deviate(np.array(deviate), np.array(skew)))
    assert normal == pytest.approx(min(expected, deviate), rel=0.03, abs=0.03)
    assert normal < normal_deviate(np.array(deviate + 0.1), np.array(skew))
    assert normal_deviate(np.array(deviate), np.array(0.0)) == pytest.approx(deviate, abs=0.02)


@given(seeds, st.integers(4, 60))
def test_a_step_and_a_ramp_explain_what_least_squares_explain(seed: int, runs: int) -> None:
    units = np.random.default_rng(seed).standard_normal(runs)

    def explained(regressor: np.ndarray) -> float:
        design = np.column_stack([np.ones(runs), regressor])
        residuals = units - design @ np.linalg.lstsq(design, units)[0]
        return float(((units - units.mean()) ** 2).sum() - (residuals**2).sum())

    (start,), (residual,), (by_step,), (rise,) = fit_step(units[None])
    steps = {at: explained(np.arange(runs) >= at) for at in range(2, runs - 1)}
    assert by_step == pytest.approx(max(steps.values()))
    assert steps[start] == pytest.approx(by_step)
    assert residual == pytest.approx(((units - units.mean()) ** 2).sum() - by_step)
    assert rise == pytest.approx(units[start:].mean() - units[:start].mean())
    (begin,), (by_ramp,) = fit_ramp(units[None])
    if runs > 8:
        ramps = {at: explained(np.maximum(np.arange(runs) - at + 1, 0)) for at in range(runs - 7)}
        assert by_ramp == pytest.approx(max(ramps.values()))
        assert ramps[begin] == pytest.approx(by_ramp)
    else:
        assert by_ramp == 0


@settings(max_examples=5, deadline=None)
@given(seeds, st.integers(1, 6))
def test_each_of_many_series_has_the_alerts_that_it_has_alone(seed: int, series: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = 10.0 ** generator.integers(-9, 9, (series, 1)) * (1 + 0.01 * generator.standard_normal((series, 80)))
    matrix[:, 40:] *= generator.uniform(1, 1.1, (series, 1))
    matrix[generator.random(matrix.shape) < 0.15] = np.nan
    segments = (np.arange(80) >= generator.integers(20, 160, (series, 1))).astype(int)
    alone = [detect_changes(row, ids) for row, ids in zip(matrix, segments, strict=True)]
    assert detect_changes_in_each(matrix, segments) == alone
    matrix[:, 40:] *= 1.4  # all of them move at once, so that every alert is a discovery
    together = [alerts[:1] for alerts in detect_changes_together(matrix)]
    assert together == [detect_changes(row)[:1] for row in matrix]


@settings(max_examples=6, deadline=None)
@given(seeds, st.integers(1, 12), st.integers(1, 100))
def test_runs_before_the_latest_segment_of_all_series_do_not_matter(seed: int, series: int, first: int) -> None:
    """A caller who asks for the latest segment alone need not pass the runs before."""
    generator = np.random.default_rng(seed)
    matrix = 1 + 0.01 * generator.standard_normal((series, 160))
    matrix[:, :first] *= generator.uniform(0.5, 2, (series, 1))
    matrix[:, generator.integers(160) :] *= generator.uniform(1, 1.1, (series, 1))
    matrix[generator.random(matrix.shape) < 0.1] = np.nan
    segments = (np.arange(160) >= generator.integers(160, size=(series, 1))) + 2 * (np.arange(160) >= first)
    groups = [row % 3 for row in range(series)]
    alone = detect_changes_together(matrix[:, first:], groups, segments[:, first:])
    later = [
        [
            replace(alert, start=alert.start - first, raised=alert.raised - first, end=alert.end and alert.end - first)
            for alert in alerts
            if alert.raised >= first
        ]
        for alerts in detect_changes_together(matrix, groups, segments)
    ]
    assert alone == later


# --- centre, scale, skewness, persistence ----------------------------------------------------------------------------


def test_a_few_spikes_do_not_widen_the_scale_and_a_second_state_does() -> None:
    generator = np.random.default_rng(1)
    plain = generator.standard_normal((1, 200))
    inside = np.ones(plain.shape, bool)
    spiked = plain.copy()
    spiked[0, ::70] = 1000
    _, with_spikes = center_and_scale(spiked, inside)
    assert with_spikes[0] < 1.5 * plain.std()
    states = np.repeat([[0.0, 5.0]], [140, 60], axis=1)
    _, of_states = center_and_scale(states, inside)
    assert of_states[0] == pytest.approx(np.sqrt((states**2).sum() / 199))
    assert of_states[0] * CLIP > 5


def test_only_runs_inside_the_level_count_for_its_estimates() -> None:
    values = np.random.default_rng(2).exponential(size=(2, 50))
    inside = np.arange(50) < np.array([[50], [30]])
    center, scale = center_and_scale(values, inside)
    alone_center, alone_scale = center_and_scale(values[1:, :30], inside[1:, :30])
    assert (center[1], scale[1]) == pytest.approx((alone_center[0], alone_scale[0]))
    assert center[0] == np.median(values[0])
    units = np.clip(values, -CLIP, CLIP)
    cubes = ((units[1, :30] - units[1, :30].mean()) / units[1, :30].std()) ** 3
    beyond = cubes.mean() - 2 * math.sqrt(6 / 30)
    both, alone = offsets_from_mean(units, inside), offsets_from_mean(units[1:, :30], inside[1:, :30])
    assert skewness(*both)[1] == pytest.approx(max(beyond, 0))
    assert persistence(*both)[1] == persistence(*alone)


def test_persistence_separates_runs_that_resemble_the_one_before_from_independent_ones() -> None:
    noise = np.random.default_rng(3).standard_normal((200, 400))
    alike = noise[:, 1:] + 0.5 * noise[:, :-1]  # its autocorrelation is 0.5 / 1.25
    persistent = persistence(*offsets_from_mean(alike, np.ones(alike.shape, bool)))
    assert persistent.mean() == pytest.approx(0.4 - PERSISTENCE_ERRORS / math.sqrt(399), abs=0.01)
    independent = persistence(*offsets_from_mean(noise, np.ones(noise.shape, bool)))
    assert (independent == 0).mean() == pytest.approx(NormalDist().cdf(PERSISTENCE_ERRORS), abs=0.08)


# --- discoveries -----------------------------------------------------------------------------------------------------

chances = st.lists(st.floats(0, 1) | st.floats(0, 1e-3), min_size=1, max_size=12)


def plain_discoveries(values: list[float], rate: float) -> list[bool]:
    """Return those of Benjamini and Hochberg: the most that are all below the rate times their share."""
    for count in range(len(values), 0, -1):
        limit = rate * count / len(values)
        if sum(value <= limit for value in values) >= count:
            return [value <= limit for value in values]
    return [False] * len(values)


@given(chances, st.floats(0.001, 0.2))
def test_discoveries_are_those_of_benjamini_and_hochberg(values: list[float], rate: float) -> None:
    assert discoveries(np.array(values), None, rate).tolist() == plain_discoveries(values, rate)


@given(st.lists(chances, min_size=1, max_size=5), st.floats(0.001, 0.2), st.randoms())
def test_groups_are_selected_first_and_then_their_series(families, rate: float, random) -> None:
    pairs = [(name, value) for name, family in enumerate(families) for value in family]
    random.shuffle(pairs)
    names = [name for name, _ in pairs]
    simes = [min(v * len(f) / place for place, v in enumerate(sorted(f), 1)) for f in families]
    chosen = plain_discoveries(simes, rate)
    discovered = discoveries(np.array([value for _, value in pairs]), np.array(names), rate)
    for name in range(len(families)):
        members = [value for group, value in pairs if group == name]
        share = rate * sum(chosen) / len(families)
        expected = plain_discoveries(members, share) if chosen[name] else [False] * len(members)
        assert [bool(yes) for yes, group in zip(discovered, names, strict=True) if group == name] == expected
