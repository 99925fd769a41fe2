"""Read ELF files: cubins and shared objects (System V ABI, chapters 4 and 5).

A cubin describes its kernels in sections named ``.nv.info.KERNEL``: records of a format, an attribute and a value.
NVIDIA does not document them; ``cuobjdump -elf`` prints them.
"""

import contextlib
import hashlib
import struct
from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
_TABLE_OFFSET = 0x28
_COUNTS_OFFSET = 0x3A  # size of a section header, number of sections, index of the section with their names
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2
_NOBITS = 8  # a section without content in the file, only a length
_DYNSYM = 11
_UNDEFINED = 0
_RECORD = struct.Struct("<BBH")  # format, attribute; the value itself, or how many bytes of it follow
_WITH_BYTES = 4
_PARAMETER = 0x17
_PARAMETERS_SIZE = 0x19
_PARAMETER_VALUE = struct.Struct("<IHHI")  # _, index, offset, and the size above 18 other bits
_SIZE_SHIFT = 18
_API_VERSION = 0x37
_LINES = ".debug_line"
_RELOCATIONS = {  # where a symbol's address goes, the symbol's number above 32 other bits, and perhaps an offset
    ".rela.debug_line": struct.Struct("<QQ8x"),
    ".rel.debug_line": struct.Struct("<QQ"),
}
_SYMBOL_SHIFT = 32
_VARIABLES = ".nv.global.init"
_POINTERS = {f".rela{_VARIABLES}": struct.Struct("<QQ8x"), f".rel{_VARIABLES}": struct.Struct("<QQ")}
_PARAMETER_BANK = ".nv.constant0."  # a kernel has one; a function that it calls, and that was not inlined, has none
_MOST_THREADS, _EXACT_THREADS = 0x05, 0x10  # threads of a block in x, y and z: .maxntid and .reqntid in PTX
_THREADS_VALUE = struct.Struct("<III")
_REGISTERS = 0x2F
_REGISTERS_VALUE = struct.Struct("<II")  # the kernel's symbol number, registers of a thread
_EXTERNS = 0x0F  # the value is a list of symbol numbers
_BEGINS_WITH_SYMBOL = frozenset({0x0A, 0x11, 0x12, 0x23, _REGISTERS})  # parameter bank, frame, stacks, registers
_WORD = struct.Struct("<I")
_CODE = (
    ".text",
    ".rodata",
    ".data",
    ".nv.constant",
    ".nv.global",
    ".nv.shared",
    ".nv_fatbin",  # the kernels in a program that nvcc has compiled
    "__nv_relfatbin",
)
_FATBIN = ".nv_fatbin"
_INTERPRETER = ".interp"  # a program names its dynamic linker, a shared object does not
_LIBRARY = "perfsvc_library"  # the section by which a library of a benchmark is recognised
_DYNAMIC = ".dynamic"
_DYNAMIC_ENTRY = struct.Struct("<QQ")
_NEEDED = 1
_IMPORTED_NAMES = ".dynstr"
_INFO = ".nv.info"
_INFO_OF_KERNEL = ".nv.info."
_KERNEL = ".text."


def kernel_texts(code: bytes) -> dict[str, bytes]:
    """Return the instructions of each kernel of a cubin or library, by symbol.

    Raises ``ValueError`` if this is no ELF file.
    """
    with _opened(code) as elf:
        return {
            name: cubin.content(section)
            for cubin in elf.cubins() or [elf]
            for name, section in _kernel_sections(cubin).items()
        }


def pointers(code: bytes) -> dict[str, str]:
    """Return the symbol of the kernel to which each pointer variable of a cubin points, by the variable's symbol.

    Raises ``ValueError`` if this is no ELF file.
    """
    with _opened(code) as elf:
        symbols = elf.symbols()
        targets = {
            place: symbols[bits >> _SYMBOL_SHIFT].decode()
            for section in elf.sections
            if section.name in _POINTERS
            for place, bits in _POINTERS[section.name].iter_unpack(elf.content(section))
        }
        return {
            elf.string(elf.sections[section.link].start + name).decode(): targets[value]
            for section in elf.sections
            if section.kind == _SYMTAB
            for name, _info, _other, defined_in, value, nbytes in _SYMBOL.iter_unpack(elf.content(section))
            if nbytes and value in targets and defined_in < len(elf.sections)
            if elf.sections[defined_in].name == _VARIABLES
        }


def kernel_registers(code: bytes) -> dict[str, int]:
    """Return the registers of a thread for each kernel of a cubin, by symbol; empty for any other file.

    Raises ``ValueError`` for a truncated ELF file.
    """
    if not code.startswith(_MAGIC):
        return {}
    with _opened(code) as elf:
        symbols = elf.symbols()
        values = [
            _REGISTERS_VALUE.unpack_from(record.content)
            for section in elf.sections
            if section.name == _INFO
            for record in _records(elf.content(section))
            if record.attribute == _REGISTERS
        ]
        return {symbols[number].decode(): registers for number, registers in values}


