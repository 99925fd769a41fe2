"""Samples are spread evenly over the places of the arrays, and the level is the mean over the places."""

import itertools
import statistics
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsvc.measure.worker.sampling.places import Places, at_level

few = settings(max_examples=20)


@few
@given(st.integers(1, 20), st.lists(st.integers(1, 100), min_size=1, max_size=20))
def test_all_places_get_almost_equally_many_samples(count, batches):
    places = Places(count)
    taken = [places.of_batch(samples) for samples in batches]
    assert [len(batch) for batch in taken] == batches
    for batch in taken:
        shares = Counter(batch)
        assert len(shares) == min(count, len(batch))
        assert max(shares.values()) - min(shares.values()) <= 1
        assert sum(place != after for place, after in itertools.pairwise(batch)) == len(shares) - 1  # visited once
    small = [place for batch in taken if len(batch) < count for place in batch]
    if len(small) == sum(batches):  # short batches continue where the one before ended
        shares = Counter(small)
        assert max(shares.values()) - min(shares[place] for place in range(count)) <= 1


def test_arrays_move_only_between_places():
    moves = []
    places = Places(3, moves.append)
    before = places.mover((0, 0, 1, 2, 2))
    for number in range(5):
        before(number)
    again = places.mover((2, 0))
    again(0)
    again(1)
    assert moves == [1, 2, 0]
    assert Places(1, moves.append).mover((0, 0)) is None
    assert Places(3).mover((0, 1)) is None


def test_the_level_is_the_mean_over_the_places():
    samples = [1.0, 1.1, 0.9, 2.0, 2.2, 1.8]
    adjusted, medians = at_level(samples, [0, 0, 0, 1, 1, 1])
    assert medians == (1.0, 2.0)
    assert adjusted == pytest.approx([1.5, 1.65, 1.35, 1.5, 1.65, 1.35])
    assert statistics.median(adjusted) == pytest.approx(1.5)


def test_a_place_with_many_samples_weighs_no_more_than_one_with_few():
    adjusted, _ = at_level([1.0, 1.01, 0.99, 1.002, 0.997, 3.0], [0, 0, 0, 0, 0, 1])
    assert statistics.median(adjusted) == pytest.approx(2.0)


def test_few_samples_keep_their_noise_and_a_disturbed_one_moves_no_level():
    eight = [1.0, 1.001, 1.002, 1.003, 1.004, 1.005, 1.006, 2.0]
    adjusted, medians = at_level(eight, range(8))
    assert adjusted == tuple(eight)
    assert statistics.median(adjusted) == pytest.approx(1.0035)
    assert medians == tuple(eight)


def test_samples_at_one_place_stay_as_they_are():
    assert at_level([1.0, 3.0, 2.0], [5, 5, 5]) == ((1.0, 3.0, 2.0), (2.0,))


def test_a_difference_of_a_step_of_the_clock_is_not_taken_for_one_of_places():
    step = 32e-9
    samples = [100 * step, 101 * step, 100 * step, 101 * step, 101 * step, 102 * step]
    adjusted, medians = at_level(samples, [0, 0, 0, 1, 1, 1])
    assert medians == (100 * step, 101 * step)
    assert adjusted == tuple(samples)


@few
@given(st.lists(st.tuples(st.floats(1e-6, 1.0), st.integers(0, 7)), min_size=1, max_size=200), st.floats(0.01, 100.0))
def test_the_median_lies_between_the_medians_of_the_places(pairs, factor):
    samples, places = zip(*pairs, strict=True)
    adjusted, medians = at_level(samples, places)
    assert min(medians) * (1 - 1e-9) <= statistics.median(adjusted) <= max(medians) * (1 + 1e-9)
    scaled, _ = at_level([factor * seconds for seconds in samples], places)
    assert statistics.median(scaled) == pytest.approx(factor * statistics.median(adjusted), rel=2e-6)
