"""Column types that mean the same on SQLite and PostgreSQL."""

import json
import logging
import math
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import JSON, BigInteger, Boolean, DateTime, Dialect, Double, String, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeDecorator

from perfsvc.errors import DamagedError
from perfsvc.model.codec import decode
from perfsvc.text import visible

T = TypeVar("T")

IN_SQLITE = {BigInteger: "INTEGER", Boolean: "INTEGER", DateTime: "TEXT", Double: "REAL", JSON: "TEXT", String: "TEXT"}
"""What a strict table of SQLite calls the types that it does not know by SQLAlchemy's names."""

for _kind, _name in IN_SQLITE.items():
    compiles(_kind, "sqlite")(lambda *_, name=_name, **__: name)


@lru_cache(maxsize=1000)
def report_damaged(what: str) -> None:
    """Report, once and in one line on standard error, that stored content cannot be read; the rest is shown without it.

    ``what`` is visible text that names the content.
    """
    logging.getLogger("perfsvc").warning("%s is damaged in the database (perfsvc db check)", visible(what))


def damaged(what: str) -> DamagedError:
    """Return the error for stored content that cannot be read; ``what`` names it."""
    return DamagedError(
        f"{visible(what)} is damaged in the database",
        cure="perfsvc db check names the row, and says if perfsvc db rebuild mends it; "
        "else restore a backup (docs/how-to/keep-the-database.md)",
    )


def stored_json(text: str) -> Any:
    """Return the value of stored JSON; raises ``DamagedError`` if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(f"the JSON {text[:40]!r}") from error


def stored(kind: type[T], content: str | bytes, what: str) -> T:
    """Return a dataclass from stored JSON, which is compressed if it is bytes; raises ``DamagedError``."""
    try:
        return decode(kind, zlib.decompress(content) if isinstance(content, bytes) else content)
    except (ValueError, zlib.error) as error:
        raise damaged(what) from error


class Utc(TypeDecorator[datetime]):
    """A timestamp: refuses naive datetimes and returns aware ones in UTC.

    PostgreSQL stores a ``timestamptz``; SQLite, which has no time zones, stores the UTC wall clock as ISO text. Reading
    a damaged text raises ``DamagedError``.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Convert a value from Python to the database."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone: timestamps are UTC")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Convert a value from the database to Python."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None] | None:
        """Return a function that converts a value from the driver to Python."""
        process = super().result_processor(dialect, coltype)
        if process is None or dialect.name != "sqlite":
            return process

        def read(value: Any) -> datetime | None:
            try:
                return process(value)
            except ValueError as error:
                raise damaged(f"the date {str(value)[:40]!r}") from error

        return read


class FreeText(TypeDecorator[str]):
    r"""Text that programs printed: what a database cannot store becomes ``\udcff`` (lone surrogates) or U+FFFD (NUL).

    An odd byte in a compiler's message must not cost the measurement that the message explains. Two paths that differ
    in a byte that is no UTF-8 stay different.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        """Convert a text from Python to the database; characters that the database cannot store are replaced."""
        return None if value is None else self.storable(value)

    @staticmethod
    def storable(text: str) -> str:
        """Return a text with other characters in place of those that a database cannot store."""
        if text.isascii() and "\0" not in text:  # nearly every text: nothing to replace
            return text
        return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


class Word(TypeDecorator[StrEnum]):
    """A value of an enumeration, in a VARCHAR(16), so that new values need no migration.

    Reading a damaged word raises ``DamagedError``.
    """

    impl = String(16)
    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__(16)
        self.kind = kind
        self._known: dict[str | None, StrEnum | None] = {None: None, **{member.value: member for member in kind}}

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        """Convert a value from Python to the database."""
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, _dialect: Dialect) -> StrEnum | None:
        """Convert a value from the database to Python."""
        try:
            return self._known[value]
        except KeyError:
            raise damaged(f"the {self.kind.__name__} {str(value)[:40]!r}") from None


def number(value: float | None) -> float | None:
    """Return a number as it is stored, NaN as None: SQLite stores NaN as NULL, so PostgreSQL gets NULL too."""
    return None if value is None or math.isnan(value) else float(value)
