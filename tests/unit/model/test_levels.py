"""Levels as columns are the levels one by one."""

import numpy as np

from perfsvc.model import Case, Level, Series, Status
from perfsvc.model.levels import LevelColumns


def plain(levels):
    """Return levels so that they can be compared."""
    return {
        series: (*(getattr(level, name) for name in ("run", "status", "reason", "spread", "step", "further")), values)
        for series, level in levels.items()
        for values in [list(level.medians)]
    }


def many(seed):
    """Return levels of many kinds: of every status, with any number of replicas, of one run and of several."""
    random = np.random.default_rng(seed)
    levels = {}
    for number in range(40):
        status = list(Status)[max(random.integers(-8, len(Status)), 0)]  # mostly ok, which is the first
        medians = random.random(random.integers(0, 4)) if status is Status.OK else ()
        further = tuple(tuple(random.random(2).tolist()) for _ in range(random.integers(3)))
        series = Series(Case("many", f"v{number}"), "GPU-1", "H100")
        reason = "" if status is Status.OK else f"why {number}"
        levels[series] = Level(number % 3, status, reason, medians, *random.random(2).tolist(), further)
    return levels


def test_columns_are_a_mapping_of_the_levels():
    for seed in range(5):
        levels = many(seed)
        columns = LevelColumns.of(levels)
        assert plain(columns) == plain(levels)
        assert list(columns) == list(levels)
        assert len(columns) == len(levels)
        assert LevelColumns.of(columns) is columns


def test_no_levels_are_no_columns():
    columns = LevelColumns.of({})
    assert (len(columns), dict(columns)) == (0, {})


def test_a_side_has_ends_if_all_its_medians_are_finite():
    levels = {
        Series(Case("ends", f"v{number}"), "GPU-1", "H100"): Level(1, Status.OK, medians=medians)
        for number, medians in enumerate([(3.0, -1.0, 2.0), (), (1.0, np.nan), (np.inf,), (2.0,)])
    }
    sides = LevelColumns.of(levels).sides
    np.testing.assert_array_equal(sides.lowest, [-1, np.nan, np.nan, np.nan, 2])
    np.testing.assert_array_equal(sides.highest, [3, np.nan, np.nan, np.nan, 2])
