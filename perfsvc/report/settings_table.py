"""What is in force as a table: keys, values, and where each comes from."""

from collections.abc import Sequence
from typing import Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from perfsvc.report.layout import DASH, grid

DEFAULT = "default"


class ShownLike(Protocol):
    """A value with its key and where it comes from (``perfsvc.config.shown.Shown``)."""

    @property
    def key(self) -> str:
        """Dotted."""
        ...

    @property
    def value(self) -> str:
        """As the file would have it."""
        ...

    @property
    def root_cause(self) -> str:
        """Where it comes from."""
        ...


def settings_table(rows: Sequence[ShownLike], path: str) -> RenderableType:
    """All values in the order of the file; what nobody set is dim.

    Args:
        rows: the values.
        path: the file that is in force; empty where there is none.
    """
    table = grid()
    table.add_column("key", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold")
    for row in rows:
        style = "dim" if row.root_cause == DEFAULT else ""
        table.add_row(*(Text(cell or DASH, style) for cell in (row.key, row.value, row.root_cause)))
    file = f"in force: {path}" if path else "there is no perfsvc.toml here or in a parent: perfsvc init writes one"
    return Group(table, Text(), Text(file))
