"""What decides a binary: compile options as nvcc reads them, the source, and the user's files that it includes.

nvcc gets a unit's options unchanged. All other code that has to understand options (the CPU device's toolchain, the
search for included files) reads them here, so that no two toolchains interpret one option differently.
"""

import ast
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from perfsvc.errors import CompileError
from perfsvc.model import Unit, digest

# --- options ---------------------------------------------------------------------------------------------------------

_OPTION_KINDS = {
    "-D": "define",
    "--define-macro": "define",
    "-U": "undefine",
    "--undefine-macro": "undefine",
    "-I": "folder",
    "--include-path": "folder",
    "-isystem": "system folder",
    "--system-include": "system folder",
    "-include": "include",
    "--pre-include": "include",
    "-std": "standard",
    "--std": "standard",
    "-optf": "file",
    "--options-file": "file",
}
_JOINED = re.compile(r"(-[DUI])(?!=)(.+)", re.DOTALL)
_FORWARDS_NEXT_WORD = re.compile(r"-X\w+|--[a-z]+-options")  # -Xcompiler -Wall, --ptxas-options -v
_COMMA = re.compile(r"(?<!\\),")


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """A unit's options by their purpose.

    Attributes:
        directives: the ``#define`` and ``#undef`` lines of ``-D`` and ``-U``, in order.
        folders: the folders of ``-I``.
        system_folders: the folders of ``-isystem``.
        includes: the files of ``-include``.
        standard: the last ``-std`` (``c++20``); empty if there is none.
        others: all other words.
    """

    directives: tuple[str, ...]
    folders: tuple[str, ...]
    system_folders: tuple[str, ...]
    includes: tuple[str, ...]
    standard: str
    others: tuple[str, ...]


def read_options(words: Sequence[str]) -> CompileOptions:
    """Sort the words of an nvcc command line (``-Idir``, ``-I=dir`` or ``-I`` followed by ``dir``) by their purpose.

    Raises ``CompileError`` if the options are in a file: the build cache would not notice a change of this file.
    """
    return _read_options(tuple(words))


@lru_cache  # called several times for each unit, and most units have equal options
def _read_options(words: tuple[str, ...]) -> CompileOptions:
    """Sort the words of an nvcc command line by their purpose; raise ``CompileError`` if options are in a file."""
    options = tuple(_sorted_options(words))

    def values(kind: str) -> tuple[str, ...]:
        return tuple(value for option_kind, value in options if option_kind == kind)

    if files := values("file"):
        raise CompileError(
            f"options are not read from a file ({files[0]})", cure="write them into the options of the variant"
        )
    return CompileOptions(
        directives=tuple(_directive(kind, macro) for kind, macro in options if kind in {"define", "undefine"}),
        folders=values("folder"),
        system_folders=values("system folder"),
        includes=values("include"),
        standard=next(reversed(values("standard")), ""),
        others=values("other"),
    )


def directives(unit: Unit) -> tuple[str, ...]:
    """Return a unit's options and parameters as ``#define`` and ``#undef`` lines, in the order in which they apply."""
    return (*read_options(unit.options).directives, *(f"#define {name} {value}" for name, value in unit.defines))


def definitions(unit: Unit) -> tuple[str, ...]:
    """Return a unit's parameters as nvcc's ``-D`` options, with commas escaped: nvcc splits definitions at commas."""
    values = {name: str(value).replace(",", "\\,") for name, value in unit.defines}
    return tuple(f"-D{name}={value}" for name, value in values.items())


def _sorted_options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the kind and the value of each option. For the kind ``other``, the value is the whole word."""
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        joined = _JOINED.fullmatch(word)
        if name in _OPTION_KINDS:
            yield from _values(_OPTION_KINDS[name], value if equals else next(remaining, ""))
        elif joined:
            yield from _values(_OPTION_KINDS[joined[1]], joined[2])
        else:
            yield "other", word
            if _FORWARDS_NEXT_WORD.fullmatch(word):
                yield "other", next(remaining, "")


def _values(kind: str, text: str) -> Iterator[tuple[str, str]]:
    for value in _COMMA.split(text):
        yield kind, value.replace("\\,", ",")


def _directive(kind: str, macro: str) -> str:
    name, equals, value = macro.partition("=")
    return f"#undef {name}" if kind == "undefine" else f"#define {name} {value if equals else 1}"


# --- files -----------------------------------------------------------------------------------------------------------

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
_ELSEWHERE = "<I"  # starts the names of files in include folders that are known by their number


@dataclass(frozen=True, slots=True)
class _HeaderFolder:
    """A folder of headers, and its name relative to the source's folder, equal on every machine."""

    name: str
    path: Path

    def find(self, included: str) -> tuple[str, Path] | None:
        """Return the name and the path of an included file; None if this folder does not have the file.

        The name is relative to the source's folder, so that it is equal on every machine.
        """
        path = self.path / included
        if not path.is_file():
            return None
        joined = os.path.join(self.name, included)  # noqa: PTH118 - names are no paths of this machine
        return joined if joined.startswith(_ELSEWHERE) else os.path.normpath(joined), path


