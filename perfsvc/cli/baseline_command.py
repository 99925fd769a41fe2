"""``perfsvc baseline``."""

from pathlib import Path

import click

from perfsvc.cli import options, output


@click.group("baseline")
def command() -> None:
    """Set, show and clear pinned baselines.

    A series is compared with its pin. Without a pin it is compared with its last accepted level: the run in which it
    was new or last improved. A regression never becomes the level by itself: set the baseline to accept it.
    """


@command.command("set")
@click.argument("run")
@options.select
@options.exclude
@click.option("--comment", default="", help="Why this run is the baseline.")
@options.suite
@options.database
@options.formats
def set_(
    run: str,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    comment: str,
    suite: Path,
    database: str,
    output_format: str,
) -> None:
    """Pin the baseline to RUN: a number, a label, latest, latest~1, or a git revision."""
    from perfsvc.selection import Selection
    from perfsvc.service import exclusions
    from perfsvc.service.revisions import resolve
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        number = resolve(run, store, suite).id
        count = exclusions.pin(store, number, Selection(select, exclude), comment=comment)
    if output_format == "json":
        output.show_json({"run": number, "pinned": count})
    else:
        click.echo(f"run {number} is the baseline of {count} series")


@command.command("show")
@options.database
@options.formats
def show(database: str, output_format: str) -> None:
    """List the pins."""
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.lists import pins_table
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        rows = store.baselines.pins()
    if output_format == "json":
        output.show_json(plain(rows))
    elif rows:
        output.show(pins_table(rows))
    else:
        compared = "with its last accepted level and later runs of the same code"
        click.echo(f"nothing is pinned: a series is compared {compared}")


@command.command("clear")
@options.select
@options.exclude
@options.database
@options.formats
def clear(select: tuple[str, ...], exclude: tuple[str, ...], database: str, output_format: str) -> None:
    """Remove pins: each of these series is compared with its last accepted level again."""
    from perfsvc import units
    from perfsvc.selection import Selection
    from perfsvc.service import exclusions
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        count = exclusions.unpin(store, Selection(select, exclude))
    if output_format == "json":
        output.show_json({"cleared": count})
    else:
        click.echo(f"{units.count(count, 'pin')} cleared")
