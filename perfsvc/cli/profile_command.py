"""``perfsvc profile``."""

from pathlib import Path
from typing import Literal

import click

from perfsvc.cli import options, output


@click.command("profile")
@click.argument("case")
@click.option("--run", default="latest", show_default=True, help="Whose binary: a run, its label or revision.")
@options.devices
@click.option(
    "--tool",
    type=click.Choice(["ncu", "nsys"]),
    default="ncu",
    show_default=True,
    help="Nsight Compute, which counts, or Nsight Systems, which draws a timeline.",
)
@click.option(
    "--set",
    "sections",
    default="full",
    show_default=True,
    metavar="SET",
    help="What Nsight Compute counts: a set of its sections (ncu --list-sets), or perfsvc for those of our metrics.",
)
@click.option(
    "--output",
    "destination",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="The file that gets the tool's own report, for ncu-ui or nsys-ui; of nsys by default one named like the case.",
)
@options.suite
@options.database
@options.formats()
def command(
    case: str,
    run: str,
    devices: tuple[str, ...],
    tool: Literal["ncu", "nsys"],
    sections: str,
    destination: Path | None,
    suite: Path,
    database: str,
    output_format: str,
) -> None:
    """Count what CASE does on a GPU, of the binary that a run stored.

    A fresh process launches it once, and Nsight Compute looks at its longest launch. What it counts is stored.
    """
    from perfsvc.model import ProfileResult
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.profiles import profile_table
    from perfsvc.service.profile.profile import ProfileRequest, profile_case

    request = ProfileRequest(database, case, run, suite, devices, tool, sections, destination)
    with output.progress() as progress:
        found = profile_case(request, progress)
    if not isinstance(found, ProfileResult):
        output.show_json({"timeline": found}) if output_format == "json" else click.echo(f"the timeline is in {found}")
    elif output_format == "json":
        output.show_json(plain(found))
    else:
        output.show(profile_table(found))