def preimage(
    unit: Unit, files: Mapping[str, bytes], *, target: str, version: str, settings: Sequence[str] = ()
) -> bytes:
    """Return everything that decides a binary, as canonical JSON that contains no path of this machine.

    Files count by name and content. A header belongs to the toolkit or the system if it is neither next to the
    including file nor in an include folder. Only the version of the compiler counts for such a header, and for a header
    whose name comes from a macro.

    Args:
        unit: the unit that is compiled.
        files: the texts of the unit's source and of the user's files that it includes, by name.
        target: the target that the unit is compiled for.
        version: name and version of the compiler.
        settings: what the toolchain adds to the unit's own options.

    Raises:
        CompileError: the unit reads options from a file.
    """
    options = read_options(unit.options)
    content = {
        "target": target,
        "version": version,
        "settings": list(settings),
        "options": [*options.others, options.standard],
        "defines": list(directives(unit)),
        "entries": list(unit.entries),
        "files": [[name, digest(text)] for name, text in files.items()],
        "linked": [os.path.relpath(source, unit.source.parent) for source in unit.others],
    }
    if unit.libraries is not None:
        content["libraries"] = list(unit.libraries)
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def local_files(unit: Unit) -> dict[str, bytes]:
    """Return the sources and every file of the user that they include, by name, in order of inclusion.

    Names are relative to the source's folder. If an include folder is given by its absolute path, its files are called
    ``<I0>/name``, where 0 is the folder's position among the include folders.

    Raises ``CompileError`` if a file cannot be read.
    """
    return {name: text for name, _, text in _local_files(unit)}


def is_python(unit: Unit) -> bool:
    """Return whether a unit is a Python file, whose text is its binary: a worker runs it."""
    return unit.source.suffix == ".py"


def python_text(unit: Unit) -> bytes:
    """Return the text of a unit that is a Python file; raises ``CompileError`` if it is no readable Python."""
    text = _read_file(unit.source)
    try:
        ast.parse(text, unit.source.name)
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        line = getattr(error, "lineno", None)
        raise CompileError(
            f"{unit.source.name}{f':{line}' if line else ''}: no Python: {getattr(error, 'msg', error)}",
            cure="correct the file",
        ) from error
    return text


def local_names(unit: Unit) -> dict[Path, str]:
    """Return the names that ``local_files`` gives to the files of a unit, by resolved path."""
    return {path.resolve(): name for name, path, _ in _local_files(unit)}


def _local_files(unit: Unit) -> Iterator[tuple[str, Path, bytes]]:
    """Yield the name, path and text of each source and of every file of the user that it includes."""
    base = _HeaderFolder("", unit.source.parent)
    folders = tuple(_include_folders(unit))
    source = _read_file(unit.source)
    yield unit.source.name, unit.source, source
    waiting = [(os.path.relpath(other, unit.source.parent), other) for other in unit.others]
    waiting += _found_in(read_options(unit.options).includes, (base, *folders))
    waiting += _included(source, base, folders)
    # Resolving links costs time, and most sources include no local file.
    seen = {unit.source.resolve()} if waiting else set()
    while waiting:
        name, path = waiting.pop(0)
        if (resolved := path.resolve()) in seen:
            continue
        seen.add(resolved)
        text = _read_file(path)
        yield name, path, text
        own_folder = _HeaderFolder(os.path.dirname(name), path.parent)  # noqa: PTH120 - names are no paths
        waiting += _included(text, own_folder, folders)


def require_same(unit: Unit, before: Mapping[str, bytes]) -> None:
    """Raise ``CompileError`` if a unit's files are no longer as in ``before``: the compiler may have read either text.

    Args:
        unit: the unit that was compiled.
        before: the texts of the unit's files before the compilation, by name.
    """
    now = local_files(unit)
    if changed := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        raise CompileError(
            f"{unit.source.name}: {', '.join(changed)} changed while it was compiled",
            cure="run again once all files are saved",
        )


def _included(text: bytes, own_folder: _HeaderFolder, folders: Sequence[_HeaderFolder]) -> Iterator[tuple[str, Path]]:
    """Yield the user's files that the text of a file in ``own_folder`` includes."""
    for quoted, angled in _INCLUDE.findall(text.decode(errors="replace")):
        yield from _found_in([quoted or angled], (own_folder, *folders) if quoted else folders)


def _include_folders(unit: Unit) -> Iterator[_HeaderFolder]:
    """Yield the unit's include folders, each with a name that contains no path of this machine."""
    options, base = read_options(unit.options), unit.source.parent
    for number, written in enumerate((*options.folders, *options.system_folders)):
        path = base / written
        if not os.path.isabs(written):  # noqa: PTH117 - written is text
            yield _HeaderFolder(written, path)
        elif path.is_relative_to(base.absolute()):
            yield _HeaderFolder(str(path.relative_to(base.absolute())), path)
        else:
            yield _HeaderFolder(f"{_ELSEWHERE}{number}>", path)


def _found_in(names: Sequence[str], folders: Sequence[_HeaderFolder]) -> Iterator[tuple[str, Path]]:
    """Yield each named file, from the first folder that contains it; skip files that do not exist."""
    for name in names:
        if file := next((file for folder in folders if (file := folder.find(name))), None):
            yield file


def _read_file(path: Path) -> bytes:
    """Return the content of a file; raise ``CompileError`` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CompileError(
            f"{path.name} cannot be read: {error.strerror}", cure=f"check that {path} is there and readable"
        ) from error
