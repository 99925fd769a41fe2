"""What the pages of series show besides the histories: further metrics, compared nights and full environments."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

import numpy as np

from perfsvc import judge
from perfsvc.model import MEMORY, TIME, CacheState, Case, DeviceInfo, Environment, Rates, RunRow, Series, peak_of_case
from perfsvc.report.pages.details import ComparedNights, RunQuantities, SeriesDetails
from perfsvc.report.pages.site import RunPoint, RunPoints, SeriesView
from perfsvc.service.environment import environment_differences
from perfsvc.store import CaseQuantities, Store

COMPARED = 7
"""With how many runs before it the newest run of a series is compared. A comparison takes about half a millisecond."""


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
        {view.series: _compared(view, devices, threshold) for view in series if view.samples},
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
) -> dict[Series, dict[int, RunQuantities]]:
    """Return what the runs measured of each case besides its time, by the series of the time and by run."""
    memory = store.devices.peaks_of(runs)
    peaks = store.devices.all_gpu_peaks()
    stored = store.measurements.quantities(runs, cases)

    @cache
    def rates_of(device: str, run: int, segment: int) -> Rates:
        environment = environments[segment]
        rates = dict(peaks.get((device, environment.driver, environment.power_limit_w), {}))
        if measured := memory.get(device, {}).get(run):
            rates[MEMORY] = measured.best_bytes_per_s
        return rates

    def of_point(view: SeriesView, point: RunPoint, case: CaseQuantities) -> RunQuantities:
        nearest = peak_of_case(
            point.level,
            case.moved_bytes,
            case.flops,
            case.precision,
            rates_of(view.series.device, point.run, point.segment),
            warm=view.series.cache is CacheState.WARM,
            l2_bytes=devices[view.series.device].l2_bytes,
            link_bytes=case.link_bytes,
        )
        return RunQuantities(
            case.max_error,
            case.moved_bytes / point.level if case.moved_bytes and point.level else None,
            nearest.peak if nearest else "",
            nearest.share if nearest else None,
            case.registers,
            case.spilled_bytes,
        )

    return {
        view.series: {
            point.run: of_point(view, point, of_series[point.run]) for point in view.points if point.run in of_series
        }
        for view in series
        if view.series.metric == TIME and (of_series := stored.get(view.series))
    }


def _compared(
    view: SeriesView, devices: Mapping[str, DeviceInfo], threshold: judge.ThresholdOption
) -> tuple[ComparedNights, ...]:
    """Return the verdicts on the newest run with samples against the runs with samples before it, the newest first."""
    newest, *before = sorted(view.samples, reverse=True)
    smallest = judge.threshold_of(view.series.case, TIME, devices[view.series.device].kind, threshold)
    samples = {run: [np.asarray(replica) for replica in view.samples[run]] for run in (newest, *before[:COMPARED])}
    found = []
    for run in before[:COMPARED]:
        comparison = judge.compare(samples[run], samples[newest], threshold=smallest)
        found.append(
            ComparedNights(
                run,
                newest,
                comparison.ratio,
                comparison.low,
                comparison.high,
                comparison.verdict.value,
                comparison.reason,
            )
        )
    return tuple(found)
