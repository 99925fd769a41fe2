"""``perfsvc import``."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from perfsvc import units
from perfsvc.cli import configuration, options, output
from perfsvc.formats import FORMATS

if TYPE_CHECKING:
    from perfsvc.service.imports.imports import ImportOutcome

    _ToMoment = click.ParamType[datetime]
else:
    _ToMoment = click.ParamType  # no generic before click 8.4


class Moment(_ToMoment):
    """A moment in ISO 8601. Without an offset, it is in the time zone of this machine."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the moment in UTC."""
        try:
            return datetime.fromisoformat(str(value)).astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no time; write 2026-11-24T03:00 or 2026-11-24T03:00+01:00", param, ctx)


@click.command("import")
@click.argument("file_format", type=click.Choice(FORMATS), metavar="FORMAT")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--label", default="", help="A name to find the run by.")
@click.option(
    "--suite-name",
    default="",
    show_default="the program that measured, else the format",
    help="A name for the set of benchmarks. Runs with the same name form a history.",
)
@click.option("--commit", default="", help="The commit that was measured, or a git revision; else the file's own.")
@click.option(
    "--at",
    type=Moment(),
    default=None,
    metavar="TIME",
    help="The time of the measurement, such as 2026-11-24T03:00; else the time in the file, else the time of the file.",
)
@click.option("--host", default="", help="The machine that measured; else the file's own, else 'unknown'.")
@click.option("--separate", is_flag=True, help="Make each file a run of its own, not a replica of one run.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Also store and judge this number of each result; lower is better. May be repeated.",
)
@click.option(
    "--threshold",
    type=options.Share("1%", below=options.LARGEST_THRESHOLD),
    default=None,
    show_default="1% on a GPU, 5% for programs on a CPU",
    help="The smallest relevant change: 1% or 0.01.",
)
@options.strict
@options.database
@options.formats
def command(
    file_format: str,
    files: tuple[Path, ...],
    label: str,
    suite_name: str,
    commit: str,
    at: datetime | None,
    host: str,
    separate: bool,
    metrics: tuple[str, ...],
    threshold: float | None,
    strict: bool,
    database: str,
    output_format: Literal["table", "json"],
) -> None:
    """Store the results in each FILE of another tool, and judge them against their baseline.

    FORMAT is nvbench, google-benchmark, pytest-benchmark, asv (a results folder), hyperfine, nccl-tests or csv. Files
    that are given together and have one commit and one host are the replicas of one run. If a file is not valid,
    nothing is stored. A file that was imported before is skipped.
    """
    from perfsvc.service.imports.imports import ImportRequest, import_files

    request = ImportRequest(
        database=database,
        format=file_format,
        paths=files,
        label=label,
        suite=suite_name.strip(),
        commit=commit,
        at=at,
        host=host,
        separate=separate,
        metrics=frozenset(metrics),
        threshold=configuration.thresholds(threshold),
        folder=Path.cwd(),
        command_line=configuration.typed(),
    )
    with output.progress() as progress:
        outcome = import_files(request, progress)
    _show(outcome, database, output_format)
    sys.exit(outcome.exit_code(strict=strict))


def _show(outcome: "ImportOutcome", database: str, output_format: Literal["table", "json"]) -> None:
    """Print the new runs, the results of the last of them, and what was not imported."""
    from perfsvc.report.export.objects import plain, run_json
    from perfsvc.report.tables.lists import runs_table
    from perfsvc.report.tables.run import run_table
    from perfsvc.service.results import stored_report
    from perfsvc.store import Store

    report = None
    if outcome.runs:
        with Store.open(database, create=False) as store:
            report = stored_report(store, outcome.runs[-1].id)
    if output_format == "json":
        newest = run_json(report) if report else None
        output.show_json(
            {"runs": plain(outcome.runs), "known": plain(outcome.known), "empty": outcome.empty, "newest": newest}
        )
        return
    if len(outcome.runs) > 1:
        output.show(runs_table(outcome.runs))
    if report:
        output.show(run_table(report))
    for line in _notes(outcome):
        click.echo(line)


def _notes(outcome: "ImportOutcome") -> Iterator[str]:
    """Yield a line about what was imported before, and a line about results without any number to store."""
    if outcome.known:
        count = sum(outcome.known.values())
        runs = units.some([f"run {run}" for run in sorted(outcome.known)])
        yield f"imported before, and skipped: {units.count(count, 'file or part', 'files or parts')} of {runs}"
    if outcome.empty:
        results = units.count(outcome.empty, "result")
        yield f"left out: {results} without a time; to import another number of them: --metric NAME"
    if not outcome.runs:
        yield "nothing new"
