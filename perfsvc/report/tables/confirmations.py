"""The table of suspects that were measured again in A/B pairs."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from perfsvc import units
from perfsvc.model import Confirmation, Verdict
from perfsvc.report import wording
from perfsvc.report.tables.layout import grid
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
