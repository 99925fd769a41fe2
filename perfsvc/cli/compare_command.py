"""``perfsvc compare``."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, get_args

import click

from perfsvc.cli import configuration, options, output, writing
from perfsvc.text import json_text

if TYPE_CHECKING:
    from perfsvc.report.review import Review
    from perfsvc.report.rows import EnvironmentDifferences
    from perfsvc.service.compare.compare import RunComparison

Format = Literal["table", "json", "github", "junit", "sarif", "codequality"]
FILE_FORMATS = get_args(Format)[1:]


class CompareOptions(TypedDict):
    """The arguments and options of ``perfsvc compare`` as click parsed them."""

    base: str
    new: str
    interleaved: bool
    select: tuple[str, ...]
    exclude: tuple[str, ...]
    devices: tuple[str, ...]
    points: Literal["smoke", "full"] | None
    budget: float | None
    suite: Path
    threshold: float | None
    strict: bool
    database: str
    output_format: Format
    targets: tuple[writing.Target, ...]


@click.command("compare")
@click.argument("base")
@click.argument("new")
@click.option(
    "--interleaved",
    is_flag=True,
    help="BASE and NEW are git revisions: build both, and measure in A/B pairs what differs. Uses no database.",
)
@options.select
@options.exclude
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="UUID|MODEL",
    help="Only these devices; with --interleaved, the devices to measure on, as for perfsvc run. May be repeated.",
)
@options.points
@click.option(
    "--budget",
    type=options.Duration(),
    default=None,
    show_default="10m",
    help="The time for --interleaved on each device: 90s, 20m, 1h30m.",
)
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
    help="A table for people, JSON, Markdown for GitHub, JUnit's XML, SARIF, or GitLab's Code Quality.",
)
@writing.option(FILE_FORMATS)
def command(**chosen: Unpack[CompareOptions]) -> None:
    """Judge the run NEW against the run BASE.

    NEW and BASE are each a run's number, a label, latest, latest~1, or a git revision of the suite's repository. BASE
    may be @baseline: each series is then compared with its own baseline. If NEW lacks a series that it should have, the
    series is missing and the exit code is 4. With --select, --exclude and --device, other series are not compared.

    With --interleaved, NEW and BASE are git revisions that need not have been measured before, such as main and HEAD of
    a pull request. A case with the same code at both is unchanged and is not measured.
    """
    sys.exit(_compare_revisions(chosen) if chosen["interleaved"] else _compare_runs(chosen))


def _compare_runs(chosen: CompareOptions) -> int:
    """Compare two runs of the database, print the comparison, and return the exit code."""
    from perfsvc.report.review import comparison_review
    from perfsvc.service.compare.compare import compare, how_to_confirm
    from perfsvc.service.environment import since_baseline
    from perfsvc.store import Store
    from perfsvc.suite import Selection

    for option, value in (("--points", chosen["points"]), ("--budget", chosen["budget"])):
        if value is not None:
            raise click.UsageError(f"{option} needs --interleaved: two runs are measured already.")
    with Store.open(chosen["database"], create=False) as store:
        comparison = compare(
            store,
            chosen["base"],
            chosen["new"],
            folder=chosen["suite"],
            threshold=configuration.thresholds(chosen["threshold"]),
            against=configuration.against(),
            selection=Selection(chosen["select"], chosen["exclude"]),
            devices=chosen["devices"],
        )
        commands = how_to_confirm(store, comparison.judgements)
        base_run = comparison.base.run if comparison.base else None
        environment = since_baseline(store, base_run, comparison.new.run, comparison.judgements)
    code = comparison.exit_code(strict=chosen["strict"])
    verdicts = comparison.base, comparison.new, comparison.judgements, comparison.over_budget
    shown = _Comparison(comparison, comparison_review(*verdicts, passed=code == 0), commands, environment)
    writing.write_all(chosen["targets"], shown.text)
    shown.show(chosen["output_format"])
    return code


def _compare_revisions(chosen: CompareOptions) -> int:
    """Measure two revisions, print their comparison, and return the exit code."""
    from perfsvc.service.confirm.pairs import BUDGET_S
    from perfsvc.service.interleaved.compare import RevisionsRequest, compare_revisions
    from perfsvc.suite import Selection

    request = RevisionsRequest(
        chosen["base"],
        chosen["new"],
        chosen["suite"],
        devices=chosen["devices"] or ("auto",),
        selection=Selection(chosen["select"], chosen["exclude"]),
        points=chosen["points"],
        budget_s=BUDGET_S if chosen["budget"] is None else chosen["budget"],
        threshold=configuration.thresholds(chosen["threshold"]),
    )
    options.announce_suite(chosen["suite"])
    with output.progress() as progress:
        comparison = compare_revisions(request, progress)
    output.warn(comparison.warnings)
    for problem in comparison.problems:
        click.echo(f"error: {problem}", err=True)
    code = comparison.exit_code(strict=chosen["strict"])
    review = comparison.review(passed=code == 0)
    complete = _Comparison(comparison, review)
    writing.write_all(chosen["targets"], complete.text)
    is_for_people = chosen["output_format"] in {"table", "github"}
    if not is_for_people:
        complete.show(chosen["output_format"])
    elif comparison.measured.judgements:
        _Comparison(comparison.measured, review).show(chosen["output_format"])
    if comparison.same and is_for_people:
        click.echo(f"{comparison.same}.")
    return code


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A comparison, and what its formats show beside the verdicts.

    Attributes:
        commands: the commands that measure unconfirmed changes again.
        environment: in what the environments of both runs differ; None if that is unknown.
    """

    comparison: "RunComparison"
    review: "Review"
    commands: Sequence[str] = ()
    environment: "EnvironmentDifferences | None" = None

    def show(self, output_format: Format) -> None:
        """Print the comparison in the chosen format."""
        from perfsvc.report.tables.comparison import comparison_table

        compared = self.comparison
        if output_format != "table":
            click.echo(self.text(output_format), nl=False)
            return
        verdicts = compared.base, compared.new, compared.judgements, compared.over_budget
        output.show(comparison_table(*verdicts, self.environment))
        _show_commands(self.commands)

    def text(self, output_format: str) -> str:
        """Return the comparison in a format for programs."""
        from perfsvc.report.export.comparison_formats import comparison_junit, comparison_markdown
        from perfsvc.report.export.objects import comparison_json, plain

        compared = self.comparison
        verdicts = compared.base, compared.new, compared.judgements, compared.over_budget, self.commands
        match output_format:
            case "json":
                values = comparison_json(*verdicts, environment=self.environment)
                return json_text({**values, "review": plain(self.review)}) + "\n"
            case "github":
                return comparison_markdown(*verdicts, environment=self.environment)
            case "junit":
                return comparison_junit(compared.judgements)
            case _:
                return writing.review_text(self.review, output_format)


def _show_commands(commands: Sequence[str]) -> None:
    """Print the first ``MOST_COMMANDS`` commands that confirm changes, and how many more there are."""
    from perfsvc.report.wording import HOW_TO_CONFIRM, MOST_COMMANDS

    if commands:
        click.echo("\n".join([HOW_TO_CONFIRM, *(f"  {text}" for text in commands[:MOST_COMMANDS])]))
    if len(commands) > MOST_COMMANDS:
        click.echo(f"and {len(commands) - MOST_COMMANDS} more")
