"""Many sides read at once are the sides read one by one."""

import numpy as np
import pytest

from perfsvc.judge.comparison import compare, compare_columns, compare_levels, compare_with_each
from perfsvc.judge.levels import level_of_samples
from perfsvc.model import Verdict
from perfsvc.model.levels import SideColumns


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


def sides_of_samples(many) -> SideColumns:
    return SideColumns.of_levels(list(map(level_of_samples, many)))


def test_many_sides_are_those_read_one_by_one():
    for seed in range(3):
        many = _random_sides(seed)
        sides = sides_of_samples(many)
        arrays = sides_of_samples([tuple(map(np.array, replicas)) for replicas in many])  # read as tuples are
        for name in ("sizes", "medians", "spreads", "steps"):
            np.testing.assert_array_equal(getattr(sides, name), getattr(arrays, name))
        for at, replicas in enumerate(many):
            alone = level_of_samples(replicas)
            np.testing.assert_array_equal(sides.medians[at, : sides.sizes[at]], alone.medians)
            assert (sides.spreads[at], sides.steps[at]) == (alone.spread, alone.step)
            medians = [float(np.median(np.array(replica) / 4)) * 4 for replica in replicas]  # a sum may overflow
            np.testing.assert_allclose(alone.medians, medians)


def test_the_spread_and_the_step_are_those_of_the_samples_of_one_replica():
    level = level_of_samples([(1.0, 1.1, 1.2), (5.0, 5.0, 5.4)])
    deviations = [np.log(1.1), 0.0, np.log(1.2 / 1.1), 0.0, 0.0, np.log(5.4 / 5)]
    assert level.spread == pytest.approx(1.482602218505602 * float(np.median(np.abs(deviations))))
    assert level.step == pytest.approx(0.1)
    single = level_of_samples([(1.0,), (2.0,)])
    assert (single.spread, single.step) == (0.0, np.inf)


def test_a_side_with_a_value_that_is_not_finite_has_no_medians_and_spoils_no_other():
    sound = ((1.0, 2.0), (3.0, 5.0))
    for values in [(1.0, np.nan), (np.inf, 1.0), (-np.inf, 1.0), ()]:
        sides = sides_of_samples([(values, (3.0, 5.0)), sound])
        assert np.isnan(sides.lowest).tolist() == [True, False], values
        np.testing.assert_array_equal(sides.medians[1], level_of_samples(sound).medians)
    none = np.array([], np.int64)
    assert compare_columns(sides_of_samples([]), none, sides_of_samples([]), none, []) == []


def test_pairs_compared_together_are_those_compared_one_by_one():
    for seed in range(3):
        random = np.random.default_rng(seed)
        many = _random_sides(seed)
        # The same shape on both sides, as in two runs of one suite, and other shapes; near each other and far away.
        many += [tuple(tuple(1.03 * value for value in replica) for replica in replicas) for replicas in many]
        sides, count = sides_of_samples(many), len(many) // 2
        same, others = np.arange(count), random.integers(count, size=(2, 100))
        before, after = np.concatenate([same, same, others[0]]), np.concatenate([same, same + count, others[1]])
        thresholds = random.choice([0.0, 0.01, 0.5], len(before)).tolist()
        alone = [
            compare_levels(level_of_samples(many[old]), level_of_samples(many[new]), threshold=limit)
            for old, new, limit in zip(before, after, thresholds, strict=True)
        ]
        assert compare_columns(sides, before, sides, after, thresholds) == alone, seed
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
            compare_with_each([([sound, (np.array([1.0, wrong, wrong]),)], sound, 0.02)])
