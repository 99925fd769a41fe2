"""Many sides read at once are the sides read one by one."""

import numpy as np
import pytest

from perfsvc.judge.comparison import compare_pairs, compare_sides
from perfsvc.judge.levels import center_of
from perfsvc.judge.sides import Side, sides_of
from perfsvc.model import Verdict


def _random_sides(seed: int) -> list[tuple[tuple[float, ...], ...]]:
    """Return sides of many shapes: equal samples, samples on a clock's grid, zeros, and huge and tiny values."""
    random = np.random.default_rng(seed)
    sides = []
    for _ in range(300):
        scale = 10.0 ** random.integers(-9, 3)
        lengths = random.choice([1, 2, 3, 8, 9, 100], random.choice([1, 2, 3, 5, 9]))
        if random.random() < 0.5:  # a shape that other sides have too
            lengths = np.full(3, 100)
        replicas = [scale * (1 + 0.01 * random.standard_normal(length)) for length in lengths]
        kind = random.integers(6)
        if kind == 0:
            replicas = [np.full(length, scale) for length in lengths]
        elif kind == 1:
            replicas = [np.round(replica / scale, 2) * scale for replica in replicas]
        elif kind == 2:
            replicas[0][0] = 0.0
        elif kind == 3:
            replicas = [np.abs(replica) * 1e305 for replica in replicas]
        sides.append(tuple(tuple(replica.astype(np.float32 if kind == 4 else float).tolist()) for replica in replicas))
    return sides


@pytest.mark.parametrize("seed", range(3))
def test_many_sides_are_those_read_one_by_one(seed: int) -> None:
    many = _random_sides(seed)
    sides, centers, ranges = sides_of(many)
    for replicas, side, center, ends in zip(many, sides, centers, ranges, strict=True):
        alone = Side.of(replicas)
        assert side is not None
        np.testing.assert_array_equal(side.medians, alone.medians)
        np.testing.assert_array_equal([side.min_deviation, side.step], [alone.min_deviation, alone.step])
        np.testing.assert_array_equal(center, center_of(alone.medians))
        assert ends == (min(map(min, replicas)), max(map(max, replicas)))


def test_a_side_with_a_value_below_zero_has_a_level_and_no_side() -> None:
    sides, centers, ranges = sides_of([((-3.0, 1.0), (5.0,)), ((2.0, 2.0), (2.0,))])
    assert sides[0] is None
    assert centers == [2.0, 2.0]
    assert ranges == [(-3.0, 5.0), (2.0, 2.0)]
    assert sides[1] is not None


def test_no_sides_are_no_sides() -> None:
    assert sides_of([]) == ([], [], [])


@pytest.mark.parametrize("seed", range(3))
def test_pairs_compared_together_are_those_compared_one_by_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    sides = [Side.of(replicas) for replicas in _random_sides(seed)]
    # The same shape on both sides, as in two runs of one suite, and other shapes; near each other and far away.
    pairs = [
        (side, Side(side.medians * factor, side.min_deviation, side.step)) for side in sides for factor in (1, 1.03)
    ]
    pairs += [(sides[old], sides[new]) for old, new in random.integers(len(sides), size=(300, 2))]
    thresholds = random.choice([0.0, 0.01, 0.5], len(pairs)).tolist()
    alone = [compare_sides(*pair, threshold=limit) for pair, limit in zip(pairs, thresholds, strict=True)]
    assert compare_pairs(pairs, thresholds) == alone
    assert {comparison.verdict for comparison in alone} == {
        Verdict.REGRESSION,
        Verdict.IMPROVEMENT,
        Verdict.UNCHANGED,
        Verdict.INCONCLUSIVE,
    }


def test_no_pairs_are_no_comparisons() -> None:
    assert compare_pairs([], []) == []
