"""``perfsvc config``."""

import click

from perfsvc.cli import configuration, options, output


@click.group("config")
def command() -> None:
    """Show what is in force, and where each value comes from.

    A command's option goes before a PERFSVC_ variable, that before perfsvc.toml, and the file before the default.
    """


@command.command("show")
@options.formats()
def show(output_format: str) -> None:
    """Show every value and where it comes from: a line of the file, a variable, or the default.

    Secrets are never shown: of the variables that hold targets' addresses, whether they are set.
    """
    from perfsvc.config.load import shown, shown_json
    from perfsvc.report.tables.lists import settings_table

    loaded = configuration.current().loaded
    if output_format == "json":
        output.show_json(shown_json(loaded))
    else:
        output.show(settings_table(shown(loaded), str(loaded.path or "")))
