"""A table of rich that prints thousands of rows quickly."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

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
