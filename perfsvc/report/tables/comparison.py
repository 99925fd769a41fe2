"""Tables for people: of a run, of a comparison, and the lists."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc.model import Judgement
from perfsvc.report.export.objects import comparison_json, finding_json, plain, run_json
from perfsvc.report.rows import ComparedRun
from perfsvc.report.tables.findings import finding_table, findings_table
from perfsvc.report.tables.history import history_table
from perfsvc.report.tables.layout import Responsive, counts, grid, verdict_word
from perfsvc.report.tables.lists import cases_table, devices_table, doctor_table, pins_table, runs_table
from perfsvc.report.tables.run import doubt_text, run_table
from perfsvc.report.wording import named, reason_lines, written

__all__ = [
    "cases_table",
    "comparison_json",
    "comparison_table",
    "counts",
    "devices_table",
    "doctor_table",
    "doubt_text",
    "finding_json",
    "finding_table",
    "findings_table",
    "history_table",
    "pins_table",
    "plain",
    "run_json",
    "run_table",
    "runs_table",
]


LAYOUTS = (
    ("baseline", "candidate", "change", "interval", "smallest", "replicas"),
    ("baseline", "candidate", "change", "interval", "smallest"),
    ("baseline", "candidate", "change", "interval"),
    ("change", "interval"),
)
"""The columns of a comparison, for ever narrower terminals; ``smallest`` is the smallest change that would show."""


def comparison_table(base: ComparedRun | None, new: ComparedRun, judgements: Sequence[Judgement]) -> RenderableType:
    """The verdicts between two runs in the judge's order, why where it is not plain, and how many there are of each.

    Args:
        base: the run compared with; None where each series has its own baseline.
        new: the run that is judged.
        judgements: as ``judge.verdicts`` made them.
    """
    against = base.words if base else "the baseline of each series"
    heading = Text(f"{new.words}\nagainst {against}", "bold")
    table = Responsive(*(_comparison(judgements, columns) for columns in LAYOUTS))
    reasons = reason_lines(judgements)
    return Group(heading, table, Text(), *reasons, *([Text()] if reasons else []), Text(counts(judgements)))


def _comparison(judgements: Sequence[Judgement], columns: Sequence[str]) -> Table:
    several, names = len({judgement.series.device for judgement in judgements}) > 1, named(judgements)
    table = grid()
    table.add_column("verdict", no_wrap=True)
    table.add_column("case", overflow="fold", min_width=16)
    for column in columns:
        left = column == "interval"
        table.add_column(column, justify="left" if left else "right", no_wrap=not left or columns != LAYOUTS[-1])
    for place, judgement in enumerate(judgements):
        table.add_row(
            _verdict_cell(judgement),
            _judged_cell(judgement, names[place], device=several),
            *(Text(written(judgement, column)) for column in columns),
        )
    return table


def _verdict_cell(judgement: Judgement) -> Text:
    """The verdict, and the cause of what moved."""
    word = verdict_word(judgement.verdict)
    return word.append(f" {judgement.cause}", "dim") if judgement.cause else word


def _judged_cell(judgement: Judgement, name: str, *, device: bool) -> Text:
    cell = Text(name)
    if device:
        cell.append(f"\non {judgement.series.device_model} ({judgement.series.device})", "dim")
    return cell
