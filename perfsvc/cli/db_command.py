"""``perfsvc db``."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from perfsvc.cli import configuration, options, output
from perfsvc.errors import DatabaseError

UNCONFIRMED = timedelta(days=1)
"""A larger difference between this host's clock and the confirmed time is reported."""


@click.group("db")
def command() -> None:
    """Upgrade, check, rebuild, back up and prune the database."""


@command.command("upgrade")
@options.database
@options.formats
def upgrade(database: str, output_format: str) -> None:
    """Upgrade the database to this perfsvc's schema. A SQLite file is backed up next to itself first."""
    from perfsvc.store import Store
    from perfsvc.store.schema.engine import resolve, shown

    upgraded, url = Store.upgrade(database), shown(resolve(database))
    if output_format == "json":
        output.show_json({"url": url, "before": upgraded.before, "after": upgraded.after, "backup": upgraded.backup})
    elif upgraded.before == upgraded.after:
        click.echo(f"{url} is up to date ({upgraded.after})")
    else:
        kept = f"; the old database is kept as {upgraded.backup}" if upgraded.backup else ""
        click.echo(f"{url} is upgraded from {upgraded.before or 'nothing'} to {upgraded.after}{kept}")


@command.command("check")
@options.database
@options.formats
def check(database: str, output_format: str) -> None:
    """Check whether this perfsvc can use the database as it is, and read each row of it."""
    from perfsvc.store import Store

    state = Store.check(database)
    if output_format == "json":
        output.show_json({"url": state.url, "revision": state.revision, "head": state.head, "problems": state.problems})
    else:
        click.echo(f"{state.url}: schema {state.revision or 'none'}, this perfsvc writes {state.head}")
        for problem in state.problems or ("every row was read, and nothing is wrong",):
            click.echo(f"  {problem}")
    if not state.ok:
        raise SystemExit(DatabaseError.exit_code)


@command.command("rebuild")
@options.database
@options.formats
def rebuild(database: str, output_format: str) -> None:
    """Compute the levels of all runs anew from their measurements, and report what was stored otherwise.

    A level is what a run says about a series. What a run measured on each device is computed anew too. Each command
    stores the levels that it changes, so a difference is a fault of perfsvc or damage. Where samples were removed or
    are damaged, a level keeps what only samples show. Verdicts stay as they are.
    """
    from perfsvc import units
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        differences = store.series.rebuild()
        if output_format == "json":
            rows = [{"run": run, "series": series, "difference": what} for run, series, what in differences]
            output.show_json({"url": store.location, "differences": rows})
            return
        for run, series, what in differences:
            click.echo(f"  run {run}, {series}: {what}")
        found = f"{units.count(len(differences), 'difference')} {'was' if len(differences) == 1 else 'were'} corrected"
        click.echo(f"{store.location}: {found if differences else 'all levels are what the measurements say'}")


@command.command("backup")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@options.database
@options.formats
def backup(file: Path, database: str, output_format: str) -> None:
    """Copy a SQLite database into a new FILE, also while a night writes into the database."""
    from perfsvc import units
    from perfsvc.store import Store
    from perfsvc.store.keeping.backup import back_up

    with Store.open(database, create=False, read_only=True) as store:
        size = back_up(store.database, file)
        if output_format == "json":
            output.show_json({"url": store.location, "file": str(file), "size_bytes": size})
        else:
            click.echo(f"{store.location} is copied to {file} ({units.size(size)})")


@command.command("vacuum")
@options.database
@options.formats
def vacuum(database: str, output_format: str) -> None:
    """Return the space of removed data to the file system. A SQLite database is locked meanwhile."""
    from perfsvc import units
    from perfsvc.store import Store
    from perfsvc.store.keeping.backup import vacuum as vacuum_database

    with Store.open(database, create=False) as store:
        before, after = vacuum_database(store.database)
        if output_format == "json":
            output.show_json({"url": store.location, "before_bytes": before, "after_bytes": after})
        else:
            click.echo(f"{store.location}: {units.size(before)} before, {units.size(after)} after")


def _age(name: str, what: str) -> options.Decorator:
    """Return an option for how long data is kept."""
    default = "the value in perfsvc.toml, else for ever"
    return click.option(f"--{name}", type=options.Duration(), default=None, show_default=default, help=what)


@command.command("prune")
@_age("samples", "Keep the samples and batches of measurements for this long: 90d. The medians and intervals stay.")
@_age("binaries", "Keep binaries for this long after their last run.")
@_age("profiles", "Keep Nsight Compute's reports for this long. Their metrics stay.")
@_age("nights", "Keep nights and their files for this long. Their runs stay.")
@_age("audit", "Keep the entries of the server's audit log for this long.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--force", is_flag=True, help="Trust this host's clock, and remove any share of the data at once.")
@click.option("--vacuum", is_flag=True, help="Then return the space to the file system; this locks the database.")
@options.database
@options.formats
def prune(
    samples: float | None,
    binaries: float | None,
    profiles: float | None,
    nights: float | None,
    audit: float | None,
    dry_run: bool,
    force: bool,
    vacuum: bool,
    database: str,
    output_format: str,
) -> None:
    """Remove data that is too old and no longer needed.

    Everything that levels, pins, unresolved findings, the newest runs and their baselines need is kept: no future
    verdict, alert or finding changes.
    """
    from perfsvc import units
    from perfsvc.report.export.objects import plain
    from perfsvc.service.nightly.retention import KEPT
    from perfsvc.service.nightly.retention import prune as prune_store
    from perfsvc.store import Store
    from perfsvc.store.keeping.backup import vacuum as vacuum_database

    settings = configuration.current().loaded.settings
    now = datetime.now(UTC)
    asked = {"samples": samples, "binaries": binaries, "profiles": profiles, "nights": nights, "audit": audit}
    retention = settings.retention.model_copy(update={name: age for name, age in asked.items() if age is not None})
    with Store.open(database, create=False) as store:
        pruned = prune_store(
            store,
            retention,
            now,
            nights=settings.nightly.folder,
            against=settings.baseline.against,
            suite=settings.suite,
            dry_run=dry_run,
            force=force,
        )
        if vacuum and not dry_run:
            vacuum_database(store.database)
    if output_format == "json":
        output.show_json(plain(pruned) | {"size_bytes": pruned.size_bytes, "dry_run": dry_run})
        return
    if not any(retention.model_dump().values()):
        click.echo("everything is kept for ever: set a limit in [retention] of perfsvc.toml or with --samples 90d")
    click.echo(
        "\n".join(
            [f"{'would be removed' if dry_run else 'removed'}: {part}" for part in pruned.parts] or ["nothing to prune"]
        )
    )
    if pruned.parts:
        click.echo(f"{units.size(pruned.size_bytes)} in all")
    if pruned.counted_from < now - UNCONFIRMED:
        what = f"ages count from {pruned.counted_from:%Y-%m-%d %H:%M} UTC, because no run confirms a later time"
        click.echo(f"{what}; --force counts from this host's clock", err=True)
    if pruned.excess:
        click.echo(f"{pruned.excess}: without --force, pruning refuses to remove so much at once", err=True)
    if pruned.code is None:
        click.echo(KEPT, err=True)
