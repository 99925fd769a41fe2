"""Shows a comparison on the terminal, or writes it to files."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, assert_never

import click

from perfsvc.cli import output
from perfsvc.errors import UsageError

if TYPE_CHECKING:
    from perfsvc.report.pages.compared import ComparedSides
    from perfsvc.report.rows import EnvironmentDifferences
    from perfsvc.service.compare.compare import RunComparison

Format = Literal["table", "json", "github", "junit", "csv", "html"]

SUFFIXES: dict[str, Format] = {
    ".html": "html",
    ".htm": "html",
    ".md": "github",
    ".csv": "csv",
    ".json": "json",
    ".xml": "junit",
}
"""The format of a file by its suffix."""


@dataclass(frozen=True)
class Shown:
    """A comparison to show.

    Attributes:
        comparison: the verdicts.
        sides: what the page shows.
        commands: the commands that measure unconfirmed changes again.
        environment: in what the environments of both runs differ; None if that is unknown.
        measured: what people see instead of ``comparison``: the series that were measured; None to show all.
        same: how many series were not measured because their code is the same, as a sentence; empty if there are none.
    """

    comparison: "RunComparison"
    sides: "ComparedSides"
    commands: Sequence[str] = ()
    environment: "EnvironmentDifferences | None" = None
    measured: "RunComparison | None" = None
    same: str = ""


def format_of(destination: Path, chosen: Format | None) -> Format:
    """Return the value of ``--format``; without it, the format of the file's suffix.

    Raises:
        UsageError: a table would go to a file, or the suffix names no format.
    """
    output_format = chosen or SUFFIXES.get(destination.suffix.lower())
    if output_format is None or output_format == "table":
        what = "a table is for the terminal" if chosen else f"{destination.name!r} has no suffix of a known format"
        raise UsageError(what, cure="write to a file such as compare.html, compare.md or compare.csv")
    return output_format


def show(shown: Shown, chosen: Format | None, destinations: Sequence[Path]) -> None:
    """Write a comparison to each file, and print a line for each; without files, print the comparison."""
    from perfsvc.files import write_output
    from perfsvc.report import wording

    for destination in destinations:
        write_output(destination, _text(shown, format_of(destination, chosen)))
        click.echo(f"{destination}: {wording.counts(shown.comparison.judgements)}")
    if destinations:
        return
    if chosen in {None, "table"}:
        _print_table(shown)
    elif chosen is not None:
        click.echo(_text(shown, chosen), nl=False)


def _print_table(shown: Shown) -> None:
    from perfsvc.report.tables.comparison import comparison_table

    people = shown.measured or shown.comparison
    if people.judgements:
        table = comparison_table(people.base, people.new, people.judgements, people.over_budget, shown.environment)
        output.show(table)
        _show_commands(shown.commands)
    if shown.same:
        click.echo(f"{shown.same}.")


def _text(shown: Shown, output_format: Format) -> str:
    """Return a comparison as the text of a file."""
    from perfsvc.report.export import comparison_formats
    from perfsvc.report.export.objects import comparison_json
    from perfsvc.report.pages.render import comparison_page
    from perfsvc.text import json_text

    comparison = shown.comparison
    match output_format:
        case "json":
            base, new, judgements, over_budget = (
                comparison.base,
                comparison.new,
                comparison.judgements,
                comparison.over_budget,
            )
            value = comparison_json(base, new, judgements, over_budget, shown.commands, environment=shown.environment)
            return f"{json_text(value)}\n"
        case "github":
            people = shown.measured or comparison
            text = (
                comparison_formats.comparison_markdown(
                    people.base,
                    people.new,
                    people.judgements,
                    people.over_budget,
                    shown.commands,
                    environment=shown.environment,
                )
                if people.judgements or not shown.same
                else ""
            )
            return text + (f"{shown.same}.\n" if shown.same else "")
        case "junit":
            return comparison_formats.comparison_junit(comparison.judgements)
        case "csv":
            return comparison_formats.comparison_csv(comparison.judgements, shown.sides.thresholds)
        case "html":
            return comparison_page(shown.sides, datetime.now(UTC))
        case "table":
            raise ValueError("a table is printed, and is no text of a file")
        case _:
            assert_never(output_format)


def _show_commands(commands: Sequence[str]) -> None:
    """Print the first ``MOST_COMMANDS`` commands that confirm changes, and how many more there are."""
    from perfsvc.report.wording import HOW_TO_CONFIRM, MOST_COMMANDS

    if commands:
        click.echo("\n".join([HOW_TO_CONFIRM, *(f"  {text}" for text in commands[:MOST_COMMANDS])]))
    if len(commands) > MOST_COMMANDS:
        click.echo(f"and {len(commands) - MOST_COMMANDS} more")
