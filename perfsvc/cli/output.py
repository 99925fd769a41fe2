"""Printing: tables for people, JSON for programs, and progress."""

import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from perfsvc.cli.ending import own_stream
from perfsvc.text import LONGEST_PARAGRAPH, cut, json_text, visible, without_commands

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


def console() -> "Console":
    """Return a rich console on standard output: coloured on a terminal, else plain and COLUMNS wide (default: 120)."""
    return _inert_console()(
        file=own_stream(sys.stdout),
        soft_wrap=False,
        width=None if sys.stdout.isatty() else shutil.get_terminal_size(fallback=(120, 0)).columns,
    )


@cache
def _inert_console() -> "type[Console]":
    """Return a class of rich consoles that make escape sequences in texts visible; rich's own sequences stay.

    A console prints texts such as ``[/]`` and ``:boom:`` as they are, although rich has a meaning for them.
    """
    from rich.console import Console
    from rich.segment import Segment
    from rich.text import Text

    class InertConsole(Console):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options, highlight=False, markup=False, emoji=False)

        def render(self, renderable: "RenderableType", options: "ConsoleOptions | None" = None) -> "Iterable[Segment]":
            if isinstance(renderable, str | Text) and len(renderable) > LONGEST_PARAGRAPH:
                renderable = Text(cut(str(renderable), most=LONGEST_PARAGRAPH))
            return super().render(renderable, options)

        def _render_buffer(self, buffer: "Iterable[Segment]") -> str:
            shown = (part if part.control else Segment(visible(part.text), part.style) for part in buffer)
            return without_commands(super()._render_buffer(shown))

    return InertConsole


def show(renderable: "RenderableType") -> None:
    """Print a table or a text."""
    console().print(renderable)


def show_json(value: Any) -> None:
    """Print a value as indented JSON; values without a JSON type become text."""
    click.echo(json_text(value))


def warn(problems: Iterable[Exception | str]) -> None:
    """Print warnings on standard error: problems that do not fail the command."""
    for problem in problems:
        click.echo(f"warning: {cut(str(problem))}", err=True)


@contextmanager
def progress() -> Iterator["ProgressBar"]:
    """Show a progress bar with the remaining time on standard error; without a terminal, only print messages."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    errors = _inert_console()(file=own_stream(sys.stderr))
    bar = Progress(
        TextColumn("{task.description:<10}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[what]}", markup=False),
        console=errors,
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        yield ProgressBar(bar)


class ProgressBar:
    """Draws the stages of a use case; implements ``perfsvc.service.progress.Progress``."""

    def __init__(self, bar: "Bar") -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def begin(self, stage: str, total: int) -> None:
        """Replace the bar by a bar for the next stage, which has ``total`` steps."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(stage, total=total, what="")

    def step(self, what: str) -> None:
        """Advance the bar by one step, and show beside it ``what`` was done."""
        if self._task is not None:
            self._bar.update(self._task, advance=1, what=what)

    def report(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(cut(line), soft_wrap=True)
