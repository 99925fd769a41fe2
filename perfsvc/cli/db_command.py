"""``perfsvc db``."""

import click

from perfsvc.cli import options, output
from perfsvc.errors import DatabaseError


@click.group("db")
def command() -> None:
    """Upgrade and check the database."""


@command.command("upgrade")
@options.database
def upgrade(database: str) -> None:
    """Bring the database to this perfsvc's schema. A SQLite file is copied beside itself first."""
    from perfsvc.store import Store

    done = Store.upgrade(database)
    if done.before == done.after:
        click.echo(f"{database} is up to date ({done.after})")
    else:
        kept = f"; the old one is kept as {done.backup}" if done.backup else ""
        click.echo(f"{database} is upgraded from {done.before or 'nothing'} to {done.after}{kept}")


@command.command("check")
@options.database
@options.formats()
def check(database: str, output_format: str) -> None:
    """Say whether this perfsvc can use the database as it is."""
    from perfsvc.store import Store

    state = Store.check(database)
    if output_format == "json":
        facts = {"url": state.url, "revision": state.revision, "head": state.head, "problems": state.problems}
        output.show_json(facts)
    else:
        click.echo(f"{state.url}: schema {state.revision or 'none'}, this perfsvc writes {state.head}")
        for problem in state.problems:
            click.echo(f"  {problem}")
    if not state.ok:
        raise SystemExit(DatabaseError.exit_code)
