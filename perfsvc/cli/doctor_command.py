"""``perfsvc doctor``."""

import sys
from pathlib import Path

import click

from perfsvc.cli import configuration, options, output
from perfsvc.errors import InfrastructureError


@click.command("doctor")
@options.database
@options.formats
def command(database: str, output_format: str) -> None:
    """Check the environment and print a cure for what is missing.

    If there is a perfsvc.toml, the command also checks what the nights need: the addresses of message targets. The exit
    code is 5 if something is missing that every run or a night needs.
    """
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.lists import doctor_table
    from perfsvc.service.doctor import checkup

    settings = None if configuration.current().is_empty else configuration.current().loaded.settings
    if settings is None:
        checks = checkup(database, suite=Path())
    else:
        checks = checkup(database, settings.notify.targets, settings.nightly.heartbeat, settings.suite)
    if output_format == "json":
        output.show_json(plain(checks))
    else:
        output.show(doctor_table(checks))
    sys.exit(InfrastructureError.exit_code if any(check.ok is False for check in checks) else 0)
