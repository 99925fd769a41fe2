"""What stands between a preprocessed .cu file and a host's C++ compiler: pure functions on its text.

The text is C++ already, thanks to ``cuda_on_cpu.h``; four things are left that no macro can do: paths are taken out of
the line markers, what a CPU cannot run is found, ``extern __shared__`` arrays are given memory, entries are registered.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from perfsvc.errors import CompileError, UnsupportedError

_MARKER = re.compile(r'^# (\d+) "((?:[^"\\]|\\.)*)"(.*)$', re.MULTILINE)
_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\w+|<<<|[^\w\s]')
_ATTRIBUTE = r"__attribute__\s*\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)"
_DYNAMIC_SHARED = re.compile(r"\bextern\b([^;{}]*)\bthread_local\b([^;{}]*?)\b(\w+)\s*\[\s*\]((?:\s*\[[^\]]*\])*)\s*;")
_OUR_FOLDER = "cuda_on_cpu"


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the files that line markers name may be."""

    source: Path  # of the user's .cu file
    header: Path  # of cuda_on_cpu.h

    def name(self, path: str) -> str:
        """A file's name that is the same on every machine: relative to one of the two, or bare."""
        if path.startswith("<"):
            return path
        absolute = os.path.normpath(self.source / path)
        if absolute.startswith(f"{self.header}{os.sep}"):
            return f"{_OUR_FOLDER}/{os.path.relpath(absolute, self.header)}"
        if not Path(path).is_absolute() or absolute.startswith(f"{self.source}{os.sep}"):
            return os.path.relpath(absolute, self.source)
        return Path(path).name


def without_paths(text: str, folders: Folders) -> str:
    """The text with every line marker naming its file as all machines would."""
    return _MARKER.sub(lambda marker: f'# {marker[1]} "{folders.name(marker[2])}"{marker[3]}', text)


def users_part(text: str) -> str:
    """The lines that come from the user's files: not from system headers and not from ours."""
    return "".join(_users_pieces(text))


def _users_pieces(text: str) -> Iterator[str]:
    start, users = 0, False
    for marker in _MARKER.finditer(text):
        if users:
            yield text[start : marker.start()]
        start = marker.end()
        system = "3" in marker[3].split()
        users = not system and not marker[2].startswith(("<", f"{_OUR_FOLDER}/"))
    if users:
        yield text[start:]


def refuse_unsupported(text: str) -> None:
    """Raises ``UnsupportedError`` where the user's part of the text has what only a GPU can run."""
    words = _TOKEN.findall(users_part(text))
    for index, word in enumerate(words):
        if word == "<<<":
            raise UnsupportedError("unsupported on cpu: kernel<<<...>>> launches in the source")
        if word in {"asm", "__asm__", "__asm"} and not _is_compiler_barrier(words[index + 1 : index + 6]):
            raise UnsupportedError("unsupported on cpu: inline PTX")


def _is_compiler_barrier(words: Sequence[str]) -> bool:
    """``asm volatile("" ::: "memory")`` says something to the compiler and nothing to the processor."""
    return next((word for word in words if word.startswith('"')), "") == '""'


def entries(text: str) -> tuple[str, ...]:
    """The names of the ``extern "C" __global__`` functions, in the order of the text."""
    words = _TOKEN.findall(users_part(text))
    names: dict[str, None] = {}
    blocks: list[bool] = []  # for each open brace: does it open an extern "C" block
    statement = 0
    for index, word in enumerate(words):
        if word == "{":
            blocks.append(words[index - 2 : index] == ["extern", '"C"'])
        elif word == "}" and blocks:
            blocks.pop()
        if word in {"{", "}", ";"}:
            statement = index + 1
        elif word == '"__global__"' and (any(blocks) or _has_c_linkage(words[statement:index])):
            names[_declared_name(words, index)] = None
    return tuple(names)


def _has_c_linkage(words: Sequence[str]) -> bool:
    return ("extern", '"C"') in pairwise(words)


def _declared_name(words: Sequence[str], index: int) -> str:
    """The identifier before the parameter list of the declaration whose ``__global__`` stands at ``index``."""
    depth = 3  # inside __attribute__ ( ( annotate (
    for here in range(index, len(words)):
        if words[here] == "(":
            if depth == 0 and words[here - 1] != "__attribute__":
                return words[here - 1]
            depth += 1
        elif words[here] == ")":
            depth -= 1
    return ""


def require_entries(text: str, wanted: Sequence[str], source: str) -> None:
    """Raises ``CompileError`` for an entry that the text does not have."""
    there = entries(text)
    for name in wanted:
        if name not in there:
            raise CompileError(
                f"{source}: no entry {name}; it has {', '.join(there) or 'none'}",
                cure=f'declare it extern "C" __global__ void {name}(...), or name one that exists',
            )


def with_dynamic_shared(text: str) -> str:
    """The text with every ``extern __shared__ T name[];`` bound to the worker's dynamic shared memory."""
    return _DYNAMIC_SHARED.sub(_bind, text)


def _bind(declaration: re.Match[str]) -> str:
    kind = re.sub(rf"{_ATTRIBUTE}|\b(?:static|thread_local)\b", " ", declaration[1] + declaration[2])
    kind = " ".join(_MARKER.sub(" ", kind).split())
    name, dimensions = declaration[3], declaration[4]
    lines = "\n" * declaration[0].count("\n")
    memory = f"*reinterpret_cast<{kind} (*)[]{dimensions}>(perfsvc::shared_memory)"
    return f"thread_local {kind} (&{name})[]{dimensions} = {memory};{lines}"


def registrations(wanted: Sequence[str]) -> str:
    """The C++ that makes entries known to the device by name."""
    lines = [
        f'__attribute__((visibility("default"), used)) const perfsvc::Entry* perfsvc_entry_{name}'
        f" = &perfsvc::Caller<&{name}>::entry;"
        for name in wanted
    ]
    return "\n".join(['\n# 1 "entries"', 'extern "C" {', *lines, "}", ""])
