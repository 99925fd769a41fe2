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
    default="perfsvc",
    show_default=True,
    metavar="SET",
    help="The sections of Nsight Compute: perfsvc (only what perfsvc reads), full, or another set of ncu --list-sets.",
)
@click.option(
    "--output",
    "destination",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="The file for the tool's own report, for ncu-ui or nsys-ui; for nsys the default is named after the case.",
)
@click.option(
    "--stored", is_flag=True, help="Launch nothing: show the profile that a night or an earlier command stored."
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
    stored: bool,
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

    if stored and tool == "nsys":
        raise click.UsageError("timelines are not stored: leave out --stored or --tool nsys")
    request = ProfileRequest(database, case, run, suite, devices, tool, sections, destination, stored)
    with output.progress() as progress:
        profiled = profile_case(request, progress)
    if isinstance(profiled, ProfileResult):
        if output_format == "json":
            output.show_json({**plain(profiled), "range": profiled.range})
        else:
            output.show(profile_table(profiled))
            if destination:
                click.echo(f"\nthe report is in {destination}; the NVTX range of this launch is {profiled.range!r}")
    elif output_format == "json":  # Nsight Systems returns the path of its timeline
        output.show_json({"timeline": profiled})
    else:
        click.echo(f"the timeline is in {profiled}")
