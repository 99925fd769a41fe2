"""``perfsvc init``."""

from pathlib import Path

import click

from perfsvc.cli import options, output


@click.command("init")
@click.option(
    "--suite",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=None,
    show_default="the folder here with benchmark files",
    help="The suite to write into the file.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing perfsvc.toml.")
@options.formats
def command(suite: Path | None, *, force: bool, output_format: str) -> None:
    """Write a commented perfsvc.toml for the suite in this folder.

    Every key is in it, commented out with its default. An existing file is not overwritten.
    """
    from perfsvc.config.file import NAME
    from perfsvc.service import init

    folder = suite or init.suite_in(Path())
    init.write(Path(NAME), folder, force=force)
    if output_format == "json":
        output.show_json({"path": NAME, "suite": str(folder) if folder else None})
        return
    named = f"the suite {folder}" if folder else "the built-in suite, because this folder has no suite"
    click.echo(f"{NAME} is written, for {named}; perfsvc config show prints the settings in force")
