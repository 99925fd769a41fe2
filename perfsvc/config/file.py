"""``perfsvc.toml``: where it is found, and what it says on which line."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsvc.config.lines import Place, lines_of
from perfsvc.errors import ConfigError

NAME = "perfsvc.toml"
VARIABLE = "PERFSVC_CONFIG"
_AT = re.compile(r" \(at (?:line (?P<line>\d+), column \d+|end of document)\)$")
_TWICE = ("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate inline table key")


@dataclass(frozen=True, slots=True)
class File:
    """A file that was read; none has no path and says nothing."""

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[Place, int] = field(default_factory=dict)


def find(asked: Path | None = None) -> Path | None:
    """The file that is in force: the one asked for, ``PERFSVC_CONFIG``, the one here, or the nearest in a parent.

    ``/dev/null`` asks for none. The search ends at the top of a git repository.

    Raises:
        ConfigError: the nearest one is another user's, who would decide whose code is run here.
    """
    named = asked or Path(os.environ.get(VARIABLE, ""))
    if named != Path():
        return None if named == Path(os.devnull) else named
    try:
        here = Path.cwd()
    except FileNotFoundError:  # somebody removed it
        return None
    for folder in (here, *here.parents):
        path = folder / NAME
        if os.path.exists(path):  # noqa: PTH110 - what may not be looked at is not there
            return Path(NAME) if folder == here else _trusted(path)
        if (folder / ".git").exists():
            break
    return None


def _trusted(path: Path) -> Path:
    if path.stat().st_uid in {os.getuid(), 0} or os.getuid() == 0:
        return path
    cure = f"if you trust it, name it: --config {path}; --config {os.devnull} does without any"
    raise ConfigError("it belongs to another user, and was not asked for", path=str(path), cure=cure)


def read(path: Path | None) -> File:
    """What a file says.

    Raises:
        ConfigError: it cannot be read, is no UTF-8, or is no TOML.
    """
    if path is None:
        return File()
    text = _text(path)
    try:
        return File(path, tomllib.loads(text), lines_of(text))
    except RecursionError:
        raise ConfigError("its arrays lie too deep in one another", path=str(path), cure="write flat ones") from None
    except ValueError as error:
        raise _malformed(str(error), text, path) from None


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        cure = "see that it exists and that you may read it, or make one: perfsvc init"
        raise ConfigError(f"cannot be read: {error.strerror}", path=str(path), cure=cure) from None
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        cure = "save the file as UTF-8"
        raise ConfigError(
            "it is not written in UTF-8, as TOML has to be", path=str(path), line=line, cure=cure
        ) from None


def _malformed(message: str, text: str, path: Path) -> ConfigError:
    """What ``tomllib`` says, with the line, and for a key that is there twice with the line of the first."""
    found = _AT.search(message)
    what = message[: found.start()] if found else message
    rows = text.split("\n")
    line = (int(found["line"]) if found["line"] else len(rows)) if found else 0
    if not what.startswith(_TWICE):
        return ConfigError(f"it is no TOML: {_lowered(what)}", path=str(path), line=line, cure=_cure(rows, line))
    first = _first(rows, line)
    where = f" on line {first}" if first else ""
    what = f"{rows[line - 1].partition('=')[0].strip()} is there already{where}"
    return ConfigError(what, path=str(path), line=line, cure="keep one of the two")


def _first(rows: list[str], line: int) -> int:
    """The line of what the statement on another line says again; 0 where it cannot be told."""
    before, upto = (lines_of("\n".join(rows[:end])) for end in (line - 1, line))
    mark = lines_of(f"{_last_header(rows, line)}\n{rows[line - 1]}")
    known = [before[place] for place in reversed(list(mark)) if place in before and upto[place] != line]
    return known[0] if known else 0


def _last_header(rows: list[str], line: int) -> str:
    """The header of the table that a line is in; empty at the top, and where the line is a header itself."""
    if rows[line - 1].lstrip().startswith("["):
        return ""
    return next((row for row in reversed(rows[: line - 1]) if row.lstrip().startswith("[")), "")


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _cure(rows: list[str], line: int) -> str:
    row = rows[line - 1].strip() if 0 < line <= len(rows) else ""
    if re.fullmatch(r"[\w.-]+\s*=\s*[A-Za-z_./][^\"']*", row):
        return "write text between quotes"
    return "write key = value, and text between quotes"
