"""The chronicles of all series: their levels in each run, where those changed, and what was judged."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from perfsvc import judge
from perfsvc.model import Judgement, Series, Verdict
from perfsvc.report.pages.site import LevelRange, RunPoint, SeriesView
from perfsvc.store import SeriesInRun, VerdictEvent

Samples = Mapping[int, tuple[tuple[float, ...], ...]]


def chronicles(
    held: Mapping[Series, Sequence[SeriesInRun]],
    told: Mapping[Series, Sequence[VerdictEvent]],
    samples: Mapping[Series, Samples],
    tonight: Mapping[Series, Judgement],
    *,
    dirty: Collection[int],
    turns: Mapping[Series, Collection[int]],
) -> tuple[SeriesView, ...]:
    """The chronicle of each series, by case, GPU, metric and cache state.

    Args:
        held: what each run says of each series, oldest first.
        told: the verdicts that tell of an event.
        samples: of the newest runs.
        tonight: the verdicts of tonight's run.
        dirty: the runs with uncommitted changes, which are shown and have no part in any level.
        turns: the runs in which a finding saw a series move, or back: a level never reaches across one, also where so
            few nights would show no change point.
    """
    ordered = sorted(
        held, key=lambda one: (one.case.id, one.device_model, one.device, one.metric != "time", one.metric)
    )
    return tuple(
        SeriesView(
            series,
            seen := _seen(held[series], {one.run: one.verdict for one in told.get(series, ())}),
            _stretches(seen, dirty, turns.get(series, ())),
            samples.get(series, {}),
            tonight.get(series),
        )
        for series in ordered
    )


def _seen(held: Sequence[SeriesInRun], verdicts: Mapping[int, Verdict]) -> tuple[RunPoint, ...]:
    centers, lows, highs = (ends.tolist() for ends in judge.levels_of(_replicas(held)))
    return tuple(
        RunPoint(
            run=one.run,
            segment=one.segment,
            status=one.status,
            reason=one.reason,
            level=center if isfinite(center) else None,
            low=_end(low, one.low, one.values),
            high=_end(high, one.high, one.values),
            replicas=len(one.values),
            verdict=verdicts.get(one.run),
        )
        for one, center, low, high in zip(held, centers, lows, highs, strict=True)
    )


def _end(end: float, of_replica: float | None, values: Sequence[float]) -> float | None:
    """An end of the interval: of the replicas' spread, or of the only replica itself; None where it has none."""
    known = of_replica if len(values) == 1 else end
    return known if known is not None and isfinite(known) else None


def _replicas(held: Sequence[SeriesInRun]) -> NDArray[np.float64]:
    """The values of the replicas, one row a run, NaN where there is none."""
    matrix = np.full((len(held), max((len(one.values) for one in held), default=0) or 1), np.nan)
    for row, one in zip(matrix, held, strict=True):
        row[: len(one.values)] = one.values
    return matrix


def _stretches(seen: Sequence[RunPoint], dirty: Collection[int], turns: Collection[int]) -> tuple[LevelRange, ...]:
    clean = [one for one in seen if one.run not in dirty]
    edges = [0, *(at for at, one in enumerate(clean) if at and one.run in turns), len(clean)]
    return tuple(one for begin, end in pairwise(edges) for one in _levels_in(clean[begin:end]))


def _levels_in(clean: Sequence[RunPoint]) -> Iterator[LevelRange]:
    levels = np.array([np.nan if one.level is None else one.level for one in clean])
    for part in judge.split_into_levels(levels):
        yield LevelRange(clean[part.first].run, clean[part.last].run, part.median)
