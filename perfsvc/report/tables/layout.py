"""The look of all tables, and the tables of tokens and of the audit log.

Cells are ``Text``, never markup: rich would read a case id such as ``dot/tree[n=1024]`` as a style.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from perfsvc.model import Status
from perfsvc.report.wording import DASH

PAD = 1
"""The spaces to the right of a cell."""
DIVIDER = " "
"""Between two columns, after the padding."""


class Grid(Table):
    """A table with a rule below the header and two spaces between columns.

    Rich measures each cell twice and wraps each cell, even where all cells fit on one line. A grid whose cells fit
    writes its lines itself, with the same result in a fraction of the time. Rich lays out all other grids.
    """

    def __init__(self) -> None:
        super().__init__(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, PAD, 0, 0), header_style="bold")

    def natural_width(self) -> int | None:
        """Return the width in which no cell is wrapped; None if a cell has several lines or is no text."""
        widths = self._natural_widths()
        return None if widths is None else _line_width(widths)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the table (called by rich)."""
        widths = self._natural_widths()
        if widths is None or _line_width(widths) > options.max_width:
            yield from super().__rich_console__(console, options)
            return
        header = [Text(str(column.header)) for column in self.columns]
        bold = console.get_style(self.header_style)
        yield from self._line(console, header, widths, bold)
        rule = "─" if not options.ascii_only else "-"
        yield Segment(rule * _line_width(widths))
        yield Segment.line()
        for cells, row in zip(zip(*(column.cells for column in self.columns), strict=True), self.rows, strict=True):
            texts = [cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells]
            yield from self._line(console, texts, widths, console.get_style(row.style or ""))

    def _natural_widths(self) -> list[int] | None:
        """Return the width of each column's widest cell; None if a cell has several lines or is no text."""
        if not self.columns:
            return None
        widths = []
        for column in self.columns:
            texts = [str(column.header), *map(_plain, column.cells)]
            if None in texts or any("\n" in text or "\t" in text for text in texts if text):
                return None
            widths.append(max(column.min_width or 1, 1, *(cell_len(text or "") for text in texts)))
        return widths

    def _line(self, console: Console, cells: Sequence[Text], widths: Sequence[int], style: Style) -> Iterable[Segment]:
        """Yield a row of cells; neighbours with the same style become one segment."""
        line: list[Segment] = []
        for index, (cell, width, column) in enumerate(zip(cells, widths, self.columns, strict=True)):
            if index:
                line.append(Segment(DIVIDER, Style.null()))  # not None, so that it joins neighbours without a style
            line += _cell(console, cell, width, column, style)
        line.append(Segment.line())
        yield from Segment.simplify(line)


def _cell(console: Console, cell: Text, width: int, column: Column, style: Style) -> list[Segment]:
    """Return a cell that fills the width of its column and the padding."""
    blank = width - cell_len(cell.plain)
    left = blank if column.justify == "right" else blank // 2 if column.justify == "center" else 0
    if not (cell.style or cell.spans):  # nearly every cell of a large table
        return [Segment(" " * left + cell.plain + " " * (blank - left + PAD), style)]
    own = console.get_style(cell.style)
    text = cell.render(console) if cell.spans else [Segment(cell.plain, own)]  # without spans, render() has no style
    content = (Segment(" " * left, own), *text, Segment(" " * (blank - left), own))
    return [*Segment.apply_style((part for part in content if part.text), style), Segment(" " * PAD, style)]


def _plain(cell: object) -> str | None:
    return cell.plain if isinstance(cell, Text) else cell if isinstance(cell, str) else None


def _line_width(widths: Sequence[int]) -> int:
    """Return the width of a line whose columns have these widths."""
    return sum(widths) + PAD * len(widths) + len(DIVIDER) * (len(widths) - 1)


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


def tokens_table(tokens: Iterable[tuple[Mapping[str, Any], str]]) -> RenderableType:
    """Return the tokens, each as its JSON object with why it is invalid (empty if it is valid)."""
    table = grid()
    for name in ("token", "may", "made by", "made (UTC)", "ends (UTC)", "last used (UTC)", "state"):
        table.add_column(name, overflow="fold")
    for token, why in tokens:
        cells = (token["name"], ", ".join(token["scopes"]), token["made_by"])
        times = tuple(_minute(token[key]) for key in ("made", "expires", "used"))
        state = Text(why or "valid", style="dim" if why else "green")
        table.add_row(*map(Text, (*cells, *times)), state)
    return table


def audit_table(entries: Iterable[Mapping[str, Any]]) -> RenderableType:
    """Return entries of the audit log, each as its JSON object."""
    table = grid()
    for name in ("time (UTC)", "who", "action", "on", "from", "answer", "refused because"):
        table.add_column(name, overflow="fold")
    for entry in entries:
        texts = (entry["who"] or DASH, entry["action"], entry["target"], entry["address"])
        table.add_row(*map(Text, (_minute(entry["at"]), *texts, str(entry["status"]), entry["reason"])))
    return table


def _minute(moment: str | None) -> str:
    """Return a time in ISO 8601 without seconds and offset."""
    return moment[:16].replace("T", " ") if moment else DASH
