"""Read the result files of other tools, with a module for each format.

Each parser takes the content of a file and yields results. A malformed file raises ``FormatError`` with the place in
the file. A worker may import this package: it needs only the standard library, NumPy, the model and the errors.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from perfsvc import units
from perfsvc.errors import FormatError
from perfsvc.formats import asv, comma_separated, google_benchmark, hyperfine, nccl_tests, nvbench, pytest_benchmark
from perfsvc.formats.result import Point, Result

PARSERS: Mapping[str, Callable[[bytes, Path | None], Iterator[Result]]] = MappingProxyType(
    {
        "nvbench": nvbench.parse,
        "google-benchmark": google_benchmark.parse,
        "pytest-benchmark": pytest_benchmark.parse,
        "asv": asv.parse,
        "hyperfine": hyperfine.parse,
        "nccl-tests": nccl_tests.parse,
        "csv": comma_separated.parse,
    }
)
FORMATS: tuple[str, ...] = tuple(PARSERS)
"""The names of all formats."""

MOST_BYTES = 1 << 28
"""The largest file, in bytes. A file is read as a whole, and its JSON takes several times its size in memory."""


def read(format: str, path: Path) -> Iterator[Result]:  # noqa: A002 - the word of the command and of its users
    """Yield the results in a file, or for asv in a folder of results, in their order in the file.

    Args:
        format: one of ``FORMATS``.
        path: the file, or the results folder of asv.

    Raises:
        FormatError: the file cannot be read, is too large, or is not valid; some results may have been yielded before.
    """
    for file in files_of(format, path):
        yield from parse(format, content(file), file.parent, name=str(file))


def files_of(format: str, path: Path) -> list[Path]:  # noqa: A002 - see read
    """Return the files that hold results: the file itself, or those in the results folder of asv, in their order.

    Raises ``FormatError`` if a folder holds no results, or if the format has no folders.
    """
    if not path.is_dir():
        return [path]
    if format != "asv":
        raise FormatError(f"{path} is a folder", cure=f"name the files of {format} in it")
    files = asv.files_of(path)
    if not files:
        cure = "name the folder results_dir of asv.conf.json, with a folder for each machine"
        raise FormatError(f"{path} has no results of asv", cure=cure)
    return files


def content(file: Path) -> bytes:
    """Return the content of a file; raises ``FormatError`` if it cannot be read or is too large."""
    try:
        if not file.is_file():  # a FIFO or a device would never end
            raise FormatError(f"{file} is no file", cure="name a file of results")
        if file.stat().st_size > MOST_BYTES:
            what = f"{file} has {units.size(file.stat().st_size)}, but at most {units.size(MOST_BYTES)} are allowed"
            raise FormatError(what, cure="let the tool write several smaller files")
        return file.read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise FormatError(f"{file} cannot be read: {why}", cure="name a file that you may read") from None


def parse(
    format: str,  # noqa: A002 - see read
    text: bytes,
    folder: Path | None = None,
    *,
    name: str = "",
) -> Iterator[Result]:
    """Yield the results in the content of one file.

    Args:
        format: one of ``FORMATS``.
        text: the content, for example the standard output of a program.
        folder: where the file lies: NVBench and asv keep samples and names in files beside it. None if there is no
            file; a result of NVBench then has one sample.
        name: what errors call the content, such as the path of the file.

    Raises:
        FormatError: the content is not valid; some results may have been yielded before.
        ValueError: there is no such format.
    """
    if format not in PARSERS:
        raise ValueError(f"{format!r} is no format: the formats are {', '.join(FORMATS)}")
    subject = name or "the output"
    try:
        yield from _distinct(PARSERS[format](text, folder))
    except FormatError as error:
        remedy = "correct it" if format == "csv" else f"let {format} write it again"
        other = _format_of(text, but=format)
        cure = error.cure or f"name the format that the file has, or {remedy}"
        if other:
            cure = f"name the format {other}, in which it has results"
        raise FormatError(f"{subject} is not in the format {format}: {error.what}", cure=cure) from None


def _format_of(text: bytes, *, but: str) -> str:
    """Return another format in which a content has a result; empty if there is none."""
    for format, parser in PARSERS.items():  # noqa: A001 - see read
        with contextlib.suppress(FormatError):
            if format != but and next(parser(text, None), None) is not None:
                return format
    return ""


def _distinct(results: Iterable[Result]) -> Iterator[Result]:
    """Yield results; a second result of the same case and replica becomes the variant ``NAME-2``, and so on."""
    seen: Counter[object] = Counter()
    for result in results:
        device = result.device.uuid if result.device else ""
        where = (result.commit, result.host, device, result.cache, result.replica)
        variant = result.variant
        while seen[key := (result.benchmark, variant, result.point, *where)]:
            seen[key] += 1
            variant = f"{result.variant}-{seen[key]}"
        seen[key] += 1
        yield result if variant == result.variant else replace(result, variant=variant)
