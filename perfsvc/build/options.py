"""Compile options, read once for every toolchain: as nvcc reads them.

nvcc is given a unit's options as they are. All else that has to understand them (what the CPU device's compiler is
told, which files decide a binary) asks here, so that no two toolchains can take one option for two things.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from perfsvc.errors import CompileError
from perfsvc.model import Unit

_NAMES = {
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
_TAKES_ANOTHERS_OPTION = re.compile(r"-X\w+|--[a-z]+-options")  # -Xcompiler -Wall, --ptxas-options -v
_COMMA = re.compile(r"(?<!\\),")


@dataclass(frozen=True, slots=True)
class Options:
    """What a unit's options say, by what it is for.

    ``directives`` are the ``#define`` and ``#undef`` lines of ``-D`` and ``-U``, in order. ``folders`` are those of
    ``-I``, ``system_folders`` those of ``-isystem``, ``includes`` the files of ``-include``; ``standard`` is the last
    ``-std`` (``c++20``), empty where there is none. ``others`` are the words that are none of these.
    """

    directives: tuple[str, ...]
    folders: tuple[str, ...]
    system_folders: tuple[str, ...]
    includes: tuple[str, ...]
    standard: str
    others: tuple[str, ...]


def read(options: Sequence[str]) -> Options:
    """Sorts options; each is a word of nvcc's command line: ``-Idir``, ``-I=dir`` or ``-I`` and then ``dir``.

    Raises ``CompileError`` for a file of options, whose content would decide a binary unseen.
    """
    return _read(tuple(options))


@lru_cache  # asked for several times of each unit, and most units have the same
def _read(options: tuple[str, ...]) -> Options:
    pairs = tuple(_pairs(options))

    def values(kind: str) -> tuple[str, ...]:
        return tuple(value for found, value in pairs if found == kind)

    if files := values("file"):
        raise CompileError(
            f"options are not read from a file ({files[0]})", cure="write them into the options of the variant"
        )
    return Options(
        directives=tuple(_directive(kind, macro) for kind, macro in pairs if kind in {"define", "undefine"}),
        folders=values("folder"),
        system_folders=values("system folder"),
        includes=values("include"),
        standard=next(reversed(values("standard")), ""),
        others=values("other"),
    )


def directives(unit: Unit) -> tuple[str, ...]:
    """A unit's options and parameters as ``#define`` and ``#undef`` lines, in the order in which they hold."""
    return (*read(unit.options).directives, *(f"#define {name} {value}" for name, value in unit.defines))


def definitions(unit: Unit) -> tuple[str, ...]:
    """A unit's parameters as nvcc's ``-D`` options; as it stands, a comma would begin another definition."""
    values = {name: str(value).replace(",", "\\,") for name, value in unit.defines}
    return tuple(f"-D{name}={value}" for name, value in values.items())


def _pairs(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What each option is, and its value or values one by one; for ``other`` the word itself."""
    words = iter(options)
    for word in words:
        name, equals, value = word.partition("=")
        joined = _JOINED.fullmatch(word)
        if name in _NAMES:
            yield from _values(_NAMES[name], value if equals else next(words, ""))
        elif joined:
            yield from _values(_NAMES[joined[1]], joined[2])
        else:
            yield "other", word
            if _TAKES_ANOTHERS_OPTION.fullmatch(word):
                yield "other", next(words, "")


def _values(kind: str, text: str) -> Iterator[tuple[str, str]]:
    for value in _COMMA.split(text):
        yield kind, value.replace("\\,", ",")


def _directive(kind: str, macro: str) -> str:
    name, equals, value = macro.partition("=")
    return f"#undef {name}" if kind == "undefine" else f"#define {name} {value if equals else 1}"