def most_threads(code: bytes) -> dict[str, int]:
    """Return how many threads a block may have, by symbol, for each kernel of a cubin or library with launch bounds.

    Raises ``ValueError`` if this is no ELF file.
    """
    with _opened(code) as elf:
        return {
            section.name.removeprefix(_INFO_OF_KERNEL): prod(_THREADS_VALUE.unpack_from(record.content))
            for cubin in elf.cubins() or [elf]
            for section in cubin.sections
            if section.name.startswith(_INFO_OF_KERNEL)
            for record in _records(cubin.content(section))
            if record.attribute in {_MOST_THREADS, _EXACT_THREADS}
        }


def kernel_parameters(code: bytes, kernel: str) -> tuple[tuple[int, int], ...] | None:
    """Return the (offset, size) in bytes of each launch parameter of a kernel of a cubin, in order.

    Return None if the file does not list the parameters. A cubin does not list them if they exceed 4 KiB.

    Raises ``ValueError`` unless the file is 64-bit little-endian ELF.
    """
    with _opened(code) as elf:
        for section in elf.sections:
            if section.name == f"{_INFO_OF_KERNEL}{kernel}":
                return _parameters(list(_records(elf.content(section))))
    return None


def exported_sizes(code: bytes) -> dict[str, int]:
    """Return the size in bytes of every exported symbol, by name.

    Raises ``ValueError`` unless the file is 64-bit little-endian ELF.
    """
    with _opened(code) as elf:
        return {
            elf.string(elf.sections[section.link].start + name).decode(): nbytes
            for section in elf.sections
            if section.kind == _DYNSYM
            for name, _info, _other, defined_in, _value, nbytes in _SYMBOL.iter_unpack(elf.content(section))
            if defined_in != _UNDEFINED
        }


def needed_libraries(code: bytes) -> tuple[str, ...]:
    """Return the file names of the libraries that a shared object needs (``libcublas.so.13``), in order.

    Raises ``ValueError`` unless the file is 64-bit little-endian ELF.
    """
    with _opened(code) as elf:
        return tuple(
            elf.string(elf.sections[section.link].start + value).decode()
            for section in elf.sections
            if section.name == _DYNAMIC
            for tag, value in _DYNAMIC_ENTRY.iter_unpack(elf.content(section))
            if tag == _NEEDED
        )


def line_programs(code: bytes) -> tuple[bytes, dict[int, str]]:
    """Return the line table of a cubin (``.debug_line``), and the kernel of each address in it, by its place.

    The table is empty if the cubin was built without ``-lineinfo``. Raises ``ValueError`` if this is no ELF file.
    """
    with _opened(code) as elf:
        symbols = elf.symbols()
        content = b"".join(elf.content(section) for section in elf.sections if section.name == _LINES)
        kernels = {
            place: symbols[bits >> _SYMBOL_SHIFT].decode().removeprefix(_KERNEL)
            for section in elf.sections
            if section.name in _RELOCATIONS
            for place, bits in _RELOCATIONS[section.name].iter_unpack(elf.content(section))
        }
        return content, kernels


def program_digest(content: bytes) -> str:
    """Return ``code_digest`` of a program's file, or the SHA-256 hex digest of a file that is no whole ELF file."""
    try:
        return code_digest(content)
    except ValueError:
        return hashlib.sha256(content).hexdigest()


def code_digest(code: bytes) -> str:
    """Return the SHA-256 hex digest of a binary without its debug strings, line tables and compiler versions.

    The digest covers instructions, constants, initialised data and the sizes of shared memory. For a cubin it also
    covers what its kernels need (``.nv.info``), with symbols by name, because debug sections change the numbers of
    symbols. For a program or a library it also covers the kernels in it, and the names of the functions that it
    imports.

    A file that is not ELF (PTX, a script) is hashed as it is. Raises ``ValueError`` for a truncated ELF file.
    """
    if not code.startswith(_MAGIC):
        return hashlib.sha256(code).hexdigest()
    with _opened(code) as elf:
        return _digest(elf)


def _kernel_sections(cubin: "_Elf") -> "dict[str, _Section]":
    """Return the section with the instructions of each kernel, without functions that kernels of other files call."""
    texts = {
        section.name.removeprefix(_KERNEL): section for section in cubin.sections if section.name.startswith(_KERNEL)
    }
    kernels = {section.name.removeprefix(_PARAMETER_BANK) for section in cubin.sections} & texts.keys()
    return {name: section for name, section in texts.items() if name in kernels or not kernels}


class _Section(NamedTuple):
    name: str
    kind: int
    start: int
    length: int
    link: int


