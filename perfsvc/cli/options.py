"""Options and parameter types that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from perfsvc.resources import folder

MOST = 10
"""A tenfold time: a threshold above it is a slip of the finger."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

database = click.option(
    "--db",
    "database",
    envvar="PERFSVC_DB",
    default="perfsvc.db",
    show_default=True,
    show_envvar=True,
    metavar="URL",
    help="The database: a SQLite file, or any SQLAlchemy URL.",
)


def formats() -> Decorator:
    """``--format``, with ``table`` for people as the default and ``json`` for programs."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="A table for people, or JSON for programs.",
    )


def suite_folder() -> Path:
    """The suite where none is named: ``./kernels``, else the built-in one."""
    here = Path("kernels")
    return here if here.is_dir() else folder("kernels")


def tell_suite(chosen: Path) -> None:
    """Says on standard error that the built-in suite is used where nobody named one and there is no ``./kernels``."""
    source = click.get_current_context().get_parameter_source("suite")
    if source is click.core.ParameterSource.DEFAULT and chosen == folder("kernels"):
        click.echo(f"there is no folder ./kernels here: this is the built-in suite, {chosen}", err=True)


suite = click.option(
    "--suite",
    "suite",
    envvar="PERFSVC_SUITE",
    show_envvar=True,
    type=click.Path(path_type=Path, file_okay=False),
    default=suite_folder,
    show_default="./kernels, else the built-in suite",
    help="The folder of benchmarks.",
)

select = click.option(
    "--select",
    multiple=True,
    metavar="GLOB",
    help="Only these cases: transpose, transpose/tiled*, '*/naive[n=4096]'. May be repeated.",
)

exclude = click.option("--exclude", multiple=True, metavar="GLOB", help="Not these cases. May be repeated.")

points = click.option(
    "--points",
    type=click.Choice(["smoke", "full"]),
    default=None,
    show_default="full on a GPU, smoke elsewhere",
    help="The small smoke point of each benchmark, or its full points.",
)

strict = click.option("--strict", is_flag=True, help="Exit with 3 where a verdict is inconclusive.")


def _fraction(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """``3%`` or ``0.03``, as a fraction greater than zero."""
    if text is None:
        return None
    try:
        fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no number; write 3% or 0.03") from error
    if not 0 < fraction < MOST:
        raise click.BadParameter(f"{text!r} is not between 0 and {MOST:.0%}; write 3% or 0.03")
    return fraction


threshold = click.option(
    "--threshold",
    callback=_fraction,
    metavar="SHARE",
    default=None,
    show_default="3% on a GPU, 50% on the CPU device",
    help="The smallest relevant change: 3% or 0.03.",
)
