"""Many sides read at once are the sides read one by one."""

from dataclasses import astuple

import numpy as np
import pytest

from perfsvc.judge.comparison import compare, compare_sides
from perfsvc.judge.levels import center_of
from perfsvc.judge.pairs import compare_pairs, compare_with_each
from perfsvc.judge.sides import Side, SideColumns
from perfsvc.model import Verdict


def _random_sides(seed: int) -> list[tuple[tuple[float, ...], ...]]:
    """Return sides of many shapes: equal samples, samples on a clock's grid, zeros, and huge and tiny values."""
    random = np.random.default_rng(seed)
    sides = []
    for _ in range(100):
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


def test_many_sides_are_those_read_one_by_one():
    for seed in range(3):
        many = _random_sides(seed)
        sides = SideColumns.of(many)
        arrays = SideColumns.of([tuple(map(np.array, replicas)) for replicas in many])  # read as tuples are
        for of_tuples, of_arrays in zip(astuple(sides), astuple(arrays), strict=True):
            np.testing.assert_array_equal(of_tuples, of_arrays)
        for at, replicas in enumerate(many):
            together, alone = sides.side(at), Side.of(replicas)
            np.testing.assert_array_equal(together.medians, alone.medians)
            np.testing.assert_array_equal(
                [together.min_deviation, together.step], [alone.min_deviation, alone.step], strict=True
            )
            assert sides.centers[at] == center_of(alone.medians), seed
            assert sides.least_medians[at] == min(alone.medians), seed
            assert (sides.lowest[at], sides.highest[at]) == (min(map(min, replicas)), max(map(max, replicas))), seed


def test_a_side_with_a_value_below_zero_has_a_level_and_ends_and_no_sides_are_no_comparisons() -> None:
    sides = SideColumns.of([((-3.0, 1.0), (5.0,)), ((2.0, 2.0), (2.0,))])
    assert sides.centers.tolist() == [2.0, 2.0]
    assert (sides.lowest.tolist(), sides.highest.tolist()) == ([-3.0, 2.0], [5.0, 2.0])
    none = np.array([], np.int64)
    assert SideColumns.of([]).sizes.size == 0
    assert compare_pairs(SideColumns.of([]), none, SideColumns.of([]), none, []) == []


def test_a_side_with_a_value_that_is_not_finite_has_no_ends_and_spoils_no_other():
    for value in [np.nan, np.inf, -np.inf]:
        sound = ((1.0, 2.0), (3.0, 5.0))
        sides = SideColumns.of([((1.0, value), (3.0, 5.0)), sound])
        assert np.isnan(sides.lowest).tolist() == [True, False], value
        np.testing.assert_array_equal(sides.side(1).medians, Side.of(sound).medians)


def test_pairs_compared_together_are_those_compared_one_by_one():
    for seed in range(3):
        random = np.random.default_rng(seed)
        many = _random_sides(seed)
        # The same shape on both sides, as in two runs of one suite, and other shapes; near each other and far away.
        many += [tuple(tuple(1.03 * value for value in replica) for replica in replicas) for replicas in many]
        sides, count = SideColumns.of(many), len(many) // 2
        same, others = np.arange(count), random.integers(count, size=(2, 100))
        before, after = np.concatenate([same, same, others[0]]), np.concatenate([same, same + count, others[1]])
        thresholds = random.choice([0.0, 0.01, 0.5], len(before)).tolist()
        alone = [
            compare_sides(sides.side(old), sides.side(new), threshold=limit)
            for old, new, limit in zip(before, after, thresholds, strict=True)
        ]
        assert compare_pairs(sides, before, sides, after, thresholds) == alone, seed
        verdicts = {Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.UNCHANGED, Verdict.INCONCLUSIVE}
        assert {comparison.verdict for comparison in alone} == verdicts, seed
        reasons = " ".join(comparison.reason for comparison in alone)
        assert "; not even 100 replicas would settle it" in reasons, seed
        assert "replicas on each side would settle it" in reasons, seed


def test_each_candidate_is_compared_with_each_baseline_as_with_it_alone() -> None:
    many = [
        tuple(np.array(replica, np.float32) for replica in side)
        for side in _random_sides(0)
        if max(map(max, side)) < 1e30
    ]
    *baselines, candidate = many
    asked = [(baselines, candidate, 0.02), ([], candidate, 0.02), (baselines[:3], baselines[0], 0.5)]
    together = compare_with_each(asked)
    assert together == [
        [compare(baseline, new, threshold=threshold) for baseline in of_one] for of_one, new, threshold in asked
    ]
    assert len({comparison.verdict for comparison in together[0]}) > 1
    assert compare_with_each([]) == []


def test_times_that_cannot_be_are_refused():
    for wrong in [np.nan, np.inf, -1.0]:
        sound = (np.array([1.0, 2.0]), np.array([3.0]))
        with pytest.raises(ValueError, match="finite numbers from 0 up"):
            compare_with_each([([sound, (np.array([1.0, wrong]),)], sound, 0.02)])
