"""Column types that mean the same on SQLite and PostgreSQL."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Double, Integer, String, Text
from sqlalchemy.types import TypeDecorator

from perfsvc.text import visible

UNKNOWN_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for a damaged date."""


_COPYING: ContextVar[bool] = ContextVar("copying", default=False)


@contextmanager
def copying() -> Iterator[None]:
    """Within this block, damaged words, dates and numbers raise errors: what stands for them must not be stored."""
    token = _COPYING.set(True)
    try:
        yield
    finally:
        _COPYING.reset(token)


@lru_cache(maxsize=1000)
def report_damaged(what: str) -> None:
    """Report, once and in one line on standard error, that stored content cannot be read; the rest is shown without it.

    ``what`` is visible text that names the content.
    """
    logging.getLogger("perfsvc").warning("%s is damaged in the database (perfsvc db check)", visible(what))


class Utc(TypeDecorator[datetime]):
    """A timestamp: refuses naive datetimes and returns aware ones in UTC.

    PostgreSQL stores a ``timestamptz``; SQLite, which has no time zones, stores the UTC wall clock as ISO text. A
    damaged text is reported, and read as ``UNKNOWN_TIME``.
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
            except (ValueError, TypeError):
                if _COPYING.get():
                    raise
                report_damaged(f"the date {str(value)[:40]!r}")
                return UNKNOWN_TIME

        return read


def readable_number(value: Any) -> Any:
    """Return a value from a column of numbers; None if it is damaged, which is reported.

    SQLite stores in a column of numbers what another program writes there, such as a text.
    """
    if value is None or isinstance(value, int | float):
        return value
    what = f"the number {str(value)[:40]!r}"
    if _COPYING.get():
        raise ValueError(f"{what} is damaged")
    report_damaged(what)
    return None


class Real(TypeDecorator[float]):
    """A number in double precision.

    Args:
        instead: what stands for a damaged number: None, or NaN in columns that are never empty.
    """

    impl: Any = Double
    cache_ok = True

    def __init__(self, instead: float | None = None) -> None:
        super().__init__()
        self.instead = instead

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Return a function that converts a value from the driver to Python."""
        return self.read if dialect.name == "sqlite" else super().result_processor(dialect, coltype)

    def read(self, value: Any) -> Any:
        """Return a value of SQLite, or what stands for it if it is damaged."""
        if type(value) is float or value is None:
            return value
        known = readable_number(value)
        return self.instead if known is None else known


class Whole(Real):
    """A whole number. A damaged one is read as 0, or as None in columns that may be empty."""

    impl = Integer
    cache_ok = True

    def read(self, value: Any) -> Any:
        """Return a value of SQLite, or what stands for it if it is damaged."""
        if type(value) is int or value is None:
            return value
        readable_number(str(value))  # reports it: SQLite stores a whole number as an integer
        return self.instead


class Amount(Whole):
    """A whole number of bytes or operations, which may need 64 bits. A damaged one is read as 0, which is none."""

    impl = BigInteger
    cache_ok = True

    def __init__(self) -> None:
        super().__init__(0)


def readable_text(value: Any) -> Any:
    """Return a value from a column of texts; a blob, which SQLite stores there too, is reported and decoded."""
    if not isinstance(value, bytes):
        return value
    text = value.decode("utf-8", "backslashreplace")
    if _COPYING.get():
        raise ValueError(f"the text {text[:40]!r} is damaged: it is a blob")
    report_damaged(f"the text {text[:40]!r}")
    return text


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

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Return a function that converts a value from the driver to Python."""
        return readable_text if dialect.name == "sqlite" else super().result_processor(dialect, coltype)


class Word(TypeDecorator[StrEnum]):
    """A value of an enumeration, in a VARCHAR(16), so that new values need no migration.

    A damaged word is reported, and read as ``instead``, so that it costs only its own row.

    Args:
        kind: the enumeration.
        instead: the value that stands for a damaged word and raises no false alarm; None in columns that may be empty.
        needed: whether nothing can stand for a damaged word. Then reading the row raises ``LookupError``, until
            ``perfsvc db check --remove`` has removed the row.
    """

    impl = String(16)
    cache_ok = True

    def __init__(self, kind: type[StrEnum], instead: StrEnum | None = None, *, needed: bool = False) -> None:
        super().__init__(16)
        self.kind = kind
        self.instead = instead
        self.needed = needed
        self._known: dict[str | None, StrEnum | None] = {None: None, **{member.value: member for member in kind}}

    @property
    def words(self) -> list[str]:
        """The words that the column may hold."""
        return [member.value for member in self.kind]

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        """Convert a value from Python to the database."""
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, _dialect: Dialect) -> StrEnum | None:
        """Convert a value from the database to Python."""
        try:
            return self._known[value]
        except KeyError:
            if self.needed or _COPYING.get():
                raise LookupError(f"{value!r} is not among the {DEFINED} of {self.kind.__name__}") from None
            report_damaged(f"the {self.kind.__name__} {str(value)[:40]!r}")
            return self.instead


DEFINED = "defined enum values"
"""Part of the message about a word for which no other value can stand."""


def number(value: float | None) -> float | None:
    """Return a number as it is stored, NaN as None: SQLite stores NaN as NULL, so PostgreSQL gets NULL too."""
    return None if value is None or math.isnan(value) else float(value)
