"""Rewrite the text of a preprocessed .cu file for a C++ compiler of the host.

The macros of ``cuda_on_cpu.h`` have made the text C++. This module does four things that no macro can do: remove paths
from line markers, refuse code that a CPU cannot run, give memory to ``extern __shared__`` arrays, and register entries.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from perfsvc.build import names
from perfsvc.entries import is_plain, key
from perfsvc.errors import UnsupportedError
from perfsvc.model import Unit

_MARKER = re.compile(r'^# (\d+) "((?:[^"\\]|\\.)*)"(.*)$', re.MULTILINE)
_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\w+|<<<|[^\w\s]')
_ATTRIBUTE = r"__attribute__\s*\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)"
_DYNAMIC_SHARED = re.compile(r"\bextern\b([^;{}]*)\bthread_local\b([^;{}]*?)\b(\w+)\s*\[\s*\]((?:\s*\[[^\]]*\])*)\s*;")
_OUR_FOLDER = "cuda_on_cpu"


@dataclass(frozen=True, slots=True)
class Folders:
    """The two folders of the files that line markers name."""

    source: Path  # of the user's .cu file
    header: Path  # of cuda_on_cpu.h

    def name(self, path: str) -> str:
        """Return a file's name, equal on every machine: relative to ``source`` or ``header``, else the bare name.

        Args:
            path: the path of a file in a line marker, absolute or relative to ``source``.
        """
        if path.startswith("<"):
            return path
        absolute = os.path.normpath(self.source / path)
        if absolute.startswith(f"{self.header}{os.sep}"):
            return f"{_OUR_FOLDER}/{os.path.relpath(absolute, self.header)}"
        if not Path(path).is_absolute() or absolute.startswith(f"{self.source}{os.sep}"):
            return os.path.relpath(absolute, self.source)
        return Path(path).name


def without_paths(text: str, folders: Folders) -> str:
    """Return the text with the same file names in its line markers on every machine."""
    return _MARKER.sub(lambda marker: f'# {marker[1]} "{folders.name(marker[2])}"{marker[3]}', text)


def users_part(text: str) -> str:
    """Return the lines that come from the user's files, not from headers of the system or of perfsvc."""
    return "".join(_users_pieces(text))


def _users_pieces(text: str) -> Iterator[str]:
    """Split a preprocessed text at its line markers, and yield the pieces that come from the user's files."""
    start, is_users = 0, False
    for marker in _MARKER.finditer(text):
        if is_users:
            yield text[start : marker.start()]
        start = marker.end()
        is_system_header = "3" in marker[3].split()  # GCC's flag 3 in a line marker
        is_users = not is_system_header and not marker[2].startswith(("<", f"{_OUR_FOLDER}/"))
    if is_users:
        yield text[start:]


def refuse_unsupported(text: str) -> None:
    """Raise ``UnsupportedError`` if the user's part of the text contains code that only a GPU can run."""
    words = _TOKEN.findall(users_part(text))
    for index, word in enumerate(words):
        if word == "<<<":
            raise UnsupportedError("unsupported on cpu: kernel<<<...>>> launches in the source")
        if word in {"asm", "__asm__", "__asm"} and not _is_compiler_barrier(words[index + 1 : index + 6]):
            raise UnsupportedError("unsupported on cpu: inline PTX")


def _is_compiler_barrier(words: Sequence[str]) -> bool:
    """Return whether an asm statement is empty, like ``asm volatile("" ::: "memory")``: only the compiler reads it."""
    return next((word for word in words if word.startswith('"')), "") == '""'


def entries(text: str) -> tuple[str, ...]:
    """Return the names of the ``extern "C" __global__`` functions, in the order of the text."""
    return tuple(dict.fromkeys(name for name, is_c in _declared(text) if is_c))


def _declared(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the name of each ``__global__`` function of the user, and whether it is ``extern "C"``."""
    words = _TOKEN.findall(users_part(text))
    blocks: list[bool] = []  # for each open brace: whether it opens an extern "C" block
    statement = 0
    for index, word in enumerate(words):
        if word == "{":
            blocks.append(words[index - 2 : index] == ["extern", '"C"'])
        elif word == "}" and blocks:
            blocks.pop()
        if word in {"{", "}", ";"}:
            statement = index + 1
        elif word == '"__global__"':
            yield _declared_name(words, index), any(blocks) or _has_c_linkage(words[statement:index])


def _has_c_linkage(words: Sequence[str]) -> bool:
    return ("extern", '"C"') in pairwise(words)


def _declared_name(words: Sequence[str], index: int) -> str:
    """Return the name of the function that is declared with the ``__global__`` at ``index`` in the words."""
    depth = 3  # inside __attribute__ ( ( annotate (
    for position in range(index, len(words)):
        if words[position] == "(":
            if depth == 0 and words[position - 1] != "__attribute__":
                return words[position - 1]
            depth += 1
        elif words[position] == ")":
            depth -= 1
    return ""


def require_entries(text: str, unit: Unit, texts: names.Texts) -> None:
    """Raise ``CompileError`` if the text lacks a kernel that the unit names plainly; the compiler finds all others."""
    present = {name for name, _ in _declared(text)}
    for name in unit.entries:
        if is_plain(name) and name not in present:
            raise names.unknown(unit, name, names.declared(texts(unit).values()))


def with_dynamic_shared(text: str) -> str:
    """Return the text with every ``extern __shared__ T name[];`` bound to the worker's dynamic shared memory."""
    return _DYNAMIC_SHARED.sub(_bind, text)


def _bind(declaration: re.Match[str]) -> str:
    """Return the C++ code that replaces an ``extern __shared__`` declaration, with as many lines as the declaration."""
    kind = re.sub(rf"{_ATTRIBUTE}|\b(?:static|thread_local)\b", " ", declaration[1] + declaration[2])
    kind = " ".join(_MARKER.sub(" ", kind).split())
    name, dimensions = declaration[3], declaration[4]
    lines = "\n" * declaration[0].count("\n")
    memory = f"*reinterpret_cast<{kind} (*)[]{dimensions}>(perfsvc::shared_memory)"
    return f"thread_local {kind} (&{name})[]{dimensions} = {memory};{lines}"


def registrations(wanted: Sequence[str]) -> str:
    """Return C++ code that exports kernels by their names, so that the device finds them."""
    lines = [
        f'{names.marker(name)}\nextern "C" __attribute__((visibility("default"), used)) const perfsvc::Entry* '
        f"perfsvc_entry_{key(name)} = &perfsvc::Caller<&{name}>::entry;"
        for name in wanted
    ]
    return "\n".join(["", *lines, ""])
