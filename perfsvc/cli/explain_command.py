"""``perfsvc explain``."""

from pathlib import Path

import click

from perfsvc.cli import options, output


@click.command("explain")
@click.argument("before")
@click.argument("after")
@click.option("--case", metavar="CASE", help="The case, if BEFORE and AFTER are runs.")
@click.option(
    "--run",
    default="latest",
    show_default=True,
    help="The run of BEFORE and AFTER, if these are cases: its number, label or revision.",
)
@click.option("--kernel", metavar="NAME", help="The kernel that both reports must have launched.")
@click.option(
    "--output",
    "destination",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="The file to write: FILE.html for a page, or FILE.svg, FILE.png or FILE.pdf for the roofline alone.",
)
@options.devices
@options.suite
@options.database
@options.formats
def command(
    before: str,
    after: str,
    case: str | None,
    run: str,
    kernel: str | None,
    destination: Path | None,
    devices: tuple[str, ...],
    suite: Path,
    database: str,
    output_format: str,
) -> None:
    """Explain why the launch AFTER takes longer than the launch BEFORE.

    BEFORE and AFTER can each be a report of Nsight Compute with one launch (.ncu-rep), or the name of a case. With
    --case, they can also be runs of this case. No GPU is needed if both are reports or were profiled before.
    """
    from perfsvc.report.export.objects import explanation_json
    from perfsvc.report.tables.profiles import explanation_table
    from perfsvc.service.profile import explain
    from perfsvc.service.profile.explain import ExplainRequest, explain_two

    if destination:
        explain.require_drawable(destination)
    request = ExplainRequest(before, after, database, suite, case, run, kernel, devices)
    with output.progress() as progress:
        explained = explain_two(request, progress)
    if output_format == "json":
        output.show_json(explanation_json(explained.before, explained.after, explained.explanation))
    else:
        output.show(explanation_table(explained.before, explained.after, explained.explanation))
    if destination:
        explain.draw(explained, destination)
