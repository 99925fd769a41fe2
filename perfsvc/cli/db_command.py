"""``perfsvc db``."""

import click

from perfsvc.cli import options, output
from perfsvc.errors import DatabaseError


@click.group("db")
def command() -> None:
    """Upgrade and check the database."""


@command.command("upgrade")
@options.database
@options.formats()
def upgrade(database: str, output_format: str) -> None:
    """Bring the database to this perfsvc's schema. A SQLite file is copied beside itself first."""
    from perfsvc.store import Store
    from perfsvc.store.engine import resolve, shown

    done, url = Store.upgrade(database), shown(resolve(database))
    if output_format == "json":
        output.show_json({"url": url, "before": done.before, "after": done.after, "backup": done.backup})
    elif done.before == done.after:
        click.echo(f"{url} is up to date ({done.after})")
    else:
        kept = f"; the old one is kept as {done.backup}" if done.backup else ""
        click.echo(f"{url} is upgraded from {done.before or 'nothing'} to {done.after}{kept}")


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
