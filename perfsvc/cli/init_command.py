"""``perfsvc init``."""

from pathlib import Path

import click

from perfsvc import units
from perfsvc.cli import options, output
from perfsvc.errors import UsageError
from perfsvc.installation import data_folder


@click.command("init")
@click.option(
    "--suite",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    show_default="the folder here with benchmark files",
    help="The suite to write into the file; with --triton, the folder that gets each bench.py.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option(
    "--triton",
    "triton_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a bench.py for each Triton kernel of this Python file, and no perfsvc.toml.",
)
@click.option(
    "--github",
    "action",
    metavar="OWNER/REPOSITORY@VERSION",
    help="Write GitHub workflows that compare each pull request with this action of perfsvc, and no perfsvc.toml.",
)
@click.option(
    "--gitlab",
    "source",
    metavar="URL",
    help="Write GitLab jobs that compare each merge request, and install perfsvc from this URL; and no perfsvc.toml.",
)
@options.formats
def command(
    suite: Path | None,
    *,
    force: bool,
    triton_file: Path | None,
    action: str | None,
    source: str | None,
    output_format: str,
) -> None:
    """Write a commented perfsvc.toml for the suite in this folder, the bench.py of Triton kernels, or CI files.

    Every key is in perfsvc.toml, commented out with its default. An existing file is not overwritten.
    """
    if sum(value is not None for value in (triton_file, action, source)) > 1:
        raise click.UsageError("--triton, --github and --gitlab exclude each other.")
    if action is not None or source is not None:
        _write_ci(action, source, suite, force=force, output_format=output_format)
        return
    if triton_file is not None:
        _write_benches(triton_file, suite, force=force, output_format=output_format)
        return
    from perfsvc.config.file import NAME
    from perfsvc.service import init

    if suite is not None and not suite.is_dir():
        raise UsageError(f"no folder {suite}", cure="name the folder of your benchmarks: --suite FOLDER")
    folder = suite or init.suite_in(Path())
    init.write(Path(NAME), folder or data_folder("kernels"), force=force)
    if output_format == "json":
        output.show_json({"path": NAME, "suite": str(folder) if folder else None})
        return
    named = f"the suite {folder}" if folder else "the built-in suite, because this folder has no suite"
    click.echo(f"{NAME} is written, for {named}; perfsvc config show prints the settings in force")


def _write_ci(action: str | None, source: str | None, suite: Path | None, *, force: bool, output_format: str) -> None:
    """Write the workflows of GitHub, or the jobs of GitLab, and print their paths."""
    from perfsvc.service import init
    from perfsvc.service.ci.files import write_github, write_gitlab

    folder = suite or init.suite_in(Path()) or Path(init.SUITES[0])
    if action is not None:
        paths = write_github(Path(), action, folder, force=force)
    else:
        paths = write_gitlab(Path(), source or "", folder, force=force)
    if output_format == "json":
        output.show_json([{"path": str(path)} for path in paths])
        return
    for path in paths:
        click.echo(f"{path} is written, for the suite {folder}")
    if source is not None:
        click.echo(f"next: write this line into .gitlab-ci.yml: include: {paths[0]}")


def _write_benches(file: Path, suite: Path | None, *, force: bool, output_format: str) -> None:
    """Write a bench.py for each Triton kernel of a file, and print their paths and how many places are left to fill."""
    from perfsvc.service import init, init_triton

    paths = init_triton.write(file, suite or Path(init.SUITES[0]), force=force)
    places = {path: path.read_text(encoding="utf-8").count("# TODO") for path in paths}
    if output_format == "json":
        output.show_json([{"path": str(path), "todo": count} for path, count in places.items()])
        return
    for path, count in places.items():
        click.echo(f"{path} is written: {units.count(count, 'place')} to fill in, marked TODO")
    click.echo(f"next: perfsvc list --suite {suite or init.SUITES[0]}")
