"""Build the site: read the store, render the pages, write them."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from perfsvc.errors import MissingPackageError
from perfsvc.installation import install_command
from perfsvc.model import MAX_ERROR, Finding, FindingEvent, Judgement, Series
from perfsvc.report.pages import render
from perfsvc.report.pages.site import DeviceView, FindingView, RunView, SeriesView, Site, StageView
from perfsvc.service.dashboard import folder as folders
from perfsvc.service.dashboard.chronicles import chronicles
from perfsvc.store import DeviceConditions, NightRow, RunRow, RunState, StageState, Store

SAMPLED = 14
"""The samples of so many of the newest runs are on the pages."""


def gather(store: Store, last: int, now: datetime) -> Site:
    """What the pages show of the newest ``last`` runs that have ended and measured anything."""
    rows = [row for row in store.runs.list(last) if row.state is not RunState.RUNNING and row.counts]
    night = _night(store)
    tonight = _tonight(rows, night)
    verdicts = store.verdicts.of_run(tonight.id) if tonight else []
    findings = store.findings.all()
    return Site(
        made=now,
        runs={row.id: _shown(row) for row in reversed(rows)},
        tonight=_shown(tonight) if tonight else None,
        series=_series(store, rows, verdicts, findings),
        findings=_findings(store, findings, tonight.id if tonight else None),
        verdicts=tuple(verdicts),
        devices=_devices(store, tonight, [row.id for row in rows]),
        environments=store.devices.environments(),
        stages=_stages(night),
        night=night.id if night and tonight and night.run == tonight.id else None,
        idle=night.id if night and night.run is None else None,
    )


def _night(store: Store) -> NightRow | None:
    """The newest night; one that was given up before it had a run counts, since its stages say why."""
    return next(iter(store.nights.list(1)), None)


def _tonight(rows: Sequence[RunRow], night: NightRow | None) -> RunRow | None:
    """The run that the first page is about: the newest night's, else the newest run, one without changes if any is."""
    by_number = {row.id: row for row in rows}
    if night and night.run in by_number:
        return by_number[night.run]
    clean = (row for row in rows if not row.provenance.dirty)
    return next(clean, next(iter(rows), None))


def _shown(row: RunRow) -> RunView:
    where = row.provenance
    return RunView(
        run=row.id,
        started=where.started,
        finished=row.finished,
        commit=where.commit,
        dirty=where.dirty,
        label=where.label,
        state=row.state.value,
        host=where.host,
        suite=where.suite,
        cases=row.cases,
    )


def _series(
    store: Store, rows: Sequence[RunRow], verdicts: Sequence[Judgement], findings: Sequence[Finding]
) -> tuple[SeriesView, ...]:
    """Every series; one of errors only where a finding or a verdict told of it."""
    runs = [row.id for row in rows]
    told = store.verdicts.events(runs)
    moved = {one.series for finding in findings for one in finding.moved} | told.keys()
    errors = {series for series in moved if series.metric == MAX_ERROR}
    held = store.series.histories(runs, errors=bool(errors))
    wanted = {series: seen for series, seen in held.items() if series.metric != MAX_ERROR or series in errors}
    dirty = {row.id for row in rows if row.provenance.dirty}
    tonight = {one.series: one for one in verdicts}
    return chronicles(wanted, told, store.series.samples(runs[:SAMPLED]), tonight, dirty=dirty, turns=_turns(findings))


def _turns(findings: Sequence[Finding]) -> dict[Series, set[int]]:
    """The runs in which each series moved by a finding, and in which it was back."""
    found: dict[Series, set[int]] = defaultdict(set)
    for finding in findings:
        for one in finding.moved:
            found[one.series] |= {finding.first_run, *([one.recovered_run] if one.recovered_run else [])}
    return found


def _findings(store: Store, findings: Sequence[Finding], tonight: int | None) -> tuple[FindingView, ...]:
    """Each finding with what befell it; the last thing that tonight's run did to it is its news."""
    events: dict[int, list[FindingEvent]] = defaultdict(list)
    for event in store.findings.events():
        events[event.finding].append(event)
    return tuple(
        FindingView(one, next((event.kind for event in reversed(told) if event.run == tonight), None), tuple(told))
        for one in findings
        for told in [events[one.id]]
    )


def _devices(store: Store, tonight: RunRow | None, runs: Sequence[int]) -> tuple[DeviceView, ...]:
    if tonight is None:
        return ()
    peaks = store.devices.peaks_of([run for run in runs if run <= tonight.id])
    return tuple(
        DeviceView(
            device=board.device,
            device_model=board.device_model,
            measured=board.measured,
            failed=board.failed,
            sm_clock_hz=board.sm_clock_hz,
            temperature_c=board.temperature_c,
            power_w=board.power_w,
            troubles=_troubles(board),
            peaks=tuple(peaks.get(board.device, {}).values()),
        )
        for board in store.devices.conditions(tonight.id)
    )


def _troubles(board: DeviceConditions) -> tuple[str, ...]:
    """What was wrong with a GPU, in words."""
    told = (
        (", ".join(board.slowdowns), bool(board.slowdowns)),
        (f"{board.rejected_batches} batches rejected", board.rejected_batches > 0),
        (f"{board.ecc_errors} errors of its memory", board.ecc_errors > 0),
        (f"Xid {', '.join(board.xids)}", bool(board.xids)),
        (f"shared with processes {', '.join(board.others)}", bool(board.others)),
    )
    return tuple(words for words, is_so in told if is_so)


def _stages(night: NightRow | None) -> tuple[StageView, ...]:
    """The stages that are over: the one that builds these pages is not, and those after it have not begun."""
    stages = [one for one in night.stages if one.state is not StageState.RUNNING] if night else []
    return tuple(StageView(one.name, one.state.value, one.wall_s, one.message, one.cure) for one in stages)


LAST = 400
"""The newest runs that are shown where nobody says how many: somewhat more than a year of nights."""

PLOTLY = "assets/plotly.min.js"


def build(store: Store, folder: Path, *, last: int = LAST, now: datetime | None = None) -> list[Path]:
    """Writes the site and returns its pages, the first page first.

    Pages are replaced one by one, each at once, the first page last: whoever looks on meanwhile sees whole pages. Those
    of an earlier build that are not needed any more are removed; files that perfsvc did not write are left alone.

    Args:
        store: what to show.
        folder: where to, made if it is not there.
        last: how many of the newest runs to show.
        now: when it was built, as the pages say.

    Raises:
        MissingPackageError: plotly is not installed.
        UsageError: the folder is a file, or holds files of the same names that perfsvc did not write.
        InfrastructureError: the folder cannot be written to.
    """
    plotly = _plotly()
    site = gather(store, last, now or datetime.now(UTC))
    files = {PLOTLY: plotly, **{name: text.encode() for name, text in render.assets()}}
    pages = {name: text.encode() for name, text in render.pages(site, PLOTLY)}
    with folders.writing(folder, [*files, *pages]) as opened:
        for name, content in (files | pages).items():
            opened.write(name, content)
    return [folder / name for name in reversed(pages)]


def _plotly() -> bytes:
    """plotly.js as the package brings it, which is found without importing that."""
    package = find_spec("plotly")
    script = Path(package.origin or "").parent / "package_data" / "plotly.min.js" if package else None
    if script is None or not script.is_file():
        raise MissingPackageError(
            "the pages need plotly.js, and the package plotly is not installed", cure=install_command("nightly")
        )
    return script.read_bytes()
