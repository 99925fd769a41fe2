"""``perfsvc token``."""

from datetime import UTC, datetime, timedelta

import click

from perfsvc.cli import options, output

SCOPES = ("read", "write", "act")


@click.group("token", cls=options.ListByDefault, invoke_without_command=True)
def command() -> None:
    """Make, list and revoke the tokens of the server, and show what was changed with them.

    A token lets a program or a person use perfsvc serve: read, write (send runs) or act (on findings).
    """


@command.command("create")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    required=True,
    help="What it permits: read, write (send runs) or act (on findings). May be repeated.",
)
@click.option("--expires", type=options.Duration(), default=None, metavar="TIME", help="After how long it ends: 90d.")
@options.database
@options.formats
def create(name: str, scopes: tuple[str, ...], expires: float | None, database: str, output_format: str) -> None:
    """Make a token for NAME, and print it: it cannot be shown again. A missing database is made."""
    from perfsvc.report.export.objects import plain
    from perfsvc.service.findings.actions import user_name
    from perfsvc.store import Store
    from perfsvc.store.remote.rows import Scope

    ends = None if expires is None else datetime.now(UTC) + timedelta(seconds=expires)
    with Store.open(database) as store:  # a server that only collects runs begins with no database
        token, secret = store.tokens.make(name, [Scope(scope) for scope in scopes], by=user_name(), expires=ends)
    if output_format == "json":
        output.show_json(plain(token) | {"token": secret})
        return
    click.echo(secret)
    until = f", until {token.expires:%Y-%m-%d %H:%M} UTC" if token.expires else ""
    click.echo(
        f"{token.name} may {' and '.join(token.scopes)}{until}. Keep the token: it is not shown again.", err=True
    )


@command.command("list")
@options.database
@options.formats
def list_(database: str, output_format: str) -> None:
    """List all tokens, also expired and revoked ones, without their secrets."""
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.layout import tokens_table
    from perfsvc.store import Store

    with Store.open(database, create=False, read_only=True) as store:
        tokens = store.tokens.list()
    if output_format == "json":
        output.show_json(plain(tokens))
    elif tokens:
        now = datetime.now(UTC)
        output.show(tokens_table((plain(token), token.why_invalid(now)) for token in tokens))
    else:
        click.echo("there is no token: perfsvc token create NAME --scope read")


@command.command("revoke")
@click.argument("name")
@options.database
@options.formats
def revoke(name: str, database: str, output_format: str) -> None:
    """Revoke the token NAME at once; people who signed in with it are signed out."""
    from perfsvc.report.export.objects import plain
    from perfsvc.service.findings.actions import user_name
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        token = store.tokens.revoke(name, by=user_name())
    if output_format == "json":
        output.show_json(plain(token))
    else:
        click.echo(f"{token.name} is revoked since {token.revoked:%Y-%m-%d %H:%M} UTC, by {token.revoked_by}")


@command.command("log")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, help="The most entries to show.")
@options.database
@options.formats
def log(limit: int, database: str, output_format: str) -> None:
    """Show the audit log: who changed what through the server, and what the server refused; newest first."""
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.layout import audit_table
    from perfsvc.store import Store

    with Store.open(database, create=False, read_only=True) as store:
        entries = store.audit.newest(limit)
    if output_format == "json":
        output.show_json(plain(entries))
    elif entries:
        output.show(audit_table(map(plain, entries)))
    else:
        click.echo("nothing was changed through the server")
