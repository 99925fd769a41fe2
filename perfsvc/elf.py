"""Reading ELF files, which cubins and shared objects are (System V ABI, chapters 4 and 5).

What a cubin says of its kernels lies in sections named ``.nv.info.KERNEL``: records of a format, an attribute, and a
value. NVIDIA documents none of it; ``cuobjdump -elf`` prints it.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
_TABLE_OFFSET = 0x28
_COUNTS_OFFSET = 0x3A  # size of a section's header, their number, the index of the section with their names
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2
_NOBITS = 8  # a section without content in the file: its length says all
_DYNSYM = 11
_UNDEFINED = 0
_RECORD = struct.Struct("<BBH")  # format, attribute; the value itself, or how many bytes of it follow
_WITH_BYTES = 4
_PARAMETER = 0x17
_PARAMETERS_SIZE = 0x19
_PARAMETER_VALUE = struct.Struct("<IHHI")  # _, which one, its offset, and above 18 other bits its size
_SIZE_SHIFT = 18
_API_VERSION = 0x37
_MOST_THREADS, _EXACT_THREADS = 0x05, 0x10  # of a block, in x, y and z: .maxntid and .reqntid of PTX
_THREADS_VALUE = struct.Struct("<III")
_REGISTERS = 0x2F
_REGISTERS_VALUE = struct.Struct("<II")  # a kernel's symbol, how many
_EXTERNS = 0x0F  # the value is a list of symbols' numbers
_OF_SYMBOL = frozenset(
    {0x0A, 0x11, 0x12, 0x23, _REGISTERS}
)  # it begins with one: parameters' bank, frame, stacks, registers
_WORD = struct.Struct("<I")
_CODE = (".text", ".rodata", ".data", ".nv.constant", ".nv.global", ".nv.shared")
_INFO = ".nv.info"
_INFO_OF_KERNEL = ".nv.info."
_KERNEL = ".text."


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


def kernel_texts(code: bytes) -> dict[str, bytes]:
    """The instructions of every kernel of a cubin, by its symbol; raises ``ValueError`` for what is no ELF file."""
    try:
        sections, names = _sections(code)
        named = {_text(code, names.start + section.name): section for section in sections}
        return {
            name.removeprefix(_KERNEL): code[section.start : section.start + section.length]
            for name, section in named.items()
            if name.startswith(_KERNEL)
        }
    except (struct.error, IndexError) as error:
        raise ValueError("not a whole ELF file") from error


def kernel_registers(code: bytes) -> dict[str, int]:
    """The registers of a thread of every kernel of a cubin, by its symbol; nothing of what is no cubin.

    Raises ``ValueError`` for an ELF file that was cut short.
    """
    if not code.startswith(_MAGIC):
        return {}
    try:
        sections, names = _sections(code)
        symbols = _symbols(code, sections)
        infos = [section for section in sections if _text(code, names.start + section.name) == _INFO]
        return {
            symbols[number].decode(): count
            for section in infos
            for attribute, _, at in _attributes(code[section.start : section.start + section.length])
            if attribute == _REGISTERS
            for number, count in [_REGISTERS_VALUE.unpack_from(code, section.start + at)]
        }
    except (struct.error, IndexError) as error:
        raise ValueError("not a whole ELF file") from error


def most_threads(code: bytes) -> dict[str, int]:
    """The most threads that a block of each kernel of a cubin may have, by its symbol, of those that are bounded.

    Raises ``ValueError`` for what is no ELF file.
    """
    try:
        sections, names = _sections(code)
        named = [(_text(code, names.start + section.name), section) for section in sections]
        return {
            name.removeprefix(_INFO_OF_KERNEL): prod(_THREADS_VALUE.unpack_from(code, section.start + at))
            for name, section in named
            if name.startswith(_INFO_OF_KERNEL)
            for attribute, _, at in _attributes(code[section.start : section.start + section.length])
            if attribute in {_MOST_THREADS, _EXACT_THREADS}
        }
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


def code_digest(code: bytes) -> str:
    """The SHA-256 hex digest of what a binary does, whatever its debug strings, line tables and compiler's version say.

    That is instructions, constants, initialised data and the sizes of shared memory; and of a cubin what its kernels
    need (``.nv.info``), its symbols by their names, since their numbers change with every section that debugging adds.
    What is no ELF file (PTX, a script) is taken as it is. Raises ``ValueError`` for an ELF file that was cut short.
    """
    if not code.startswith(_MAGIC):
        return hashlib.sha256(code).hexdigest()
    try:
        parts = sorted(_parts(code))
    except (struct.error, IndexError) as error:
        raise ValueError("not a whole ELF file") from error
    found = hashlib.sha256()
    for name, content in parts:
        found.update(f"{name}\n{len(content)}\n".encode() + content)
    return found.hexdigest()


def kernel_parameters(code: bytes, kernel: str) -> tuple[tuple[int, int], ...] | None:
    """Where a kernel of a cubin finds its parameters, in order: (offset, size), in bytes, of what a launch hands over.

    None where the file does not say it, as for kernels with more than 4 KiB of them.

    Raises ``ValueError`` where it is no 64-bit little-endian ELF file.
    """
    try:
        sections, names = _sections(code)
        for section in sections:
            if _text(code, names.start + section.name) == f".nv.info.{kernel}":
                records = code[section.start : section.start + section.length]
                found = tuple((offset, size) for _, offset, size in sorted(_parameters(records)))
                return found if bool(found) == _takes_parameters(records) else None
    except (struct.error, IndexError) as error:
        raise ValueError("not a whole ELF file") from error
    return None


def _parameters(records: bytes) -> Iterator[tuple[int, int, int]]:
    """Number, offset and size of each."""
    for attribute, _, content in _attributes(records):
        if attribute == _PARAMETER:
            _, number, offset, bits = _PARAMETER_VALUE.unpack_from(records, content)
            yield number, offset, bits >> _SIZE_SHIFT


def _takes_parameters(records: bytes) -> bool:
    """Whether any room is kept for parameters."""
    return any(attribute == _PARAMETERS_SIZE and value for attribute, value, _ in _attributes(records))


def _attributes(records: bytes) -> Iterator[tuple[int, int, int]]:
    """Attribute, value (or the number of bytes of it), and where those bytes are, of each record."""
    at = 0
    while at < len(records):
        kind, attribute, value = _RECORD.unpack_from(records, at)
        at += _RECORD.size
        yield attribute, value, at
        at += value if kind == _WITH_BYTES else 0


def _parts(code: bytes) -> Iterator[tuple[str, bytes]]:
    """The sections that decide what a binary does, as they are whatever else is in the file."""
    sections, names = _sections(code)
    symbols = _symbols(code, sections)
    for section in sections:
        name, content = _text(code, names.start + section.name), code[section.start : section.start + section.length]
        if name.startswith(_INFO):
            yield name, b"".join(sorted(_facts(content, symbols)))
        elif name.startswith(_CODE):
            yield name, b"%d" % section.length if section.kind == _NOBITS else content


def _facts(records: bytes, symbols: list[bytes]) -> Iterator[bytes]:
    """What the records of a cubin say, each with the names of the symbols that it is of."""
    at = 0
    while at < len(records):
        kind, attribute, value = _RECORD.unpack_from(records, at)
        head, at = records[at : at + _RECORD.size], at + _RECORD.size
        content = records[at : at + value] if kind == _WITH_BYTES else b""
        at += len(content)
        numbers = len(content) if attribute == _EXTERNS else _WORD.size if attribute in _OF_SYMBOL else 0
        named = [symbols[number] for (number,) in _WORD.iter_unpack(content[:numbers])]
        if attribute != _API_VERSION:
            yield head + b"\0".join([*named, content[numbers:]])


def _symbols(code: bytes, sections: list[_Section]) -> list[bytes]:
    """The names of a file's symbols by their numbers."""
    return [
        _text(code, sections[section.link].start + name).encode()
        for section in sections
        if section.kind == _SYMTAB
        for name, *_ in _SYMBOL.iter_unpack(code[section.start : section.start + section.length])
    ]


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
