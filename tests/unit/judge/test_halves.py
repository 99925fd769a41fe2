"""On which side of a boundary a level lies, and how often that is wrong."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc import judge

RATIOS = st.floats(1.0001, 100)


@given(RATIOS)
def test_slower_and_faster_have_mirrored_boundaries(ratio):
    assert judge.midpoint(1 / ratio) == pytest.approx(1 / judge.midpoint(ratio))


@given(RATIOS)
def test_both_levels_are_as_far_from_the_boundary(ratio):
    limit = judge.midpoint(ratio)
    assert 1 < limit < ratio
    assert math.log(limit) == pytest.approx(math.log(ratio / limit))


@pytest.mark.parametrize(
    ("low", "high", "limit", "moved"),
    [
        (1.04, 1.06, 1.03, True),
        (0.99, 1.01, 1.03, False),
        (1.02, 1.04, 1.03, None),
        (None, None, 1.03, None),
        (0.94, 0.96, 1 / 1.03, True),
        (0.99, 1.01, 1 / 1.03, False),
        (0.96, 0.99, 1 / 1.03, None),
        (1.05, 1.07, 1 / 1.03, False),
    ],
)
def test_the_whole_interval_says_on_which_side(low, high, limit, moved):
    assert judge.is_beyond(low, high, limit) is moved


def outcome(chance, ratio, limit, between):
    """What is said of a level by its looks at simulated processes that differ by ``between``."""
    draw = [np.exp(chance.normal(math.log(level), between, judge.LOOKS[-1])) for level in (1, ratio)]
    for look, pairs in enumerate(judge.LOOKS, start=1):
        sides = [[np.full(20, time) for time in side[:pairs]] for side in draw]
        found = judge.compare_at_look(*sides, look=look, looks=len(judge.LOOKS), threshold=limit - 1)
        if (moved := judge.is_beyond(found.low, found.high, limit)) is not None:
            return moved
    return None


@pytest.mark.parametrize(("ratio", "moved"), [(1, False), (1.05, True)])
def test_a_level_is_hardly_ever_put_on_the_wrong_side_and_mostly_on_the_right_one(ratio, moved):
    chance = np.random.default_rng(5)
    limit = judge.midpoint(1.05)
    found = [outcome(chance, ratio, limit, 0.01) for _ in range(300)]
    assert found.count(not moved) <= 3
    assert found.count(moved) >= 285
