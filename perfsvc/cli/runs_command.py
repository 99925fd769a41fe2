"""``perfsvc runs``."""

import click

from perfsvc.cli import options, output


@click.command("runs")
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, help="How many, newest first.")
@options.database
@options.formats
def command(last: int, database: str, output_format: str) -> None:
    """List the runs in the database, newest first."""
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.lists import runs_table
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        rows = store.runs.list(last)
    if output_format == "json":
        output.show_json(plain(rows))
    else:
        output.show(runs_table(rows))
