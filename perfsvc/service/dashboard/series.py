"""The series of the site: the points and levels of their histories, for many series at once."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from perfsvc import judge
from perfsvc.model import MAX_ERROR, TIME, Case, Finding, Series
from perfsvc.report.pages.site import LevelRange, RunPoint, RunPoints, SeriesView
from perfsvc.report.wording import Outcome, outcome
from perfsvc.store import RunRow, SeriesHistory, Store

SAMPLED = 14
"""How many of the newest runs have their samples, and a comparison with their baseline, on the pages."""


def read_series(
    store: Store,
    rows: Sequence[RunRow],
    tonight: RunRow | None,
    findings: Sequence[Finding],
    cases: Collection[Case] | None = None,
) -> tuple[SeriesView, ...]:
    """Return the view of every series, in order; a series of errors only if a finding or an event reports this series.

    No level extends across a run in which a finding saw the series move, or return to its old level, even if too few
    runs follow it to detect a change. Runs with uncommitted changes are shown but belong to no level.

    Args:
        store: the database.
        rows: the runs on the pages, newest first.
        tonight: the run whose verdicts the pages show.
        findings: all findings.
        cases: the cases whose series are returned, by their present names; None for all.
    """
    runs = [row.id for row in rows]
    events = store.verdicts.events(runs, cases)
    breaks: dict[Series, set[int]] = defaultdict(set)
    for finding in findings:
        for moved in finding.moved:
            breaks[moved.series] |= {run for run in (moved.first_run or finding.first_run, moved.recovered_run) if run}
    errors = {series for series in (*breaks, *events) if series.metric == MAX_ERROR}
    histories = store.series.histories(runs, errors=errors, cases=cases)
    verdicts = {row.series: row for row in store.verdicts.of_run(tonight.id, cases)} if tonight else {}
    ordered = sorted(histories, key=place)
    points = [
        _points(histories[series], {event.run: outcome(event) for event in events.get(series, ())})
        for series in ordered
    ]
    dirty = {row.id for row in rows if row.provenance.dirty}
    levels = _levels(points, dirty, [breaks.get(series, ()) for series in ordered])
    samples = store.series.samples(runs[:SAMPLED], {series.case for series in ordered if series.metric == TIME})
    return tuple(
        SeriesView(series, of_series, verdicts.get(series), divided, samples.get(series, {}))
        for series, of_series, divided in zip(ordered, points, levels, strict=True)
    )


def read_newest(
    store: Store, rows: Sequence[RunRow], tonight: RunRow | None, findings: Sequence[Finding], most: int
) -> tuple[SeriesView, ...]:
    """Return the views that ``read_series`` returns, as lists show them: without levels, samples and verdicts of runs.

    They have at least the newest ``most`` points of each series, and may lack older points. This is several times as
    fast.

    Args:
        store: the database.
        rows: the runs on the pages, newest first.
        tonight: the run whose verdicts the pages show.
        findings: all findings.
        most: how many points.
    """
    runs = [row.id for row in rows]
    errors = reported_errors(store, runs, findings)
    histories = store.series.newest_histories(runs, most, errors=errors)
    verdicts = {row.series: row for row in store.verdicts.of_run(tonight.id)} if tonight else {}
    ordered = sorted(histories, key=place)
    return tuple(SeriesView(series, _points(histories[series], {}), verdicts.get(series)) for series in ordered)


def reported_errors(store: Store, runs: Sequence[int], findings: Sequence[Finding]) -> set[Series]:
    """Return the series of errors of results that a finding or an event of these runs reports."""
    errors = {moved.series for finding in findings for moved in finding.moved if moved.series.metric == MAX_ERROR}
    return errors | store.verdicts.events(runs, metric=MAX_ERROR).keys()


def unsuccessful(store: Store, run: int) -> list[tuple[Series, RunPoint]]:
    """Return the series that a run measured without a correct result, in order; excluded data is left out."""
    found = []
    for series, history in store.series.unsuccessful(run).items():
        found.append((series, RunPoint(run, int(history.segments[0]), *history.bad[0])))
    return sorted(found, key=lambda item: place(item[0]))


def series_with_pages(store: Store, rows: Sequence[RunRow], findings: Sequence[Finding]) -> set[Series]:
    """Return every series that the site has: all that its runs measured, without errors that nothing reports."""
    runs = [row.id for row in rows]
    errors = reported_errors(store, runs, findings)
    return {series for series in store.series.measured(runs) if series.metric != MAX_ERROR or series in errors}


def place(series: Series) -> tuple[str, str, str, bool, str]:
    """Return the key by which series are ordered on the pages."""
    return series.case.id, series.device_model, series.device, series.metric != TIME, series.metric


def _points(history: SeriesHistory, verdicts: Mapping[int, Outcome]) -> RunPoints:
    """Return a series in each run, with its verdict if ``verdicts`` has one for the run."""
    numbers = history.runs.tolist() if verdicts else ()
    return RunPoints(
        history.runs,
        history.segments,
        history.level,
        history.low,
        history.high,
        history.replicas,
        history.bad,
        {index: verdicts[run] for index, run in enumerate(numbers) if run in verdicts},
        history.excluded,
    )


def _levels(
    series: Sequence[RunPoints], dirty: Collection[int], breaks: Sequence[Collection[int]]
) -> list[tuple[LevelRange, ...]]:
    """Return the levels of each series with their first and last run; a new level begins at each run in its breaks."""
    not_clean = np.array(sorted(dirty), np.int64)
    parts = [list(_parts(points, not_clean, at)) for points, at in zip(series, breaks, strict=True)]
    divided = iter(
        judge.split_all_into_levels([points.level[at] for of, points in zip(parts, series, strict=True) for at in of])
    )
    return [
        tuple(
            LevelRange(int(points.runs[at[level.first]]), int(points.runs[at[level.last]]), level.median)
            for at in of_series
            for level in next(divided)
        )
        for of_series, points in zip(parts, series, strict=True)
    ]


def _parts(points: RunPoints, dirty: NDArray[np.int64], breaks: Collection[int]) -> Iterator[NDArray[np.intp]]:
    """Yield the indices of the judged runs of a series, from one break to the next."""
    judged = ~np.isin(points.runs, dirty)
    judged[list(points.excluded)] = False
    at = np.flatnonzero(judged)
    edges = np.flatnonzero(np.isin(points.runs[at], list(breaks)))
    for begin, end in pairwise([0, *edges[edges > 0].tolist(), at.size]):
        yield at[begin:end]
