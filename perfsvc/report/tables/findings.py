"""Tables of findings: a list, or one finding with its history."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.model import ChangeKind, Direction, Finding, FindingEvent, FindingState, MovedSeries
from perfsvc.report import finding_words, wording
from perfsvc.report.explanations import explanation_groups, group_lines
from perfsvc.report.rows import EnvironmentDifferences, difference_lines, heading
from perfsvc.report.tables.layout import Responsive, grid
from perfsvc.report.wording import moment, or_dash

MOST_SERIES = 10
"""How many series of a finding the list shows: first those that have not recovered, by how far they moved."""

MOST_GROUPS = 5
"""How many groups of cases with the same reason are listed below the headline."""

NOT_KNOWN: Mapping[int, str] = MappingProxyType({})
"""Nothing is known of other models."""

LAYOUTS = (("change", "interval", "in", "against"), ("change", "in", "against"), ("change", "in"))
"""The columns from the widest terminal to the narrowest; ``step`` stands before them if a series moved again."""


def findings_table(findings: Sequence[Finding], other_models: Mapping[int, str] = NOT_KNOWN) -> RenderableType:
    """Return each finding with its state, its evidence, and the changes of its series, ``MOST_SERIES`` at most.

    ``other_models`` says of findings, by their numbers, how their cases do on other models.
    """
    parts: list[RenderableType] = []
    for finding in findings:
        every_series = (*finding.standing, *(moved for moved in finding.moved if moved.recovered_run is not None))
        parts.append(_heading(finding, other_models.get(finding.id, "")))
        groups = group_lines(finding)
        parts += [Text(f"    {line}", "dim") for line in groups[:MOST_GROUPS]]
        if len(groups) > MOST_GROUPS:
            parts.append(Text(f"    and {units.count(len(groups) - MOST_GROUPS, 'more reason')}", "dim"))
        if every_series:
            parts.append(_series(finding, every_series[:MOST_SERIES]))
        if len(every_series) > MOST_SERIES:
            more = len(every_series) - MOST_SERIES
            parts.append(Text(f"  and {more} more: perfsvc findings show {finding.id}", "dim"))
        parts.append(Text())
    return Group(*parts, Text(units.count(len(findings), "finding")))


def finding_table(
    finding: Finding,
    events: Sequence[FindingEvent],
    environment: EnvironmentDifferences | None = None,
    other_models: str = "",
) -> RenderableType:
    """Return a finding with all its series, its history, and in what the environment changed when it began."""
    history = [Text(), Text("history", "bold"), _history(events)] if events else []
    series = [_series(finding, finding.moved)] if finding.moved else []
    sentences = list(_why(finding))
    why = [Text(), Text("why", "bold"), *sentences] if sentences else []
    cures = [Text(), *(Text(f"  {line}") for line in finding_words.missing_cures(finding))]
    differing: list[Text] = []
    if environment and environment.differences:
        lines = (Text(f"  {line}") for line in difference_lines(environment))
        differing = [Text(), Text(heading(environment), "bold"), *lines]
    return Group(_heading(finding, other_models), *series, *why, *differing, *(cures[1:] and cures), *history)


def _why(finding: Finding) -> Iterator[Text]:
    """Yield each group of the cases of a finding, and the sentence of each case; nothing if the heading says it all."""
    if not group_lines(finding):
        return
    for group in explanation_groups(finding):
        if len(group.cases) > 1 or not group.cases[0].sentence:
            yield Text(f"  {group.text}")
        indent = "    " if len(group.cases) > 1 else "  "
        for case in group.cases:
            if case.sentence:
                yield Text(f"{indent}{case.name}: {case.sentence}", "dim" if len(group.cases) > 1 else "")


def _heading(finding: Finding, other_models: str) -> RenderableType:
    """Return a finding's number, state, cause, changes and runs on a line, and its further facts indented below."""
    first, last = finding.first_run, finding.last_run
    runs = f"run {first}" if first == last else f"runs {first} to {last}"
    moved = f"{_moved(finding)}, in {runs}, " if finding.moved else ""
    heading = Text.assemble(f"{finding.id} ", (finding.state.value, "bold"), f"  {moved}cause: {finding.cause}")
    return Group(heading, *(Padding(line, (0, 0, 0, 2), expand=False) for line in _lines(finding, other_models)))


