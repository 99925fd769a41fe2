"""Finds what the page of a benchmark shows: the fastest variants, how they scale, and who was the fastest before."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf, isnan
from statistics import median
from typing import Literal

import numpy as np

from perfsvc.model import TIME, CacheState, RunRow, Status
from perfsvc.report import peaks
from perfsvc.report.pages.benchmarks import (
    BenchmarkView,
    BestTime,
    ModelSection,
    Point,
    PointChoice,
    PointPanel,
    ScalingPanel,
    VariantBar,
    is_number,
    references,
)
from perfsvc.report.pages.site import RunPoint, SeriesView
from perfsvc.report.rows import Key, ResultRow

RETIRED_AFTER = 3
"""A variant is no longer compared after so many runs of the same cases without it. A run whose time budget is used up
may lack a variant; the next run then begins with it."""

Results = Mapping[tuple[int, Key], ResultRow]
"""The results of the newest run of each case, by run, and by device, case and cache state, as reports show them."""


def times_by_benchmark(views: Iterable[SeriesView]) -> dict[str, list[SeriesView]]:
    """Return the times of each benchmark, in the order of the names.

    Series of an older version of the benchmark are left out.
    """
    by_name: dict[str, list[SeriesView]] = defaultdict(list)
    for view in views:
        if view.series.metric == TIME:
            by_name[view.series.case.benchmark].append(view)
    newest = {name: max(view.series.case.version for view in of_name) for name, of_name in by_name.items()}
    return {
        name: [view for view in by_name[name] if view.series.case.version == newest[name]] for name in sorted(by_name)
    }


def newest_runs(views: Iterable[SeriesView], dirty: Collection[int]) -> dict[int, set[str]]:
    """Return the runs from which the pages of benchmarks take their bars, each with the ids of its cases.

    Args:
        views: of all series.
        dirty: the runs with uncommitted changes.
    """
    cases: dict[int, set[str]] = defaultdict(set)
    for view in views:
        if view.series.metric == TIME:
            cases[int(view.points.runs[judged(view, dirty)[-1]])].add(view.series.case.id)
    return dict(cases)


def judged(view: SeriesView, dirty: Collection[int]) -> list[int]:
    """Return the indices of the runs of a series that are compared, oldest first.

    Excluded runs, and runs with uncommitted changes, are compared only if there are no others.
    """
    runs = view.points.runs
    known = np.ones(runs.size, np.bool_)
    known[list(view.points.excluded)] = False
    clean = known & ~np.isin(runs, list(dirty)) if dirty else known
    chosen: list[int] = np.flatnonzero(clean if clean.any() else known if known.any() else ~known).tolist()
    return chosen


def benchmark_view(
    name: str, views: Sequence[SeriesView], runs: Mapping[int, RunRow], results: Results
) -> BenchmarkView:
    """Return the page of a benchmark.

    Args:
        name: the benchmark.
        views: its times, as ``times_by_benchmark`` returns them.
        runs: by number; those of the times at least.
        results: those of the runs from which the bars are.
    """
    dirty = {run.id for run in runs.values() if run.provenance.dirty}
    groups: dict[str, dict[PointChoice, dict[str, list[_Judged]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for view in views:
        series = view.series
        choice = PointChoice(series.case.point, series.cache)
        by_choice = groups[series.device_model or series.device]
        by_choice[choice][series.case.variant].append((view, judged(view, dirty)))
    choices = sorted({choice for by_choice in groups.values() for choice in by_choice}, key=_order)
    places = {choice: place for place, choice in enumerate(choices)}
    sections = []
    for model in sorted(groups):
        panels = {
            places[choice]: _panel(choice, groups[model][choice], runs, results)
            for choice in sorted(groups[model], key=places.__getitem__)
        }
        devices = {series.device for panel in panels.values() for series in panel.series}
        sections.append(ModelSection(model, tuple(sorted(devices)), panels, tuple(_scalings(panels))))
    variants = sorted({view.series.case.variant for view in views})
    shown = max(range(len(choices)), key=lambda place: choices[place].size)
    return BenchmarkView(name, tuple(choices), shown, tuple(sections), tuple(variants))


def _order(choice: PointChoice) -> tuple[object, ...]:
    """Sort points as people do: axis by axis, numbers by their value and before texts, cold before warm."""
    axes = [(axis, not is_number(value), value if is_number(value) else str(value)) for axis, value in choice.point]
    return (axes, choice.cache is not CacheState.COLD)


# --- bars ------------------------------------------------------------------------------------------------------------


_Judged = tuple[SeriesView, list[int]]
"""A series with the indices of its runs that are compared."""


def _panel(
    choice: PointChoice, variants: Mapping[str, Sequence[_Judged]], known: Mapping[int, RunRow], results: Results
) -> PointPanel:
    """Return the panel of a point; ``variants`` has the series of each variant."""
    pooled = {variant: _pooled(every_series) for variant, every_series in variants.items()}
    runs = sorted({run for by_run in pooled.values() for run in by_run})
    retired = {variant: _retired(list(by_run), runs, known) for variant, by_run in pooled.items()}
    bars = [
        _bar(every_series, known[max(pooled[variant])], results)
        for variant, every_series in variants.items()
        if retired[variant] is None
    ]
    bars.sort(key=lambda bar: (inf if bar.time_s is None else bar.time_s, bar.status.severity, bar.variant))
    gone = sorted((variant, max(pooled[variant])) for variant, run in retired.items() if run is not None)
    all_series = tuple(view.series for of_variant in variants.values() for view, _ in of_variant)
    ranked = {variant: by_run for variant, by_run in pooled.items() if variant not in references(bars)}
    return PointPanel(choice, tuple(bars), all_series, tuple(gone), tuple(_best_times(ranked, runs, retired)))


def _pooled(every_series: Sequence[_Judged]) -> dict[int, float | None]:
    """Return the time of a variant in each run, the median over the GPUs; None if no GPU has a correct result."""
    if len(every_series) == 1:
        ((view, judged_runs),) = every_series
        numbers, values, bad = view.points.runs.tolist(), view.points.level.tolist(), view.points.bad
        return {numbers[at]: None if at in bad or isnan(values[at]) else values[at] for at in judged_runs}
    levels: dict[int, list[float]] = {}
    for view, judged_runs in every_series:
        numbers, values, bad = view.points.runs.tolist(), view.points.level.tolist(), view.points.bad
        for at in judged_runs:
            of_run = levels.setdefault(numbers[at], [])
            if at not in bad and not isnan(values[at]):
                of_run.append(values[at])
    return {run: _median(values) for run, values in levels.items()}


def _retired(measured: Sequence[int], runs: Sequence[int], known: Mapping[int, RunRow]) -> int | None:
    """Return the run from which on a variant is no longer compared; None if it still is.

    Only runs with the scope of the last run that measured the variant count: a run of a few selected cases says nothing
    about the others.
    """
    last = max(measured)
    scope = known[last].provenance.scope
    later = [run for run in runs if run > last and scope and known[run].provenance.scope == scope]
    return later[RETIRED_AFTER - 1] if len(later) >= RETIRED_AFTER else None


def _bar(every_series: Sequence[_Judged], run: RunRow, results: Results) -> VariantBar:
    """Return the bar of a variant from its series in one run."""
    newest = ((view.series, view.points[judged_runs[-1]]) for view, judged_runs in every_series)
    measured = [(series, point) for series, point in newest if point.run == run.id]
    timed = [point for _, point in measured if point.status is Status.OK and point.level is not None]
    bad = [point for _, point in measured if point.status is not Status.OK]
    worst = max((point.status for point in bad), key=lambda status: status.severity, default=Status.OK)
    lows = [point.low for point in timed if point.low is not None]
    highs = [point.high for point in timed if point.high is not None]
    rows = [
        row
        for series, _ in measured
        if (row := results.get((run.id, (series.device, series.case.id, series.cache)))) and row.median_s is not None
    ]
    near = [row for row in rows if row.peak and row.peak == next(other.peak for other in rows if other.peak)]
    return VariantBar(
        series=tuple(series for series, _ in measured),
        run=run.id,
        status=Status.OK if timed else worst,
        reason=_reasons(bad, len(measured)) or _why_excluded(point for _, point in measured),
        time_s=_median(point.level for point in timed),
        low_s=min(lows) if timed and len(lows) == len(timed) else None,
        high_s=max(highs) if timed and len(highs) == len(timed) else None,
        peak=near[0].peak if near else "",
        peak_share=_median(row.peak_share for row in near),
        bandwidth_bytes_per_s=_median(row.bandwidth_bytes_per_s for row in rows),
        flops_per_s=_median(row.flops_per_s for row in rows),
        relative_to=next((row.relative_to for row in rows if row.relative_to), ""),
        relative_speed=_median(row.relative_speed for row in rows),
        dirty=run.provenance.dirty,
    )


def _reasons(bad: Sequence[RunPoint], measured: int) -> str:
    """Return why GPUs have no time, each reason once; with their number and status if other GPUs have a time."""
    if 0 < len(bad) < measured:
        texts = dict.fromkeys(f"{point.status.value}: {point.reason}" for point in bad)
        return f"{len(bad)} of {measured} GPUs {'; '.join(texts)}"
    return "; ".join(dict.fromkeys(point.reason for point in bad))


def _why_excluded(points: Iterable[RunPoint]) -> str:
    """Return why the runs of a variant are excluded from judging; empty if it has others, which are shown instead."""
    return "; ".join(dict.fromkeys(f"excluded: {point.excluded}" for point in points if point.excluded))


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return (median(known) if len(known) > 1 else known[0]) if known else None


def _best_times(
    pooled: Mapping[str, Mapping[int, float | None]], runs: Sequence[int], retired: Mapping[str, int | None]
) -> Iterator[BestTime]:
    """Yield the fastest variant at each run; in a run that lacks a variant, the variant keeps its time."""
    times: dict[str, float] = {}
    for run in runs:
        for variant, by_run in pooled.items():
            if run in by_run:
                time = by_run[run]
                if time is None:
                    times.pop(variant, None)
                else:
                    times[variant] = time
            elif retired[variant] == run:
                times.pop(variant, None)
        time, best = min(zip(times.values(), times, strict=True), default=(None, None))
        yield BestTime(run, best, time)


# --- scaling ---------------------------------------------------------------------------------------------------------


def _scalings(panels: Mapping[int, PointPanel]) -> Iterator[ScalingPanel]:
    """Yield a panel for each numeric axis with at least two values, and for each point of the other axes."""
    axes = dict.fromkeys(axis for panel in panels.values() for axis, value in panel.choice.point if is_number(value))
    for axis in axes:
        groups: dict[tuple[Point, CacheState], dict[float, int]] = defaultdict(dict)
        for place, panel in panels.items():
            values = dict(panel.choice.point)
            if axis in values and is_number(values[axis]):
                others = tuple((name, value) for name, value in panel.choice.point if name != axis)
                groups[others, panel.choice.cache][float(values[axis])] = place
        for (others, cache), places in groups.items():
            if len(places) > 1:
                fixed = PointChoice(others, cache).text if others or cache is not CacheState.COLD else ""
                yield _scaling(axis, fixed, dict(sorted(places.items())), panels)


def _scaling(axis: str, fixed: str, places: Mapping[float, int], panels: Mapping[int, PointPanel]) -> ScalingPanel:
    """Return the panel of an axis; ``places`` has the index of the choice at each of its values, in ascending order."""
    bars = [{bar.variant: bar for bar in panels[place].bars} for place in places.values()]
    variants = sorted({variant for at_value in bars for variant in at_value})
    lines = {variant: tuple(at_value.get(variant) for at_value in bars) for variant in variants}
    every_bar = [bar for at_value in bars for bar in at_value.values()]
    arithmetic = any(peaks.is_arithmetic(bar.flops_per_s, bar.bandwidth_bytes_per_s) for bar in every_bar)
    quantity: Literal["% of peak", "FLOP/s", "B/s", ""] = ""
    if any(bar.peak_share is not None for bar in every_bar):
        quantity = "% of peak"
    elif arithmetic:
        quantity = "FLOP/s"
    elif any(bar.bandwidth_bytes_per_s for bar in every_bar):
        quantity = "B/s"
    return ScalingPanel(axis, fixed, tuple(places.values()), tuple(places), lines, quantity)
