"""Reduce what is large to what a person can review: pages to text and links, frames to rows, a database to its rows."""

import csv
import hashlib
import io
import json
import re
import sqlite3
import struct
import zlib
from collections import Counter
from collections.abc import Iterable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

CLOCKED = {"wall_s", "check_s", "sampling_s", "pid", "process_start", "python_version", "packages", "signatures"}
CLOCKED |= {"cpu", "perfsvc_version"}
"""Columns whose values depend on the machine; they are shown as set or empty."""

# --- pages -----------------------------------------------------------------------------------------------------------

BLOCKS = {"article", "aside", "dd", "div", "dt", "footer", "form", "header", "li", "main", "nav", "ol", "option"}
BLOCKS |= {"p", "pre", "section", "select", "table", "tr", "ul", "label", "summary", "details", "caption"}
BLOCKS |= {f"h{level}" for level in range(1, 7)}
SPOKEN = ("aria-label", "title", "alt", "placeholder", "value", "datetime", "action")
"""The attributes of elements that people read or that decide what a form does."""


class _Page(HTMLParser):
    """Collects the text, the links and the data of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._silent = ""
        self._data = False
        self._links: list[str] = []
        self._cells = 0  # of tables, around the present place: what is in a cell stays in one line

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._data = tag == "script" and given.get("type") == "application/json"
        if tag in {"style", "script"}:
            self._silent = tag
        if tag in BLOCKS:
            self._end_line(f"{'#' * int(tag[1])} " if tag[0] == "h" and tag[1:].isdigit() else "")
        if tag in {"td", "th"}:
            self.parts.append(" | ")
            self._cells += 1
        if tag == "a":
            self._links.append(given.get("href") or "")
        if tag in {"del", "s"}:
            self.parts.append("~~")
        self.parts += [f" {{{name} {given[name]}}} " for name in SPOKEN if given.get(name)]

    def handle_endtag(self, tag: str) -> None:
        if tag == self._silent:
            self._silent, self._data = "", False
        if tag in {"del", "s"}:
            self.parts.append("~~")
        if tag == "a" and self._links:
            self.parts.append(f" [{self._links.pop()}]")
        if tag in {"td", "th"}:
            self._cells -= 1
        if tag in BLOCKS:
            self._end_line("")

    def _end_line(self, begin: str) -> None:
        self.parts.append(" " if self._cells else f"\n{begin}")

    def handle_data(self, data: str) -> None:
        if self._data:
            self.parts.append("".join(f"\ndata {line}" for line in _data_lines(json.loads(data))) + "\n")
        elif not self._silent:
            self.parts.append(data)


def _data_lines(data: Any, path: str = "") -> Iterable[str]:
    """Yield a line for each part of the data of a chart, shortened."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _data_lines(value, f"{path}.{key}")
    elif isinstance(data, list) and data and isinstance(data[0], dict):
        for number, value in enumerate(data):
            yield from _data_lines(value, f"{path}[{number}]")
    else:
        text = json.dumps(data, ensure_ascii=False)
        yield f"{path} {text if len(text) <= 200 else f'{text[:200]}… {len(text)} characters'}"


def page_text(page: str) -> str:
    """Return the text and the links of a page in HTML."""
    parser = _Page()
    parser.feed(page)
    lines = (" ".join(line.split()).removeprefix("| ") for line in "".join(parser.parts).splitlines())
    return "\n".join(line for line in lines if line)


# --- JSON -------------------------------------------------------------------------------------------------------------


def json_text(text: str) -> str:
    """Return JSON with its keys in their order; of a list of rows, the keys that differ from the row before."""
    return json.dumps(_reduced(json.loads(text)), indent=1, ensure_ascii=False)


def _reduced(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _reduced(value) for key, value in data.items()}
    if not (isinstance(data, list) and len(data) > 1 and all(isinstance(row, dict) for row in data)):
        return [_reduced(value) for value in data] if isinstance(data, list) else data
    rows = [_reduced(data[0])]
    for before, row in pairwise(data):
        if list(row) == list(before):
            changed = {key: _reduced(value) for key, value in row.items() if value != before[key]}
            rows.append({"as the row before, but": changed})
        else:
            rows.append(_reduced(row))
    return rows


def table_text(lines: Iterable[list[str]]) -> str:
    """Return the rows of a table whose first line has the names of its columns, as ``json_text`` returns rows."""
    names, *rows = lines
    shown = [
        {name: f"<{name}>" if name in CLOCKED else value for name, value in zip(names, row, strict=True)}
        for row in rows
    ]
    return f"{len(rows)} rows\n{json_text(json.dumps(shown))}"


def csv_text(text: str) -> str:
    """Return the rows of CSV."""
    return table_text(csv.reader(io.StringIO(text)))


def markdown_text(text: str) -> str:
    """Return the rows of a table in Markdown."""
    rows = [[cell.strip() for cell in line[2:-2].split(" | ")] for line in text.splitlines()]
    return table_text(row for row in rows if set(row) != {"---"})


