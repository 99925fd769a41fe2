"""The table of a run: its cases by device, and below them failures, notes, changes and a summary."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.model import (
    AUXILIARY,
    MEMORY,
    PEAK_NAMES,
    PRECISIONS,
    TIME,
    Judgement,
    OverBudget,
    Peak,
    Rates,
    Status,
)
from perfsvc.report import peaks, wording
from perfsvc.report.rows import Doubt, MetricRow, ResultRow, RunReport
from perfsvc.report.tables.comparison import confirmations_table
from perfsvc.report.tables.layout import EXCLUDED, Responsive, grid, mark
from perfsvc.report.tables.profiles import explanation_lines
from perfsvc.report.wording import DASH, NAMED, cache_words, or_dash, some
from perfsvc.text import cut

LAYOUTS = (
    ("median", "spread", "bandwidth", "bus bandwidth", "% of peak", "FLOP/s", "relative speed", "max error"),
    ("median", "spread", "bandwidth", "bus bandwidth", "% of peak", "relative speed", "max error"),
    ("median", "spread", "bandwidth", "bus bandwidth", "% of peak", "relative speed"),
    ("median", "bandwidth", "bus bandwidth", "% of peak", "relative speed"),
    ("median", "bandwidth", "bus bandwidth", "relative speed"),
    ("median", "bandwidth", "bus bandwidth"),
)
"""The columns from the widest terminal to the narrowest; the error of a correct result is dropped first."""

CASE_ROOM = 30
"""How many characters of a case id fit on a line of a narrow terminal; a longer id breaks before ``[``."""

CPU_NOTE = "Times of the CPU device are rough and say nothing about a GPU."


def run_tables(reports: Sequence[RunReport]) -> RenderableType:
    """Return the tables of several runs, one below the other."""
    if not reports:
        return Text("nothing measured")
    parts = [part for report in reports for part in (run_table(report), Text())]
    return Group(*parts[:-1])


def run_table(report: RunReport) -> RenderableType:
    """Return a table of results for each device.

    Below the tables are the failures, the cases over budget, a summary, the confirmations, and the explanations.
    """
    parts: list[RenderableType] = []
    if report.title:
        parts.append(Text.assemble((f"run {report.run}", "bold"), (f"  {report.title}", "dim")))
    for device in dict.fromkeys(row.device for row in report.rows):
        rows = [row for row in report.rows if row.device == device]
        parts += _device(rows, report.peaks.get(device), report.rates.get(device, {}))
    parts += [Text.assemble(mark(Status.FAILED), " ", cut(str(problem))) for problem in report.problems]
    parts += [*_over_budget(report.over_budget), _summary(report)]
    if report.confirmations:
        parts += [Text(), confirmations_table(report.confirmations, report.no_finding)]
    if report.explanations:
        parts += [Text(), explanation_lines(report.explanations)]
    return Group(*parts)


def doubt_text(doubt: Doubt) -> str:
    """Return a warning that a GPU cannot do the declared work of a case in its measured time, and the cure."""
    what, rate, cure = (
        ("bytes", units.rate, "declare in work= what the problem has to read and write, each byte once")
        if doubt.peak == MEMORY
        else (
            "operations",
            units.flop_rate,
            "declare in work= what the problem has to compute, and a precision that differs from the inputs: tf32, ...",
        )
    )
    return (
        f"{doubt.case.id} declares {doubt.declared} {what} a launch, in its time {rate(doubt.rate)}: more than the "
        f"measured {PEAK_NAMES[doubt.peak]} peak of {doubt.device}, {rate(doubt.peak_rate)}\n"
        f"  cure: {cure}"
    )


def _device(rows: Sequence[ResultRow], peak: Peak | None, rates: Rates) -> list[RenderableType]:
    """Return the heading, the table of results and the notes of one device."""
    first = rows[0]
    connected = f", {first.interconnect}" if first.interconnect else ""
    heading = Text.assemble((first.device_model or first.device_kind, "bold"), connected, (f"  {first.device}", "dim"))
    measured = _peaks(rows, peak, rates)
    if measured:
        heading.append(f"\nmeasured peak: {', '.join(measured)}", "dim")
    table = Responsive(
        *(partial(_results, rows, columns) for columns in LAYOUTS),
        *(partial(_results, rows, columns, room=CASE_ROOM) for columns in LAYOUTS[2:]),
        partial(_results, rows, LAYOUTS[-1], room=0, stacked=True),
    )
    notes = _notes(rows)
    return [heading, table, Text(), *notes, *([Text()] if notes else [])]


def _peaks(rows: Sequence[ResultRow], peak: Peak | None, rates: Rates) -> list[str]:
    """Return the measured peaks of a device: those of its memory, and each other one that a row is compared with."""
    near = {row.peak for row in rows}
    names = [name for name in rates if any(name in PRECISIONS.get(of, (of,)) for of in near)]
    others = [peaks.rate(name, rates[name]) for name in names]
    if peak is None:
        return others
    return [f"copies {units.rate(peak.copy_bytes_per_s)}", f"reads {units.rate(peak.read_bytes_per_s)}", *others]


def _results(rows: Sequence[ResultRow], layout: Sequence[str], *, room: float = inf, stacked: bool = False) -> Table:
    """Return the results of a device in the columns of a layout.

    Args:
        rows: the results of one device.
        layout: the columns; a column without any value is dropped.
        room: how many characters of a case id fit on a line; a longer id breaks before ``[``.
        stacked: print a verdict below its ratio, not beside it.
    """
    columns = [column for column in layout if _has_values(column, rows)]
    judged = bool(_judgements(rows))
    caches = cache_words(row.key for row in rows)
    table = grid()
    table.add_column("")
    table.add_column("case", overflow="fold", min_width=16)
    for column in columns:
        table.add_column(
            _relative_header(rows) if column == "relative speed" else column, justify="right", no_wrap=True
        )
    if judged:
        table.add_column(_verdict_header(rows), no_wrap=not stacked)
    for row in rows:
        table.add_row(
            mark(row.status),
            _case_cell(row, caches[row.key], room),
            *(_cell(row, column) for column in columns),
            *([_verdict_cell(row.judgement, stacked=stacked)] if judged else []),
            style=EXCLUDED if row.excluded else "",
        )
        for metric in row.metrics:
            if metric.metric in AUXILIARY:  # it explains the time; the command ``show`` lists it
                continue
            table.add_row(
                "",
                Text(f"  {metric.metric}", "dim"),
                *(_metric_cell(metric, column) for column in columns),
                *([_verdict_cell(metric.judgement, stacked=stacked)] if judged else []),
            )
    return table


def _has_values(column: str, rows: Iterable[ResultRow]) -> bool:
    """Return whether to show a column; ``FLOP/s`` only if a case is mostly arithmetic."""
    if column == "FLOP/s":
        return any(peaks.is_arithmetic(row.flops_per_s, row.bandwidth_bytes_per_s) for row in rows)
    if column == "relative speed":
        return any(row.relative_to for row in rows)
    if column == "bus bandwidth":
        return any(row.bus_bytes_per_s for row in rows)
    return column != "% of peak" or any(row.peak_share is not None for row in rows)


def _relative_header(rows: Iterable[ResultRow]) -> str:
    """Return the header of the relative speed: ``vs cublas``; ``vs reference`` if rows name different variants."""
    variants = {row.relative_to for row in rows if row.relative_to}
    return f"vs {variants.pop() if len(variants) == 1 else 'reference'}"


def _verdict_header(rows: Sequence[ResultRow]) -> str:
    """Return the header of the verdicts: ``against run 6`` if they have one baseline, else ``against baseline``.

    The header of a baseline of several runs is ``against 4 runs since run 6``.
    """
    bases = {judgement.against: None for judgement in _judgements(rows) if judgement.baseline_run is not None}
    return f"against {next(iter(bases))}" if len(bases) == 1 else "against baseline"


def _judgements(rows: Iterable[ResultRow]) -> list[Judgement]:
    """Return the verdicts on the times and metrics of some cases."""
    judgements = []
    for row in rows:
        judgements += [row.judgement, *(metric.judgement for metric in row.metrics)]
    return [judgement for judgement in judgements if judgement]


def _case_cell(row: ResultRow, cache: str, room: float) -> Text:
    """Return a case's id with its cache state; an id of more than ``room`` characters breaks before ``[``."""
    case = row.case
    breaks = case.point and len(case.id) > room
    cell = Text(f"{case.benchmark}/{case.variant}\n[{case.point_text}]" if breaks else case.id)
    return cell.append(f" {cache}", "dim") if cache else cell


def _cell(row: ResultRow, column: str) -> Text:
    """Return the cell of a case in a column of the table; the column ``median`` shows a status that is not ok."""
    if column == "median" and row.status not in {None, Status.OK}:
        return Text(str(row.status), "dim" if row.status is Status.SKIPPED else "bold red")
    if column == "spread":
        return Text(wording.spread(row.median_s, row.low_s, row.high_s), "dim")
    if column == "relative speed":
        return Text("" if row.relative_speed is None else wording.speed(row.relative_speed))
    values = {
        "median": (row.median_s, units.seconds),
        "bandwidth": (row.bandwidth_bytes_per_s, units.rate),
        "bus bandwidth": (row.bus_bytes_per_s, units.rate),
        "% of peak": (row.peak_share, lambda share: peaks.share(row.peak, share)),
        "FLOP/s": (row.flops_per_s, units.flop_rate),
        "max error": (row.max_error, units.error),
    }
    return Text(or_dash(*values[column]).removesuffix("FLOP/s"))


def _metric_cell(row: MetricRow, column: str) -> Text:
    """Return the cell of a metric in a column of the table; the cell is empty except for ``median`` and ``spread``."""
    match column:
        case "median":
            return Text(wording.level(row.value, row.metric))
        case "spread":
            return Text(wording.spread(row.value, row.low, row.high), "dim")
        case _:
            return Text()


def _verdict_cell(judgement: Judgement | None, *, stacked: bool) -> Text:
    """Return the change in per cent and the verdict, on two lines if ``stacked``; a dash without a verdict."""
    if judgement is None:
        return Text(DASH)
    word = wording.verdict_words(judgement, cause=False)
    if judgement.ratio is None:
        return word
    return Text("\n" if stacked else " ").join([Text(units.percent(judgement.ratio)), word])


# --- below the table -------------------------------------------------------------------------------------------------


def _notes(rows: Sequence[ResultRow]) -> list[Text]:
    """Return the lines below a device's table.

    They say which cases failed, were skipped, are excluded or missing, list notes on cases, and give the evidence for
    each change.
    """
    lines = [_status_line(row, row.case.id) for row in rows if row.status in {Status.FAILED, Status.WRONG}]
    skips = _cases_by_text(rows, lambda row: [_reason(row)] if row.status is Status.SKIPPED else [])
    lines += [
        Text.assemble(mark(Status.SKIPPED), " ", (some(cases), "bold"), f" skipped: {reason}")
        for reason, cases in skips.items()
    ]
    excluded = _cases_by_text(rows, lambda row: [row.excluded] if row.excluded else [])
    lines += [
        Text.assemble(mark(None), " ", (some(cases), "bold"), f" excluded from judging: {reason}")
        for reason, cases in excluded.items()
    ]
    if rows[0].device_kind == "cpu":
        lines.append(Text(CPU_NOTE, "italic"))
    notes = _cases_by_text(rows, lambda row: row.notes)
    lines += [Text.assemble("! ", (some(cases), "bold"), f": {note}") for note, cases in notes.items()]
    lines += [_status_line(row, row.case.id) for row in rows if row.status is None]
    judgements = _judgements(rows)
    changed = [
        judgement
        for judgement in judgements
        if judgement.verdict in wording.CHANGED
        or wording.possible_change(judgement)
        or wording.why_unchanged(judgement)
    ]
    return lines + wording.verdict_lines(changed)


def _status_line(row: ResultRow, name: str) -> Text:
    return Text.assemble(mark(row.status), " ", (name, "bold"), f" {row.status or 'missing'}: {_reason(row)}")


def _reason(row: ResultRow) -> str:
    reason = cut(row.reason)
    return f"{reason}\n  cure: {row.cure}" if row.cure else reason


def _cases_by_text(rows: Sequence[ResultRow], texts: Callable[[ResultRow], Iterable[str]]) -> Mapping[str, list[str]]:
    """Group the names of cases by text; ``texts`` returns the texts of a row, such as the row's notes."""
    caches = cache_words(row.key for row in rows)
    cases: dict[str, list[str]] = {}
    for row in rows:
        for text in texts(row):
            cases.setdefault(text, []).append(f"{row.case.id} {caches[row.key]}".rstrip())
    return cases


def _over_budget(over_budget: Sequence[OverBudget]) -> list[Text]:
    """Return a line with the reason for each case over budget; for many cases, one line that names the first few."""
    if not over_budget:
        return []
    several = len({case.device for case in over_budget}) > 1
    keys = [(case.device, case.case.id, case.cache) for case in over_budget]
    caches = cache_words(keys)
    names = [" ".join(filter(None, [key[1], caches[key], f"on {key[0]}" * several])) for key in keys]
    if len(names) > NAMED:
        listed = (some(names), "bold")
        return [Text.assemble(mark(None), " over budget: ", listed, " (--format json has the reasons)"), Text()]
    lines = [
        Text.assemble(mark(None), " over budget: ", (name, "bold"), f": {cut(case.reason)}")
        for name, case in zip(names, over_budget, strict=True)
    ]
    return [*lines, Text()]


def _summary(report: RunReport) -> Text:
    """Return the last line of a run: how many cases have each status, how many are over budget, and the verdicts.

    A case has a verdict on its time, and can have others on its metrics. The line then counts both kinds of verdicts.
    """
    numbers = Counter(row.status for row in report.rows if row.status)
    counts = [f"{numbers[status]} {status.value}" for status in Status if numbers[status]]
    if report.over_budget:
        counts.append(f"{len(report.over_budget)} over budget")
    judgements = _judgements(report.rows)
    verdicts = f"; {wording.counts(judgements)}" if judgements else ""
    times = sum(judgement.series.metric == TIME for judgement in judgements)
    if others := len(judgements) - times:
        among = [units.count(times, "time"), units.count(others, "further metric")]
        verdicts += f" among {' and '.join(among) if times else units.count(others, 'metric')}"
    return Text(f"run {report.run}: {', '.join(counts) or 'nothing measured'}{verdicts}")
