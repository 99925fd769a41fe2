"""What is fast in the watch, against what says the same in the plainest way."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from perfsvc.judge import Alert, watch, watch_many
from perfsvc.judge.change_points import PRICE, _divided, change_points
from perfsvc.judge.discoveries import discoveries
from perfsvc.judge.histories import (
    CUT,
    CUT_SPIKED,
    LEARNING,
    PERSISTENCE_ERRORS,
    Histories,
    center_and_scale,
    offsets_of,
    persistence,
    skewness,
)
from perfsvc.judge.shapes import ramp, split
from perfsvc.judge.shifts import HEADROOM, PENALTY, SPIKED, WINDOWS, may_reach, scores
from perfsvc.judge.watch import watch_each

seeds = st.integers(0, 2**32)


def filled(series: np.ndarray) -> Histories:
    """Histories that have seen some nights, shape (series, nights)."""
    histories = Histories(series, np.zeros(series.shape, bool))
    asked = np.zeros(len(series), np.intp)
    for night in range(series.shape[1]):
        histories.add(night)
        if night < series.shape[1] - 1:  # a night is judged before it is learned from
            histories.learn(asked)
    return histories


def naive_inflation(before: int, window: int, share: float) -> float:
    """The variance of a difference of means over that of independent nights, covariance by covariance."""

    def of_mean(nights: int) -> float:
        places = np.arange(nights)
        return float((share ** np.abs(places - places[:, None])).mean())

    return (of_mean(before) + of_mean(window)) / (1 / before + 1 / window)


def naive_score(units: np.ndarray, window: int, skew: float, persistence: float) -> float:
    """Student's t of a window against the nights before it, as a score."""
    before, after = units[:-window], units[-window:]
    if len(before) < 2:
        return 0.0
    freedom = len(units) - 2
    difference = after.mean() - before.mean()
    sign = 1 if difference > 0 else -1
    variance = (((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum()) / freedom
    if window <= SPIKED:  # the farthest counts for no more than the next
        ordered = sorted(sign * after)
        difference = sign * np.mean([*ordered[:-1], ordered[-2]]) - before.mean()
    if difference * sign <= 0:
        return PENALTY * math.log(window)
    variance *= naive_inflation(len(before), window, persistence)
    t = abs(difference) / math.sqrt(variance * (1 / len(before) + 1 / len(after)))
    deviate = -stats.norm.ppf(stats.t.sf(t, freedom))
    uneven = max(1 - window / len(before), 0)
    deviate -= max(skew * sign, 0) * uneven * max(deviate**2 - 1, 0) / (6 * math.sqrt(window))
    headroom = HEADROOM[list(WINDOWS).index(window)]
    return (max(deviate, 0) * headroom) ** 2 / 2 + PENALTY * math.log(window)


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(LEARNING + 1, 90), st.sampled_from([0.0, 0.03, 0.08]), st.sampled_from([0.0, 0.04]))
def test_scores_are_students_of_every_window(seed: int, nights: int, step: float, spikes: float) -> None:
    generator = np.random.default_rng(seed)
    series = 1 + 0.01 * generator.standard_normal((3, nights))
    series[1:] += 0.02 * np.sin(np.arange(nights))  # of which a night resembles the one before
    series[:, -4:] += step
    series[generator.random(series.shape) < spikes] *= 1.1
    histories, rows = filled(series), np.arange(3)
    skew, persistence = histories.skew(rows), histories.persistence(rows)
    ends = histories.filled
    fast = scores(histories.sums(rows, ends), histories.latest(rows, ends), skew, persistence)
    for row, units in enumerate(histories.in_units(rows, series)):
        for place, window in enumerate(WINDOWS):
            expected = naive_score(units, window, skew[row], persistence[row])
            assert fast[place, row] == pytest.approx(expected, abs=0.02, rel=0.01)


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(LEARNING + 1, 60), st.floats(0, 0.06))
def test_what_is_said_to_be_hopeless_is(seed: int, nights: int, step: float) -> None:
    series = 1 + 0.01 * np.random.default_rng(seed).standard_normal((20, nights))
    series[:, -5:] += step
    histories, rows = filled(series), np.arange(20)
    ends = histories.filled
    sums = histories.sums(rows, ends)
    reached = scores(sums, histories.latest(rows, ends), histories.skew(rows), histories.persistence(rows)).max(axis=0)
    for least in (4.0, 8.0, 11.0):
        assert (may_reach(sums, least) | (reached < least)).all()


