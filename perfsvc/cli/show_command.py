"""``perfsvc show``."""

import click

from perfsvc.cli import options, output


@click.command("show")
@click.argument("case")
@click.option("--device", metavar="UUID", help="Only this device.")
@click.option("--last", type=options.RUN_COUNT, default=60, show_default=True, help="How many runs, the newest.")
@options.database
@options.formats
def command(case: str, device: str | None, last: int, database: str, output_format: str) -> None:
    """Show the history of CASE, such as 'transpose/naive[n=4096]': its runs, oldest first, and their sparkline.

    A glob or a part of the name is enough if it fits only one case; if it fits several, they are listed.
    """
    from perfsvc.report.tables.history import history_table
    from perfsvc.service.history import case_named, history
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        name = case_named(store, case)
        # One run more: the first row needs it for its change, and the user should know if there are older runs.
        found = history(store, name, device, last + 1)
        has_older = len({row.run for row in found}) > last
        count = store.series.count_runs(name, device) if has_older else 0
    oldest = min(sorted({row.run for row in found})[-last:])
    rows = [row for row in found if row.run >= oldest]
    if output_format == "json":
        from perfsvc.report.export.objects import plain

        output.show_json(plain(rows))
    else:
        output.show(history_table(name, found, oldest=oldest))
    if has_older:
        shown = "this is only the newest run" if last == 1 else f"these are the newest {last} runs"
        click.echo(f"{shown} of {count}; --last {count} shows all", err=True)
