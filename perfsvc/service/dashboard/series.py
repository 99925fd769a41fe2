"""Build the views of series for the pages: the level in each run, the ranges of equal level, and the verdicts."""

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


def series_views(
    histories: Mapping[Series, Sequence[SeriesInRun]],
    events: Mapping[Series, Sequence[VerdictEvent]],
    samples: Mapping[Series, Samples],
    tonight: Mapping[Series, Judgement],
    *,
    dirty: Collection[int],
    breaks: Mapping[Series, Collection[int]],
) -> tuple[SeriesView, ...]:
    """Return the view of each series, ordered by case, device, metric and cache state.

    Args:
        histories: each series in each run, oldest first.
        events: the verdicts that mark an event.
        samples: the samples of the newest runs.
        tonight: the verdicts of tonight's run.
        dirty: the runs with uncommitted changes, which are shown but belong to no level.
        breaks: the runs in which a finding saw a series moved, or back. No level extends across such a run, even if too
            few runs follow it to detect a change.
    """
    ordered = sorted(
        histories,
        key=lambda series: (
            series.case.id,
            series.device_model,
            series.device,
            series.metric != "time",
            series.metric,
        ),
    )
    views = []
    for series in ordered:
        verdicts = {event.run: event.verdict for event in events.get(series, ())}
        points = _points(histories[series], verdicts)
        levels = tuple(_levels([point for point in points if point.run not in dirty], breaks.get(series, ())))
        views.append(SeriesView(series, points, levels, samples.get(series, {}), tonight.get(series)))
    return tuple(views)


def _points(history: Sequence[SeriesInRun], verdicts: Mapping[int, Verdict]) -> tuple[RunPoint, ...]:
    centers, lows, highs = (values.tolist() for values in judge.levels_of(_replicas(history)))
    return tuple(
        RunPoint(
            run=in_run.run,
            segment=in_run.segment,
            status=in_run.status,
            reason=in_run.reason,
            level=center if isfinite(center) else None,
            low=_end(low, in_run.low, in_run.values),
            high=_end(high, in_run.high, in_run.values),
            replicas=len(in_run.values),
            verdict=verdicts.get(in_run.run),
        )
        for in_run, center, low, high in zip(history, centers, lows, highs, strict=True)
    )


def _replicas(history: Sequence[SeriesInRun]) -> NDArray[np.float64]:
    """Return the values of the replicas, one row a run, NaN if a run has fewer replicas."""
    matrix = np.full((len(history), max((len(in_run.values) for in_run in history), default=0) or 1), np.nan)
    for row, in_run in zip(matrix, history, strict=True):
        row[: len(in_run.values)] = in_run.values
    return matrix


def _end(end: float, of_replica: float | None, values: Sequence[float]) -> float | None:
    """Return one end of a run's interval; a run with one replica has the interval of that replica. None if unknown."""
    known = of_replica if len(values) == 1 else end
    return known if known is not None and isfinite(known) else None


def _levels(points: Sequence[RunPoint], breaks: Collection[int]) -> Iterator[LevelRange]:
    edges = [0, *(at for at, point in enumerate(points) if at and point.run in breaks), len(points)]
    for begin, end in pairwise(edges):
        part = points[begin:end]
        for level in judge.split_into_levels([np.nan if point.level is None else point.level for point in part]):
            yield LevelRange(part[level.first].run, part[level.last].run, level.median)
