"""The look of all tables.

Cells are ``Text``, never markup: rich would read a case id such as ``dot/tree[n=1024]`` as a style.
"""

from collections.abc import Callable, Iterable, Mapping

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from perfsvc.model import Status
from perfsvc.report.tables.grid import Grid
from perfsvc.report.wording import DASH

STATUS_MARKS: Mapping[Status, tuple[str, str]] = {
    Status.OK: ("✓", "green"),
    Status.WRONG: ("✗", "bold red"),
    Status.FAILED: ("✗", "bold red"),
    Status.SKIPPED: (DASH, "dim"),
}
"""Mark and style. The status is also written as a word unless the mark is ✓."""

EXCLUDED = "dim strike"
"""The style of what is excluded from judging; the word "excluded" stands beside it."""

UNBOUNDED = 10_000
"""More columns than any table needs."""


class Responsive:
    """Renders the widest of several tables that fits the console, or the narrowest, and names the dropped columns.

    Args:
        tables: return the tables, from the widest to the narrowest. Those after the first that fits are not made: a
            table may have ten thousand rows.
    """

    def __init__(self, *tables: Callable[[], Table]) -> None:
        self._tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the first table that fits the width, else the last, and name the dropped columns (called by rich)."""
        unbounded = options.update(width=UNBOUNDED)
        widest = shown = self._tables[0]()
        for table in self._tables[1:]:
            if _width(shown, console, unbounded) <= options.max_width:
                break
            shown = table()
        yield shown
        dropped = [name for name in _headers(widest) if name not in _headers(shown)]
        if dropped:
            yield Text(f"too narrow for {', '.join(dropped)}: widen the terminal, or use --format json", "dim")


def _width(table: Table, console: Console, options: ConsoleOptions) -> int:
    """Return the width in which a table needs no wrapping."""
    natural = table.natural_width() if isinstance(table, Grid) else None
    return table.__rich_measure__(console, options).maximum if natural is None else natural


def _headers(table: Table) -> list[str]:
    return [str(column.header) for column in table.columns if str(column.header)]


def grid() -> Table:
    """Return an empty table: a rule below the header, two spaces between columns."""
    return Grid()


def properties(values: Iterable[tuple[str, str]]) -> Table:
    """Return an indented table without a header: a name and its value on each line."""
    table = Table.grid(padding=(0, 2))
    for name, value in values:
        table.add_row(Text(f"  {name}", "dim"), Text(value, overflow="fold"))
    return table


def mark(status: Status | None) -> Text:
    """Return the status as one character, or a dash if nothing was measured."""
    return Text(*STATUS_MARKS[status]) if status else Text(DASH, "yellow")
