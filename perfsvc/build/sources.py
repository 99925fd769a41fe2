"""What a unit is made of: its source and the files it includes, told apart from the compiler's own headers."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfsvc.errors import CompileError
from perfsvc.model import Unit, digest

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
_INCLUDE_FOLDER = re.compile(r"(?:-I|--include-path[= ]|-isystem[= ]?)(.*)", re.DOTALL)
_FORCED_INCLUDE = re.compile(r"(?:-include[= ]|--pre-include[= ])(.*)", re.DOTALL)


def preimage(unit: Unit, *, target: str, version: str, settings: Sequence[str] = ()) -> bytes:
    """Everything that decides a binary, as canonical JSON without any path of this machine.

    Files are known by the name they are included under and by their content. A header that is found neither beside
    the file that includes it nor in a ``-I`` folder is the toolkit's or the system's, for which the version stands;
    so is one whose name a macro makes.

    Args:
        unit: what is compiled.
        target: what it is compiled for.
        version: name and version of the compiler.
        settings: what the toolchain adds to the unit's own options.

    Raises:
        CompileError: the source or an include cannot be read.
    """
    options = [option for option in _joined(unit.options) if not _INCLUDE_FOLDER.fullmatch(option)]
    content = {
        "target": target,
        "version": version,
        "settings": list(settings),
        "options": options,
        "defines": [[name, str(value)] for name, value in unit.defines],
        "entries": list(unit.entries),
        "files": [[name, digest(text)] for name, text in local_files(unit)],
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def local_files(unit: Unit) -> Iterator[tuple[str, bytes]]:
    """The source and every file of ours that it includes: the name it goes by and its content, in order of inclusion.

    Raises ``CompileError`` where one cannot be read.
    """
    options = _joined(unit.options)
    base = unit.source.parent
    folders = [base / found[1].strip() for option in options if (found := _INCLUDE_FOLDER.fullmatch(option))]
    forced = [found[1].strip() for option in options if (found := _FORCED_INCLUDE.fullmatch(option))]
    waiting = [(unit.source.name, unit.source)]
    waiting += [(name, path) for name in forced if (path := _resolve(name, [base, *folders]))]
    seen: set[Path] = set()
    while waiting:
        name, path = waiting.pop(0)
        if (resolved := path.resolve()) in seen:
            continue
        seen.add(resolved)
        text = _read(path)
        yield name, text
        for quoted, angled in _INCLUDE.findall(text.decode(errors="replace")):
            if included := _resolve(quoted or angled, [path.parent, *folders] if quoted else folders):
                waiting.append((quoted or angled, included))


def _joined(options: Sequence[str]) -> list[str]:
    """Options with those that stand before their value joined to it: ``-I folder`` is one option."""
    joined: list[str] = []
    for option in options:
        if joined and joined[-1] in {"-I", "--include-path", "-isystem", "-include", "--pre-include"}:
            joined[-1] += f" {option}"
        else:
            joined.append(option)
    return joined


def _resolve(name: str, folders: Sequence[Path]) -> Path | None:
    return next((path for folder in folders if (path := folder / name).is_file()), None)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CompileError(
            f"{path.name} cannot be read: {error.strerror}", cure=f"check that {path} is there and readable"
        ) from error
