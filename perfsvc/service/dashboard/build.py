"""Build the site: read the store, render the pages, write them."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import pairwise
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfsvc import judge
from perfsvc.errors import MissingPackageError
from perfsvc.installation import install_command
from perfsvc.model import MAX_ERROR, Finding, FindingEvent, Judgement, Series
from perfsvc.report.pages import render
from perfsvc.report.pages.site import DevicePanel, FindingView, LevelRange, RunPoint, SeriesView, Site
from perfsvc.report.rows import EnvironmentDifferences
from perfsvc.report.wording import Outcome, outcome
from perfsvc.service.compare.side_by_side import against_baselines
from perfsvc.service.dashboard.benchmark_results import newest_results
from perfsvc.service.dashboard.folder import writing
from perfsvc.service.dashboard.pictures import FindingPictures
from perfsvc.service.environment import environment_differences, of_findings
from perfsvc.store import (
    DeviceConditions,
    NightRow,
    RunRow,
    RunState,
    SeriesInRun,
    StageRow,
    StageState,
    Store,
    VerdictEvent,
)

LAST = 400
"""The default number of runs on the pages: somewhat more than a year of nights."""

SAMPLED = 14
"""How many of the newest runs have their samples, and a comparison with their baseline, on the pages."""

PLOTLY = "assets/plotly.min.js"

Samples = Mapping[int, tuple[tuple[float, ...], ...]]


def build(store: Store, folder: Path, *, last: int = LAST, threshold: judge.ThresholdOption = None) -> list[Path]:
    """Write the site and return the paths of its pages, the first page first.

    Each page is replaced in a single step, and the first page last. So readers always see whole pages. Pages of an
    earlier build that are not needed any more are removed; files that perfsvc did not write are kept.

    Args:
        store: the database.
        folder: where to write; made if it does not exist.
        last: how many of the newest runs to show.
        threshold: the thresholds of the settings, which the comparisons of runs show.

    Raises:
        MissingPackageError: plotly is not installed.
        UsageError: the folder is a file, or has a link in place of a folder, or holds files of the same names that
            perfsvc did not write.
        InfrastructureError: the folder cannot be written to.
    """
    plotly = _plotly()
    site = gather(store, last, datetime.now(UTC), threshold)
    files = {PLOTLY: plotly, **{name: text.encode() for name, text in render.assets()}}
    pages = {name: text.encode() for name, text in render.pages(site, PLOTLY, FindingPictures(store, site).cases)}
    with writing(folder, [*files, *pages]) as opened:
        for name, content in (files | pages).items():
            opened.write(name, content)
    return [folder / name for name in reversed(pages)]


def _plotly() -> bytes:
    """Return plotly.js from the package plotly, without importing the package."""
    package = find_spec("plotly")
    script = Path(package.origin or "").parent / "package_data" / "plotly.min.js" if package else None
    if script is None or not script.is_file():
        raise MissingPackageError(
            "the pages need plotly.js, and the package plotly is not installed", cure=install_command("nightly")
        )
    return script.read_bytes()


def gather(store: Store, last: int, now: datetime, threshold: judge.ThresholdOption = None) -> Site:
    """Collect what the pages show about the newest ``last`` runs, without runs that still run or measured nothing."""
    rows = [row for row in store.runs.list(last) if row.state is not RunState.RUNNING and row.counts]
    # The newest night counts even if it ended before its run began: its stages say why.
    night = next(iter(store.nights.list(1)), None)
    tonight = _tonight(rows, night)
    verdicts = store.verdicts.of_run(tonight.id) if tonight else []
    findings = store.findings.all()
    series = _series(store, rows, verdicts, findings)
    return Site(
        made=now,
        runs={row.id: row for row in reversed(rows)},
        tonight=tonight,
        series=series,
        findings=_findings(store, findings, tonight, night),
        verdicts=tuple(verdicts),
        devices=_devices(store, tonight, [row.id for row in rows]),
        environments=store.devices.environments(),
        stages=_stages(night),
        night=night.id if night and tonight and night.run == tonight.id else None,
        idle=night.id if night and night.run is None else None,
        environment=_environment(store, rows, tonight),
        comparisons=against_baselines(store, rows[:SAMPLED], threshold),
        results=newest_results(store, series, {row.id for row in rows if row.provenance.dirty}),
    )


def _tonight(rows: Sequence[RunRow], night: NightRow | None) -> RunRow | None:
    """Return the run that the first page shows.

    This is the newest night's run, else the newest run without uncommitted changes, else the newest run. Excluded runs
    are passed over.
    """
    by_number = {row.id: row for row in rows if not row.why_excluded}
    if night and night.run in by_number:
        return by_number[night.run]
    clean = (row for row in by_number.values() if not row.provenance.dirty)
    return next(clean, next(iter(by_number.values()), None))


def _series(
    store: Store, rows: Sequence[RunRow], verdicts: Sequence[Judgement], findings: Sequence[Finding]
) -> tuple[SeriesView, ...]:
    """Return the view of every series; a series of errors only if a finding or an event reports this series."""
    runs = [row.id for row in rows]
    events = store.verdicts.events(runs)
    breaks: dict[Series, set[int]] = defaultdict(set)
    for finding in findings:
        for moved in finding.moved:
            breaks[moved.series] |= {run for run in (moved.first_run or finding.first_run, moved.recovered_run) if run}
    errors = {series for series in (*breaks, *events) if series.metric == MAX_ERROR}
    histories = {
        series: history
        for series, history in store.series.histories(runs, errors=bool(errors)).items()
        if series.metric != MAX_ERROR or series in errors
    }
    return series_views(
        histories,
        events,
        store.series.samples(runs[:SAMPLED]),
        {judgement.series: judgement for judgement in verdicts},
        dirty={row.id for row in rows if row.provenance.dirty},
        breaks=breaks,
    )


def _findings(
    store: Store, findings: Sequence[Finding], tonight: RunRow | None, night: NightRow | None
) -> tuple[FindingView, ...]:
    """Return each finding with its events, and as its news the kind of its last event in tonight's run or night."""
    is_news = {("run", tonight.id if tonight else 0), ("night", night.id if night else 0)}
    events: dict[int, list[FindingEvent]] = defaultdict(list)
    for event in store.findings.events():
        events[event.finding].append(event)
    changed = of_findings(store, findings)
    views = []
    for finding in findings:
        of_finding = events[finding.id]
        news = next(
            (
                event.kind
                for event in reversed(of_finding)
                if ("run", event.run) in is_news or ("night", event.night) in is_news
            ),
            None,
        )
        views.append(FindingView(finding, news, tuple(of_finding), changed.get(finding.id)))
    return tuple(views)


