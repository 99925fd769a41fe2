import numpy as np
import pytest
from numpy.typing import NDArray

from perfsvc.judge import compare, compare_at_look
from perfsvc.model import Verdict

Side = list[NDArray[np.float64]]
REPLICAS = (2, 3, 4, 6, 8)
"""Replicas of each side at each look."""


def first_change(before: Side, after: Side) -> tuple[Verdict, int]:
    """Return the first change that any look calls, and the look."""
    for look, seen in enumerate(REPLICAS, 1):
        comparison = compare_at_look(before[:seen], after[:seen], look=look, looks=len(REPLICAS), threshold=0.0)
        if comparison.verdict in {Verdict.REGRESSION, Verdict.IMPROVEMENT}:
            return comparison.verdict, look
    return comparison.verdict, len(REPLICAS)


def sides(generator: np.random.Generator, change: float) -> tuple[Side, Side]:
    """Return replicas of a single sample, whose logarithms have a standard deviation of 1 %."""
    noise = 0.01 * generator.standard_normal((2, REPLICAS[-1], 1))
    return list(np.exp(noise[0])), list(np.exp(change + noise[1]))


def test_a_single_look_equals_compare() -> None:
    before, after = sides(np.random.default_rng(1), 0.02)
    assert compare_at_look(before, after, look=1, looks=1, threshold=0.02) == compare(before, after, threshold=0.02)


def test_each_of_several_looks_has_an_equal_part_of_the_error() -> None:
    before, after = sides(np.random.default_rng(2), 0.02)
    for look in (1, 2, 4):
        assert compare_at_look(before, after, look=look, looks=4) == compare(before, after, alpha=0.01 / 4)


@pytest.mark.slow
def test_all_looks_together_call_equal_levels_changed_no_more_often_than_alpha() -> None:
    # Any difference is relevant at a threshold of 0. Looking at the full alpha each time would call about 3 % of these.
    generator = np.random.default_rng(3)
    trials = 3000
    called = sum(
        first_change(*sides(generator, 0.0))[0] in {Verdict.REGRESSION, Verdict.IMPROVEMENT} for _ in range(trials)
    )
    assert 0.002 * trials < called <= 0.01 * trials


def test_a_change_of_four_deviations_is_found_long_before_the_last_look() -> None:
    generator = np.random.default_rng(4)
    found = [first_change(*sides(generator, 0.04)) for _ in range(300)]
    assert sum(verdict is Verdict.REGRESSION for verdict, _ in found) >= 297
    assert np.mean([look for _, look in found]) < 3.5


@pytest.mark.parametrize(("look", "looks"), [(0, 3), (4, 3), (1, 0)])
def test_a_look_beyond_the_looks_is_refused(look: int, looks: int) -> None:
    with pytest.raises(ValueError, match="not one of the looks"):
        compare_at_look([[1.0]], [[1.0]], look=look, looks=looks)
