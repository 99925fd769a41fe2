"""The table of a comparison of two runs."""

from collections.abc import Iterator, Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc.model import Judgement, Series
from perfsvc.report import wording
from perfsvc.report.environment import difference_lines
from perfsvc.report.environment import heading as environment_heading
from perfsvc.report.rows import ComparedRun, EnvironmentDifferences
from perfsvc.report.tables.layout import Responsive, grid

LAYOUTS = (
    ("baseline", "candidate", "change", "interval", "smallest", "replicas"),
    ("baseline", "candidate", "change", "interval", "smallest"),
    ("baseline", "candidate", "change", "interval"),
    ("change", "interval"),
)
"""The columns from the widest terminal to the narrowest; ``smallest`` is the smallest change that would show."""


LIMIT = "--select, --exclude and --device limit what is compared"


def comparison_table(
    base: ComparedRun | None,
    new: ComparedRun,
    judgements: Sequence[Judgement],
    over_budget: Sequence[Series] = (),
    environment: EnvironmentDifferences | None = None,
) -> RenderableType:
    """Return the table of verdicts, then the reasons of the verdicts, then the counts.

    What differs in the environments of both runs stands above the table.

    Args:
        base: the run compared with; None if each series has its own baseline.
        new: the run that is judged.
        judgements: the verdict on each series, the most urgent first.
        over_budget: the series that the new run did not measure because its budget was used up.
        environment: in what the environments of both runs differ; None if that is unknown.
    """
    against = base.description if base else "the baseline of each series"
    heading = Text(f"{new.description}\nagainst {against}", "bold")
    table = Responsive(*(partial(_comparison, judgements, columns) for columns in LAYOUTS))
    reasons = wording.verdict_lines(judgements, figures=False)
    missing = wording.missing_sentences(new.name, judgements, over_budget)
    absent = [Text("\n".join(missing), "yellow"), Text(LIMIT, "dim"), Text()] if missing else []
    blank = [Text()] if reasons else []
    differing = [Text(), *_differing(environment), Text()] if environment and environment.differences else []
    return Group(heading, *differing, table, Text(), *reasons, *blank, *absent, Text(wording.counts(judgements)))


def _differing(changes: EnvironmentDifferences) -> Iterator[Text]:
    """Yield in what the environments of two runs differ."""
    yield Text(environment_heading(changes), "yellow")
    yield from (Text(f"  {line}") for line in difference_lines(changes))


def _comparison(judgements: Sequence[Judgement], columns: Sequence[str]) -> Table:
    """Return the table of verdicts with the given columns, a row for each series."""
    cases = wording.series_cells([judgement.series for judgement in judgements])
    table = grid()
    table.add_column("verdict", no_wrap=True)
    table.add_column("case", overflow="fold", min_width=16)
    for column in columns:
        left = column == "interval"
        table.add_column(column, justify="left" if left else "right", no_wrap=not left or columns != LAYOUTS[-1])
    for judgement, case in zip(judgements, cases, strict=True):
        table.add_row(
            wording.verdict_words(judgement),
            case,
            *(Text(wording.comparison_value(judgement, column)) for column in columns),
        )
    return table
