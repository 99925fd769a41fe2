"""``perfsvc check``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, get_args

import click

from perfsvc.cli import configuration, options, output, writing
from perfsvc.cli.ending import own_stream
from perfsvc.text import json_text

if TYPE_CHECKING:
    from perfsvc.report.checks import StaticCheck
    from perfsvc.service.check.check import CheckRequest

Format = Literal["table", "json", "markdown", "junit", "github", "sarif", "codequality"]
FILE_FORMATS = get_args(Format)[1:]

SUFFIXES = {".md": "markdown", ".json": "json", ".xml": "junit", ".sarif": "sarif"}
"""The format of a file by its suffix."""


class CheckOptions(TypedDict):
    """The options of ``perfsvc check`` as click parsed them."""

    suite: Path
    select: tuple[str, ...]
    exclude: tuple[str, ...]
    architectures: tuple[str, ...]
    points: Literal["smoke", "full"]
    base: str
    accept: str
    also_run: bool
    everything: bool
    strict: bool
    database: str
    output_format: Format
    targets: tuple[writing.Target, ...]


@click.command("check")
@options.suite
@options.select
@options.exclude
@click.option(
    "--arch",
    "architectures",
    multiple=True,
    metavar="ARCH",
    show_default="sm_80, sm_86, sm_89, sm_90, sm_100, sm_120",
    help="An architecture to compile for. May be repeated.",
)
@click.option(
    "--points",
    type=click.Choice(["smoke", "full"]),
    default="full",
    show_default=True,
    help="The small smoke point of each benchmark, or its full points.",
)
@click.option(
    "--base",
    default="",
    metavar="REV",
    help="Compare with the suite at this git revision, without a database, instead of with the baseline.",
)
@click.option(
    "--accept", default="", metavar="REASON", help="Make all results the baseline from now on, for this reason."
)
@click.option("--run", "also_run", is_flag=True, help="Also run the cases on the CPU device and check their results.")
@click.option("--all", "everything", is_flag=True, help="Show every kernel on every architecture with all its facts.")
@options.strict
@options.database
@click.option(
    "--format",
    "output_format",
    type=click.Choice(get_args(Format)),
    default="table",
    show_default=True,
    help="A table for people, JSON, Markdown, JUnit's XML, annotations for GitHub, SARIF, or GitLab's Code Quality.",
)
@writing.option(FILE_FORMATS, SUFFIXES, otherwise="the table")
def command(**chosen: Unpack[CheckOptions]) -> None:
    """Check the suite's kernels without a GPU: registers, spills, shared memory, occupancy, instructions.

    Each kernel is compiled for each architecture and compared with its baseline, or with the suite at another revision.
    """
    from perfsvc.files import write_output
    from perfsvc.service.check.check import check

    options.announce_suite(chosen["suite"])
    with output.progress() as progress:
        outcome = check(_request(chosen), progress)
    output.warn(outcome.warnings)
    code = outcome.exit_code(strict=chosen["strict"])
    for output_format, file in chosen["targets"]:
        write_output(file, _text(outcome, output_format, passed=code == 0))
    if chosen["output_format"] == "table":
        _show_table(outcome, chosen)
    else:
        github = chosen["output_format"] == "github"  # GitHub reads its lines as commands
        text = _text(outcome, chosen["output_format"], passed=code == 0)
        click.echo(text, file=own_stream(sys.stdout) if github else None, nl=False)
    sys.exit(code)


def _request(chosen: CheckOptions) -> "CheckRequest":
    """Return the request that the options describe; raise ``UsageError`` for options that exclude each other."""
    from perfsvc.selection import Selection
    from perfsvc.service.check.check import ARCHITECTURES, CheckRequest

    if chosen["base"] and chosen["accept"]:
        raise click.UsageError("--accept needs the baseline in the database, which --base does not use.")
    return CheckRequest(
        database=chosen["database"],
        suite=chosen["suite"],
        architectures=chosen["architectures"] or ARCHITECTURES,
        selection=Selection(chosen["select"], chosen["exclude"]),
        points=chosen["points"],
        base=chosen["base"],
        accept=chosen["accept"],
        run=chosen["also_run"],
        command_line=configuration.typed(),
    )


def _text(check: "StaticCheck", output_format: str, *, passed: bool) -> str:
    """Return the check in a format for programs; ``passed`` is whether the command exits with 0."""
    from perfsvc.report.export import check_formats
    from perfsvc.report.export.github import workflow_commands
    from perfsvc.report.export.objects import check_json, plain
    from perfsvc.report.review import check_review

    review = check_review(check, passed=passed)
    match output_format:
        case "json":
            return json_text({**check_json(check), "review": plain(review)}) + "\n"
        case "markdown":
            return check_formats.check_markdown(check)
        case "junit":
            return check_formats.check_junit(check)
        case "github":
            return workflow_commands(review)
        case _:
            return writing.review_text(review, output_format)


def _show_table(check: "StaticCheck", chosen: CheckOptions) -> None:
    """Print the table of a check, and a note if no disassembler counted its instructions."""
    from perfsvc.installation import install_command
    from perfsvc.report.tables.check import check_table

    output.show(check_table(check, everything=chosen["everything"]))
    if not check.disassembler:
        output.warn([f"instructions were not counted: there is no nvdisasm\n  cure: {install_command('nvcc')}"])
