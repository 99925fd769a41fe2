"""``perfsvc doctor``."""

import sys

import click

from perfsvc.cli import options, output
from perfsvc.errors import InfrastructureError


@click.command("doctor")
@options.database
@options.formats
def command(database: str, output_format: str) -> None:
    """Check the environment and print a cure for what is missing.

    The exit code is 5 if something that every run needs is missing.
    """
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.lists import doctor_table
    from perfsvc.service.doctor import checkup

    checks = checkup(database)
    if output_format == "json":
        output.show_json(plain(checks))
    else:
        output.show(doctor_table(checks))
    sys.exit(InfrastructureError.exit_code if any(check.ok is False for check in checks) else 0)
