"""The pages of benchmarks: which variant is the fastest, on which GPU model, at which size, and since when."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf, log
from statistics import median
from typing import Literal, TypeGuard

from perfsvc.model import TIME, CacheState, Finding, MovedSeries, RunRow, Series, Status, Value
from perfsvc.report import peaks, wording
from perfsvc.report.pages.site import RunPoint, SeriesView, Site

RETIRED_AFTER = 3
"""A variant is no longer compared after so many runs of the same cases without it. A run whose time budget is used up
may lack a variant; the next run then begins with it."""

Point = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class PointChoice:
    """What the chooser of a page offers: a point of the axes in a cache state."""

    point: Point
    cache: CacheState

    @property
    def text(self) -> str:
        """The point as people read it: ``n=4096, dtype=f32 warm``; ``all sizes`` for a benchmark without axes."""
        values = ", ".join(f"{axis}={value}" for axis, value in self.point)
        cache = "" if self.cache is CacheState.COLD else self.cache.value
        return " ".join(filter(None, (values, cache))) or "the only size"

    @property
    def size(self) -> tuple[float, bool]:
        """Grows with each numeric axis; of equal points, the cold one is the larger."""
        numbers = (value for _, value in self.point if is_number(value) and value > 0)
        return sum(map(log, numbers)), self.cache is CacheState.COLD


@dataclass(frozen=True, slots=True)
class VariantBar:
    """A variant at a point on the GPUs of a model, in the newest run that measured it there.

    Attributes:
        series: its series, one for each GPU of the model that this run used.
        run: the number of this run.
        status: ``ok`` if a GPU has a time, else that of the worst GPU.
        reason: why a GPU has no time; empty if all of them have one.
        time_s: the median over the GPUs, in seconds; None if no GPU has a time.
        low_s: the lower end of the time's interval, the lowest over the GPUs; None if it is unknown.
        high_s: the upper end, the highest over the GPUs.
        peak: the measured peak that the variant comes nearest to; empty if none is known.
        peak_share: its share of this peak, the median over the GPUs.
        bandwidth_bytes_per_s: the median over the GPUs; None if the work is unknown.
        flops_per_s: likewise.
        relative_to: the reference variant; empty if there is none.
        relative_speed: the speed over that of the reference variant.
        dirty: True if the run had uncommitted changes.
    """

    series: tuple[Series, ...]
    run: int
    status: Status
    reason: str = ""
    time_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    peak: str = ""
    peak_share: float | None = None
    bandwidth_bytes_per_s: float | None = None
    flops_per_s: float | None = None
    relative_to: str = ""
    relative_speed: float | None = None
    dirty: bool = False

    @property
    def variant(self) -> str:
        """The name of the variant."""
        return self.series[0].case.variant


@dataclass(frozen=True, slots=True)
class BestTime:
    """The fastest variant at a run and its time in seconds; None for both if no variant has a correct result."""

    run: int
    variant: str | None
    time_s: float | None


@dataclass(frozen=True, slots=True)
class Reign:
    """Consecutive runs with the same fastest variant: the first and the last run, and its times in them, in seconds."""

    variant: str
    first: int
    last: int
    first_s: float
    last_s: float


@dataclass(frozen=True, slots=True)
class PointPanel:
    """The variants at a point on the GPUs of a model.

    Attributes:
        bars: the fastest variant first, variants without a time last.
        retired: the variants that are no longer measured, each with the last run that measured it.
        history: the fastest variant at each run, oldest first.
        series: the series of all variants.
    """

    choice: PointChoice
    bars: tuple[VariantBar, ...]
    series: tuple[Series, ...] = ()
    retired: tuple[tuple[str, int], ...] = ()
    history: tuple[BestTime, ...] = ()

    @property
    def timed(self) -> list[VariantBar]:
        """The variants with a time, the fastest first."""
        return [bar for bar in self.bars if bar.time_s is not None]

    @property
    def run(self) -> int:
        """The newest run that measured a variant here."""
        return max(bar.run for bar in self.bars)

    def slowness(self, bar: VariantBar) -> float | None:
        """Return the time of a variant over that of the fastest; None without a time."""
        fastest_s = self.timed[0].time_s if self.timed else None
        return bar.time_s / fastest_s if fastest_s and bar.time_s is not None else None

    def is_tied(self, bar: VariantBar) -> bool:
        """Return True if the interval of a slower variant overlaps that of the fastest: noise may order them."""
        fastest = self.timed[0] if self.timed else bar
        if bar is fastest or bar.low_s is None or fastest.high_s is None:
            return False
        return bar.low_s <= fastest.high_s

    @property
    def reigns(self) -> list[Reign]:
        """The fastest variants one after the other, the newest first."""
        known = [best for best in self.history if best.variant is not None and best.time_s is not None]
        reigns = []
        for variant, group in groupby(known, key=lambda best: best.variant or ""):
            runs = list(group)
            reigns.append(Reign(variant, runs[0].run, runs[-1].run, runs[0].time_s or 0.0, runs[-1].time_s or 0.0))
        return reigns[::-1]


@dataclass(frozen=True, slots=True)
class ScalingPanel:
    """How the variants scale over a numeric axis while the other axes and the cache state stay fixed.

    Attributes:
        axis: its name.
        fixed: the values of the other axes.
        places: the indices of the choices that lie on it.
        values: of the axis, in ascending order.
        lines: for each variant, its bar at each value; None where it was not measured.
        quantity: what is drawn beside the time: the share of the nearest peak, or the rate if no peak is known; empty
            if the work is unknown.
    """

    axis: str
    fixed: str
    places: tuple[int, ...]
    values: tuple[float, ...]
    lines: Mapping[str, tuple[VariantBar | None, ...]]
    quantity: Literal["% of peak", "FLOP/s", "B/s", ""]

    def other(self, bar: VariantBar | None) -> float | None:
        """Return what is drawn beside the time of a variant: a fraction, or a rate a second; None if it is unknown."""
        if bar is None or bar.time_s is None:
            return None
        values = {"% of peak": bar.peak_share, "FLOP/s": bar.flops_per_s, "B/s": bar.bandwidth_bytes_per_s}
        return values.get(self.quantity)


@dataclass(frozen=True, slots=True)
class ModelSection:
    """A benchmark on the GPUs of a model; ``panels`` has a panel for each choice of the page that they measured."""

    device_model: str
    devices: tuple[str, ...]
    panels: Mapping[int, PointPanel]
    scalings: tuple[ScalingPanel, ...] = ()


@dataclass(frozen=True, slots=True)
class BenchmarkView:
    """The page of a benchmark.

    Attributes:
        name: the benchmark.
        choices: the points, in ascending order of the numeric axes.
        shown: the index of the choice that a page shows at first: the largest point.
        variants: by name, also those that are no longer measured; the index of a variant is that of its mark.
    """

    name: str
    choices: tuple[PointChoice, ...]
    shown: int
    sections: tuple[ModelSection, ...]
    variants: tuple[str, ...] = ()

    @property
    def present(self) -> int:
        """The number of variants that are still measured."""
        return len(
            {bar.variant for section in self.sections for panel in section.panels.values() for bar in panel.bars}
        )


def is_number(value: Value) -> TypeGuard[int | float]:
    """Return True for the value of a numeric axis; the text ``4096`` is no number, and neither is a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -inf < value < inf


