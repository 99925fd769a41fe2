"""Find and read ``perfsvc.toml``, with the line of each key."""

import contextlib
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsvc.errors import ConfigError

NAME = "perfsvc.toml"
VARIABLE = "PERFSVC_CONFIG"

KeyPath = tuple[str | int, ...]
"""The path of a value in the parsed file: keys, and indices of array elements."""

_POSITION = re.compile(r" \(at (?:line (?P<line>\d+), column \d+|end of document)\)$")
_DUPLICATE = ("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate inline table key")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file that was read; without a path, an empty one."""

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[KeyPath, int] = field(default_factory=dict)


def find(requested: Path | None = None) -> Path | None:
    """Return the path of the configuration file to use; None if there is no file.

    The order is: the requested file, the file that ``PERFSVC_CONFIG`` names, ``perfsvc.toml`` in the current folder or
    in the nearest parent. ``/dev/null`` means no file. The search ends at the top of a git repository.

    Raises:
        ConfigError: the nearest file belongs to another user, who could choose the code that perfsvc runs here.
    """
    named = requested or Path(os.environ.get(VARIABLE, ""))
    if named != Path():
        return None if named == Path(os.devnull) else named
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the folder was removed
        return None
    for folder in (here, *here.parents):
        path = folder / NAME
        # A link to a missing file counts: without its settings, commands would measure and judge something else.
        if os.path.lexists(path):  # False, not an error, if the folder may not be read
            return Path(NAME) if folder == here else _require_own(path)
        if (folder / ".git").exists():
            break
    return None


def _require_own(path: Path) -> Path:
    """Return the path of a file that this user or root owns; raise ``ConfigError`` for another user's file or link.

    This also holds for root: in a folder such as /tmp, every user could choose the suite that root executes.
    """
    owners = {path.lstat().st_uid}
    with contextlib.suppress(OSError):  # reading the file will report why
        owners.add(path.stat().st_uid)
    if owners <= {os.getuid(), 0}:
        return path
    cure = f"if you trust it, name it: --config {path}; to use no file: --config {os.devnull}"
    raise ConfigError("it belongs to another user, and no option names it", path=str(path), cure=cure)


def read(path: Path | None) -> ConfigFile:
    """Read and parse a configuration file.

    Raises:
        ConfigError: the file cannot be read, is not UTF-8, or is not TOML.
    """
    if path is None:
        return ConfigFile()
    text = _text(path)
    try:
        return ConfigFile(path, tomllib.loads(text), lines_of(text))
    except RecursionError:
        raise ConfigError("its arrays are nested too deeply", path=str(path), cure="write flat arrays") from None
    except ValueError as error:
        raise _not_toml(str(error), text, path) from None


def _text(path: Path) -> str:
    """Return the text of a file with Unix line ends; raise ``ConfigError`` if it cannot be read or is not UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        cure = "check that it exists and that you may read it, or create one: perfsvc init"
        raise ConfigError(f"cannot be read: {error.strerror}", path=str(path), cure=cure) from None
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        what = "it is not written in UTF-8, as TOML has to be"
        raise ConfigError(what, path=str(path), line=line, cure="save the file as UTF-8") from None


def _not_toml(message: str, text: str, path: Path) -> ConfigError:
    """Return a ``ConfigError`` for a message of ``tomllib``; if a key occurs twice, the error names the first line.

    Args:
        message: the message, which may end with a position.
        text: the text of the file.
        path: the file.
    """
    position = _POSITION.search(message)
    what = message[: position.start()] if position else message
    rows = text.split("\n")
    line = (int(position["line"]) if position["line"] else len(rows)) if position else 0
    if not what.startswith(_DUPLICATE):
        what = f"it is not TOML: {what[:1].lower()}{what[1:]}"
        return ConfigError(what, path=str(path), line=line, cure=_cure(rows, line))
    *earlier, (line, duplicate) = _statements("\n".join(rows[:line]))
    first = {key: number for _, lines in reversed(earlier) for key, number in lines.items()}
    number = next((first[key] for key in reversed(duplicate) if key in first and isinstance(key[-1], str)), 0)
    where = f" on line {number}" if number else ""
    what = f"{rows[line - 1].partition('=')[0].strip()} exists already{where}"
    return ConfigError(what, path=str(path), line=line, cure="keep one of the two")


