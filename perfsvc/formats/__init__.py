"""Reads the result files of other tools; a module for each format.

All parsers are pure: text in, results out. A malformed file raises ``FormatError`` with the place in the file. This
package may be imported by the worker, so it needs only NumPy and the standard library.
"""

from collections.abc import Iterator
from pathlib import Path

from perfsvc.errors import FormatError
from perfsvc.formats.result import Point, Result

__all__ = ["FORMATS", "FormatError", "Point", "Result", "parse", "read"]

FORMATS: tuple[str, ...] = ()
"""The names of all formats."""


def read(format: str, path: Path) -> Iterator[Result]:  # noqa: A002 - the word of the command and of its users
    """Yield the results in a file, or for asv in a folder, in their order in the file.

    Args:
        format: one of ``FORMATS``.
        path: the file, or the results folder of asv.

    Raises:
        FormatError: the file cannot be read, is too large, or is not valid; some results may have been yielded before.
    """
    raise NotImplementedError


def parse(format: str, text: bytes, folder: Path | None = None) -> Iterator[Result]:  # noqa: A002 - see read
    """Yield the results in the content of one file.

    Args:
        format: one of ``FORMATS``, but not asv, whose results are a folder.
        text: the content, for example the standard output of a program.
        folder: where the file lies, because NVBench keeps samples in files beside it; None if there is no file, and
            then each result has one sample.

    Raises:
        FormatError: the content is not valid; some results may have been yielded before.
    """
    raise NotImplementedError
