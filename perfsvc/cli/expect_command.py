"""``perfsvc expect``."""

import click

from perfsvc.cli import options, output


@click.group("expect", cls=options.ListByDefault, invoke_without_command=True)
def command() -> None:
    """List what nights are expected to have, because earlier nights had it, and forget what is gone for good.

    A night misses a GPU, a benchmark or a host that is expected and not there: a finding reports it once.
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


@command.command("forget", short_help="Expect NAMES no longer.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--reason", default="", metavar="TEXT", help="Why it is gone for good.")
@options.database
@options.formats
def forget(names: tuple[str, ...], reason: str, database: str, output_format: str) -> None:
    """Expect each NAME no longer: a host (with all that is on it), a GPU (how its UUID begins) or cases (a glob).

    Findings about what is forgotten are resolved. What a later night has is expected again.
    """
    from perfsvc import units
    from perfsvc.report.export.objects import plain
    from perfsvc.service import expect
    from perfsvc.service.findings.actions import user_name
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        forgotten, resolved = expect.forget(store, names, by=user_name(), reason=reason)
    if output_format == "json":
        output.show_json({"forgotten": plain(forgotten), "resolved": resolved})
        return
    findings = ", ".join(map(str, resolved))
    things = units.count(len(forgotten), "thing")
    click.echo(f"{things} forgotten" + (f"; resolved: finding {findings}" if resolved else ""))
