"""``perfsvc report``."""

from pathlib import Path

import click

from perfsvc.cli import options

FORMATS = ["csv", "json", "markdown", "html", "parquet", "xlsx"]


@click.command("report")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--all", "every_run", is_flag=True, help="Every run in the database.")
@click.option("--summary", is_flag=True, help="One row a case, device and run instead of one a measurement.")
@click.option(
    "--format", "output_format", type=click.Choice(FORMATS), default="csv", show_default=True, help="What to write."
)
@click.option(
    "--output",
    "destination",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="The file to write; standard output where none is given.",
)
@options.suite
@options.database
def command(
    runs: tuple[str, ...],
    every_run: bool,
    summary: bool,
    output_format: str,
    destination: Path | None,
    suite: Path,
    database: str,
) -> None:
    """Export measurements: of each RUN (a number, a label, latest~1, a git revision), else of the latest.

    One row a measurement, with a column for each axis; times are in seconds.
    """
    from perfsvc.report import frames
    from perfsvc.service.revisions import run_of
    from perfsvc.store import Store

    with Store.open(database) as store:
        numbers = None if every_run else [run_of(text, store, suite) for text in runs or ("latest",)]
        frame = frames.frame(store.columns(numbers))
    frames.write(frames.summary(frame) if summary else frame, output_format, destination)
