"""The option ``--write FORMAT=FILE``: further formats of a result, each in a file."""

from collections.abc import Callable, Iterable
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
    """``sarif=perfsvc.sarif``: a format and a file.

    Args:
        formats: the formats that the command has.
    """

    name = "format=file"

    def __init__(self, formats: Iterable[str]) -> None:
        self._formats = tuple(formats)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        """Return the format and the file that a text such as ``sarif=perfsvc.sarif`` names."""
        if isinstance(value, tuple):
            return value
        output_format, equals, file = str(value).partition("=")
        if output_format not in self._formats or not equals or not file:
            self.fail(f"{value!r} is no FORMAT=FILE; the formats are {', '.join(self._formats)}", param, ctx)
        return output_format, Path(file)


def option(formats: Iterable[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--write`` of a command with these formats."""
    return click.option(
        "--write",
        "targets",
        type=FormatAndFile(formats),
        multiple=True,
        metavar="FORMAT=FILE",
        help="Also write the result to a file in this format, such as sarif=perfsvc.sarif. May be repeated.",
    )


def write_all(targets: Iterable[Target], text_of: Callable[[str], str]) -> None:
    """Write each file in its format; raise ``UsageError`` if a file cannot be written."""
    from perfsvc.files import write_output

    for output_format, file in targets:
        write_output(file, text_of(output_format))


def review_text(review: "Review", output_format: str) -> str:
    """Return a review as ``sarif`` or ``codequality``."""
    from perfsvc.report.export.code_quality import review_code_quality
    from perfsvc.report.export.sarif import review_sarif

    is_sarif = output_format == "sarif"
    return json_text(review_sarif(review) if is_sarif else review_code_quality(review)) + "\n"
