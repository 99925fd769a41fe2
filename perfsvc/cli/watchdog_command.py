"""``perfsvc watchdog``."""

import platform
import sys

import click

from perfsvc.cli import configuration, options, output


@click.command("watchdog")
@click.option(
    "--every",
    "every_s",
    type=options.Duration(),
    default=None,
    show_default="expect.every of perfsvc.toml, else 1d",
    help="How often each host should begin a night: 1d, 12h.",
)
@options.database
@options.formats
def command(*, every_s: float | None, database: str, output_format: str) -> None:
    """Look for hosts whose night is overdue, and notify people. Exits with 5 if any night is overdue.

    Run this command as a cron job on a machine that runs no nights. It needs the database and perfsvc.toml, but neither
    the suite nor a GPU.
    """
    from perfsvc.report.export.objects import plain
    from perfsvc.service.expect.night import check_hosts
    from perfsvc.service.notify.notify import notify_of_hosts
    from perfsvc.store import Store

    settings = configuration.current().loaded.settings
    with Store.open(database, create=False) as store:
        missed = check_hosts(store, settings.expect.every if every_s is None else every_s)
        if output_format == "json":
            output.show_json({"missing": plain(missed.missing), "here": missed.here, "exit_code": missed.exit_code})
        else:
            overdue = [
                f"finding {finding.id}: {finding.root_cause} is overdue: {finding.evidence}"
                for finding in missed.missing
            ]
            click.echo("\n".join(overdue or [missed.here]))
        sent = notify_of_hosts(store, platform.node(), settings, lambda line: click.echo(line, err=True))
        click.echo(f"messages: {sent}", err=output_format == "json")
    sys.exit(missed.exit_code)
