"""Printing: tables for people, JSON for programs, progress while they wait."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


def console() -> "Console":
    """Standard output: coloured on a terminal; otherwise plain, and as wide as COLUMNS says (120 where it does not)."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else _columns())


def show(*renderables: "RenderableType") -> None:
    """Prints what rich can render."""
    out = console()
    for renderable in renderables:
        out.print(renderable)


def show_json(value: Any) -> None:
    """Prints a value as indented JSON; what JSON does not know is written as text."""
    click.echo(json.dumps(value, indent=2, default=str, allow_nan=False))


def warn(problems: Iterable[Exception | str]) -> None:
    """Prints on standard error what is wrong and yet no fault of what was asked for."""
    for problem in problems:
        click.echo(f"warning: {problem}", err=True)


@contextmanager
def progress() -> Iterator["Watcher"]:
    """A progress bar with the remaining time on standard error; plain lines where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    errors = Console(stderr=True, highlight=False)
    bar = Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[what]}"),
        console=errors,
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        yield Watcher(bar)


class Watcher:
    """Draws the stages of a use case (``perfsvc.service.progress.Progress``)."""

    def __init__(self, bar: "Bar") -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def begin(self, stage: str, total: int) -> None:
        """Replaces the bar by one for the next stage."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(stage, total=total, what="")

    def step(self, what: str) -> None:
        """Advances the bar."""
        if self._task is not None:
            self._bar.update(self._task, advance=1, what=what)

    def say(self, line: str) -> None:
        """Prints a line above the bar."""
        self._bar.console.print(line, markup=False, soft_wrap=True)


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size(fallback=(120, 0)).columns
