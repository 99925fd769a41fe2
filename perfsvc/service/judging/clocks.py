"""How many cycles of the board's clock both sides of a judgement took: what tells a slower clock from slower code."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeGuard

from perfsvc import judge
from perfsvc.judge import Comparison
from perfsvc.model import TIME, Judgement, Level, Series

CYCLES: Final = "sm_cycles"
"""The metric beside a time that counts them."""

Levels = Callable[[int], Mapping[Series, Level]]
"""The levels of a run; asked several times for the same one."""


def cycles_of(levels: Levels, judgements: Iterable[Judgement]) -> dict[Series, Comparison]:
    """The cycles of each case whose time moved, compared as times are: candidate over baseline.

    Absent is a case that has none on either side: on a device that counts none, or where another board lent the level.
    """
    found: dict[Series, Comparison] = {}
    for judgement in judgements:
        series, runs = judgement.series, (judgement.baseline_run, judgement.candidate_run)
        if judgement.verdict in judge.MOVES and series.metric == TIME:
            counted = replace(series, metric=CYCLES)
            before, after = (None if run is None else levels(run).get(counted) for run in runs)
            if _counts(before) and _counts(after):
                found[series] = judge.compare(before.replicas, after.replicas)
    return found


def _counts(level: Level | None) -> TypeGuard[Level]:
    """Whether each replica counted cycles."""
    return level is not None and bool(level.replicas) and all(values and min(values) > 0 for values in level.replicas)
