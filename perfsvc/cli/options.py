"""Options and parameter types that several commands share."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from perfsvc import units
from perfsvc.cli import configuration
from perfsvc.installation import data_folder

LARGEST_THRESHOLD = 10
"""The largest threshold, a tenfold time; anything above is a typing error."""

RUN_COUNT = click.IntRange(1, 999_999_999)
"""A number of runs to show. A database cannot take a number of any size."""

if TYPE_CHECKING:
    _ToFloat = click.ParamType[float]
else:
    _ToFloat = click.ParamType  # no generic before click 8.4

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


formats = click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or JSON for programs.",
)


def suite_folder() -> Path:
    """Return the default suite: ``./kernels`` if it exists or is a link, else the built-in suite."""
    here = Path("kernels")
    return here if here.is_dir() or here.is_symlink() else data_folder("kernels")


def announce_suite(chosen: Path) -> None:
    """Print a line on standard error if perfsvc uses the built-in suite although the user did not name it.

    Args:
        chosen: the suite in use.
    """
    source = click.get_current_context().get_parameter_source("suite")
    # With a perfsvc.toml, click gets a default suite from the settings even if the file names none.
    not_in_file = source is ParameterSource.DEFAULT_MAP and not configuration.current().loaded.given("suite")
    if (not_in_file or source is ParameterSource.DEFAULT) and chosen == data_folder("kernels"):
        click.echo(f"there is no folder ./kernels here: using the built-in suite, {chosen}", err=True)


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

devices = click.option(
    "--device",
    "devices",
    multiple=True,
    default=("auto",),
    show_default=True,
    metavar="DEVICE",
    help="auto (every GPU, else the CPU), cpu, cuda, cuda:0,2, cuda:GPU-5e…, cuda:MIG-… May be repeated.",
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

strict = click.option("--strict", is_flag=True, help="Exit with 3 if a verdict is inconclusive.")


class ListByDefault(click.Group):
    """A group whose default command is ``list``: ``perfsvc findings --all`` is ``perfsvc findings list --all``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``list`` if no command is given."""
        names_a_command = bool(args) and (args[0] in ctx.help_option_names or not args[0].startswith("-"))
        return super().parse_args(ctx, args if names_a_command else ["list", *args])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they are defined."""
        return list(self.commands)


class Share(_ToFloat):
    """``3%`` or ``0.03``, as a fraction above zero.

    Args:
        example: shown in errors.
        below: the upper limit, as a fraction.
    """

    name = "share"

    def __init__(self, example: str, *, below: float) -> None:
        self._example = example
        self._below = below

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the fraction that a share such as ``5%`` names."""
        try:
            return units.parse_share(str(value), below=self._below, example=self._example)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Seconds(_ToFloat):
    """A time above zero: a number of seconds, or a duration such as ``1m``, as seconds."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the value as a number of seconds above 0."""
        try:
            seconds = float(value)
        except ValueError:
            try:
                seconds = units.parse_duration(str(value))
            except ValueError:
                self.fail(f"{value!r} is no number of seconds; write 2 or 1m", param, ctx)
        if not 0 < seconds < math.inf:
            self.fail(f"{value!r} is not a number of seconds above 0; write 2 or 1m", param, ctx)
        return seconds


class Duration(_ToFloat):
    """A duration such as ``90s``, ``20m`` or ``1h30m``, as seconds above zero."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds of a duration such as ``1h30m``."""
        try:
            return float(value) if isinstance(value, float) else units.parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


threshold = click.option(
    "--threshold",
    type=Share("1%", below=LARGEST_THRESHOLD),
    default=None,
    show_default="1% on a GPU, 50% on the CPU device",
    help="The smallest relevant change: 1% or 0.01.",
)
