"""What a report file holds, before any of it is read: a damaged one loads without a word as a report of nothing.

A file begins with ``NVR`` and a zero, then its header with its length before it; then blocks, each a header with its
length before it and a payload whose length the header tells. The headers are Protocol Buffers
(https://protobuf.dev/programming-guides/encoding/). NVIDIA describes the layout in ``ProfilerReport.proto``, which
comes with Nsight Compute (``extras/FileFormat``).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from perfsvc.errors import ReportError

_MAGIC = b"NVR\0"
_LENGTH = struct.Struct("<I")
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_FIXED = {_EIGHT: 8, _FOUR: 4}
_LAUNCHES, _SESSION, _PAYLOAD, _VERSIONS = 2, 3, 5, 8  # fields of a block's header; of the session
_COUNTED_BY = b"Nsight Compute Target"

PROFILE_AGAIN = "profile the launch again: ncu -f -o REPORT PROGRAM"


@dataclass(frozen=True, slots=True)
class Outline:
    """What there is to read.

    Attributes:
        launches: how many.
        ncu_version: of the Nsight Compute that counted; empty where the report does not say.
    """

    launches: int
    ncu_version: str


def outline(path: Path) -> Outline:
    """Walks through a report file without loading it.

    Raises:
        ReportError: it is not there, is empty, is no report, or is cut short.
    """
    try:
        with path.open("rb") as file:
            return _walked(file, path)
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror or error}", cure="name a .ncu-rep file") from error


def _walked(file: BinaryIO, path: Path) -> Outline:
    length = path.stat().st_size
    if not length:
        raise ReportError(f"{path} is empty: Nsight Compute was ended before it wrote its report", cure=PROFILE_AGAIN)
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ReportError(f"{path} is no report of Nsight Compute", cure="name a .ncu-rep file, as ncu -o writes it")
    launches, version = 0, ""
    try:
        _part(file)  # the file's header: the layout's version
        while file.tell() < length:
            block = dict(_fields(_part(file)))
            launches += _number(block, _LAUNCHES)
            version = version or _counted_by(block.get(_SESSION, b""))
            file.seek(_number(block, _PAYLOAD), 1)
    except (ValueError, IndexError, struct.error) as error:
        raise _damaged(path) from error
    if file.tell() != length:
        raise _damaged(path)
    return Outline(launches, version)


def _damaged(path: Path) -> ReportError:
    return ReportError(f"{path} is not a whole report: it was cut short or overwritten", cure=PROFILE_AGAIN)


def _part(file: BinaryIO) -> bytes:
    """Bytes whose length stands before them."""
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    part = file.read(length)
    if len(part) != length:
        raise ValueError("cut short")
    return part


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The numbers and values of a message's fields; of one that repeats, ``dict`` keeps the last."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        length, at = _varint(message, at) if kind == _BYTES else (_FIXED.get(kind, len(message) + 1), at)
        if at + length > len(message):
            raise ValueError("a field reaches beyond its message")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    value = change = 0
    while True:
        value |= (message[at] & 0x7F) << change
        if message[at] < 0x80:  # noqa: PLR2004 - the bit that says that another byte follows
            return value, at + 1
        at, change = at + 1, change + 7


def _number(block: dict[int, int | bytes], field: int) -> int:
    value = block.get(field, 0)
    if not isinstance(value, int):
        raise ValueError("not a number")  # noqa: TRY004 - of the file, not of a caller
    return value


def _counted_by(session: int | bytes) -> str:
    """The version of Nsight Compute, where a session tells it: ``2025.3.1.0``."""
    for field, value in _fields(session) if isinstance(session, bytes) else ():
        if field == _VERSIONS and isinstance(value, bytes):
            name, version = (dict(_fields(value)).get(key, b"") for key in (1, 2))
            if name == _COUNTED_BY and isinstance(version, bytes):
                return version.decode().split(" ", maxsplit=1)[0]
    return ""
