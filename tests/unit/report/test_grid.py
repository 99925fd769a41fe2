"""The quick layout of tables looks like the layout of rich."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfsvc.report.tables.layout import Grid
from tests.unit.report import terminal


def rich_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def filled(table: Table) -> Table:
    table.add_column("verdict", no_wrap=True)
    table.add_column("case", overflow="fold", min_width=16)
    table.add_column("time", justify="right")
    table.add_column("", justify="center")
    table.add_row(Text("slower", "red").append(" code", "dim"), "dot[n=1]", Text("1.5 µs"), Text("✓", "green"))
    table.add_row("", Text("行列/naive"), "", Text("abc"), style="dim strike")
    table.add_row("unchanged", Text.assemble("a", ("b", "bold"), "c"), Text("0 s", "bold red"), "de")
    return table


def printed(table: Table, width: int) -> str:
    return terminal.show(table, width, markup=False)


def looks(table: Table) -> list[tuple[str, str]]:
    """Return each visible character with its style."""
    text = Text.from_ansi(terminal.show(table, colour=True, markup=False))
    styles = ((character, text.get_style_at_offset(Console(), at)) for at, character in enumerate(text.plain))
    return [(character, str(style)) for character, style in styles if not character.isspace()]


def test_a_grid_prints_what_a_table_of_rich_prints():
    for width in [20, 44, 45, 46, 47, 48, 120]:
        assert printed(filled(Grid()), width) == printed(filled(rich_table()), width)


def test_a_grid_without_rows_prints_what_a_table_of_rich_prints() -> None:
    grid, table = Grid(), rich_table()
    for each in (grid, table):
        each.add_column("run", justify="right")
        each.add_column("label")
    assert printed(grid, 80) == printed(table, 80)
    assert printed(Grid(), 80) == printed(rich_table(), 80)


def test_styles_widths_and_cells_of_several_lines_are_those_of_rich() -> None:
    grid, table, console = filled(Grid()), filled(rich_table()), Console(width=500)
    assert looks(grid) == looks(table)
    assert grid.natural_width() == table.__rich_measure__(console, console.options).maximum
    for each in (grid, table):
        each.add_row("one\ntwo", "x", "y", "z")
    assert grid.natural_width() is None
    assert printed(grid, 120) == printed(table, 120)
