"""What the pages of series show besides the histories: further metrics, compared nights and full environments."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from perfsvc import judge
from perfsvc.model import (
    MEMORY,
    PRECISIONS,
    TIME,
    CacheState,
    Case,
    DeviceInfo,
    Environment,
    RunRow,
    Series,
    peak_of_case,
)
from perfsvc.report.pages.details import ComparedNights, RunQuantities, SeriesDetails
from perfsvc.report.pages.site import RunPoints, SeriesView
from perfsvc.service.environment import environment_differences
from perfsvc.store import CaseQuantities, Store

COMPARED = 7
"""With how many runs before it the newest run of a series is compared."""


def gather_details(
    store: Store,
    rows: Sequence[RunRow],
    series: Sequence[SeriesView],
    environments: Mapping[int, Environment],
    threshold: judge.ThresholdOption,
    *,
    cases: Collection[Case] | None = None,
) -> SeriesDetails:
    """Return the details of some series.

    Args:
        store: the database.
        rows: the runs of the site.
        series: the histories of these runs.
        environments: by the id of a segment.
        threshold: the thresholds of the settings.
        cases: the cases of the series, by their present names; None for all cases.
    """
    devices = store.devices.all()
    changes = {pair for view in series for pair in _changes(view.points)}
    return SeriesDetails(
        _quantities(store, [row.id for row in rows], series, environments, devices, cases=cases),
        _compared([view for view in series if view.series.metric == TIME], devices, threshold),
        {
            (before, after): differences
            for (before, after), differences in environment_differences(store, changes).items()
            if before is not None
        },
        store.devices.full_environments({int(view.points.runs[-1]) for view in series}),
    )


def _changes(points: RunPoints) -> Iterable[tuple[int, int]]:
    """Yield the runs before and after each change of a series' environment."""
    for at in np.flatnonzero(points.segments[1:] != points.segments[:-1]).tolist():
        yield int(points.runs[at]), int(points.runs[at + 1])


def _quantities(
    store: Store,
    runs: Sequence[int],
    series: Iterable[SeriesView],
    environments: Mapping[int, Environment],
    devices: Mapping[str, DeviceInfo],
    *,
    cases: Collection[Case] | None,
) -> Callable[[Series], RunQuantities | None]:
    """Return a function that returns what the runs measured of a case besides its time, by the series of the time."""
    memory = {
        device: (np.array(sorted(of_runs)), np.array([of_runs[run].best_bytes_per_s for run in sorted(of_runs)]))
        for device, of_runs in store.devices.peaks_of(runs).items()
    }
    peaks = store.devices.all_gpu_peaks()
    stored = store.measurements.quantities(runs, cases)
    names = [*PRECISIONS, ""]  # the index -1 is an unknown precision

    def of_view(view: SeriesView, case: CaseQuantities) -> RunQuantities:
        device, points = devices[view.series.device], view.points
        at = np.searchsorted(case.runs, points.runs).clip(max=len(case.runs) - 1)
        known = case.runs[at] == points.runs
        moved, flops, link = (
            np.where(known, column[at], 0.0) for column in (case.moved_bytes, case.flops, case.link_bytes)
        )
        precision = np.where(known, case.precision[at], -1)
        level = np.where(points.level > 0, points.level, np.nan)
        peak, share = [""] * len(points), np.full(len(points), np.nan)
        # The work and the other peaks hardly ever change, so each part of the history with the same ones is one step.
        columns = (moved, flops, link, precision, points.segments)
        edges = np.flatnonzero(np.logical_or.reduce([column[1:] != column[:-1] for column in columns])) + 1
        for begin, end in pairwise([0, *edges.tolist(), len(points)]):
            environment = environments[int(points.segments[begin])]
            rates = dict(peaks.get((view.series.device, environment.driver, environment.power_limit_w), {}))
            usual = rates.pop(MEMORY, np.nan)
            of_runs = np.full(end - begin, usual)
            if view.series.device in memory:
                numbers, best = memory[view.series.device]
                place = np.searchsorted(numbers, points.runs[begin:end]).clip(max=numbers.size - 1)
                of_runs = np.where(numbers[place] == points.runs[begin:end], best[place], usual)
            work = int(moved[begin]), int(flops[begin]), names[int(precision[begin])]
            of_case = partial(
                peak_of_case, 1.0, *work, warm=view.series.cache is CacheState.WARM, l2_bytes=device.l2_bytes
            )
            # A share is inversely proportional to the time: these are the shares of a launch of one second.
            bytes_s = of_case({MEMORY: 1.0})
            other = of_case(rates, link_bytes=int(link[begin]))
            in_memory = (bytes_s.share if bytes_s else np.nan) / of_runs
            elsewhere = other.share if other else np.nan
            is_memory = ~(in_memory < elsewhere) & ~np.isnan(in_memory)
            share[begin:end] = np.fmax(in_memory, elsewhere) / level[begin:end]
            names_of_peaks = np.where(is_memory, MEMORY, other.peak if other else "")
            peak[begin:end] = np.where(np.isnan(share[begin:end]), "", names_of_peaks).tolist()
        return RunQuantities(
            np.where(known, case.max_error[at], np.nan),
            np.where(moved > 0, moved, np.nan) / level,
            peak,
            share,
            np.where(known, case.registers[at], np.nan),
            np.where(known, case.spilled_bytes[at], np.nan),
        )

    times = {view.series: view for view in series if view.series.metric == TIME}

    @lru_cache(maxsize=16)  # the page of a series asks several times
    def of_series(of_one: Series) -> RunQuantities | None:
        view, case = times.get(of_one), stored.get(of_one)
        return of_view(view, case) if view and case else None

    return of_series


def _compared(
    views: Sequence[SeriesView], devices: Mapping[str, DeviceInfo], threshold: judge.ThresholdOption
) -> dict[Series, tuple[ComparedNights, ...]]:
    """Return the verdicts on the newest run of each series with samples against some runs before it, the newest first.

    A series without samples is absent.
    """
    shown: list[tuple[Series, int, list[int]]] = []
    candidates = []
    for view in views:
        series, samples = view.series, view.samples
        if samples:
            newest, *before = sorted(samples, reverse=True)
            shown.append((series, newest, before[:COMPARED]))
            smallest = judge.threshold_of(series.case, TIME, devices[series.device].kind, threshold)
            candidates.append(([samples[run] for run in before[:COMPARED]], samples[newest], smallest))
    return {
        series: tuple(
            ComparedNights(run, newest, of.ratio, of.low, of.high, of.verdict.value, of.reason)
            for run, of in zip(runs, comparisons, strict=True)
        )
        for (series, newest, runs), comparisons in zip(shown, judge.compare_with_each(candidates), strict=True)
    }
