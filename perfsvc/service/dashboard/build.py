"""Build the site: read the store, render the pages, write them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from perfsvc import judge
from perfsvc.errors import MissingPackageError
from perfsvc.installation import install_command
from perfsvc.model import Finding, FindingEvent
from perfsvc.report.export import frames
from perfsvc.report.pages import render
from perfsvc.report.pages.compared import ComparedSides
from perfsvc.report.pages.fastest import Results, newest_runs
from perfsvc.report.pages.site import DevicePanel, FindingView, SeriesView, SeriesViews, Site
from perfsvc.report.results import run_report
from perfsvc.report.rows import EnvironmentDifferences, Key, ResultRow
from perfsvc.service.compare.side_by_side import against_baseline, with_verdicts
from perfsvc.service.dashboard.details import FindingDetailsReader, FindingPictures
from perfsvc.service.dashboard.fleet import gather_fleet, troubles
from perfsvc.service.dashboard.folder import writing
from perfsvc.service.dashboard.series import SAMPLED, read_series, unsuccessful
from perfsvc.service.dashboard.series_details import gather_details
from perfsvc.service.environment import environment_differences, of_findings
from perfsvc.service.notify.news import in_night, late_failures
from perfsvc.store import (
    NightRow,
    RunRow,
    RunState,
    StageRow,
    StageState,
    Store,
)


def newest_results(store: Store, site: Site, views: Sequence[SeriesView]) -> Results:
    """Return the result of each case in the newest run that measured it, by run, and by device, case and cache state.

    The rows are computed as ``perfsvc report`` computes them, but without verdicts. All cases of a benchmark are read
    together, because a case may be compared with another variant of its benchmark.

    Args:
        store: the database.
        site: has the runs.
        views: every series of some benchmarks.
    """
    of_benchmark: dict[str, set[str]] = {}
    benchmarks: dict[str, str] = {}
    for view in views:
        case = view.series.case
        benchmarks[case.id] = case.benchmark
        of_benchmark.setdefault(case.benchmark, set()).add(case.id)
    dirty = {run.id for run in site.runs.values() if run.provenance.dirty}
    results: dict[tuple[int, Key], ResultRow] = {}
    for run, newest in newest_runs(views, dirty).items():
        cases = set().union(*(of_benchmark[name] for name in {benchmarks[case] for case in newest}))
        report = run_report(run, frames.frame(store.measurements.columns([run], cases)), (), {})
        results |= {(run, row.key): row for row in report.rows if row.case.id in newest}
    return results


LAST = 400
"""The default number of runs on the pages: somewhat more than a year of nights."""

PLOTLY = "assets/plotly.min.js"


def build(
    store: Store,
    folder: Path,
    *,
    last: int = LAST,
    threshold: judge.ThresholdOption = None,
) -> list[Path]:
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
    files = {PLOTLY: plotly(), **{name: text.encode() for name, text in render.assets()}}
    former_names = store.series.former_names()
    site = with_series(store, outline(store, store.runs.list(last), datetime.now(UTC)), threshold)
    pages = {path: text.encode() for path, text in _pages(store, site, threshold).all()}
    if store.series.former_names() != former_names:  # a case was renamed: pages may link to pages that are not made
        return build(store, folder, last=last, threshold=threshold)
    with writing(folder, [*files, *pages]) as opened:
        for name, content in (*files.items(), *pages.items()):
            opened.write(name, content)
    return [folder / name for name in reversed(pages)]


def _pages(store: Store, site: Site, threshold: judge.ThresholdOption) -> render.SitePages:
    """Return the pages of a site. What only some of them show is read when they are made."""
    return render.SitePages(
        site,
        PLOTLY,
        FindingPictures(store, site).cases,
        FindingDetailsReader(store, site).of,
        lambda run: comparison(store, site, run, threshold),
        results=lambda views: newest_results(store, site, views),
    )


def plotly() -> bytes:
    """Return plotly.js from the package plotly, without importing the package."""
    package = find_spec("plotly")
    script = Path(package.origin or "").parent / "package_data" / "plotly.min.js" if package else None
    if script is None or not script.is_file():
        raise MissingPackageError(
            "the pages need plotly.js, and the package plotly is not installed", cure=install_command("nightly")
        )
    return script.read_bytes()


def with_series(store: Store, site: Site, threshold: judge.ThresholdOption) -> Site:
    """Return what ``outline`` returned with all that the pages show."""
    rows = list(site.runs.values())[::-1]
    series = read_series(store, rows, site.tonight, [view.finding for view in site.findings])
    details = gather_details(store, rows, series, site.environments, threshold)
    return replace(
        of_tonight(store, site),
        series=SeriesViews(series),
        details=details,
        fleet=gather_fleet(store, rows),
    )


def outline(store: Store, runs: Sequence[RunRow], now: datetime) -> Site:
    """Return what every page needs, without series, and without what only the first page shows.

    Args:
        store: the database.
        runs: the runs to show, newest first; runs that still run or measured nothing are left out.
        now: when the pages are made.
    """
    rows = [row for row in runs if row.state is not RunState.RUNNING and row.counts]
    # The newest night counts even if it ended before its run began: its stages say why.
    night = next(iter(store.nights.list(1)), None)
    tonight = _tonight(rows, night)
    return Site(
        made=now,
        runs={row.id: row for row in reversed(rows)},
        tonight=tonight,
        series=SeriesViews(),
        findings=_findings(store, store.findings.all(), tonight, night),
        verdicts=(),
        devices=(),
        environments=store.devices.environments(),
        stages=_stages(night),
        late=_late(store, night),
        night=night.id if night and tonight and night.run == tonight.id else None,
        idle=night.id if night and night.run is None else None,
        compared=tuple(row.id for row in with_verdicts(store, rows[:SAMPLED])),
    )


def of_tonight(store: Store, site: Site) -> Site:
    """Return the site with what only the first page shows: verdicts, failures, GPUs, changes of the environment."""
    rows = list(site.runs.values())[::-1]
    return replace(
        site,
        bad=unsuccessful(store, site.tonight.id) if site.tonight else (),
        verdicts=tuple(store.verdicts.of_run(site.tonight.id) if site.tonight else ()),
        devices=_devices(store, site.tonight, [row.id for row in rows]),
        environment=_environment(store, rows, site.tonight),
    )


def comparison(store: Store, site: Site, run: int, threshold: judge.ThresholdOption) -> ComparedSides:
    """Return the comparison of a run in ``site.compared`` with its baseline."""
    place = site.compared.index(run)
    later, earlier = site.compared[:place], site.compared[place + 1 :]
    neighbours = (next(iter(earlier), None), next(reversed(later), None))
    return against_baseline(store, site.runs[run], neighbours, threshold)


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
            troubles=tuple(troubles(conditions)),
            peaks=tuple(peaks.get(conditions.device, {}).values()),
        )
        for conditions in store.devices.in_run(tonight.id)
    )


def _late(store: Store, night: NightRow | None) -> tuple[StageRow, ...]:
    """Return what failed in the night before after it had built its pages, unless this night has done it by now."""
    before = store.nights.previous(night) if night else None
    if night is None or before is None:
        return ()
    done = {stage.name for stage in _stages(night)}
    return tuple(in_night(stage, before) for stage in late_failures(before) if stage.name not in done)


def _stages(night: NightRow | None) -> tuple[StageRow, ...]:
    """Return the stages that are over: those before the stage that builds these pages."""
    stages = night.stages if night else ()
    return tuple(stage for stage in stages if stage.state is not StageState.RUNNING)
