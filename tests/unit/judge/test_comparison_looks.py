import numpy as np
import pytest
from numpy.typing import NDArray

from perfsvc.judge import ALPHA, compare
from perfsvc.model import Verdict

Side = list[NDArray[np.float64]]
REPLICAS = (2, 3, 4, 6, 8)
"""Replicas of each side at each look."""
CHANGES = {Verdict.REGRESSION, Verdict.IMPROVEMENT}


def first_change(before: Side, after: Side) -> tuple[Verdict, int]:
    """Return the first change that any look calls, and the look."""
    for look, seen in enumerate(REPLICAS, 1):
        comparison = compare(before[:seen], after[:seen], threshold=0.0, alpha=ALPHA / len(REPLICAS))
        if comparison.verdict in {Verdict.REGRESSION, Verdict.IMPROVEMENT}:
            return comparison.verdict, look
    return comparison.verdict, len(REPLICAS)


def sides(generator: np.random.Generator, change: float) -> tuple[Side, Side]:
    """Return replicas of a single sample, whose logarithms have a standard deviation of 1 %."""
    noise = 0.01 * generator.standard_normal((2, REPLICAS[-1], 1))
    return list(np.exp(noise[0])), list(np.exp(change + noise[1]))


@pytest.mark.parametrize(("trials", "limit"), [(300, 6), pytest.param(3000, 30, marks=pytest.mark.slow)])
def test_equal_levels_are_rarely_called_changed_and_four_deviations_long_before_the_last_look(trials, limit) -> None:
    # Any difference is relevant at a threshold of 0. Looking at the full alpha each time would call about 3 % of these.
    generator = np.random.default_rng(3)
    called = [first_change(*sides(generator, 0.0))[0] for _ in range(trials)]
    assert trials < 3000 or trials // 500 < sum(verdict in CHANGES for verdict in called)
    assert sum(verdict in CHANGES for verdict in called) <= limit
    found = [first_change(*sides(generator, 0.04)) for _ in range(100)]
    assert sum(verdict is Verdict.REGRESSION for verdict, _ in found) >= 99
    assert np.mean([look for _, look in found]) < 3.5
