"""Shows a comparison on the terminal, or writes it to files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, get_args

import click

from perfsvc.cli import output, writing

if TYPE_CHECKING:
    from perfsvc.report.pages.compared import ComparedSides
    from perfsvc.report.rows import EnvironmentDifferences
    from perfsvc.service.compare.compare import RunComparison

Format = Literal["table", "json", "github", "junit", "csv", "html", "sarif", "codequality"]
FILE_FORMATS = get_args(Format)[1:]

SUFFIXES = {
    ".html": "html",
    ".md": "github",
    ".csv": "csv",
    ".json": "json",
    ".xml": "junit",
    ".sarif": "sarif",
}
"""The format of a file by its suffix."""


@dataclass(frozen=True)
class Shown:
    """A comparison to show.

    Attributes:
        comparison: the verdicts.
        sides: returns what the page shows; called for the formats that need it.
        passed: whether the command exits with 0.
        commands: the commands that measure unconfirmed changes again.
        environment: in what the environments of both runs differ; None if that is unknown.
        measured: what people see instead of ``comparison``: the series that were measured; None to show all.
        same: how many series were not measured because their code is the same, as a sentence; empty if there are none.
    """

    comparison: "RunComparison"
    sides: "Callable[[], ComparedSides]"
    passed: bool
    commands: Sequence[str] = ()
    environment: "EnvironmentDifferences | None" = None
    measured: "RunComparison | None" = None
    same: str = ""


def show(shown: Shown, chosen: Format | None, targets: Sequence[writing.Target]) -> None:
    """Write a comparison to each file, and print it in the chosen format.

    Without a format, print a line for each file; if there are no files, print a table.
    """
    from perfsvc.files import write_output
    from perfsvc.report import wording

    for output_format, file in targets:
        write_output(file, _text(shown, output_format))
    if chosen is None and targets:
        for _, file in targets:
            click.echo(f"{file}: {wording.counts(shown.comparison.judgements)}")
    elif chosen in {None, "table"}:
        _print_table(shown)
    else:
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


def _text(shown: Shown, output_format: str) -> str:
    """Return a comparison in one of ``FILE_FORMATS``."""
    from perfsvc.report.export import comparison_formats
    from perfsvc.report.export.objects import comparison_json, plain
    from perfsvc.report.pages.render import comparison_page
    from perfsvc.text import json_text

    comparison = shown.comparison
    match output_format:
        case "json":
            verdicts = comparison.base, comparison.new, comparison.judgements, comparison.over_budget, shown.commands
            values = comparison_json(*verdicts, environment=shown.environment)
            review = comparison.review(passed=shown.passed)
            return json_text({**values, "review": plain(review)}) + "\n"
        case "github":
            return _markdown(shown)
        case "junit":
            return comparison_formats.comparison_junit(comparison.judgements)
        case "csv":
            return comparison_formats.comparison_csv(comparison.judgements, shown.sides().thresholds)
        case "html":
            return comparison_page(shown.sides(), datetime.now(UTC))
        case _:
            return writing.review_text(comparison.review(passed=shown.passed), output_format)


def _markdown(shown: Shown) -> str:
    """Return the Markdown of the series that were measured, and how many were not."""
    from perfsvc.report.export.comparison_formats import comparison_markdown

    people = shown.measured or shown.comparison
    text = ""
    if people.judgements or not shown.same:
        verdicts = people.base, people.new, people.judgements, people.over_budget, shown.commands
        text = comparison_markdown(*verdicts, environment=shown.environment)
    return text + (f"{shown.same}.\n" if shown.same else "")


def _show_commands(commands: Sequence[str]) -> None:
    """Print the first ``MOST_COMMANDS`` commands that confirm changes, and how many more there are."""
    from perfsvc.report.wording import HOW_TO_CONFIRM, MOST_COMMANDS

    if commands:
        click.echo("\n".join([HOW_TO_CONFIRM, *(f"  {text}" for text in commands[:MOST_COMMANDS])]))
    if len(commands) > MOST_COMMANDS:
        click.echo(f"and {len(commands) - MOST_COMMANDS} more")
