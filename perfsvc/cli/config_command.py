"""``perfsvc config``."""

import click

from perfsvc.cli import configuration, options, output


@click.group("config")
def command() -> None:
    """Show the settings in force and where each comes from.

    An option of a command overrides a PERFSVC_ variable, which overrides perfsvc.toml, which overrides the default.
    """


@command.command("show")
@options.formats
def show(output_format: str) -> None:
    """Show every setting and where it comes from: a line of the file, a variable, or the default.

    Secrets are never shown. If a variable holds the address of a message target, the output has the variable's name and
    whether it is set, but not the address.
    """
    from perfsvc.config.load import shown, shown_json
    from perfsvc.report.tables.lists import settings_table

    loaded = configuration.current().loaded
    if output_format == "json":
        output.show_json(shown_json(loaded))
    else:
        output.show(settings_table(shown(loaded), str(loaded.path or "")))
