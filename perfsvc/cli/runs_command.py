"""``perfsvc runs``."""

import click

from perfsvc.cli import options, output


@click.command("runs")
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, help="How many, newest first.")
@options.database
@options.formats()
def command(last: int, database: str, output_format: str) -> None:
    """List the runs in the database, newest first."""
    from perfsvc.report.tables import comparison
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        rows = store.runs.list(last)
    if output_format == "json":
        output.show_json(comparison.plain(rows))
    else:
        output.show(comparison.runs_table(rows))
