"""Findings for people: one below the other, each with why and with what it moved."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc.model import TIME, Finding, Moved
from perfsvc.report import units
from perfsvc.report.layout import grid, known, mode_words, moment


def findings_table(findings: Sequence[Finding]) -> RenderableType:
    """Each finding with its state, its evidence, and its series with the change of each."""
    parts = [part for finding in findings for part in (_heading(finding), _series(finding), Text())]
    return Group(*parts, Text(units.count(len(findings), "finding")))


def _heading(finding: Finding) -> Text:
    first, last = finding.first_run, finding.last_run
    runs = f"run {first}" if first == last else f"runs {first} to {last}"
    facts = f"  {finding.cause}, {finding.shift}, {finding.direction}, {runs}"
    heading = Text.assemble(f"{finding.id} ", (finding.state.value, "bold"), facts)
    heading.append(f"\n  on {finding.device_model}  {finding.device}", "dim")
    if finding.evidence:
        heading.append(f"\n  {finding.evidence}")
    if finding.why:
        heading.append(f"\n  why: {finding.why}")
    if finding.reason:
        who = f" by {finding.by}" if finding.by else ""
        heading.append(f"\n  {finding.state}{who} at {moment(finding.at)}: {finding.reason}")
    return heading


def _series(finding: Finding) -> Table:
    modes = mode_words((one.series.device, one.series.case.id, one.series.mode) for one in finding.moved)
    table = grid()
    table.add_column("case", overflow="fold", min_width=16)
    table.add_column("change", justify="right", no_wrap=True)
    table.add_column("interval", no_wrap=True)
    table.add_column("against", no_wrap=True)
    table.add_column("")
    for one in finding.moved:
        series = one.series
        mode = modes[series.device, series.case.id, series.mode]
        metric = "" if series.metric == TIME else series.metric
        table.add_row(
            Text(" ".join(filter(None, [series.case.id, mode, metric]))),
            Text(known(one.ratio, units.percent)),
            Text(_interval(one)),
            Text("" if one.baseline_run is None else f"run {one.baseline_run}"),
            Text("" if one.recovered_run is None else f"back in run {one.recovered_run}", "green"),
        )
    return table


def _interval(moved: Moved) -> str:
    if moved.low is None or moved.high is None:
        return ""
    return f"{units.percent(moved.low)} to {units.percent(moved.high)}"
