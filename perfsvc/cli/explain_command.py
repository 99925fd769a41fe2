"""``perfsvc explain``."""

from pathlib import Path

import click

from perfsvc.cli import options, output


@click.command("explain")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--kernel", metavar="NAME", help="Both have to be of this kernel.")
@click.option(
    "--roofline",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Draw both launches under the device's ceilings: FILE.svg, FILE.png, FILE.pdf, or FILE.html with the rest.",
)
@options.formats()
def command(before: Path, after: Path, kernel: str | None, roofline: Path | None, output_format: str) -> None:
    """Say why the launch AFTER takes longer than the one BEFORE.

    Each is a report of Nsight Compute with one launch (.ncu-rep). Needs no GPU.
    """
    from perfsvc.report import explanations
    from perfsvc.service import explain

    if roofline:
        explain.require_drawable(roofline)
    found = explain.explain_reports(before, after, kernel=kernel)
    if output_format == "json":
        output.show_json(explanations.explanation_json(found.before, found.after, found.explanation))
    else:
        output.show(explanations.explanation_table(found.before, found.after, found.explanation))
    if roofline:
        explain.draw(found, roofline)
