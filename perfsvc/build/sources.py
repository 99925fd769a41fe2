"""What decides a binary: compile options as nvcc reads them, and the files that the compiler reads.

nvcc gets a unit's options unchanged. All other code that has to understand options (the CPU device's toolchain, the
names of files in include folders) reads them here, so that no two toolchains interpret one option differently.
"""

import ast
import contextlib
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from perfsvc.errors import CompileError
from perfsvc.files import checkout_of, file_digest
from perfsvc.model import Unit

_INSTALLED = (f"{sys.prefix}/", f"{Path(__file__).resolve().parents[1]}/")
"""Where headers are installed that are not the user's, even in a checkout: packages of Python, and perfsvc."""

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
_OPTIONS_IN_FILE = re.compile(r"(?:^|[ ,=])@([^ ,]+)")  # -Xcompiler @options.txt
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

    Raises ``CompileError`` if options are in a file: the build cache would not notice a change of this file.
    """
    return _read_options(tuple(words))


@lru_cache  # called several times for each unit, and most units have equal options
def _read_options(words: tuple[str, ...]) -> CompileOptions:
    """Sort the words of an nvcc command line by their purpose; raise ``CompileError`` if options are in a file."""
    options = tuple(_sorted_options(words))

    def values(kind: str) -> tuple[str, ...]:
        return tuple(value for option_kind, value in options if option_kind == kind)

    if files := [*values("file"), *_OPTIONS_IN_FILE.findall(" ".join(values("other")))]:
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

FOLDER_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
"""The environment variables that name folders of headers."""
VARIABLES = (
    *FOLDER_VARIABLES,
    *("COMPILER_PATH", "GCC_EXEC_PREFIX", "INCLUDES", "LIBRARY_PATH"),
    *("NVCC_APPEND_FLAGS", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS"),
)
"""The environment variables that change what a compiler reads or does."""

_ELSEWHERE = "<I"  # starts the names of files in include folders that are known by their number
_CONTINUED = re.compile(r"\\\r?\n")
_SPACE = re.compile(r"(?<!\\)\s+")
_ESCAPED = re.compile(r"\\([ #])|\$(\$)")
_HEADERS = re.compile(r".*?/include(?=/)")


def preimage(unit: Unit, *, target: str, version: str, settings: Sequence[str] = ()) -> bytes:
    """Return everything that decides a binary except the contents of its files, as canonical JSON.

    The folder of the checkout does not count, so that all checkouts share binaries.

    Args:
        unit: the unit that is compiled.
        target: the target that the unit is compiled for.
        version: name and version of the compiler.
        settings: what the toolchain adds to the unit's own options.

    Raises:
        CompileError: the unit reads options from a file.
    """
    read_options(unit.options)
    content = {
        "target": target,
        "version": version,
        "settings": list(settings),
        "source": unit.source.name,
        "options": list(unit.options),
        "defines": list(unit.defines),
        "entries": list(unit.entries),
        "linked": [os.path.relpath(source, unit.source.parent) for source in unit.others],
        "libraries": unit.libraries,
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return text.replace(f"{_root(unit)}/", "<checkout>/").encode()


def variables() -> dict[str, str]:
    """Return the environment variables that are set and change what a compiler reads or does, with their values."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def files_of_rule(unit: Unit, rule: str, temporary: Path | None = None) -> tuple[str, ...]:
    """Return the files in a rule for make that a compiler has written (``-M``): all that it reads for a unit.

    A file in the checkout is named relative to the source's folder, so that all checkouts name it equally, and any
    other file as the compiler names it. The files of the folder ``temporary`` are left out.
    """
    words = _SPACE.split(_CONTINUED.sub(" ", rule.partition(": ")[2]).strip())
    names = [os.path.normpath(_ESCAPED.sub(r"\1\2", word)) for word in words if word]
    kept = (name for name in names if temporary is None or not Path(name).is_relative_to(temporary))
    return tuple(dict.fromkeys(_in_checkout(unit, name) for name in kept))


def _in_checkout(unit: Unit, path: str) -> str:
    """Return a path; relative to the source's folder if it lies in the checkout, and is no installed header."""
    is_own = path.startswith(f"{_root(unit)}/") and not path.startswith(_INSTALLED)
    return os.path.relpath(path, unit.source.absolute().parent) if is_own else path


def _root(unit: Unit) -> Path:
    """Return the top folder of a unit's checkout; outside every checkout, the folder of its source."""
    folder = unit.source.absolute().parent
    return checkout_of(folder) or folder


