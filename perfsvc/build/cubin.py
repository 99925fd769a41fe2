"""Reading cubins: they are ELF files with a section for each kernel."""

import struct

_TEXT = ".text."
_MAGIC = b"\x7fELF\x02\x01"  # 64-bit, little-endian
_SECTION_TABLE_OFFSET = 0x28
_SECTION_COUNTS_OFFSET = 0x3A  # size of an entry, their number, the index of the names' section
_SECTION_HEADER = struct.Struct("<II16xQQ24x")  # name, type, file offset, size


def entries(cubin: bytes) -> tuple[str, ...]:
    """The kernels of a cubin by symbol name, sorted; raises ``ValueError`` where the bytes are no cubin."""
    try:
        return tuple(sorted(name.removeprefix(_TEXT) for name in _section_names(cubin) if name.startswith(_TEXT)))
    except (struct.error, IndexError) as error:
        raise ValueError(f"not a whole ELF file: {error}") from error


def _section_names(elf: bytes) -> list[str]:
    if not elf.startswith(_MAGIC):
        raise ValueError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", elf, _SECTION_TABLE_OFFSET)
    size, count, names_index = struct.unpack_from("<HHH", elf, _SECTION_COUNTS_OFFSET)
    headers = [_SECTION_HEADER.unpack_from(elf, table + index * size) for index in range(count)]
    _, _, start, length = headers[names_index]
    names = elf[start : start + length]
    return [names[offset : names.index(b"\0", offset)].decode() for offset, *_ in headers]
