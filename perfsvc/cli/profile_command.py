"""``perfsvc profile``."""

from pathlib import Path
from typing import Literal

import click

from perfsvc.cli import options, output


@click.command("profile")
@click.argument("case")
@click.option(
    "--run",
    default="latest",
    show_default=True,
    help="The run whose binary is profiled: its number, label or revision.",
)
@options.devices
@click.option(
    "--tool",
    type=click.Choice(["ncu", "nsys"]),
    default="ncu",
    show_default=True,
    help="Nsight Compute for metrics, or Nsight Systems for a timeline.",
)
@click.option(
    "--set",
    "sections",
    default="full",
    show_default=True,
    metavar="SET",
    help="The sections of Nsight Compute: a set of ncu --list-sets, or perfsvc: only what perfsvc reads.",
)
@click.option(
    "--output",
    "destination",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="The file for the tool's own report, for ncu-ui or nsys-ui; for nsys the default is named after the case.",
)
@options.suite
@options.database
@options.formats
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
    """Profile CASE on a GPU, with the binary that a run stored.

    A fresh process launches the case once, and Nsight Compute profiles its longest launch. The metrics are stored.
    """
    from perfsvc.model import ProfileResult
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.profiles import profile_table
    from perfsvc.service.profile.profile import ProfileRequest, profile_case

    request = ProfileRequest(database, case, run, suite, devices, tool, sections, destination)
    with output.progress() as progress:
        profiled = profile_case(request, progress)
    if isinstance(profiled, ProfileResult):
        if output_format == "json":
            output.show_json(plain(profiled))
        else:
            output.show(profile_table(profiled))
    elif output_format == "json":  # Nsight Systems returns the path of its timeline
        output.show_json({"timeline": profiled})
    else:
        click.echo(f"the timeline is in {profiled}")