@given(seeds, st.integers(4, 60))
def test_a_split_and_a_ramp_explain_what_least_squares_explain(seed: int, nights: int) -> None:
    units = np.random.default_rng(seed).standard_normal(nights)

    def explained(regressor: np.ndarray) -> float:
        design = np.column_stack([np.ones(nights), regressor])
        residuals = units - design @ np.linalg.lstsq(design, units)[0]
        return float(((units - units.mean()) ** 2).sum() - (residuals**2).sum())

    (place,), (around,), (by_step,), (rise,) = split(units[None])
    steps = {at: explained(np.arange(nights) >= at) for at in range(2, nights - 1)}
    assert by_step == pytest.approx(max(steps.values()))
    assert steps[place] == pytest.approx(by_step)
    assert around == pytest.approx(((units - units.mean()) ** 2).sum() - by_step)
    assert rise == pytest.approx(units[place:].mean() - units[:place].mean())
    (begin,), (by_ramp,) = ramp(units[None])
    if nights > 8:
        ramps = {at: explained(np.maximum(np.arange(nights) - at + 1, 0)) for at in range(nights - 7)}
        assert by_ramp == pytest.approx(max(ramps.values()))
        assert ramps[begin] == pytest.approx(by_ramp)
    else:
        assert by_ramp == 0


