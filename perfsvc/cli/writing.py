"""The option ``--output [FORMAT=]FILE``: files with a result, each in a format."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfsvc.text import json_text

if TYPE_CHECKING:
    from perfsvc.report.review import Review

    _ToTarget = click.ParamType[tuple[str, Path]]
else:
    _ToTarget = click.ParamType  # no generic before click 8.4

Target = tuple[str, Path]
"""A format and the file to write."""


class FormatAndFile(_ToTarget):
    """A file and its format, such as ``check.sarif`` or ``codequality=quality.json``.

    Args:
        formats: the formats that the command has for files.
        suffixes: the format of a file without ``FORMAT=``, by its suffix.
    """

    name = "format=file"

    def __init__(self, formats: Iterable[str], suffixes: Mapping[str, str]) -> None:
        self._formats = tuple(formats)
        self._suffixes = suffixes
        self._path = click.Path(path_type=Path, dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        """Return the format and the file that a text such as ``sarif=perfsvc.sarif`` names."""
        if isinstance(value, tuple):
            return value
        before, equals, after = str(value).partition("=")
        if equals and "/" not in before:
            if before not in self._formats or not after:
                cure = f"the formats are {', '.join(self._formats)}; if = is part of the file's name, begin it with ./"
                self.fail(f"{value!r} is no FORMAT=FILE; {cure}", param, ctx)
            return before, Path(self._path.convert(after, param, ctx))
        output_format = self._suffixes.get(Path(value).suffix.lower())
        if output_format is None:
            cure = f"end it with {', '.join(self._suffixes)}, or write one of {', '.join(self._formats)} before it"
            self.fail(f"{value!r} has no suffix of a known format; {cure}: {self._formats[0]}={value}", param, ctx)
        return output_format, Path(self._path.convert(value, param, ctx))


def option(
    formats: Iterable[str], suffixes: Mapping[str, str], otherwise: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--output`` of a command.

    Args:
        formats: the formats that the command has for files.
        suffixes: the format of a file without ``FORMAT=``, by its suffix.
        otherwise: what the command prints with ``--output`` and without ``--format``.
    """
    return click.option(
        "--output",
        "targets",
        type=FormatAndFile(formats, suffixes),
        multiple=True,
        metavar="[FORMAT=]FILE",
        help=f"A file to write. Its format is FORMAT, or else follows from the suffix: {', '.join(suffixes)}. "
        f"Without --format, the command then prints {otherwise}. May be repeated.",
    )


def review_text(review: "Review", output_format: str) -> str:
    """Return a review as ``sarif`` or ``codequality``."""
    from perfsvc.report.export.sarif import review_code_quality, review_sarif

    is_sarif = output_format == "sarif"
    return json_text(review_sarif(review) if is_sarif else review_code_quality(review)) + "\n"
