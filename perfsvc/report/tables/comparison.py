"""The tables of a comparison of two runs, and of what was measured again."""

from collections.abc import Iterator, Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.model import Confirmation, Judgement, Series, Verdict
from perfsvc.report import wording
from perfsvc.report.rows import ComparedRun, EnvironmentDifferences, difference_lines
from perfsvc.report.rows import heading as environment_heading
from perfsvc.report.tables.layout import Responsive, grid
from perfsvc.report.wording import DASH, or_dash
from perfsvc.text import cut


def confirmations_table(confirmations: Sequence[Confirmation], no_finding: str = "") -> RenderableType:
    """Return a table with a row for each suspect, then their reasons, and the counts of confirmed and cleared suspects.

    Without confirmations, return only the counts.

    Args:
        confirmations: the suspects after their A/B pairs.
        no_finding: why a confirmed change raised no finding; printed last.
    """
    if not confirmations:
        return Text(counts(confirmations))
    every_series = [confirmation.suspect.series for confirmation in confirmations]
    names = wording.series_names(every_series)
    table = grid()
    table.add_column("cause", no_wrap=True)
    table.add_column("case", overflow="fold", min_width=16)
    table.add_column("in the run", justify="right", no_wrap=True)
    table.add_column("A/B pairs", justify="right", no_wrap=True)
    table.add_column("interval")
    table.add_column("pairs", justify="right")
    for confirmation, case in zip(confirmations, wording.series_cells(every_series), strict=True):
        table.add_row(
            _cause(confirmation),
            case,
            Text(or_dash(confirmation.suspect.judgement.ratio, units.percent)),
            Text(or_dash(confirmation.ratio, units.percent)),
            Text(wording.interval(confirmation.low, confirmation.high) or DASH),
            str(confirmation.pairs),
        )
    reasons = [
        Text.assemble(_cause(confirmation), " ", (name, "bold"), f": {cut(confirmation.reason)}")
        for confirmation, name in zip(confirmations, names, strict=True)
    ]
    note = [Text(no_finding, "yellow")] if no_finding else []
    return Group(table, Text(), *reasons, Text(), Text(counts(confirmations)), *note)


def counts(confirmations: Sequence[Confirmation]) -> str:
    """Return the counts as text: ``measured again: 1 confirmed, 2 cleared, 0 unconfirmed; 3 were confirmed in …``."""
    carried_over = sum(confirmation.carried_over for confirmation in confirmations)
    confirmed = sum(confirmation.confirmed for confirmation in confirmations) - carried_over
    cleared = sum(confirmation.cleared for confirmation in confirmations)
    unconfirmed = len(confirmations) - carried_over - confirmed - cleared
    again = f"measured again: {confirmed} confirmed, {cleared} cleared, {unconfirmed} unconfirmed"
    if not carried_over:
        return again
    verb = "was" if carried_over == 1 else "were"
    return f"{again}; {carried_over} {verb} confirmed in an earlier run"


def _cause(confirmation: Confirmation) -> Text:
    """Return the cause that the A/B pairs found, in the colour of the decision."""
    cause = confirmation.cause.value
    if confirmation.confirmed:
        return Text(cause, wording.OUTCOME_STYLES[confirmation.verdict or Verdict.REGRESSION])
    return Text(cause, "dim" if confirmation.cleared else "yellow")


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
