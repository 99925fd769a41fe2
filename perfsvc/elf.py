"""Reading ELF files, which cubins and shared objects are (System V ABI, chapters 4 and 5).

What a cubin says of its kernels lies in sections named ``.nv.info.KERNEL``: records of a format, an attribute, and a
value. NVIDIA documents none of it; ``cuobjdump -elf`` prints it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
_TABLE_OFFSET = 0x28
_COUNTS_OFFSET = 0x3A  # size of a section's header, their number, the index of the section with their names
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNSYM = 11
_UNDEFINED = 0
_RECORD = struct.Struct("<BBH")  # format, attribute; the value itself, or how many bytes of it follow
_WITH_BYTES = 4
_PARAMETER = 0x17
_PARAMETER_VALUE = struct.Struct("<IHHI")  # _, which one, its offset, and above 18 other bits its size
_SIZE_SHIFT = 18


@dataclass(frozen=True, slots=True)
class _Section:
    name: int  # its place in the section of names
    kind: int
    start: int
    length: int
    link: int


def section_names(code: bytes) -> tuple[str, ...]:
    """The names of all sections of a 64-bit little-endian ELF file; raises ``ValueError`` for anything else."""
    try:
        sections, names = _sections(code)
        return tuple(_text(code, names.start + section.name) for section in sections)
    except (struct.error, IndexError) as error:
        raise ValueError("not a whole ELF file") from error


def exported_sizes(code: bytes) -> dict[str, int]:
    """The size in bytes of every symbol that a 64-bit little-endian ELF file exports, by name.

    Raises ``ValueError`` for anything else.
    """
    try:
        return dict(_exports(code))
    except (struct.error, IndexError) as error:
        raise ValueError("not a whole ELF file") from error


def kernel_parameters(code: bytes, kernel: str) -> tuple[tuple[int, int], ...] | None:
    """Where a kernel of a cubin finds its parameters, in order: (offset, size), in bytes, of what a launch hands over.

    None where the file does not say it; raises ``ValueError`` where it is no 64-bit little-endian ELF file.
    """
    try:
        sections, names = _sections(code)
        for section in sections:
            if _text(code, names.start + section.name) == f".nv.info.{kernel}":
                found = sorted(_parameters(code[section.start : section.start + section.length]))
                return tuple((offset, size) for _, offset, size in found)
    except (struct.error, IndexError) as error:
        raise ValueError("not a whole ELF file") from error
    return None


def _parameters(records: bytes) -> Iterator[tuple[int, int, int]]:
    """Number, offset and size of each."""
    at = 0
    while at < len(records):
        kind, attribute, value = _RECORD.unpack_from(records, at)
        at += _RECORD.size
        if kind == _WITH_BYTES:
            if attribute == _PARAMETER:
                _, number, offset, bits = _PARAMETER_VALUE.unpack_from(records, at)
                yield number, offset, bits >> _SIZE_SHIFT
            at += value


def _sections(code: bytes) -> tuple[list[_Section], _Section]:
    """All sections, and the one that holds their names."""
    if not code.startswith(_MAGIC):
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", code, _TABLE_OFFSET)
    size, count, names = struct.unpack_from("<HHH", code, _COUNTS_OFFSET)
    sections = [_section(code, table + index * size) for index in range(count)]
    return sections, sections[names]


def _section(code: bytes, offset: int) -> _Section:
    name, kind, _flags, _address, start, length, link, *_rest = _SECTION.unpack_from(code, offset)
    return _Section(name, kind, start, length, link)


def _exports(code: bytes) -> Iterator[tuple[str, int]]:
    sections, _ = _sections(code)
    for section in sections:
        if section.kind == _DYNSYM:
            table = code[section.start : section.start + section.length]
            for name, _info, _other, defined_in, _value, nbytes in _SYMBOL.iter_unpack(table):
                if defined_in != _UNDEFINED:
                    yield _text(code, sections[section.link].start + name), nbytes


def _text(code: bytes, start: int) -> str:
    return code[start : code.index(b"\0", start)].decode()
