"""Findings for people: one below the other, each with why and with what it moved; or one with its history."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.model import TIME, Finding, FindingEvent, FindingState, MovedSeries
from perfsvc.report.tables.layout import Responsive, cache_words, grid, known, moment

SHOWN = 10
"""How many series of a finding the list shows: those that moved furthest and are not back, if there are any."""

LAYOUTS = (("change", "interval", "in", "against"), ("change", "in", "against"), ("change", "in"))
"""The columns of what a finding moved, for ever narrower terminals."""


def findings_table(findings: Sequence[Finding]) -> RenderableType:
    """Each finding with its state, its evidence, and its series with the change of each."""
    parts: list[RenderableType] = []
    for finding in findings:
        shown = (*finding.standing, *(one for one in finding.moved if one.recovered_run is not None))
        parts += [_heading(finding), _series(finding, shown[:SHOWN])]
        if len(shown) > SHOWN:
            parts.append(Text(f"  and {len(shown) - SHOWN} more: perfsvc findings show {finding.id}", "dim"))
        parts.append(Text())
    return Group(*parts, Text(units.count(len(findings), "finding")))


def finding_table(finding: Finding, events: Sequence[FindingEvent]) -> RenderableType:
    """A finding with all that it moved, and what befell it."""
    history = [Text(), Text("history", "bold"), _history(events)] if events else []
    return Group(_heading(finding), _series(finding, finding.moved), *history)


def _heading(finding: Finding) -> RenderableType:
    first, last = finding.first_run, finding.last_run
    runs = f"run {first}" if first == last else f"runs {first} to {last}"
    how = " and ".join(finding.changes)
    facts = f"  {finding.cause}, {how}, {finding.direction}, {runs}"
    heading = Text.assemble(f"{finding.id} ", (finding.state.value, "bold"), facts)
    return Group(heading, *(Padding(line, (0, 0, 0, 2), expand=False) for line in _lines(finding)))


def _lines(finding: Finding) -> Iterator[Text]:
    """What is to be said of a finding: its origin, where it shows, why, who looks after it, its state."""
    if finding.root_cause and finding.root_cause not in {f"GPU {device}" for device in finding.devices}:
        yield Text(finding.root_cause)
    for device, model in finding.devices.items():
        yield Text(f"on {model}  {device}", "dim")
    if finding.evidence:
        yield Text(f"in run {finding.first_run}: {finding.evidence}")
    if finding.why:
        yield Text(f"why: {finding.why}")
    if finding.owner:
        yield Text(f"owner: {finding.owner}")
    if finding.state is not FindingState.OPEN:
        yield Text(_state(finding))


def _state(finding: Finding) -> str:
    """Who brought a finding into its state, when, for how long and why."""
    who = f" by {finding.by}" if finding.by else ""
    until = f" until {finding.ignored_until:%Y-%m-%d}" if finding.ignored_until else ""
    why = f": {finding.reason}" if finding.reason else ""
    return f"{finding.state}{until}{who} at {moment(finding.at)}{why}"


def _series(finding: Finding, shown: Sequence[MovedSeries]) -> RenderableType:
    caches = cache_words((one.series.device, one.series.case.id, one.series.cache) for one in finding.moved)
    names = [_name(one, caches[one.series.device, one.series.case.id, one.series.cache]) for one in shown]
    several = len(finding.devices) > 1
    return Responsive(*(_layout(shown, names, columns, device=several) for columns in LAYOUTS))


def _name(moved: MovedSeries, cache: str) -> str:
    metric = "" if moved.series.metric == TIME else moved.series.metric
    return " ".join(filter(None, [moved.series.case.id, cache, metric]))


def _layout(shown: Sequence[MovedSeries], names: Sequence[str], columns: Sequence[str], *, device: bool) -> Table:
    table = grid()
    table.add_column("case", overflow="fold", min_width=16)
    for column in columns:
        table.add_column(column, justify="right" if column == "change" else "left", no_wrap=True)
    back = any(one.recovered_run is not None for one in shown)
    if back:
        table.add_column("", no_wrap=True)
    for one, name in zip(shown, names, strict=True):
        cell = Text(name)
        if device:
            cell.append(f"\non {one.series.device_model} ({one.series.device})", "dim")
        since = [] if one.recovered_run is None else [Text(f"back in run {one.recovered_run}", "green")]
        table.add_row(cell, *(Text(_written(one, column)) for column in columns), *since)
    return table


def _written(moved: MovedSeries, column: str) -> str:
    match column:
        case "change":
            return known(moved.ratio, units.percent)
        case "in":
            return f"run {moved.last_run}"
        case "against":
            return "" if moved.baseline_run is None else f"run {moved.baseline_run}"
        case _:
            return _interval(moved)


def _interval(moved: MovedSeries) -> str:
    if moved.low is None or moved.high is None:
        return ""
    return f"{units.percent(moved.low)} to {units.percent(moved.high)}"


def _history(events: Sequence[FindingEvent]) -> RenderableType:
    """A line for each event: when, who, what, and what is to be said of it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in events:
        who = one.by or (f"run {one.run}" if one.run is not None else "")
        table.add_row(*map(Text, (moment(one.at), who, one.kind.value, one.text)))
    return Padding(table, (0, 0, 0, 2))