@settings(max_examples=15, deadline=None)
@given(seeds, st.integers(1, 6))
def test_what_is_said_of_each_of_many_is_what_is_said_of_it_alone(seed: int, series: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = 10.0 ** generator.integers(-9, 9, (series, 1)) * (1 + 0.01 * generator.standard_normal((series, 80)))
    matrix[:, 40:] *= generator.uniform(1, 1.1, (series, 1))
    matrix[generator.random(matrix.shape) < 0.15] = np.nan
    segments = (np.arange(80) >= generator.integers(20, 160, (series, 1))).astype(int)
    alone = [watch(row, ids) for row, ids in zip(matrix, segments, strict=True)]
    assert watch_each(matrix, segments) == alone


@settings(max_examples=15, deadline=None)
@given(seeds, st.integers(1, 6))
def test_many_series_at_once_are_each_alone(seed: int, series: int) -> None:
    """All of them move at once, so that every alert is a discovery."""
    generator = np.random.default_rng(seed)
    matrix = 1 + 0.01 * generator.standard_normal((series, 80))
    matrix[:, 40:] += 0.3
    matrix[generator.random(matrix.shape) < 0.15] = np.nan
    assert [alerts[:1] for alerts in watch_many(matrix)] == [watch(row)[:1] for row in matrix]


@settings(max_examples=15, deadline=None)
@given(seeds, st.integers(1, 12), st.integers(1, 100))
def test_what_was_before_a_segment_of_all_series_tells_nothing_of_it(seed: int, series: int, first: int) -> None:
    """So whoever asks of the latest segment alone need not hand over the nights before."""
    generator = np.random.default_rng(seed)
    matrix = 1 + 0.01 * generator.standard_normal((series, 160))
    matrix[:, :first] *= generator.uniform(0.5, 2, (series, 1))
    matrix[:, generator.integers(160) :] *= generator.uniform(1, 1.1, (series, 1))
    matrix[generator.random(matrix.shape) < 0.1] = np.nan
    segments = (np.arange(160) >= generator.integers(160, size=(series, 1))) + 2 * (np.arange(160) >= first)
    groups = [row % 3 for row in range(series)]
    alone = watch_many(matrix[:, first:], groups, segments[:, first:])
    later = [
        [Alert(one.index - first, one.night - first, one.kind, one.direction) for one in alerts if one.night >= first]
        for alerts in watch_many(matrix, groups, segments)
    ]
    assert alone == later


# --- centre, scale, skewness -----------------------------------------------------------------------------------------


def test_a_few_spikes_do_not_count_and_a_second_state_does() -> None:
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
    assert of_states[0] * CUT_SPIKED > 5


def test_only_what_is_inside_counts_for_what_is_learned() -> None:
    values = np.random.default_rng(2).exponential(size=(2, 50))
    inside = np.arange(50) < np.array([[50], [30]])
    center, scale = center_and_scale(values, inside)
    alone_center, alone_scale = center_and_scale(values[1:, :30], inside[1:, :30])
    assert (center[1], scale[1]) == pytest.approx((alone_center[0], alone_scale[0]))
    assert center[0] == np.median(values[0])
    units = np.clip(values, -CUT, CUT)
    beyond = stats.skew(units[1, :30]) - 2 * math.sqrt(6 / 30)
    both, alone = offsets_of(units, inside), offsets_of(units[1:, :30], inside[1:, :30])
    assert skewness(*both)[1] == pytest.approx(max(beyond, 0))
    assert persistence(*both)[1] == persistence(*alone)


def test_nights_that_resemble_the_one_before_are_told_from_independent_ones() -> None:
    noise = np.random.default_rng(3).standard_normal((200, 400))
    alike = noise[:, 1:] + 0.5 * noise[:, :-1]  # its autocorrelation is 0.5 / 1.25
    found = persistence(*offsets_of(alike, np.ones(alike.shape, bool)))
    assert found.mean() == pytest.approx(0.4 - PERSISTENCE_ERRORS / math.sqrt(399), abs=0.01)
    alone = persistence(*offsets_of(noise, np.ones(noise.shape, bool)))
    assert (alone == 0).mean() == pytest.approx(stats.norm.cdf(PERSISTENCE_ERRORS), abs=0.08)


# --- discoveries -----------------------------------------------------------------------------------------------------

chances = st.lists(st.floats(0, 1) | st.floats(0, 1e-3), min_size=1, max_size=12)


def naive_discoveries(values: list[float], rate: float) -> list[bool]:
    """Benjamini and Hochberg: the most that are all below the rate times their share."""
    for count in range(len(values), 0, -1):
        limit = rate * count / len(values)
        if sum(value <= limit for value in values) >= count:
            return [value <= limit for value in values]
    return [False] * len(values)


@given(chances, st.floats(0.001, 0.2))
def test_discoveries_are_those_of_benjamini_and_hochberg(values: list[float], rate: float) -> None:
    assert discoveries(np.array(values), None, rate).tolist() == naive_discoveries(values, rate)


@given(st.lists(chances, min_size=1, max_size=5), st.floats(0.001, 0.2), st.randoms())
def test_groups_are_found_first_and_then_what_is_in_them(families, rate: float, random) -> None:
    pairs = [(name, value) for name, family in enumerate(families) for value in family]
    random.shuffle(pairs)
    names = [name for name, _ in pairs]
    simes = [min(v * len(f) / place for place, v in enumerate(sorted(f), 1)) for f in families]
    chosen = naive_discoveries(simes, rate)
    found = discoveries(np.array([value for _, value in pairs]), np.array(names), rate)
    for name in range(len(families)):
        mine = [value for group, value in pairs if group == name]
        share = rate * sum(chosen) / len(families)
        expected = naive_discoveries(mine, share) if chosen[name] else [False] * len(mine)
        assert [bool(yes) for yes, group in zip(found, names, strict=True) if group == name] == expected


# --- all nights known ------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(4, 11), st.sampled_from([0.0, 4.0, 20.0]))
def test_the_division_is_the_cheapest_of_all(seed: int, nights: int, height: float) -> None:
    generator = np.random.default_rng(seed)
    units = generator.standard_normal(nights) + height * (np.arange(nights) >= generator.integers(nights))

    def cost(places: tuple[int, ...]) -> float:
        edges = [0, *places, nights]
        levels = [units[begin:end] for begin, end in itertools.pairwise(edges)]
        if min(map(len, levels)) < 2:
            return math.inf
        return sum(((one - one.mean()) ** 2).sum() for one in levels) + len(places) * PRICE * math.log(nights)

    every = itertools.chain.from_iterable(itertools.combinations(range(1, nights), size) for size in range(nights // 2))
    assert cost(tuple(_divided(units))) == pytest.approx(min(map(cost, every)))


def test_change_points_are_where_the_levels_change() -> None:
    generator = np.random.default_rng(1)
    series = 1 + 0.01 * generator.standard_normal(200)
    series[60:] *= 1.06
    series[140:] *= 0.95
    series[[30, 90, 170]] *= 1.5
    series[100:104] = np.nan
    found = change_points(series)
    assert [point.index for point in found] == [60, 140]
    assert found[0].before == pytest.approx(1, abs=0.005)
    assert found[0].after == found[1].before == pytest.approx(1.06, abs=0.005)


def test_flat_spiked_and_two_state_series_have_no_change_points() -> None:
    generator = np.random.default_rng(2)
    flat = 1 + 0.01 * generator.standard_normal((40, 100))
    spiked = flat * np.where(generator.random(flat.shape) < 0.01, 1.1, 1.0)
    states = 1 + 0.05 * (generator.random(flat.shape) < 0.3) + flat / 5
    assert sum(map(len, map(change_points, [*flat, *spiked, *states]))) <= 1


def test_short_constant_and_impossible_series_have_an_answer() -> None:
    assert change_points([]) == change_points([1.0, np.nan, 2.0]) == change_points(np.zeros(50)) == []
    assert [point.index for point in change_points(np.repeat([0.0, 3.0], 10))] == [10]
    with pytest.raises(ValueError, match="infinite"):
        change_points([1.0, -np.inf])
    with pytest.raises(ValueError, match="one axis"):
        change_points(np.ones((2, 2)))
