"""``perfsvc findings``."""

import click

from perfsvc.cli import options, output


@click.group("findings", invoke_without_command=True)
@click.option("--all", "every", is_flag=True, help="Also those that are accepted or resolved.")
@options.database
@options.formats()
@click.pass_context
def command(context: click.Context, every: bool, database: str, output_format: str) -> None:
    """List what someone should look at: each cause with the cases it moved.

    A finding is open, acknowledged, accepted, resolved or ignored. One whose cases are back at their old levels is
    resolved by the run that sees it.
    """
    if context.invoked_subcommand is None:
        _list(every, database, output_format)


def _list(every: bool, database: str, output_format: str) -> None:
    from perfsvc.report import tables
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        found = store.findings(every=every)
    if output_format == "json":
        output.show_json(tables.plain(found))
    elif found:
        output.show(tables.findings_table(found))
    else:
        click.echo("nothing was ever found" if every else "nothing stands: no finding is open, acknowledged or ignored")


@command.command("accept")
@click.argument("number", type=int, metavar="ID")
@click.option("--reason", required=True, help="Why the new level is right.")
@options.database
@options.formats()
def accept(number: int, reason: str, database: str, output_format: str) -> None:
    """Make where the cases of finding ID are now their level: what later runs are compared with.

    A pin goes before every level: a pinned case is still compared with its pin.
    """
    from perfsvc.report import tables, units
    from perfsvc.service.judging import findings
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        found = findings.accept(store, number, reason=reason)
    if output_format == "json":
        output.show_json(tables.plain(found))
    else:
        moved = sum(one.recovered_run is None for one in found.moved)
        series = units.count(moved, "series", "series")
        click.echo(f"finding {number} is accepted: run {found.last_run} is the level of {series}")
