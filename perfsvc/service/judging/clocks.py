"""How many cycles of the GPU's clock both sides of a judgement took: what tells a slower clock from slower code."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from perfsvc import judge
from perfsvc.judge import Comparison
from perfsvc.model import TIME, Judgement, Level, Series

CYCLES: Final = "sm_cycles"
"""The metric beside a time that counts them."""

LevelsOf = Callable[[Mapping[Series, int]], Mapping[Series, Level]]
"""The levels of some series, each in the run that is named with it."""


def cycles_of(levels_of: LevelsOf, judgements: Iterable[Judgement]) -> dict[Series, Comparison]:
    """The cycles of each case whose time moved, compared as times are: candidate over baseline.

    Absent is a case that has none on either side: on a device that counts none, or where another GPU lent the level.
    """
    moved = [one for one in judgements if one.verdict in judge.MOVES and one.series.metric == TIME]
    after = _counted(levels_of, {one.series: one.candidate_run for one in moved})
    before = _counted(levels_of, {one.series: one.baseline_run for one in moved if one.series in after})
    return {series: judge.compare(level.replicas, after[series].replicas) for series, level in before.items()}


def _counted(levels_of: LevelsOf, runs: Mapping[Series, int | None]) -> dict[Series, Level]:
    """The cycles of some times, each in a run of its own, where that counted them."""
    cycles = {replace(one, metric=CYCLES): run for one, run in runs.items() if run is not None}
    return {replace(one, metric=TIME): level for one, level in levels_of(cycles).items() if _counts(level)}


def _counts(level: Level) -> bool:
    """Whether each replica counted cycles."""
    return bool(level.replicas) and all(values and min(values) > 0 for values in level.replicas)