def _environment(store: Store, rows: Sequence[RunRow], tonight: RunRow | None) -> EnvironmentDifferences | None:
    """Return in what the environment of tonight's run differs from that of the run before.

    The run before is the newest earlier run of the host that selected the same cases and had no uncommitted changes.
    """
    if tonight is None:
        return None
    for row in rows:
        before, now = row.provenance, tonight.provenance
        if row.id < tonight.id and (before.host, before.scope) == (now.host, now.scope) and not before.dirty:
            return environment_differences(store, [(row.id, tonight.id)]).get((row.id, tonight.id))
    return None


def _devices(store: Store, tonight: RunRow | None, runs: Sequence[int]) -> tuple[DevicePanel, ...]:
    """Return a panel for each device of tonight's run, with the device's measured peaks in this and earlier runs."""
    if tonight is None:
        return ()
    peaks = store.devices.peaks_of([run for run in runs if run <= tonight.id])
    return tuple(
        DevicePanel(
            device=conditions.device,
            device_model=conditions.device_model,
            measured=conditions.measured,
            failed=conditions.failed,
            sm_clock_hz=conditions.sm_clock_hz,
            temperature_c=conditions.temperature_c,
            power_w=conditions.power_w,
            troubles=tuple(_troubles(conditions)),
            peaks=tuple(peaks.get(conditions.device, {}).values()),
        )
        for conditions in store.devices.conditions(tonight.id)
    )


def _troubles(conditions: DeviceConditions) -> list[str]:
    """Return a text for each thing that was wrong with a device during the run."""
    troubles = []
    if conditions.slowdowns:
        troubles.append(", ".join(conditions.slowdowns))
    if conditions.rejected_batches:
        troubles.append(f"{conditions.rejected_batches} batches rejected")
    if conditions.ecc_errors:
        troubles.append(f"{conditions.ecc_errors} errors of its memory")
    if conditions.xids:
        troubles.append(f"Xid {', '.join(conditions.xids)}")
    if conditions.others:
        troubles.append(f"shared with processes {', '.join(conditions.others)}")
    return troubles


def _stages(night: NightRow | None) -> tuple[StageRow, ...]:
    """Return the stages that are over: those before the stage that builds these pages."""
    stages = night.stages if night else ()
    return tuple(stage for stage in stages if stage.state is not StageState.RUNNING)


# --- series ----------------------------------------------------------------------------------------------------------


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
        events: the verdicts to mark in the chart of each series.
        samples: the samples of the newest runs.
        tonight: the verdicts of tonight's run.
        dirty: the runs with uncommitted changes, which are shown but belong to no level.
        breaks: the runs in which a finding saw a series move, or return to its old level. No level extends across such
            a run, even if too few runs follow it to detect a change.
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
        verdicts = {event.run: outcome(event) for event in events.get(series, ())}
        points = _points(histories[series], verdicts)
        judged = [point for point in points if point.run not in dirty and not point.excluded]
        levels = tuple(_levels(judged, breaks.get(series, ())))
        views.append(SeriesView(series, points, levels, samples.get(series, {}), tonight.get(series)))
    return tuple(views)


def _points(history: Sequence[SeriesInRun], verdicts: Mapping[int, Outcome]) -> tuple[RunPoint, ...]:
    """Return a point for each run of a series: level, interval and status, and its verdict if ``verdicts`` has one."""
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
            excluded=in_run.excluded,
        )
        for in_run, center, low, high in zip(history, centers, lows, highs, strict=True)
    )


def _replicas(history: Sequence[SeriesInRun]) -> NDArray[np.float64]:
    """Return a matrix with a row for each run and a value for each replica; NaN if a run has fewer replicas."""
    matrix = np.full((len(history), max((len(in_run.values) for in_run in history), default=0) or 1), np.nan)
    for row, in_run in zip(matrix, history, strict=True):
        row[: len(in_run.values)] = in_run.values
    return matrix


def _end(end: float, of_replica: float | None, values: Sequence[float]) -> float | None:
    """Return one end of a run's interval; a run with one replica has the interval of that replica. None if unknown."""
    chosen = of_replica if len(values) == 1 else end
    return chosen if chosen is not None and isfinite(chosen) else None


def _levels(points: Sequence[RunPoint], breaks: Collection[int]) -> Iterator[LevelRange]:
    """Yield the levels of a series with their first and last run; a new level begins at each run in ``breaks``."""
    edges = [0, *(at for at, point in enumerate(points) if at and point.run in breaks), len(points)]
    for begin, end in pairwise(edges):
        part = points[begin:end]
        for level in judge.split_into_levels([np.nan if point.level is None else point.level for point in part]):
            yield LevelRange(part[level.first].run, part[level.last].run, level.median)
