"""On which line each key of a TOML file stands, which ``tomllib`` does not tell.

The file is known to be valid TOML, or is read up to where it is not; so this looks for nothing but the places of keys
(https://toml.io/en/v1.0.0).
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

Place = tuple[str | int, ...]
"""Where a value is in what ``tomllib`` returns: keys, and numbers in arrays."""

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<text>\"{3}(?:[^\\]|\\.)*?\"{3,5}|'{3}.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')
    |(?P<newline>\n)
    |(?P<mark>[][{}=,.])
    |(?P<bare>[^][{}=,.\#"'\s]+)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING = {"[": "]", "{": "}"}
_BETWEEN = {",", "]", "}"}


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def lines_of(text: str) -> Mapping[Place, int]:
    """The line, 1-based, of every key, table and element of an array."""
    return _Reader(list(_tokens(text))).read()


def _tokens(text: str) -> Iterator[_Token]:
    line, position = 1, 0
    for found in _TOKEN.finditer(text):
        line += text.count("\n", position, found.start())
        position = found.start()
        if found.lastgroup and found.lastgroup != "comment":
            yield _Token(found.lastgroup, found[0], line)


class _Reader:
    """Walks the statements of a file; ``lines`` fills on the way."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._lines: dict[Place, int] = {}
        self._elements: dict[Place, int] = {}

    def read(self) -> dict[Place, int]:
        """The line of each place."""
        table: Place = ()
        while token := self._peek():
            if token.kind == "newline":
                self._at += 1
            elif token.text == "[":
                table = self._header()
            else:
                self._assignment(table, token.line)
        return self._lines

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _is(self, text: str) -> bool:
        token = self._peek()
        return token is not None and token.kind == "mark" and token.text == text

    def _header(self) -> Place:
        """``[table]`` or ``[[array of tables]]``: the place that the statements after it are in."""
        line = self._tokens[self._at].line
        self._at += 1
        array = self._is("[")
        self._at += array
        place = self._named(line)
        while self._is("]"):
            self._at += 1
        if array:
            number = self._elements.get(place, -1) + 1
            self._elements[place] = number
            place = self._mark((*place, number), line)
        return place

    def _assignment(self, table: Place, line: int) -> None:
        """``key = value``."""
        place = table
        for part in self._key():
            place = self._mark((*place, part), line)
        if self._is("="):
            self._at += 1
            self._value(place)
        elif self._at < len(self._tokens):  # no statement at all: the file ends to be valid here
            self._at += 1

    def _key(self) -> list[str]:
        """The parts of a dotted key, at which we are."""
        parts = []
        while (token := self._peek()) and (token.kind in {"bare", "text"} or token.text == "."):
            if token.text != ".":
                parts.append(token.text if token.kind == "bare" else _unquoted(token.text))
            self._at += 1
        return parts

    def _value(self, place: Place) -> None:
        """A value of any kind, to behind its end."""
        token = self._peek()
        if token and token.text in _CLOSING and token.kind == "mark":
            self._at += 1
            self._nested(place, token.text)
            return
        while (token := self._peek()) and token.kind != "newline" and token.text not in _BETWEEN:
            self._at += 1

    def _nested(self, place: Place, opening: str) -> None:
        """The elements of an array or the keys of an inline table, to behind its closing bracket."""
        number = 0
        while (token := self._peek()) and not self._is(_CLOSING[opening]):
            if token.kind == "newline" or token.text in _BETWEEN:
                self._at += 1
            elif opening == "{":
                self._assignment(place, token.line)
            else:
                self._value(self._mark((*place, number), token.line))
                number += 1
        self._at += 1

    def _named(self, line: int) -> Place:
        """The table whose name comes, with the numbers of the arrays of tables that it leads through."""
        place: Place = ()
        for part in self._key():
            if place in self._elements:
                place = (*place, self._elements[place])
            place = self._mark((*place, part), line)
        return place

    def _mark(self, place: Place, line: int) -> Place:
        self._lines.setdefault(place, line)
        return place


def _unquoted(text: str) -> str:
    return next(iter(tomllib.loads(f"{text} = 0")))
