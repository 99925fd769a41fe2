"""What a shared object exports, read from its dynamic symbol table (System V ABI, chapters 4 and 5)."""

import struct
from collections.abc import Iterator

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
_DYNSYM = 11
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


def exported_sizes(code: bytes) -> dict[str, int]:
    """The size in bytes of every symbol that a 64-bit little-endian ELF file exports, by name.

    Raises ``ValueError`` for anything else.
    """
    if not code.startswith(_MAGIC):
        raise ValueError("not a 64-bit little-endian ELF file")
    try:
        return dict(_exports(code))
    except (struct.error, IndexError) as error:
        raise ValueError("a damaged ELF file") from error


def _exports(code: bytes) -> Iterator[tuple[str, int]]:
    (offset,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    sections = [_SECTION.unpack_from(code, offset + index * size) for index in range(count)]
    for _name, kind, _flags, _address, start, length, link, *_rest in sections:
        if kind != _DYNSYM:
            continue
        strings = sections[link][4]
        for name, _info, _other, section, _value, nbytes in _SYMBOL.iter_unpack(code[start : start + length]):
            if section != 0:
                end = code.index(b"\0", strings + name)
                yield code[strings + name : end].decode(), nbytes
