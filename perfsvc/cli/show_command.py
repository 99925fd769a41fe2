"""``perfsvc show``."""

import click

from perfsvc.cli import options, output


@click.command("show")
@click.argument("case")
@click.option("--device", metavar="UUID", help="Only this device.")
@options.database
@options.formats
def command(case: str, device: str | None, database: str, output_format: str) -> None:
    """Show the history of CASE, such as 'transpose/naive[n=4096]': every run, oldest first, and its sparkline.

    A glob or a part of the name is enough if it fits only one case; if it fits several, they are listed.
    """
    from perfsvc.report.tables.history import history_table
    from perfsvc.service.history import case_named, history
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        name = case_named(store, case)
        rows = history(store, name, device)
    if output_format == "json":
        from perfsvc.report.export.objects import plain

        output.show_json(plain(rows))
    else:
        output.show(history_table(name, rows))