class _Record(NamedTuple):
    """A record of ``.nv.info``; ``value`` is the number of bytes of ``content`` if the record has content."""

    head: bytes
    attribute: int
    value: int
    content: bytes


class _Elf:
    """A 64-bit little-endian ELF file."""

    def __init__(self, code: bytes) -> None:
        if not code.startswith(_MAGIC):
            raise ValueError("not a 64-bit little-endian ELF file")
        self._code = code
        (table,) = struct.unpack_from("<Q", code, _TABLE_OFFSET)
        size, count, names = struct.unpack_from("<HHH", code, _COUNTS_OFFSET)
        headers = [_SECTION.unpack_from(code, table + index * size) for index in range(count)]
        names_start = headers[names][4]
        self.sections = [
            _Section(self.string(names_start + name).decode(), kind, start, length, link)
            for name, kind, _flags, _address, start, length, link, *_rest in headers
        ]

    def string(self, start: int) -> bytes:
        """Return the zero-terminated string at an offset."""
        return self._code[start : self._code.index(b"\0", start)]

    def content(self, section: _Section) -> bytes:
        """Return the bytes of a section."""
        return self._code[section.start : section.start + section.length]

    def cubins(self) -> list["_Elf"]:
        """Return the cubins in a program or library; empty if there are none, or if they are compressed."""
        found = []
        for section in self.sections:
            content = self.content(section) if section.name == _FATBIN else b""
            start = content.find(_MAGIC)
            while start >= 0:
                found.append(_Elf(content[start:]))
                start = content.find(_MAGIC, start + len(_MAGIC))
        return found

    def symbols(self) -> list[bytes]:
        """Return the symbol names, indexed by symbol number."""
        return [
            self.string(self.sections[section.link].start + name)
            for section in self.sections
            if section.kind == _SYMTAB
            for name, *_ in _SYMBOL.iter_unpack(self.content(section))
        ]


@contextlib.contextmanager
def _opened(code: bytes) -> Iterator[_Elf]:
    """Open an ELF file; reading past the end of a truncated file raises ``ValueError``."""
    try:
        yield _Elf(code)
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError("not a whole ELF file") from error


def _records(content: bytes) -> Iterator[_Record]:
    """Yield the records of an ``.nv.info`` section."""
    at = 0
    while at < len(content):
        kind, attribute, value = _RECORD.unpack_from(content, at)
        begin = at + _RECORD.size
        end = begin + (value if kind == _WITH_BYTES else 0)
        yield _Record(content[at:begin], attribute, value, content[begin:end])
        at = end


def _parameters(records: Sequence[_Record]) -> tuple[tuple[int, int], ...] | None:
    """Return the offset and size of each parameter in order; None if the section does not list them."""
    values = [_PARAMETER_VALUE.unpack_from(record.content) for record in records if record.attribute == _PARAMETER]
    parameters = tuple((offset, bits >> _SIZE_SHIFT) for _, index, offset, bits in sorted(values, key=lambda v: v[1]))
    has_parameters = any(record.attribute == _PARAMETERS_SIZE and record.value for record in records)
    return parameters if bool(parameters) == has_parameters else None


def _digest(elf: _Elf) -> str:
    """Return ``code_digest`` of an ELF file."""
    digest = hashlib.sha256()
    for name, content in sorted(_parts(elf)):
        digest.update(f"{name}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()


def _parts(elf: _Elf) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the sections that ``code_digest`` hashes; no content depends on symbol numbers."""
    symbols = elf.symbols()
    imports = any(section.name in {_INTERPRETER, _LIBRARY} for section in elf.sections)
    cubins = elf.cubins()
    for cubin in cubins:
        yield _FATBIN, _digest(cubin).encode()
    for section in elf.sections:
        if section.name == _FATBIN and cubins:
            continue
        if imports and section.name == _IMPORTED_NAMES:
            yield section.name, elf.content(section)
        if section.name.startswith(_INFO):
            yield section.name, b"".join(sorted(_named_records(elf.content(section), symbols)))
        elif section.name.startswith(_CODE):
            yield section.name, b"%d" % section.length if section.kind == _NOBITS else elf.content(section)


def _named_records(content: bytes, symbols: list[bytes]) -> Iterator[bytes]:
    """Yield the records of a section with symbol names in place of symbol numbers."""
    for record in _records(content):
        if record.attribute == _API_VERSION:
            continue
        numbers_end = 0
        if record.attribute == _EXTERNS:
            numbers_end = len(record.content)
        elif record.attribute in _BEGINS_WITH_SYMBOL:
            numbers_end = _WORD.size
        names = [symbols[number] for (number,) in _WORD.iter_unpack(record.content[:numbers_end])]
        yield record.head + b"\0".join([*names, record.content[numbers_end:]])
