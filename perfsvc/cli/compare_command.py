"""``perfsvc compare``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

from perfsvc.cli import configuration, options, output

if TYPE_CHECKING:
    from perfsvc.report.rows import EnvironmentDifferences
    from perfsvc.service.compare.compare import RunComparison

Format = Literal["table", "json", "github", "junit"]


@click.command("compare")
@click.argument("base")
@click.argument("new")
@options.select
@options.exclude
@click.option("--device", "devices", multiple=True, metavar="UUID|MODEL", help="Only these devices. May be repeated.")
@options.suite
@options.threshold
@options.strict
@options.database
@click.option(
    "--format",
    "output_format",
    type=click.Choice(get_args(Format)),
    default="table",
    show_default=True,
    help="A table for people, JSON, Markdown for a pull request on GitHub, or JUnit's XML.",
)
def command(
    base: str,
    new: str,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    devices: tuple[str, ...],
    suite: Path,
    threshold: float | None,
    strict: bool,
    database: str,
    output_format: Format,
) -> None:
    """Judge the run NEW against the run BASE.

    NEW and BASE are each a run's number, a label, latest, latest~1, or a git revision of the suite's repository. BASE
    may be @baseline: each series is then compared with its own baseline. If NEW lacks a series that it should have, the
    series is missing and the exit code is 4. With --select, --exclude and --device, other series are not compared.
    """
    from perfsvc.service.compare.compare import compare, how_to_confirm
    from perfsvc.service.environment import since_baseline
    from perfsvc.store import Store
    from perfsvc.suite import Selection

    with Store.open(database, create=False) as store:
        comparison = compare(
            store,
            base,
            new,
            folder=suite,
            threshold=configuration.thresholds(threshold),
            against=configuration.against(),
            selection=Selection(select, exclude),
            devices=devices,
        )
        commands = how_to_confirm(store, comparison.judgements)
        base_run = comparison.base.run if comparison.base else None
        environment = since_baseline(store, base_run, comparison.new.run, comparison.judgements)
    _show(comparison, commands, environment, output_format)
    sys.exit(comparison.exit_code(strict=strict))


def _show(
    comparison: "RunComparison",
    commands: Sequence[str],
    environment: "EnvironmentDifferences | None",
    output_format: Format,
) -> None:
    """Print a comparison in the chosen format.

    Args:
        comparison: the verdicts.
        commands: the commands that measure unconfirmed changes again.
        environment: in what the environments of both runs differ; None if that is unknown.
        output_format: the format.
    """
    from perfsvc.report.export import comparison_formats
    from perfsvc.report.export.objects import comparison_json
    from perfsvc.report.tables.comparison import comparison_table

    base, new, judgements, over_budget = comparison.base, comparison.new, comparison.judgements, comparison.over_budget
    match output_format:
        case "table":
            output.show(comparison_table(base, new, judgements, over_budget, environment))
            _show_commands(commands)
        case "json":
            output.show_json(comparison_json(base, new, judgements, over_budget, commands, environment=environment))
        case "github":
            text = comparison_formats.comparison_markdown(
                base, new, judgements, over_budget, commands, environment=environment
            )
            click.echo(text, nl=False)
        case "junit":
            click.echo(comparison_formats.comparison_junit(judgements), nl=False)


def _show_commands(commands: Sequence[str]) -> None:
    """Print the first ``MOST_COMMANDS`` commands that confirm changes, and how many more there are."""
    from perfsvc.report.wording import HOW_TO_CONFIRM, MOST_COMMANDS

    if commands:
        click.echo("\n".join([HOW_TO_CONFIRM, *(f"  {text}" for text in commands[:MOST_COMMANDS])]))
    if len(commands) > MOST_COMMANDS:
        click.echo(f"and {len(commands) - MOST_COMMANDS} more")
