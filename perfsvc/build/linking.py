"""Units that are linked: several sources, or libraries of device code."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsvc.errors import CompileError
from perfsvc.model import Unit, digest

_LIBRARY = re.compile(r"(?:-l|--library)(?!ineinfo$|to$|ist-|-path)=?(?P<name>.*)")
_FOLDER = re.compile(r"(?:-L|--library-path)=?(?P<name>.*)")
_FILE = re.compile(r"[^-].*\.(?:a|o|cubin)")


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The options of a unit that are for the linker.

    Attributes:
        words: what nvcc gets to link with, in order.
        libraries: the names in ``-l``.
        folders: the folders in ``-L``.
        files: the libraries and object files that are given by their paths.
        others: the options for the compiler.
    """

    words: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def link_options(options: Sequence[str]) -> LinkOptions:
    """Sort compile options into those for the linker, and all others."""
    found: dict[str, list[str]] = {"words": [], "libraries": [], "folders": [], "files": [], "others": []}
    remaining = iter(options)
    for word in remaining:
        for kind, pattern in (("libraries", _LIBRARY), ("folders", _FOLDER)):
            if match := pattern.fullmatch(word):
                values = (match["name"] or next(remaining, "")).split(",")
                found[kind] += values
                found["words"] += [f"{'-l' if kind == 'libraries' else '-L'}{value}" for value in values]
                break
        else:
            is_file = _FILE.fullmatch(word)
            if is_file:
                found["files"].append(word)
            found["words" if is_file else "others"].append(word)
    return LinkOptions(**{kind: tuple(words) for kind, words in found.items()})


def is_linked(unit: Unit) -> bool:
    """Return whether a unit is compiled in parts, which the linker for device code puts together."""
    return unit.libraries is None and bool(unit.others or link_options(unit.options).words)


def libraries(unit: Unit) -> Mapping[str, str]:
    """Return the SHA-256 digests of the user's libraries and object files, by name as the options give it.

    A library that is in none of the unit's folders belongs to the CUDA toolkit.

    Raises:
        CompileError: a file does not exist, or cannot be read.
    """
    return {name: digest(_content(unit, name, path)) for name, path in _files(unit)}


def _files(unit: Unit) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each library and object file of the user."""
    options, folder = link_options(unit.options), unit.source.parent
    for name in options.files:
        yield name, folder / name
    for name in options.libraries:
        for written in options.folders:
            if (path := folder / written / f"lib{name}.a").is_file():
                yield name, path
                break


def _content(unit: Unit, name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CompileError(
            f"{unit.source.name} is linked with {name}, which cannot be read: {error.strerror}",
            cure=f"build {path}, or correct its name in the options",
        ) from error
