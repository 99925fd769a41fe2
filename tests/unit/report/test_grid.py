"""The quick layout of tables looks like the layout of rich."""

from io import StringIO

import pytest
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfsvc.report.tables.grid import Grid


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


def printed(table: Table, width: int, *, colours: bool) -> str:
    file = StringIO()
    looks = {"force_terminal": colours, "color_system": "standard" if colours else None}
    console = Console(file=file, width=width, markup=False, highlight=False, **looks)
    console.print(table)
    return file.getvalue()


@pytest.mark.parametrize("width", [20, 44, 45, 46, 47, 48, 120])
def test_a_grid_prints_what_a_table_of_rich_prints(width: int) -> None:
    assert printed(filled(Grid()), width, colours=False) == printed(filled(rich_table()), width, colours=False)


def test_a_grid_without_rows_prints_what_a_table_of_rich_prints() -> None:
    grid, table = Grid(), rich_table()
    for each in (grid, table):
        each.add_column("run", justify="right")
        each.add_column("label")
    assert printed(grid, 80, colours=False) == printed(table, 80, colours=False)
    assert printed(Grid(), 80, colours=False) == printed(rich_table(), 80, colours=False)


def test_a_cell_of_several_lines_is_laid_out_by_rich() -> None:
    grid, table = Grid(), rich_table()
    for each in (grid, table):
        filled(each).add_row("one\ntwo", "x", "y", "z")
    assert grid.natural_width() is None
    assert printed(grid, 120, colours=False) == printed(table, 120, colours=False)


def _looks(output: str) -> list[tuple[str, str]]:
    """Return each visible character with its style."""
    text = Text.from_ansi(output)
    return [
        (character, str(text.get_style_at_offset(Console(), at)))
        for at, character in enumerate(text.plain)
        if not character.isspace()
    ]


def test_each_character_has_the_style_that_rich_gives_it() -> None:
    assert _looks(printed(filled(Grid()), 120, colours=True)) == _looks(
        printed(filled(rich_table()), 120, colours=True)
    )


def test_the_natural_width_is_the_width_that_rich_measures() -> None:
    table = filled(rich_table())
    console = Console(width=500)
    assert filled(Grid()).natural_width() == table.__rich_measure__(console, console.options).maximum  # type: ignore[attr-defined]