def times_by_benchmark(views: Iterable[SeriesView]) -> dict[str, list[SeriesView]]:
    """Return the times of each benchmark, in the order of the names.

    Series of an older version of the benchmark, and series with excluded runs only, are left out.
    """
    by_name: dict[str, list[SeriesView]] = defaultdict(list)
    for view in views:
        if view.series.metric == TIME and not all(point.excluded for point in view.points):
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
        points = judged_points(view, dirty) if view.series.metric == TIME else []
        if points:
            cases[points[-1].run].add(view.series.case.id)
    return dict(cases)


def judged_points(view: SeriesView, dirty: Collection[int]) -> list[RunPoint]:
    """Return the runs of a series that are compared, oldest first.

    Excluded runs are not; runs with uncommitted changes only if there are no others.
    """
    points = [point for point in view.points if not point.excluded]
    return [point for point in points if point.run not in dirty] or points


def benchmark_view(name: str, views: Sequence[SeriesView], site: Site) -> BenchmarkView:
    """Return the page of a benchmark.

    Args:
        name: the benchmark.
        views: its times, as ``times_by_benchmark`` returns them.
        site: has the runs and the results of the newest ones.
    """
    dirty = {run.id for run in site.runs.values() if run.provenance.dirty}
    groups: dict[str, dict[PointChoice, dict[str, list[tuple[Series, list[RunPoint]]]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for view in views:
        series = view.series
        choice = PointChoice(series.case.point, series.cache)
        by_choice = groups[series.device_model or series.device]
        by_choice[choice][series.case.variant].append((series, judged_points(view, dirty)))
    choices = sorted({choice for by_choice in groups.values() for choice in by_choice}, key=_order)
    places = {choice: place for place, choice in enumerate(choices)}
    sections = []
    for model in sorted(groups):
        panels = {
            places[choice]: _panel(choice, groups[model][choice], site, dirty)
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


def _panel(
    choice: PointChoice,
    variants: Mapping[str, Sequence[tuple[Series, Sequence[RunPoint]]]],
    site: Site,
    dirty: Collection[int],
) -> PointPanel:
    """Return the panel of a point; ``variants`` has the series of each variant, with their runs, oldest first."""
    pooled = {variant: _pooled(points for _, points in every_series) for variant, every_series in variants.items()}
    runs = sorted({run for by_run in pooled.values() for run in by_run})
    retired = {variant: _retired(list(by_run), runs, site.runs) for variant, by_run in pooled.items()}
    bars = [
        _bar(every_series, max(pooled[variant]), site, dirty)
        for variant, every_series in variants.items()
        if retired[variant] is None
    ]
    bars.sort(key=lambda bar: (inf if bar.time_s is None else bar.time_s, bar.status.severity, bar.variant))
    gone = sorted((variant, max(pooled[variant])) for variant, run in retired.items() if run is not None)
    every_series = tuple(series for of_variant in variants.values() for series, _ in of_variant)
    return PointPanel(choice, tuple(bars), every_series, tuple(gone), tuple(_best_times(pooled, runs, retired)))


def _pooled(every_history: Iterable[Sequence[RunPoint]]) -> dict[int, float | None]:
    """Return the time of a variant in each run, the median over the GPUs; None if no GPU has a correct result."""
    levels: dict[int, list[float]] = defaultdict(list)
    for points in every_history:
        for point in points:
            levels[point.run] += [] if point.level is None or point.status is not Status.OK else [point.level]
    return {run: median(values) if values else None for run, values in levels.items()}


def _retired(measured: Sequence[int], runs: Sequence[int], known: Mapping[int, RunRow]) -> int | None:
    """Return the run from which on a variant is no longer compared; None if it still is.

    Only runs with the scope of the last run that measured the variant count: a run of a few selected cases says nothing
    about the others.
    """
    last = max(measured)
    scope = known[last].provenance.scope
    later = [run for run in runs if run > last and scope and known[run].provenance.scope == scope]
    return later[RETIRED_AFTER - 1] if len(later) >= RETIRED_AFTER else None


def _bar(
    every_series: Sequence[tuple[Series, Sequence[RunPoint]]], run: int, site: Site, dirty: Collection[int]
) -> VariantBar:
    """Return the bar of a variant from its series in one run."""
    measured = [(series, points[-1]) for series, points in every_series if points[-1].run == run]
    timed = [point for _, point in measured if point.status is Status.OK and point.level is not None]
    bad = [point for _, point in measured if point.status is not Status.OK]
    worst = max((point.status for point in bad), key=lambda status: status.severity, default=Status.OK)
    lows = [point.low for point in timed if point.low is not None]
    highs = [point.high for point in timed if point.high is not None]
    rows = [
        row
        for series, _ in measured
        if (row := site.results.get((run, (series.device, series.case.id, series.cache)))) and row.median_s is not None
    ]
    near = [row for row in rows if row.peak and row.peak == next(other.peak for other in rows if other.peak)]
    return VariantBar(
        series=tuple(series for series, _ in measured),
        run=run,
        status=Status.OK if timed else worst,
        reason=_reasons(bad, len(measured)),
        time_s=_median(point.level for point in timed),
        low_s=min(lows) if timed and len(lows) == len(timed) else None,
        high_s=max(highs) if timed and len(highs) == len(timed) else None,
        peak=near[0].peak if near else "",
        peak_share=_median(row.peak_share for row in near),
        bandwidth_bytes_per_s=_median(row.bandwidth_bytes_per_s for row in rows),
        flops_per_s=_median(row.flops_per_s for row in rows),
        relative_to=next((row.relative_to for row in rows if row.relative_to), ""),
        relative_speed=_median(row.relative_speed for row in rows),
        dirty=run in dirty,
    )


def _reasons(bad: Sequence[RunPoint], measured: int) -> str:
    """Return why GPUs have no time, each reason once; with their number and status if other GPUs have a time."""
    if 0 < len(bad) < measured:
        texts = dict.fromkeys(f"{point.status.value}: {point.reason}" for point in bad)
        return f"{len(bad)} of {measured} GPUs {'; '.join(texts)}"
    return "; ".join(dict.fromkeys(point.reason for point in bad))


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


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
        best = min(times, key=lambda variant: (times[variant], variant), default=None)
        yield BestTime(run, best, None if best is None else times[best])


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


# --- findings --------------------------------------------------------------------------------------------------------


def findings_at(
    panel: PointPanel, findings_of: Mapping[Series, Sequence[tuple[Finding, MovedSeries]]]
) -> dict[int, list[tuple[Finding, MovedSeries]]]:
    """Return the findings on the series of a point by the run in which they begin, the oldest run first.

    Args:
        panel: the point.
        findings_of: the findings on each series.
    """
    runs = {best.run for best in panel.history}
    by_run: dict[int, list[tuple[Finding, MovedSeries]]] = defaultdict(list)
    for series in panel.series:
        for finding, moved in findings_of.get(series, ()):
            first = moved.first_run or finding.first_run
            if first in runs and all(finding.id != other.id for other, _ in by_run[first]):
                by_run[first].append((finding, moved))
    return {run: by_run[run] for run in sorted(by_run)}


@dataclass(frozen=True, slots=True)
class BenchmarkOnModel:
    """A row of the list of benchmarks: the largest point of a benchmark that the GPUs of a model measured."""

    benchmark: str
    device_model: str
    panel: PointPanel


def rows_of_list(view: BenchmarkView) -> Iterator[BenchmarkOnModel]:
    """Yield a row of the list of benchmarks for each GPU model."""
    for section in view.sections:
        place = max(section.panels, key=lambda place: view.choices[place].size)
        yield BenchmarkOnModel(view.name, section.device_model, section.panels[place])


# --- words -----------------------------------------------------------------------------------------------------------


def slowness_text(panel: PointPanel, bar: VariantBar) -> str:
    """Return how a variant compares with the fastest: ``fastest``, ``1.32×``; empty without a time."""
    if bar.time_s is None:
        return ""
    if panel.timed[0] is bar:
        return "fastest" if len(panel.bars) > 1 else "the only one"
    slowness = panel.slowness(bar)
    return "" if slowness is None else wording.speed(slowness)
