"""Shared by tests of tables: what a terminal shows."""

import io

from rich.console import Console


def show(renderable, width=120, *, colour=False, markup=True):
    """Return what a terminal of some width prints."""
    out = io.StringIO()
    looks = {"highlight": False, "force_terminal": colour, "markup": markup, "_environ": {}}
    Console(file=out, width=width, **looks).print(renderable)
    return out.getvalue()


def rows(renderable, width=120):
    """Return the lines that a terminal prints, with single spaces."""
    return [" ".join(line.split()) for line in show(renderable, width).splitlines()]
