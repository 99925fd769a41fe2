"""The table of a run: its cases device by device, and below them what a reader of its numbers has to know."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.errors import SuiteError
from perfsvc.model import AUXILIARY, Judgement, Peak, Status
from perfsvc.report.rows import Doubt, MetricRow, OverBudgetLike, ResultRow, Shown
from perfsvc.report.tables.layout import (
    DASH,
    NAMED,
    Responsive,
    cache_words,
    counts,
    grid,
    known,
    mark,
    some,
    spread,
    verdict_word,
)
from perfsvc.report.wording import moved_lines

RIDGE = 10
"""From so many operations a byte on, FLOP/s say more of a case than its bandwidth."""

LAYOUTS = (
    ("median", "spread", "bandwidth", "of peak", "FLOP/s", "of reference", "max error"),
    ("median", "spread", "bandwidth", "of peak", "of reference", "max error"),
    ("median", "spread", "bandwidth", "of peak", "of reference"),
    ("median", "bandwidth", "of peak", "of reference"),
    ("median", "bandwidth", "of reference"),
    ("median", "bandwidth"),
)
"""The columns of a run's results, for ever narrower terminals: a right result's error is the first to be spared."""

CASE_ROOM = 30
"""What a case id gets on a narrow terminal; a longer one breaks before its point."""

CPU_NOTE = "Times of the CPU device are rough and say nothing about a GPU."


def run_table(shown: Shown) -> RenderableType:
    """The results of a run, a table a device; below them each failure in full, and what it all comes to."""
    parts: list[RenderableType] = []
    for device in dict.fromkeys(row.device for row in shown.rows):
        parts += _device_part([row for row in shown.rows if row.device == device], shown.peaks.get(device))
    parts += [_problem(problem) for problem in shown.problems]
    return Group(*parts, *_over_budget(shown.over_budget), _summary(shown))


def doubt_text(doubt: Doubt) -> str:
    """A declaration that cannot be right, for a person: what it would mean, and the cure."""
    return (
        f"{doubt.case.id} declares {doubt.declared_bytes} bytes a launch: they would move at "
        f"{units.rate(doubt.bytes_per_s)}, and the best that the memory of {doubt.device} was measured to do is "
        f"{units.rate(doubt.roof_bytes_per_s)}\n"
        "  cure: let work= of the benchmark say what the problem has to read and write, each byte once"
    )


def _device_part(rows: Sequence[ResultRow], peak: Peak | None) -> list[RenderableType]:
    first = rows[0]
    heading = Text.assemble((first.device_model or first.device_kind, "bold"), (f"  {first.device}", "dim"))
    if peak:
        copied, read = units.rate(peak.copy_bytes_per_s), units.rate(peak.read_bytes_per_s)
        heading.append(f"\nmeasured peak: copies {copied}, reads {read}", "dim")
    notes = [_failure(row) for row in rows if row.status in {Status.FAILED, Status.WRONG}]
    notes += _skips(rows)
    if first.device_kind == "cpu":
        notes.append(Text(CPU_NOTE, "italic"))
    notes += _notes(rows)
    notes += [_absence(row) for row in rows if row.status is None]
    notes += moved_lines(_judgements(rows))
    table = Responsive(
        *(_results(rows, columns) for columns in LAYOUTS),
        *(_results(rows, columns, room=CASE_ROOM) for columns in LAYOUTS[2:]),
        _results(rows, LAYOUTS[-1], room=0, stacked=True),
    )
    return [heading, table, Text(), *notes, *([Text()] if notes else [])]


def _results(rows: Sequence[ResultRow], layout: Sequence[str], *, room: float = inf, stacked: bool = False) -> Table:
    """The results in some columns; case ids beyond their room break before their point, ``stacked`` verdicts too."""
    columns = [name for name in layout if _is_of_use(name, rows)]
    judged = bool(_judgements(rows))
    caches = cache_words((row.device, row.case.id, row.cache) for row in rows)
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
            _case_cell(row, caches[row.device, row.case.id, row.cache], room),
            *(_number(row, column) for column in columns),
            *([_verdict_cell(row.judgement, stacked=stacked)] if judged else []),
        )
        for metric in _own_metrics(row):
            table.add_row(
                "",
                Text(f"  {metric.metric}", "dim"),
                *(_metric_number(metric, column) for column in columns),
                *([_verdict_cell(metric.judgement, stacked=stacked)] if judged else []),
            )
    return table


def _is_of_use(column: str, rows: Iterable[ResultRow]) -> bool:
    """Whether a column says anything of any of the cases."""
    if column == "FLOP/s":
        return any(map(_counts_flops, rows))
    if column == "of reference":
        return any(row.relative_to for row in rows)
    return column != "of peak" or any(row.peak_share is not None for row in rows)


def _own_metrics(row: ResultRow) -> list[MetricRow]:
    """What a case returned of itself; what only explains its time is for ``perfsvc show``."""
    return [metric for metric in row.metrics if metric.metric not in AUXILIARY]


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
    if column == "median" and row.status not in {None, Status.OK}:
        return Text(str(row.status), "bold red" if row.status is not Status.SKIPPED else "dim")
    if column == "of reference":
        return Text("" if row.relative_speed is None else units.share(row.relative_speed))
    if column == "spread":
        return Text(spread(row.median_s, row.low_s, row.high_s), "dim")
    written = {
        "median": (row.median_s, units.seconds),
        "bandwidth": (row.bandwidth_bytes_per_s, units.rate),
        "of peak": (row.peak_share, units.share),
        "FLOP/s": (row.flops_per_s, units.flop_rate),
        "max error": (row.max_error, units.error),
    }
    return Text(known(*written[column]).removesuffix("FLOP/s"))


def _counts_flops(row: ResultRow) -> bool:
    return bool(row.flops_per_s and row.flops_per_s > RIDGE * (row.bandwidth_bytes_per_s or 0))


def _case_cell(row: ResultRow, cache: str, room: float) -> Text:
    case = row.case
    breaks = case.point and len(case.id) > room
    cell = Text(f"{case.benchmark}/{case.variant}\n[{case.point_text}]" if breaks else case.id)
    return cell.append(f" {cache}", "dim") if cache else cell


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


# --- below the table -------------------------------------------------------------------------------------------------


def _names(rows: Sequence[ResultRow]) -> Mapping[int, str]:
    """What each row's case is called among the others, by the row's place."""
    caches = cache_words((row.device, row.case.id, row.cache) for row in rows)
    called = (f"{row.case.id} {caches[row.device, row.case.id, row.cache]}" for row in rows)
    return {place: name.strip() for place, name in enumerate(called)}


def _notes(rows: Sequence[ResultRow]) -> list[Text]:
    """What a reader of the times has to know, once for all cases that share it."""
    shared = _sharing(rows, lambda row: row.notes)
    return [Text.assemble("! ", (some(names), "bold"), f": {note}") for note, names in shared.items()]


def _skips(rows: Sequence[ResultRow]) -> list[Text]:
    """Why cases were skipped, once for all that share the reason."""
    shared = _sharing(rows, lambda row: [_why(row)] if row.status is Status.SKIPPED else [])
    return [
        Text.assemble(mark(Status.SKIPPED), " ", (some(names), "bold"), f" skipped: {why}")
        for why, names in shared.items()
    ]


def _why(row: ResultRow) -> str:
    return f"{row.reason}\n  cure: {row.cure}" if row.cure else row.reason


def _sharing(rows: Sequence[ResultRow], words: Callable[[ResultRow], Iterable[str]]) -> dict[str, list[str]]:
    """The cases that share each word, by what they are called among the others."""
    names, cases = _names(rows), dict[str, list[str]]()
    for place, row in enumerate(rows):
        for word in words(row):
            cases.setdefault(word, []).append(names[place])
    return cases


def _absence(row: ResultRow) -> Text:
    return Text.assemble(mark(None), " ", (row.case.id, "bold"), f" missing: {row.reason}")


def _failure(row: ResultRow) -> Text:
    return Text.assemble(mark(row.status), " ", (row.case.id, "bold"), f" {row.status}: {_why(row)}")


def _problem(problem: SuiteError) -> Text:
    return Text.assemble(mark(Status.FAILED), " ", str(problem))


def _over_budget(over_budget: Sequence[OverBudgetLike]) -> list[Text]:
    """What there was no time for: each with why, or the first few by name where there are more."""
    several = len({one.device for one in over_budget}) > 1
    caches = cache_words((one.device, one.case.id, one.cache) for one in over_budget)
    names = [
        " ".join(filter(None, [one.case.id, caches[one.device, one.case.id, one.cache], f"on {one.device}" * several]))
        for one in over_budget
    ]
    if len(names) > NAMED:
        return [Text.assemble(mark(None), " left out: ", (some(names), "bold"), " (--format json says why)"), Text()]
    lines = [
        Text.assemble(mark(None), " left out: ", (name, "bold"), f": {one.reason}")
        for name, one in zip(names, over_budget, strict=True)
    ]
    return [*lines, Text()] if lines else []


def _summary(shown: Shown) -> Text:
    found = Counter(row.status for row in shown.rows if row.status)
    ended = [f"{found[status]} {status.value}" for status in Status if found[status]]
    if shown.over_budget:
        ended.append(f"{len(shown.over_budget)} left out")
    judged = _judgements(shown.rows)
    said = ", ".join(ended) or "nothing measured"
    return Text(f"run {shown.run}: {said}" + (f"; {counts(judged)}" if judged else ""))
