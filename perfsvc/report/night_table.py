"""A night for people: its stages one below the other, each with how it ended, how long it took and what it said."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

MARKS: Mapping[str, tuple[str, str]] = {
    "done": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "skipped": ("–", "dim"),
    "running": ("…", "yellow"),
}
"""Mark and style of a stage's state; the word stands beside it wherever the mark is not ✓."""


@dataclass(frozen=True, slots=True)
class StageLine:
    """A stage as it is shown; ``wall_s`` is None where it was not done to its end."""

    name: str
    state: str
    wall_s: float | None
    said: str
    cure: str = ""


def night_table(number: int, state: str, run: int | None, stages: Iterable[StageLine]) -> RenderableType:
    """The stages of a night below its number and state."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("mark", "stage", "took"):
        table.add_column(column, no_wrap=True, justify="right" if column == "took" else "left")
    table.add_column("said", overflow="fold")
    for stage in stages:
        mark, style = MARKS[stage.state]
        took = "" if stage.wall_s is None or stage.state == "skipped" else f"{stage.wall_s:.1f} s"
        table.add_row(Text(mark, style), Text(stage.name), Text(took, "dim"), _said(stage, style))
    heading = Text.assemble((f"night {number}", "bold"), f"  {state}", ("" if run is None else f"  run {run}", "dim"))
    return Group(heading, table)


def _said(stage: StageLine, style: str) -> Text:
    words = stage.said if stage.state == "done" else ": ".join(filter(None, [stage.state, stage.said]))
    text = Text(words, "" if stage.state == "done" else style)
    if stage.cure:
        text.append(f"\ncure: {stage.cure}", "default")
    return text
