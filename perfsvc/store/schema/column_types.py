"""Column types that mean the same on SQLite and PostgreSQL."""

import math
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import DateTime, Dialect, Enum, Text
from sqlalchemy.types import TypeDecorator


class Utc(TypeDecorator[datetime]):
    """A timestamp: refuses naive datetimes and returns aware ones in UTC.

    PostgreSQL stores a ``timestamptz``; SQLite, which has no time zones, stores the UTC wall clock as ISO text.
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


class FreeText(TypeDecorator[str]):
    r"""Text that programs printed: what a database cannot store becomes ``\udcff`` (lone surrogates) or U+FFFD (NUL).

    An odd byte in a compiler's message must not cost the measurement that the message explains. Two paths that differ
    in a byte that is no UTF-8 stay different.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        """Convert a text from Python to the database; characters that the database cannot store are replaced."""
        if value is None or (value.isascii() and "\0" not in value):  # nearly every text: nothing to replace
            return value
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def word(kind: type[StrEnum]) -> Enum:
    """Return the column type of an enumeration: its values in a VARCHAR(16), so that new values need no migration."""
    return Enum(
        kind,
        native_enum=False,
        create_constraint=False,
        length=16,
        values_callable=lambda words: [w.value for w in words],
    )


def number(value: float | None) -> float | None:
    """Return a number as it is stored, NaN as None: SQLite stores NaN as NULL, so PostgreSQL gets NULL too."""
    return None if value is None or math.isnan(value) else float(value)


# --- samples ---------------------------------------------------------------------------------------------------------

_DTYPE = np.dtype("<f4")
MOST_SAMPLES = 1 << 25
"""More samples than the message of a worker can hold; a forged blob of a few MB could otherwise fill the memory."""


def pack(samples: Sequence[float]) -> bytes:
    """Return samples in seconds as a blob."""
    return zlib.compress(np.asarray(samples, _DTYPE).tobytes())


def unpack(blob: bytes) -> tuple[float, ...]:
    """Return the samples of a blob; raises ``zlib.error`` or ``ValueError`` if the blob is damaged."""
    return tuple(unpack_array(blob).tolist())


def unpack_array(blob: bytes) -> NDArray[np.float32]:
    """Return the samples of a blob as an array, shape (samples,); raises what ``unpack`` raises."""
    return np.frombuffer(_content(blob), _DTYPE)


def unpack_together(blobs: Sequence[bytes]) -> list[NDArray[np.float64]]:
    """Return the samples of each blob, shape (samples,), faster than one by one; raises what ``unpack`` raises."""
    contents = [_content(blob) for blob in blobs]
    sizes = [len(content) for content in contents]
    if any(size % _DTYPE.itemsize for size in sizes):
        raise ValueError("a blob holds a part of a sample")
    samples = np.frombuffer(b"".join(contents), _DTYPE).astype(np.float64)
    ends = (np.cumsum([0, *sizes]) // _DTYPE.itemsize).tolist()
    return [samples[begin:end] for begin, end in pairwise(ends)]


def _content(blob: bytes) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(blob, MOST_SAMPLES * _DTYPE.itemsize)
    if not stream.eof:
        raise ValueError("the blob ends early, or holds too many samples")
    return content
