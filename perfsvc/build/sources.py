"""What a unit is made of: its source and the files it includes, told apart from the compiler's own headers."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsvc.build import options
from perfsvc.errors import CompileError
from perfsvc.model import Unit, digest

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
_ELSEWHERE = "<I"  # begins the names of files in folders that are known by their number


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder of headers, and its name from the source's folder as every machine would call it."""

    name: str
    path: Path

    def find(self, included: str) -> tuple[str, Path] | None:
        path = self.path / included
        return (self._named(included), path) if path.is_file() else None

    def _named(self, included: str) -> str:
        joined = os.path.join(self.name, included)  # noqa: PTH118 - names are no paths of this machine
        return joined if joined.startswith(_ELSEWHERE) else os.path.normpath(joined)


def preimage(
    unit: Unit, files: Mapping[str, bytes], *, target: str, version: str, settings: Sequence[str] = ()
) -> bytes:
    """Everything that decides a binary, as canonical JSON without any path of this machine.

    Files are known by name and content. A header that is found neither beside the file that includes it nor in an
    include folder is the toolkit's or the system's, for which the version stands; so is one whose name a macro makes.

    Args:
        unit: what is compiled.
        files: its ``local_files``.
        target: what it is compiled for.
        version: name and version of the compiler.
        settings: what the toolchain adds to the unit's own options.

    Raises:
        CompileError: options are to be read from a file.
    """
    read = options.read(unit.options)
    content = {
        "target": target,
        "version": version,
        "settings": list(settings),
        "options": [*read.others, read.standard],
        "defines": list(options.directives(unit)),
        "entries": list(unit.entries),
        "files": [[name, digest(text)] for name, text in files.items()],
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def local_files(unit: Unit) -> dict[str, bytes]:
    """The source and every file of ours that it includes, in order of inclusion.

    Names are relative to the source's folder; files in an include folder elsewhere, given by its absolute path, are
    ``<I0>/name``, with the folder's place among the include folders.

    Raises ``CompileError`` where one cannot be read.
    """
    base = _Folder("", unit.source.parent)
    folders = tuple(_include_folders(unit))
    files = {unit.source.name: _read(unit.source)}
    waiting = [*_found(options.read(unit.options).includes, (base, *folders))]
    waiting += _included(files[unit.source.name], base, folders)
    # Links are followed only where there is something to tell apart: most sources stand alone.
    seen = {unit.source.resolve()} if waiting else set()
    while waiting:
        name, path = waiting.pop(0)
        if (resolved := path.resolve()) in seen:
            continue
        seen.add(resolved)
        files[name] = _read(path)
        beside = _Folder(os.path.dirname(name), path.parent)  # noqa: PTH120 - names are no paths of this machine
        waiting += _included(files[name], beside, folders)
    return files


def require_same(unit: Unit, before: Mapping[str, bytes]) -> None:
    """Raises ``CompileError`` where a unit's files are others than before: what was made meanwhile may be of either."""
    now = local_files(unit)
    if changed := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        raise CompileError(
            f"{unit.source.name}: {', '.join(changed)} changed while it was compiled", cure="run again once it is saved"
        )


def _included(text: bytes, beside: _Folder, folders: Sequence[_Folder]) -> Iterator[tuple[str, Path]]:
    """The files of ours that a text includes, which lies beside others in its folder."""
    for quoted, angled in _INCLUDE.findall(text.decode(errors="replace")):
        yield from _found([quoted or angled], (beside, *folders) if quoted else folders)


def _include_folders(unit: Unit) -> Iterator[_Folder]:
    read, base = options.read(unit.options), unit.source.parent
    for number, written in enumerate((*read.folders, *read.system_folders)):
        path = base / written
        if not os.path.isabs(written):  # noqa: PTH117 - written is text
            yield _Folder(written, path)
        elif path.is_relative_to(base.absolute()):
            yield _Folder(str(path.relative_to(base.absolute())), path)
        else:
            yield _Folder(f"{_ELSEWHERE}{number}>", path)


def _found(names: Sequence[str], folders: Sequence[_Folder]) -> Iterator[tuple[str, Path]]:
    """Each of the names that lies in one of the folders, from the first that has it."""
    for name in names:
        if found := next((found for folder in folders if (found := folder.find(name))), None):
            yield found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CompileError(
            f"{path.name} cannot be read: {error.strerror}", cure=f"check that {path} is there and readable"
        ) from error