def _moved(finding: Finding) -> str:
    """Return how a finding's series moved: ``slower``, ``slower again``, or ``slower, by the trend of its history``."""
    usual = {ChangeKind.FAILURE, ChangeKind.REGRESSION, ChangeKind.AGAIN}
    kinds = [kind for kind in finding.changes if kind not in usual]
    again = " again" if finding.changes == (ChangeKind.AGAIN,) else ""
    history = f", by the {' and the '.join(kinds)} of its history" if kinds else ""
    return f"{finding.direction}{again}{history}"


def _lines(finding: Finding, other_models: str) -> Iterator[Text]:
    """Yield the lines below a finding's heading.

    They give its root cause, devices, evidence, later steps, explanation, owner and state.
    """
    if finding.root_cause and finding.root_cause not in {f"GPU {device}" for device in finding.devices}:
        yield Text(finding.root_cause)
    yield from (Text(f"on {model}  {device}", "dim") for device, model in finding.devices.items())
    yield from filter(None, [Text(other_models)])
    if finding.evidence:
        yield Text(f"in run {finding.first_run}: {finding.evidence}" if finding.moved else finding.evidence)
    later_steps = dict.fromkeys(
        (moved.step, moved.first_run, moved.root_cause) for moved in finding.moved if moved.step > 1
    )
    for step, run, root_cause in sorted(later_steps, key=lambda each: (each[0], each[1] or 0)):
        yield Text(f"slower again (step {step}) in run {run}{f': {root_cause}' if root_cause else ''}")
    last = {moved.series: moved for moved in sorted(finding.standing, key=lambda moved: moved.step)}
    for series, moved in last.items():
        if total := finding_words.since_first_step(finding, moved):
            yield Text(f"all steps of {wording.series_name(series)}: {total}")
    if finding.why:
        yield Text(f"why: {finding_words.why(finding)}")
    if finding.owner:
        yield Text(f"owner: {finding.owner}")
    if finding.state is not FindingState.OPEN:
        until = f" until {finding.ignored_until:%Y-%m-%d}" if finding.ignored_until else ""
        user = f" by {finding.by}" if finding.by else ""
        reason = f": {finding.reason}" if finding.reason else ""
        yield Text(f"{finding.state}{until}{user} at {moment(finding.at)}{reason}")


def _series(finding: Finding, shown: Sequence[MovedSeries]) -> RenderableType:
    """Return a table of some of a finding's moved series, as wide as the terminal allows."""
    every_series = list(dict.fromkeys(moved.series for moved in finding.moved))
    cells = dict(zip(every_series, wording.series_cells(every_series), strict=True))
    cases = [cells[moved.series] for moved in shown]
    return Responsive(*(partial(_layout, shown, cases, columns) for columns in LAYOUTS))


def _layout(shown: Sequence[MovedSeries], cases: Sequence[Text], columns: Sequence[str]) -> Table:
    """Return the table of the series ``shown`` with the given columns; ``cases`` are the cells with their names."""
    table = grid()
    table.add_column("case", overflow="fold", min_width=16)
    has_steps = any(moved.step > 1 for moved in shown)
    if has_steps:
        table.add_column("step", justify="right", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right" if column == "change" else "left", no_wrap=True)
    if any(moved.recovered_run is not None for moved in shown):
        table.add_column("", no_wrap=True)
    for moved, case in zip(shown, cases, strict=True):
        back = [] if moved.recovered_run is None else [Text(_end(moved), "green")]
        step = [Text(str(moved.step))] if has_steps else []
        table.add_row(case, *step, *(Text(_cell(moved, column)) for column in columns), *back)
    return table


def _end(moved: MovedSeries) -> str:
    """Return how a step ended: the series recovered, or the only run that shows the step was excluded."""
    is_back = moved.recovered_run != moved.last_run
    return f"back in run {moved.recovered_run}" if is_back else f"withdrawn: run {moved.last_run} is excluded"


def _cell(moved: MovedSeries, column: str) -> str:
    """Return what a column shows of a moved series; any column not named below shows the interval of the change."""
    match column:
        case "change":
            return "broken" if moved.direction is Direction.BROKEN else or_dash(moved.ratio, units.percent)
        case "in":
            return f"run {moved.last_run}"
        case "against":
            return "" if moved.baseline_run is None else f"run {moved.baseline_run}"
        case _:
            return wording.interval(moved.low, moved.high)


def _history(events: Sequence[FindingEvent]) -> RenderableType:
    """Return a table with a row for each event: its time, its author (a user, run or night), its kind and its text."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for event in events:
        night = f"night {event.night}" if event.night is not None else ""
        by = event.by or (f"run {event.run}" if event.run is not None else night)
        table.add_row(*map(Text, (moment(event.at), by, event.kind.value, event.text)))
    return Padding(table, (0, 0, 0, 2))
