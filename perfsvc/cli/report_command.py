"""``perfsvc report``."""

from collections.abc import Iterator
from pathlib import Path

import click

from perfsvc.cli import options, output
from perfsvc.errors import UsageError

FORMATS = ("table", "csv", "json", "markdown", "html", "parquet", "xlsx")
ENDINGS = {f".{name}": name for name in FORMATS[1:]} | {".md": "markdown", ".htm": "html"}
"""The format by the suffix of a file."""


@click.command("report")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--all", "every_run", is_flag=True, help="Every run in the database.")
@click.option("--summary", is_flag=True, help="Export a row for each case, device and run.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    default=None,
    show_default="by the suffix of --output, else table",
    help="A table for people, or the format of the export.",
)
@click.option(
    "--output",
    "destination",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="The file to write; default: standard output.",
)
@options.suite
@options.database
def command(
    runs: tuple[str, ...],
    every_run: bool,
    summary: bool,
    output_format: str | None,
    destination: Path | None,
    suite: Path,
    database: str,
) -> None:
    """Show or export the measurements of each RUN: a number, a label, latest~1 or a git revision (default: latest).

    The table has a row for each case, with the result of all its replicas and the verdict. An export has a row for each
    measurement, or with --summary for each case, device and run. It has a column for each axis; times are in seconds.
    """
    from perfsvc.service.results import measurement_parts, stored_report
    from perfsvc.service.revisions import resolve
    from perfsvc.store import Store

    chosen_format = _format(output_format, destination)
    with Store.open(database, create=False) as store:
        if every_run:
            shown = store.runs.list()[::-1]
        else:
            named = {run.id: run for run in (resolve(text, store, suite) for text in runs or ("latest",))}
            shown = [named[number] for number in sorted(named)]
        if chosen_format == "table":
            from perfsvc.report.tables.run import run_tables

            output.show(run_tables([stored_report(store, run.id) for run in shown]))
            return
        from perfsvc.report.export import files, frames  # needs pandas, whose import takes longer than a table

        def parts() -> Iterator[frames.Table]:
            for part in measurement_parts(store, shown):
                yield frames.summary(part) if summary else part

        files.write(parts, chosen_format, destination)


def _format(option: str | None, destination: Path | None) -> str:
    """Return the value of ``--format``; without it, the format of the file's suffix, or a table for the terminal.

    Raises:
        UsageError: a table would go to a file, or the suffix names no format.
    """
    if destination is None:
        return option or "table"
    output_format = option or ENDINGS.get(destination.suffix.lower(), "table")
    if output_format == "table":
        what = "a table is for the terminal" if option else f"{destination.name!r} has no suffix of a known format"
        raise UsageError(what, cure=f"write to a file such as report.csv, or give --format {'|'.join(FORMATS[1:])}")
    return output_format
