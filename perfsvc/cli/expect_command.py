"""``perfsvc expect``."""

import click

from perfsvc.cli import options, output


@click.group("expect", cls=options.ListByDefault, invoke_without_command=True)
def command() -> None:
    """List the hosts, GPUs and benchmarks that nights are expected to have, or forget some of them.

    Each night adds its host, its GPUs and its cases to the list. If a later night lacks something on the list, one
    finding reports it.
    """


@command.command("list")
@click.option("--all", "every", is_flag=True, help="Each case, not only each benchmark.")
@options.database
@options.formats
def list_(every: bool, database: str, output_format: str) -> None:
    """List the hosts, GPUs and benchmarks that nights are expected to have, and when each was last seen."""
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.lists import expected_table
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        expected = store.expectations.of_host(None)
    if output_format == "json":
        output.show_json(plain(expected))
    elif expected:
        output.show(expected_table(expected, every=every))
    else:
        click.echo("nothing is expected: no night has ended yet")


@command.command("forget", short_help="Take each NAME off the list.")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--finding", type=int, default=None, metavar="ID", help="Everything that finding ID reports as missing.")
@click.option("--reason", default="", metavar="TEXT", help="Why the forgotten are gone on purpose.")
@options.database
@options.formats
def forget(names: tuple[str, ...], finding: int | None, reason: str, database: str, output_format: str) -> None:
    """Take each NAME off the list of what nights are expected to have, because it is gone on purpose.

    NAME is a host, the beginning of a GPU's UUID, or a glob of cases. With a host, its GPUs and cases are forgotten
    too. When everything that a finding reports as missing is forgotten, the finding is accepted. If a later night has
    a forgotten host, GPU or case, the list has it again.
    """
    from perfsvc.errors import UsageError
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.lists import expected_lines
    from perfsvc.service.expect.forget import forget
    from perfsvc.service.findings.actions import user_name
    from perfsvc.store import Store

    if not names and finding is None:
        raise UsageError("nothing to forget is named", cure="give a NAME of perfsvc expect list, or --finding ID")
    with Store.open(database, create=False) as store:
        forgotten, accepted = forget(store, names, by=user_name(), reason=reason, finding=finding)
    if output_format == "json":
        output.show_json({"forgotten": plain(forgotten), "accepted": accepted})
        return
    for line in expected_lines(forgotten):
        click.echo(f"no longer expected: {line}")
    for number in accepted:
        click.echo(f"finding {number} is accepted")
