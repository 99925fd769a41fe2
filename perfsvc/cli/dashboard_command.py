"""``perfsvc dashboard``."""

from pathlib import Path

import click

from perfsvc.cli import configuration, options, output


@click.group("dashboard")
def command() -> None:
    """Write the pages to read in the morning."""


@command.command("build")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default="site", metavar="[DIR]")
@click.option(
    "--last",
    type=options.RUN_COUNT,
    default=400,
    show_default=True,
    metavar="N",
    help="Show the newest N runs.",
)
@options.database
@options.formats
def build(folder: Path, last: int, database: str, output_format: str) -> None:
    """Write a static site to DIR (default: site): a page for the last night, for each benchmark, series and finding.

    The pages need no server and no network: open DIR/index.html. Pages of an earlier build that are no longer needed
    are removed; other files are left alone.
    """
    from perfsvc import units
    from perfsvc.service.dashboard.build import build as build_site
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        pages = build_site(store, folder, last=last, threshold=configuration.thresholds(None))
    if output_format == "json":
        output.show_json(pages)
        return
    click.echo(f"{pages[0]}: {units.count(len(pages), 'page')}")