def _cure(rows: list[str], line: int) -> str:
    """Return the cure for a line that is not TOML; ``rows`` are the lines of the file."""
    row = rows[line - 1].strip() if 0 < line <= len(rows) else ""
    if re.fullmatch(r"[\w.-]+\s*=\s*[A-Za-z_./][^\"']*", row):
        return "write text between quotes"
    return "write key = value, and text between quotes"


def lines_of(text: str) -> dict[KeyPath, int]:
    """Return the line, counted from 1, of each key, table and array element of a TOML file."""
    lines: dict[KeyPath, int] = {}
    for _, statement_lines in _statements(text):
        lines = statement_lines | lines  # an array of tables has the line of its first table
    return lines


def _statements(text: str) -> Iterator[tuple[int, dict[KeyPath, int]]]:
    """Yield for each statement of a TOML text its first line, and the line of each value that it sets.

    ``tomllib`` reports no positions, so each statement is parsed alone. A statement that does not parse continues in
    the next line. An unfinished array is also parsed line by line, to learn the lines of its elements. An element of
    several lines gets its first line. Elements that were parsed once are cut off, so that the time grows with the
    length of an array and not with its square. An invalid last statement is yielded too.
    """
    table: KeyPath = ()
    tables: Counter[KeyPath] = Counter()
    statement, first, element, lines = "", 0, 0, dict[KeyPath, int]()
    array: KeyPath = ()
    cut = 0
    for number, row in enumerate(text.split("\n"), start=1):
        if not statement:
            first, element, lines = number, 0, {}
            array, cut = (), 0
        statement += f"{row}\n"
        complete = _parsed(statement)
        if complete and row.lstrip().startswith("[") and first == number:
            table, lines = _header(complete, tables, number)
        else:
            element = element or number
            values = complete if complete is not None else _parsed(f"{statement}]")
            for key in _key_paths(values or {}):
                path = _uncut(key, array, cut) if array else key
                inside_array = any(isinstance(part, int) for part in path)
                lines.setdefault((*table, *path), element if inside_array else first)
            element = element if values is None else 0
            if complete is None and values is not None:
                path, elements = _array_in(values)
                array = array or path
                ends_with_comma = _parsed(f"{statement}0]") is not None
                statement = "array = [" if ends_with_comma else "array = [0\n"
                cut += elements if ends_with_comma else elements - 1
        if complete is not None:
            statement = ""
            if lines:
                yield first, lines
    if statement:
        yield first, lines


def _array_in(parsed: dict[str, Any]) -> tuple[KeyPath, int]:
    """Return the path of a parsed statement whose value is an array, and the number of elements of the array."""
    path: KeyPath = ()
    value: Any = parsed
    while isinstance(value, dict):
        ((key, value),) = value.items()
        path = (*path, key)
    return path, len(value)


def _uncut(key: KeyPath, array: KeyPath, cut: int) -> KeyPath:
    """Return the path of a value in the file; ``key`` is its path after the array's first elements were cut off."""
    return (*array, *(int(index) + cut for index in key[1:2]), *key[2:])


def _parsed(statement: str) -> dict[str, Any] | None:
    """Return the values of a TOML text; None if the text is not valid TOML."""
    try:
        return tomllib.loads(statement)
    except ValueError:
        return None


def _header(parsed: dict[str, Any], tables: Counter[KeyPath], line: int) -> tuple[KeyPath, dict[KeyPath, int]]:
    """Return the path of a ``[table]`` or ``[[array of tables]]``, and the line of each table along that path."""
    path: KeyPath = ()
    lines: dict[KeyPath, int] = {}
    value: Any = parsed
    while value:
        ((key, value),) = value.items()
        path = (*path, key)
        lines[path] = line
        if isinstance(value, list):
            tables[path] += 1
            value = {}
        if path in tables:
            path = (*path, tables[path] - 1)
            lines[path] = line
    return path, lines


def _key_paths(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of every value nested in a parsed table or array, tables and arrays included."""
    children: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, child in children:
        yield (*path, part)
        yield from _key_paths(child, (*path, part))
