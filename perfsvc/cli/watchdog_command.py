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

    A last night in the future, and a database that lacks the last night that was seen here, are reported too.

    Run this command as a cron job on a machine that runs no nights. It needs the database and perfsvc.toml, but neither
    the suite nor a GPU.
    """
    from perfsvc.errors import DatabaseError, PerfsvcError
    from perfsvc.report.export.objects import plain
    from perfsvc.service.expect.memory import NightMemory, Place
    from perfsvc.service.expect.night import check_hosts
    from perfsvc.service.notify.notify import notify_of_failure, notify_of_hosts

    def report(line: str) -> None:
        click.echo(line, err=True)

    loaded, host = configuration.current().loaded, platform.node()
    settings = loaded.settings
    memory = NightMemory(Place.of(loaded, database), report)
    try:
        memory.require_settings()
        opened, lost = memory.open(database, create=False)
    except PerfsvcError as error:
        notify_of_failure(error, f"perfsvc watchdog on {host}", settings.notify, memory.targets, report)
        raise
    with opened as store:
        missed = check_hosts(store, settings.expect.every if every_s is None else every_s)
        if output_format == "json":
            output.show_json({"missing": plain(missed.missing), "here": missed.here, "exit_code": missed.exit_code})
        else:
            absent = [
                f"finding {finding.id}: {finding.root_cause} has no night in time: {finding.evidence}"
                for finding in missed.missing
            ]
            click.echo("\n".join(absent or [missed.here]))
        sent = notify_of_hosts(store, host, settings, report)
        click.echo(f"messages: {sent}", err=output_format == "json")
        for night in store.nights.list(1):
            memory.remember(night.host, night.id, night.started, settings.notify.targets)
    if lost:
        older = DatabaseError(lost, cure="restore the newest backup; the next watchdog accepts what is there")
        notify_of_failure(older, f"perfsvc watchdog on {host}", settings.notify, {}, report)
        raise older
    sys.exit(missed.exit_code)
