"""``perfsvc sync``."""

import click

from perfsvc.cli import options, output
from perfsvc.errors import DatabaseError


@click.command("sync")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--dry-run", is_flag=True, help="Show which runs would be copied, and copy nothing.")
@options.formats
def command(source: str, target: str, dry_run: bool, output_format: str) -> None:
    """Copy the runs of the database FROM that the database TO lacks, with all that belongs to them.

    FROM and TO are SQLite files or URLs of PostgreSQL servers. The runs get new numbers in TO.
    """
    from perfsvc.report.export.objects import plain
    from perfsvc.service.sync import sync
    from perfsvc.store.keeping.sync import SyncAction

    with output.progress() as progress:
        synced = sync(source, target, progress, dry_run=dry_run)
    if output_format == "json":
        output.show_json(plain(synced) | {"dry_run": dry_run})
    else:
        parts = ", ".join(synced.parts) or "nothing"
        click.echo(f"{'would be copied' if dry_run else 'copied'} from {synced.source} to {synced.target}: {parts}")
        for text in synced.mapping:
            click.echo(f"  run {text}")
    same = len(synced.of(SyncAction.SAME))
    notes = {
        f"{same} of {len(synced.runs)} runs were there already": same,
        "runs under way, which the next sync copies: {}": len(synced.of(SyncAction.UNDER_WAY)),
        "runs that were deleted from the target on purpose, and are not copied again: {}": len(
            synced.of(SyncAction.REMOVED)
        ),
        "findings that wait, because one of their runs is not in the target: {}": synced.waiting,
    }
    for note, many in notes.items():
        if many:
            click.echo(note.format(many), err=True)
    for run, reason in synced.damaged:
        click.echo(f"run {run} is damaged and was not copied: {reason}", err=True)
    if synced.damaged:
        raise DatabaseError(
            f"{len(synced.damaged)} of the runs of {synced.source} are damaged", cure=f"perfsvc db check --db {source}"
        )
