"""What all formats share: JSON with checked types, numbers, moments, and names that fit a case."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from perfsvc.errors import FormatError
from perfsvc.formats.result import Point
from perfsvc.model import Value
from perfsvc.text import shortened

LONGEST_NAME = 300
"""Characters of a name. A longer one is shortened in its middle, and gets a digest, so that it stays distinct."""
MOST_AXES = 100
"""The most axes of a case; a file with more is damaged, or no file of results."""
LONGEST_INTEGER = 15
"""Digits of the integers that axes may have; longer ones stay text."""

_BRACKETS = str.maketrans("[]", "()")
_INTEGER = re.compile(rf"-?[0-9]{{1,{LONGEST_INTEGER}}}", re.ASCII)
_REAL = re.compile(r"-?[0-9]{1,20}\.[0-9]{1,20}([eE][+-]?[0-9]{1,3})?|-?[0-9]{1,20}[eE][+-]?[0-9]{1,3}", re.ASCII)


def json_of(text: bytes) -> "Record":
    """Return the JSON object that a file holds; raises ``FormatError`` if it holds none."""
    if not text.strip():
        raise FormatError("it is empty")
    try:
        value = json.loads(text)
    except RecursionError:
        raise FormatError("its JSON is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"byte {error.start} is no {error.encoding}") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"it is no JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except ValueError as error:  # an integer of thousands of digits
        raise FormatError(f"it is no JSON that Python can read: {error}") from None
    return Record.of(value, "the file")


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON object; each method checks the type of a field and raises ``FormatError`` with the place in the file.

    A field that is absent or null has its default.
    """

    fields: Mapping[str, Any]
    where: str

    @classmethod
    def of(cls, value: Any, where: str) -> "Record":
        """Return a JSON value as a record; raises ``FormatError`` if it is no object."""
        if not isinstance(value, dict):
            raise FormatError(f"{where} is no JSON object")
        return cls(value, where)

    def text(self, key: str, default: str = "") -> str:
        """Return a text."""
        value = self.fields.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "no text")
        return default if value is None else clean(value)

    def number(self, key: str) -> float | None:
        """Return a number, which may be written as text (``"1.5"``, ``"inf"``, ``"nan"``); None if there is none."""
        value = self.fields.get(key)
        if value is None:
            return None
        number = number_of(value)
        if number is None:
            raise self.wrong(key, "no number")
        return number

    def integer(self, key: str, default: int = 0) -> int:
        """Return an integer of at most 63 bits."""
        number = self.number(key)
        if number is None:
            return default
        if not -(2.0**63) < number < 2.0**63 or number != int(number):
            raise self.wrong(key, "no integer")
        return int(number)

    def flag(self, key: str) -> bool:
        """Return a truth value; False by default."""
        value = self.fields.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "neither true nor false")
        return bool(value)

    def record(self, key: str) -> "Record":
        """Return an object; an empty one by default."""
        value = self.fields.get(key)
        return Record.of({} if value is None else value, self._place(key))

    def items(self, key: str) -> list[Any]:
        """Return a list; an empty one by default."""
        value = self.fields.get(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(key, "no list")
        return value or []

    def records(self, key: str) -> "Iterator[Record]":
        """Yield the objects of a list."""
        for index, value in enumerate(self.items(key)):
            yield Record.of(value, f"{self._place(key)}[{index}]")

    def require(self, *keys: str) -> None:
        """Raise ``FormatError`` if a field is absent."""
        for key in keys:
            if key not in self.fields:
                raise FormatError(f"{self.where} has no {key!r}")

    def wrong(self, key: str, what: str) -> FormatError:
        """Return the error for a field with a wrong value."""
        return FormatError(f"{self._place(key)} is {what}")

    def _place(self, key: str) -> str:
        return shortened(key if self.where == "the file" else f"{self.where}.{key}", LONGEST_NAME)


# --- values ----------------------------------------------------------------------------------------------------------


def number_of(value: Any) -> float | None:
    """Return a number of JSON, or a text that holds a number; None if it is neither."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def is_time(seconds: float | None) -> bool:
    """Return whether a number is a time: finite and above zero, also as the float32 that the store keeps."""
    return seconds is not None and 1e-37 < seconds < 1e37  # noqa: PLR2004 - the range of float32


def finite(numbers: Mapping[str, float | None]) -> dict[str, float]:
    """Return the numbers that are finite, with their names."""
    return {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}


def moment(text: str, where: str) -> datetime | None:
    """Return a moment that is written as ISO 8601, in UTC; UTC is assumed without an offset. None if it is empty."""
    if not text:
        return None
    try:
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise FormatError(f"{where} is no time: {shortened(text, 100)!r}") from None


def moment_of_ms(milliseconds: float | None) -> datetime | None:
    """Return the moment so many milliseconds after the epoch; None if there is no such moment."""
    try:
        return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def digest_of(*parts: Any) -> str:
    """Return the SHA-256 of values with a JSON type, as hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def clean(text: str) -> str:
    r"""Return a text that the database returns as it was: without NUL, and with ``\ud800`` for a lone surrogate."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


# --- names -----------------------------------------------------------------------------------------------------------


def benchmark_name(text: str) -> str:
    """Return a text as the name of a benchmark. The id of a case separates its parts by ``/`` and brackets."""
    return variant_name(text.replace("/", "."))


def variant_name(text: str) -> str:
    """Return a text as the name of a variant: without brackets, not empty, and not too long."""
    name = clean(text).translate(_BRACKETS).strip() or "unnamed"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{shortened(name, LONGEST_NAME)} {hashlib.sha256(name.encode()).hexdigest()[:8]}"


def point_of(axes: Iterable[tuple[str, Any]]) -> Point:
    """Return axes with their values as the point of a case; raises ``FormatError`` if there are too many axes.

    A text that is a short integer or a finite number becomes one. A value that is no number becomes text.
    """
    point: dict[str, Value] = {}
    for name, value in axes:
        point[variant_name(name)] = axis_value(value)
    if len(point) > MOST_AXES:
        raise FormatError(f"a result has {len(point)} axes")
    return tuple(point.items())


def axis_value(value: Any) -> Value:
    """Return a value as that of an axis."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = {True: "true", False: "false", None: "none"}[value] if value is None or isinstance(value, bool) else value
    text = text if isinstance(text, str) else json.dumps(text)
    if _INTEGER.fullmatch(text):
        return int(text)
    if _REAL.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return variant_name(text)
