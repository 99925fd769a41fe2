"""``perfsvc serve``."""

import click

from perfsvc.cli import configuration, options
from perfsvc.errors import MissingPackageError
from perfsvc.installation import install_command


@click.command("serve")
@click.option(
    "--host",
    default=None,
    show_default="server.host of perfsvc.toml, else 127.0.0.1",
    metavar="ADDRESS",
    help="Listen at this address. 0.0.0.0 is every address of this machine.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=None,
    show_default="server.port of perfsvc.toml, else 8350",
    metavar="N",
    help="Listen at this port; 0 for any free port.",
)
@click.option(
    "--anonymous",
    is_flag=True,
    help="Let everyone read who reaches the server.",
)
@options.database
def command(*, host: str | None, port: int | None, anonymous: bool, database: str) -> None:
    """Serve the pages of the site, and an API in JSON, until Ctrl-C.

    The pages show the database as it is when a page is read, so no site needs to be built. Nights may run meanwhile.
    Without options and settings, only this machine can read: the server listens at 127.0.0.1.
    """
    try:
        from perfsvc.server.run import serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("perfsvc"):
            raise
        what = f"the server needs the package {error.name}, which is not installed"
        raise MissingPackageError(what, cure=install_command("server")) from error

    settings = configuration.current().loaded.settings
    chosen = {"host": host, "port": port, "anonymous": anonymous or None}
    given = {name: value for name, value in chosen.items() if value is not None}
    server = settings.server.model_copy(update=given)
    serve(database, settings.model_copy(update={"server": server}), click.echo)