# --- frames ----------------------------------------------------------------------------------------------------------


def frame_text(frame: pd.DataFrame) -> str:
    """Return the columns of a frame with their dtypes, then its rows; a column with one value is told once."""
    lines = [f"{len(frame)} rows"]
    varying = []
    for place, name in enumerate(frame.columns):
        values = [f"<{name}>" if name in CLOCKED else repr(_plain(value)) for value in frame.iloc[:, place]]
        dtype = str(frame.dtypes.iloc[place])
        dtype = "str" if dtype == "object" else dtype  # pandas 2
        same = len(set(values)) == 1 and len(values) > 1
        lines.append(f"{name} ({dtype})" + (f": {values[0]} in all rows" if same else ""))
        if not same and values:
            varying.append((str(name), values))
    lines += [
        " | ".join([f"row {row}", *(f"{name}={values[row]}" for name, values in varying)]) for row in range(len(frame))
    ]
    return "\n".join(lines)


def _plain(value: Any) -> Any:
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    return value.item() if hasattr(value, "item") else value


MASKED = re.compile(r"\b[0-9a-f]{32,64}\b")
"""Uids, and digests of what may differ between machines."""

# --- databases -------------------------------------------------------------------------------------------------------


class Database:
    """The rows of a SQLite database, each reference and each id by the natural key of its row.

    The natural key of a row is the first unique key of its table that is no uid, else the number of the row.
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        self._keys: dict[str, list[str]] = {}
        self._references: dict[str, dict[str, tuple[str, str]]] = {}
        self.tables = sorted(
            name
            for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith("sqlite_")
        )
        for table in self.tables:
            rows = self._connection.execute(f"PRAGMA foreign_key_list({table})").fetchall()
            alone = [number for number, count in Counter(row[0] for row in rows).items() if count == 1]
            self._references[table] = {row[3]: (row[2], row[4]) for row in rows if row[0] in alone}
            unique = [
                [part[2] for part in self._connection.execute(f"PRAGMA index_info({index[1]})")]
                for index in self._connection.execute(f"PRAGMA index_list({table})").fetchall()
                if index[2] and index[3] == "u"
            ]
            self._keys[table] = next((key for key in unique if "uid" not in key), [])
        self._named: dict[tuple[str, str, Any], str] = {}

    def text(self) -> str:
        """Return all rows, table by table, sorted by their texts; close the database."""
        parts = []
        for table in self.tables:
            cursor = self._connection.execute(f"SELECT * FROM {table}")  # noqa: S608
            columns = [column[0] for column in cursor.description]
            rows = sorted(
                (self._row(table, columns, row) for row in cursor), key=lambda row: (MASKED.sub("", row), row)
            )
            parts.append("\n".join([f"{table} ({', '.join(columns)}): {len(rows)} rows", *rows]))
        self._connection.close()
        return "\n\n".join(parts)

    def _row(self, table: str, columns: list[str], row: tuple[Any, ...]) -> str:
        return "  " + " | ".join(self._cell(table, column, value) for column, value in zip(columns, row, strict=True))

    def _cell(self, table: str, column: str, value: Any) -> str:
        if value is None:
            return "-"
        if column in CLOCKED:
            return f"<{column}>" if value else "empty"
        if column in self._references[table]:
            return self._name(*self._references[table][column], value)
        if column == "id":
            return self._name(table, "id", value)
        if column == "medians":
            return f"<{', '.join(f'{number:.9g}' for number in struct.unpack(f'<{len(value) // 8}d', value))}>"
        return blob_text(value) if isinstance(value, bytes) else repr(value) if isinstance(value, float) else str(value)

    def _name(self, table: str, column: str, value: Any) -> str:
        """Return the natural key of a row that another one refers to."""
        if (table, column, value) not in self._named:
            key = self._keys[table]
            name = str(value)
            if key:
                query = f"SELECT {', '.join(key)} FROM {table} WHERE {column} = ?"  # noqa: S608
                cells = self._connection.execute(query, (value,)).fetchone()
                name = " ".join(self._cell(table, part, cell) for part, cell in zip(key, cells, strict=True))
            self._named[table, column, value] = name
        return self._named[table, column, value]


def blob_text(blob: bytes) -> str:
    """Return what a blob holds: its length and its first numbers or a digest."""
    try:
        content = zlib.decompress(blob)
    except zlib.error:
        content = blob
    numbers = struct.unpack(f"<{len(content) // 4}f", content) if len(content) % 4 == 0 else ()
    if numbers and all(1e-12 < abs(number) < 1e12 for number in numbers):
        first = ", ".join(f"{number:.6g}" for number in numbers[:4])
        return f"<{len(numbers)} numbers: {first}{', …' if len(numbers) > 4 else ''}; sum {sum(numbers):.6g}>"
    if content.isascii() and len(content) <= 300 and content.decode().isprintable():
        return content.decode()
    return f"<{len(content)} bytes, {hashlib.sha256(content).hexdigest()[:8]}>"
