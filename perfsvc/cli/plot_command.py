"""``perfsvc plot``."""

from pathlib import Path

import click

from perfsvc.cli import options


@click.command("plot")
@click.argument("run", default="latest")
@click.option(
    "--output",
    "-o",
    "destination",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    required=True,
    help="The picture to write: FILE.svg, FILE.png or FILE.pdf.",
)
@options.select
@options.exclude
@click.option("--device", metavar="UUID", help="Only this device; required if the run has several.")
@options.suite
@options.database
def command(
    run: str,
    destination: Path,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    device: str | None,
    suite: Path,
    database: str,
) -> None:
    """Draw the rate of each variant of RUN, in the suite's order.

    RUN is a number, a label, latest~1 or a git revision; the default is the latest run. Each benchmark has a panel for
    each point. Lines mark the variant that the others are compared with, and the GPU's measured peak.
    """
    from perfsvc.selection import Selection
    from perfsvc.service.plot import draw
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        draw(store, run, destination, selection=Selection(select, exclude), device=device, folder=suite)
