"""Column types that mean the same on SQLite and PostgreSQL."""

import math
from datetime import UTC, datetime
from enum import StrEnum

from sqlalchemy import DateTime, Dialect, Enum, Text
from sqlalchemy.types import TypeDecorator


class Utc(TypeDecorator[datetime]):
    """A moment: refuses naive datetimes and returns aware ones in UTC.

    PostgreSQL keeps a ``timestamptz``; SQLite, which has no zones, keeps the UTC wall clock as ISO text.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """From Python to the database."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone: timestamps are UTC")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """From the database to Python."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class FreeText(TypeDecorator[str]):
    """Text that programs printed: what a database cannot hold (NUL, lone surrogates) becomes ``?`` or U+FFFD.

    A compiler's odd byte in a message must not cost the measurement that it explains.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        """From Python to the database."""
        return (
            None
            if value is None
            else value.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
        )


def word(kind: type[StrEnum]) -> Enum:
    """An enumeration of the model, stored as its values in a VARCHAR(16), so that new words need no migration."""
    return Enum(
        kind,
        native_enum=False,
        create_constraint=False,
        length=16,
        values_callable=lambda words: [w.value for w in words],
    )


def number(value: float | None) -> float | None:
    """SQLite has no NaN: it would store NULL, and so do we, on both databases."""
    return None if value is None or math.isnan(value) else float(value)