def state_of(unit: Unit, files: Sequence[str]) -> dict[str, str]:
    """Return the digest of each file that a compiler reads for a unit; empty for a file that cannot be read.

    A compiler takes a header from the first folder that has it. So a file that is called like one of the files counts
    too if it lies in a folder where the compiler may look first: otherwise a new file there would go unnoticed.
    """
    folder = unit.source.absolute().parent
    names = dict.fromkeys(files)
    folders = [*include_folders(unit), *(str(Path(name).parent) for name in files if not Path(name).is_absolute())]
    folders += [name for variable in FOLDER_VARIABLES for name in os.environ.get(variable, "").split(os.pathsep)]
    endings = _endings(tuple(files))
    for searched in dict.fromkeys(map(os.path.normpath, folders)):
        with contextlib.suppress(OSError):
            for entry in endings.keys() & {path.name for path in (folder / searched).iterdir()}:
                paths = (os.path.normpath(f"{searched}/{ending}") for ending in endings[entry])
                names |= dict.fromkeys(path for path in paths if (folder / path).is_file())
    return {name: file_digest(folder / name) for name in names}


def require_same(unit: Unit, files: Sequence[str], before: Mapping[str, str]) -> None:
    """Raise ``CompileError`` if a file of a unit has changed: the compiler may have read either content.

    Args:
        unit: the unit that was compiled.
        files: the files that the compiler reads.
        before: their digests before the compilation (``state_of``).
    """
    now = state_of(unit, files)
    if changed := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        raise CompileError(
            f"{unit.source.name}: {', '.join(changed)} changed while it was compiled",
            cure="run again once all files are saved",
        )


@lru_cache
def _endings(files: tuple[str, ...]) -> dict[str, set[str]]:
    """Return the names under which the files may be included, ``c.h`` and ``b/c.h`` of ``/a/b/c.h``, by first part."""
    endings: dict[str, set[str]] = defaultdict(set)
    for file in files:
        parts = [part for part in Path(file).parts if part not in {"/", ".."}]
        for start, first in enumerate(parts):
            endings[first].add("/".join(parts[start:]))
    return endings


def user_files(unit: Unit, files: Iterable[str]) -> dict[str, Path]:
    """Return the files of the user among those that a compiler reads for a unit, by name.

    These are the files of the checkout and of the unit's include folders. A name is relative to the source's folder. If
    a folder elsewhere is given by its absolute path, its files are called ``<I0>/name``, where 0 is the folder's
    position among the include folders.
    """
    return {label: unit.source.parent / name for name in files if (label := _label(unit, name))}


def texts(unit: Unit, files: Iterable[str]) -> dict[str, bytes]:
    """Return the texts of ``user_files`` by name; raises ``CompileError`` if a file cannot be read."""
    return {name: read_file(path) for name, path in user_files(unit, files).items()}


def user_path(unit: Unit, label: str) -> Path:
    """Return the path of a file that ``user_files`` has named."""
    number, _, name = label.removeprefix(_ELSEWHERE).partition(">/")
    folder = Path(include_folders(unit)[int(number)], name) if label.startswith(_ELSEWHERE) else Path(label)
    return unit.source.parent / folder


def built_with(unit: Unit, state: Mapping[str, str]) -> dict[str, bytes]:
    """Return what a binary depends on besides the user's files: variables of the environment, and other headers.

    ``state`` has the digests of all its files.
    """
    headers: dict[str, list[str]] = defaultdict(list)
    for name, sha256 in state.items():
        if not _label(unit, name):
            folder = _HEADERS.match(name)
            headers[folder[0] if folder else str(Path(name).parent)].append(f"{name} {sha256}")
    lists = {f"headers in {name}": "\n".join(sorted(found)) for name, found in sorted(headers.items())}
    return {name: text.encode() for name, text in {**variables(), **lists}.items()}


def _label(unit: Unit, name: str) -> str:
    """Return the name of a user's file; empty for a file of the toolkit or the system."""
    if not Path(name).is_absolute():
        return name
    for number, folder in enumerate(include_folders(unit)):
        if Path(folder).is_absolute() and Path(name).is_relative_to(folder):
            return f"{_ELSEWHERE}{number}>/{os.path.relpath(name, folder)}"
    return ""


def include_folders(unit: Unit) -> tuple[str, ...]:
    """Return the include folders that a unit's options name; those in the checkout relative to the source's folder."""
    options = read_options(unit.options)
    return tuple(_in_checkout(unit, name) for name in (*options.folders, *options.system_folders))


def is_python(unit: Unit) -> bool:
    """Return whether a unit is a Python file, whose text is its binary: a worker runs it."""
    return unit.source.suffix == ".py"


def python_text(unit: Unit) -> bytes:
    """Return the text of a unit that is a Python file; raises ``CompileError`` if it is no readable Python."""
    text = read_file(unit.source)
    try:
        ast.parse(text, unit.source.name)
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        line = getattr(error, "lineno", None)
        raise CompileError(
            f"{unit.source.name}{f':{line}' if line else ''}: no Python: {getattr(error, 'msg', error)}",
            cure="correct the file",
        ) from error
    return text


def read_file(path: Path) -> bytes:
    """Return the content of a file; raise ``CompileError`` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CompileError(
            f"{path.name} cannot be read: {error.strerror}", cure=f"check that {path} is there and readable"
        ) from error
