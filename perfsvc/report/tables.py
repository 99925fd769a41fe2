"""Tables for people: of a run and of a comparison."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc.errors import SuiteError
from perfsvc.model import Case, Judgement, Status, Verdict
from perfsvc.report import units
from perfsvc.report.layout import DASH, Responsive, grid, known, mark, spread, verdict_word
from perfsvc.report.listings import cases_table, devices_table, doctor_table, history_table, pins_table, runs_table
from perfsvc.report.plain import comparison_json, plain, run_json
from perfsvc.report.rows import ComparedRun, MetricRow, ResultRow

__all__ = [
    "cases_table",
    "comparison_json",
    "comparison_table",
    "counts",
    "devices_table",
    "doctor_table",
    "history_table",
    "pins_table",
    "plain",
    "run_json",
    "run_table",
    "runs_table",
]

RIDGE = 10
"""From so many operations a byte on, FLOP/s say more of a case than its bandwidth."""

LAYOUTS = (
    ("median", "spread", "bandwidth", "FLOP/s", "max error"),
    ("median", "spread", "bandwidth", "max error"),
    ("median", "spread", "bandwidth"),
    ("median", "bandwidth"),
)
"""The columns of a run's results, for ever narrower terminals: a right result's error is the first to be spared."""

CASE_ROOM = 30
"""What a case id gets on a narrow terminal; a longer one breaks before its point."""

NAMED = 3
"""How many cases a shared reason names."""

CPU_NOTE = "Times of the CPU device are rough and say nothing about a GPU."

COUNTED = {
    Verdict.REGRESSION: ("regression", "regressions"),
    Verdict.IMPROVEMENT: ("improvement", "improvements"),
    Verdict.UNCHANGED: ("unchanged", "unchanged"),
    Verdict.INCONCLUSIVE: ("inconclusive", "inconclusive"),
    Verdict.BROKEN: ("broken", "broken"),
    Verdict.NEW: ("new", "new"),
    Verdict.MISSING: ("missing", "missing"),
}
ALWAYS_COUNTED = {Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.UNCHANGED}


def counts(judgements: Iterable[Judgement]) -> str:
    """``1 regression, 0 improvements, 8 unchanged``, and the other verdicts where there are any."""
    found = Counter(judgement.verdict for judgement in judgements)
    return ", ".join(
        units.count(found[verdict], *words)
        for verdict, words in COUNTED.items()
        if found[verdict] or verdict in ALWAYS_COUNTED
    )


# --- a run -----------------------------------------------------------------------------------------------------------


def run_table(run: int, rows: Sequence[ResultRow], problems: Sequence[SuiteError] = ()) -> RenderableType:
    """The results of a run, a table a device; below them each failure in full, and what it all comes to."""
    parts: list[RenderableType] = []
    for device in dict.fromkeys(row.device for row in rows):
        parts += _device_part([row for row in rows if row.device == device])
    parts += [_problem(problem) for problem in problems]
    return Group(*parts, _run_summary(run, rows))


def _device_part(rows: Sequence[ResultRow]) -> list[RenderableType]:
    first = rows[0]
    heading = Text.assemble((first.device_model or first.device_kind, "bold"), (f"  {first.device}", "dim"))
    notes = [_failure(row) for row in rows if row.status not in {None, Status.OK}]
    if first.device_kind == "cpu":
        notes.append(Text(CPU_NOTE, "italic"))
    notes += [_absence(row) for row in rows if row.status is None]
    table = Responsive(
        *(_results(rows, columns) for columns in LAYOUTS),
        *(_results(rows, columns, room=CASE_ROOM) for columns in LAYOUTS[2:]),
        _results(rows, LAYOUTS[-1], room=0, stacked=True),
    )
    return [heading, table, Text(), *notes, *([Text()] if notes else [])]


def _results(rows: Sequence[ResultRow], layout: Sequence[str], *, room: float = inf, stacked: bool = False) -> Table:
    """The results in some columns; case ids beyond their room break before their point, ``stacked`` verdicts too."""
    columns = [name for name in layout if name != "FLOP/s" or any(map(_counts_flops, rows))]
    judged = bool(_judgements(rows))
    table = grid()
    table.add_column("")
    table.add_column("case", overflow="fold", min_width=16)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    if judged:
        table.add_column(_against(rows), no_wrap=not stacked)
    for row in rows:
        table.add_row(
            mark(row.status),
            _case_cell(row.case, room),
            *(_number(row, column) for column in columns),
            *([_verdict_cell(row.judgement, stacked=stacked)] if judged else []),
        )
        for metric in row.metrics:
            table.add_row(
                "",
                Text(f"  {metric.metric}", "dim"),
                *(_metric_number(metric, column) for column in columns),
                *([_verdict_cell(metric.judgement, stacked=stacked)] if judged else []),
            )
    return table


def _judgements(rows: Iterable[ResultRow]) -> list[Judgement]:
    """All verdicts of some cases: of their times and of what they returned of themselves."""
    each = (judgement for row in rows for judgement in (row.judgement, *(metric.judgement for metric in row.metrics)))
    return [judgement for judgement in each if judgement]


def _metric_number(row: MetricRow, column: str) -> Text:
    match column:
        case "median":
            return Text(known(row.value, "{:.4g}".format))
        case "spread":
            return Text(spread(row.value, row.low, row.high), "dim")
        case _:
            return Text()


def _number(row: ResultRow, column: str) -> Text:
    match column:
        case "median" if row.status not in {None, Status.OK}:
            return Text(str(row.status), "bold red" if row.status is not Status.SKIPPED else "dim")
        case "median":
            return Text(known(row.median_s, units.seconds))
        case "spread":
            return Text(spread(row.median_s, row.low_s, row.high_s), "dim")
        case "bandwidth":
            return Text(known(row.bandwidth_bytes_per_s, units.rate))
        case "FLOP/s":
            return Text(known(row.flops_per_s, units.flop_rate).removesuffix("FLOP/s"))
        case _:
            return Text(known(row.max_error, units.error))


def _counts_flops(row: ResultRow) -> bool:
    return bool(row.flops_per_s and row.flops_per_s > RIDGE * (row.bandwidth_bytes_per_s or 0))


def _case_cell(case: Case, room: float) -> Text:
    breaks = case.point and len(case.id) > room
    return Text(f"{case.benchmark}/{case.variant}\n[{case.point_text}]" if breaks else case.id)


def _against(rows: Sequence[ResultRow]) -> str:
    bases = {judgement.baseline_run for judgement in _judgements(rows) if judgement.baseline_run is not None}
    return f"against run {bases.pop()}" if len(bases) == 1 else "against baseline"


def _verdict_cell(judgement: Judgement | None, *, stacked: bool) -> Text:
    if judgement is None:
        return Text(DASH)
    word = verdict_word(judgement.verdict)
    if judgement.ratio is None:
        return word
    return Text("\n" if stacked else " ").join([Text(units.percent(judgement.ratio)), word])


def _absence(row: ResultRow) -> Text:
    return Text.assemble(mark(None), " ", (row.case.id, "bold"), f" missing: {row.reason}")


def _failure(row: ResultRow) -> Text:
    line = Text.assemble(mark(row.status), " ", (row.case.id, "bold"), f" {row.status}: {row.reason}")
    return line.append(f"\n  cure: {row.cure}") if row.cure else line


def _problem(problem: SuiteError) -> Text:
    return Text.assemble(mark(Status.FAILED), " ", str(problem))


def _run_summary(run: int, rows: Sequence[ResultRow]) -> Text:
    found = Counter(row.status for row in rows if row.status)
    ended = ", ".join(f"{found[status]} {status.value}" for status in Status if found[status]) or "nothing measured"
    judged = _judgements(rows)
    return Text(f"run {run}: {ended}" + (f"; {counts(judged)}" if judged else ""))


# --- a comparison ----------------------------------------------------------------------------------------------------


def comparison_table(base: ComparedRun | None, new: ComparedRun, judgements: Sequence[Judgement]) -> RenderableType:
    """The verdicts between two runs in the judge's order, why where it is not plain, and how many there are of each.

    Args:
        base: the run compared with; None where each series has its own baseline.
        new: the run that is judged.
        judgements: as ``judge.verdicts`` made them.
    """
    against = _resolved(base) if base else "the baseline of each series"
    heading = Text(f"{_resolved(new)}\nagainst {against}", "bold")
    table = Responsive(_comparison(judgements), _comparison(judgements, compact=True))
    reasons = _reasons(judgements)
    return Group(heading, table, Text(), *reasons, *([Text()] if reasons else []), Text(counts(judgements)))


def _resolved(compared: ComparedRun) -> str:
    """What was asked for and what it is: ``HEAD = run 7, 1a2b3c4d5 with uncommitted changes``."""
    run = f"run {compared.run}"
    named = run if compared.asked == str(compared.run) else f"{compared.asked} = {run}"
    label = f"“{compared.label}”" if compared.label not in {"", compared.asked} else ""
    commit = compared.commit[:9] + (" with uncommitted changes" if compared.dirty else "")
    return ", ".join(filter(None, [named, label, commit]))


def _reasons(judgements: Sequence[Judgement]) -> list[Text]:
    """Why, once for all series that share a verdict and its reason; what is unchanged needs none."""
    cases: dict[tuple[Verdict, str], list[str]] = {}
    for judgement in judgements:
        if judgement.verdict is not Verdict.UNCHANGED:
            cases.setdefault((judgement.verdict, judgement.reason), []).append(judgement.series.case.id)
    return [
        Text.assemble(verdict_word(verdict), " ", (_some(names), "bold"), f": {reason}")
        for (verdict, reason), names in cases.items()
    ]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= NAMED else f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def _comparison(judgements: Sequence[Judgement], *, compact: bool = False) -> Table:
    several = len({judgement.series.device for judgement in judgements}) > 1
    table = grid()
    table.add_column("verdict", no_wrap=True)
    table.add_column("case", overflow="fold", min_width=16)
    if not compact:
        table.add_column("baseline", justify="right", no_wrap=True)
        table.add_column("candidate", justify="right", no_wrap=True)
    table.add_column("change", justify="right", no_wrap=True)
    table.add_column("interval", no_wrap=not compact)
    for judgement in judgements:
        levels = [] if compact else [_level(judgement, judgement.baseline_s), _level(judgement, judgement.candidate_s)]
        table.add_row(
            verdict_word(judgement.verdict),
            _judged_cell(judgement, device=several),
            *levels,
            Text(known(judgement.ratio, units.percent)),
            Text(_interval(judgement)),
        )
    return table


def _judged_cell(judgement: Judgement, *, device: bool) -> Text:
    series = judgement.series
    cell = Text(series.case.id if series.metric == "time" else f"{series.case.id} {series.metric}")
    if device:
        cell.append(f"\non {series.device_model} ({series.device})", "dim")
    return cell


def _level(judgement: Judgement, level: float | None) -> Text:
    return Text(known(level, units.seconds if judgement.series.metric == "time" else "{:.4g}".format))


def _interval(judgement: Judgement) -> str:
    if judgement.low is None or judgement.high is None:
        return DASH
    return f"{units.percent(judgement.low)} to {units.percent(judgement.high)}"
