"""The source line of each instruction of a kernel, from a twin of its binary that is built with ``-lineinfo``.

A twin is compiled only for its line table. The table names the code digest of the twin: if the digest equals that of
the binary that runs, both have the same instructions, and the table holds for this binary. The twin itself is not kept,
because it contains the folders of its files; the table has the names of ``sources.user_files``.

The table of a cubin is a program for the state machine of DWARF 2 (https://dwarfstd.org/doc/dwarf-2.0.0.pdf, section
6.2). NVIDIA adds an instruction that marks the code of an inlined function with the row of the call.
"""

import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfsvc import elf
from perfsvc.build import sources
from perfsvc.build.cache import Cache
from perfsvc.build.compile import Built, compile_all
from perfsvc.build.libraries import is_library
from perfsvc.build.nvcc import NvccToolchain, is_ptx
from perfsvc.build.toolchain import Binary
from perfsvc.errors import CaseError, CompileError
from perfsvc.model import SourceLine, Unit, codec

DAMAGED = (ValueError, struct.error, IndexError, ZeroDivisionError)
"""What reading a damaged table raises."""

_FORMAT = b"lines 1\n"
_VERSIONS = (2, 3)
_HEADER = struct.Struct("<IHIBBbBB")
_ADDRESS = struct.Struct("<Q")
_LENGTH_BYTES = 4  # the length of a table does not count these bytes
_HEADER_LENGTH_BYTES = 10
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
_END_SEQUENCE, _SET_ADDRESS, _INLINED_CALL = 1, 2, 0x90
_EXTENDED = 0
_LAST_OPCODE = 255
_SIGN, _LOW_BITS, _MORE = 0x40, 0x7F, 0x80


@dataclass(frozen=True, slots=True)
class LineTable:
    """The source lines of a binary's kernels.

    Attributes:
        code_digest: the code digest of the twin.
        kernels: for each kernel, by symbol: the offsets of the instructions at which another line begins, ascending,
            each with this line; None if the code there has no line in the user's files.
    """

    code_digest: str
    kernels: Mapping[str, tuple[tuple[int, SourceLine | None], ...]]

    def holds_for(self, code: bytes) -> bool:
        """Return whether a binary has the code of the twin, so that the table is true of the binary too."""
        return elf.code_digest(code) == self.code_digest

    def line(self, kernel: str, offset: int) -> SourceLine | None:
        """Return the line of the instruction at an offset in bytes; None if it has none in the user's files."""
        rows = self.kernels.get(kernel, ())
        index = bisect_right(rows, offset, key=lambda row: row[0])
        return rows[index - 1][1] if index else None


class TwinNvcc(NvccToolchain):
    """nvcc with ``-lineinfo``; its binaries are line tables."""

    def preimage(self, unit: Unit) -> bytes:
        """Return everything that decides the line table except its files, and the format in which it is kept."""
        return _FORMAT + super().preimage(unit)

    def compile(self, unit: Unit) -> bytes:
        """Return the encoded line table of a unit's twin; raises ``CompileError``."""
        code = self.compile_with_lines(unit)
        files = sources.user_files(unit, self.dependencies(unit))
        names = {str(path.resolve()): name for name, path in files.items()}
        try:
            return codec.encode(read_lines(code, unit.source.parent, names))
        except DAMAGED as error:
            raise CompileError(
                f"the line table of {unit.source.name} by {self.version} cannot be read: {error}", cure="report it"
            ) from error


def lines_of_all(
    units: Collection[Unit], toolchain: TwinNvcc, cache: Cache, *, on_done: Callable[[Unit], None] = lambda _: None
) -> dict[Unit, LineTable | CaseError]:
    """Return the line table of each unit, or why there is none; PTX, Python files and libraries have none.

    Args:
        units: what to compile.
        toolchain: the compiler of the twins.
        cache: where line tables are looked up and kept.
        on_done: called with each unit after its twin has compiled or failed.

    Raises:
        InfrastructureError: there is no compiler, or the cache cannot be written.
    """
    compiled = [unit for unit in units if not is_ptx(unit) and not is_library(unit) and not sources.is_python(unit)]
    built = compile_all(compiled, toolchain, cache, on_done=lambda unit, _: on_done(unit))
    return {
        unit: codec.decode(LineTable, binary.code) if isinstance(binary, Binary) else binary
        for unit, binary in built.items()
    }


def with_lines(
    built: Mapping[Unit, Built], toolchain: NvccToolchain, cache: Cache, *, report: Callable[[str], object]
) -> dict[Unit, Built]:
    """Return compiled units with their source lines; a twin that fails or has other code is reported.

    Args:
        built: what the toolchain made of each unit.
        toolchain: the compiler.
        cache: where line tables are looked up and kept.
        report: receives messages for people.

    Raises:
        InfrastructureError: there is no compiler, or the cache cannot be written.
    """
    binaries = {unit: binary for unit, binary in built.items() if isinstance(binary, Binary)}
    tables = lines_of_all(binaries, TwinNvcc(toolchain.target), cache)
    found: dict[Unit, Built] = dict(built)
    for unit, table in tables.items():
        if isinstance(table, CaseError):
            report(f"the source lines of {unit.source.name} are not known: {table.what}")
        elif not table.holds_for(binaries[unit].code):
            report(f"the source lines of {unit.source.name} are not known: -lineinfo changes its code")
        else:
            found[unit] = replace(binaries[unit], lines=codec.encode(table))
    return found


def renamed(lines: bytes, rename: Callable[[str], str]) -> bytes:
    """Return an encoded line table whose files have other names."""
    table = codec.decode(LineTable, lines)
    kernels = {
        kernel: tuple((offset, line and SourceLine(rename(line.file), line.line)) for offset, line in rows)
        for kernel, rows in table.kernels.items()
    }
    return codec.encode(replace(table, kernels=kernels))


def read_lines(code: bytes, folder: Path, names: Mapping[str, str]) -> LineTable:
    """Return the line table of a cubin that was built with ``-lineinfo``.

    Code of inlined functions in other files than the user's belongs to the user's line that called them.

    Args:
        code: the cubin.
        folder: the folder in which the cubin was built.
        names: the names of the user's files, by resolved path.

    Raises:
        ValueError, or another error of ``DAMAGED``: the cubin is not ELF, or its table cannot be read.
    """
    content, kernels = elf.line_programs(code)
    lines: dict[str, dict[int, SourceLine | None]] = {}
    start = 0
    while start < len(content):
        table = _Table(content, start)
        files = [names.get(str((folder / file).resolve())) for file in table.files]
        for sequence in table.sequences():
            if (kernel := kernels.get(sequence.place)) is not None:
                of_kernel = lines.setdefault(kernel, {})
                for row in sequence.rows:  # of several rows with one address, the last holds
                    of_kernel[row.address] = _line(row, sequence.rows, files)
                of_kernel.setdefault(sequence.address, None)
        start = table.end
    return LineTable(elf.code_digest(code), {kernel: tuple(_changes(of)) for kernel, of in lines.items()})


def _changes(lines: Mapping[int, SourceLine | None]) -> Iterator[tuple[int, SourceLine | None]]:
    """Yield the offsets at which another line begins, ascending, with this line."""
    last: SourceLine | None = None
    for offset, line in sorted(lines.items(), key=lambda item: item[0]):
        if line != last:
            yield offset, line
        last = line


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a table; ``call`` is the number of the row that called this code, from 1; 0 if it is not inlined."""

    address: int
    file: int
    line: int
    call: int


@dataclass(slots=True)
class _Sequence:
    """The rows of one kernel, and the state of the machine that makes them.

    Attributes:
        place: where the kernel's address stands in the table.
        address, file, line, call: what the next row holds; after the last row, the address of the end of the code.
    """

    place: int = -1
    rows: list[_Row] = field(default_factory=list)
    address: int = 0
    file: int = 1
    line: int = 1
    call: int = 0

    def add_row(self) -> None:
        """Add a row with the current state."""
        self.rows.append(_Row(self.address, self.file, self.line, self.call))


def _line(row: _Row, rows: list[_Row], files: list[str | None]) -> SourceLine | None:
    """Return the innermost line of the user's files: the line of a row, or of a call that led to it."""
    for _ in rows:  # no chain of calls is longer
        name = files[row.file - 1]
        if name is not None and row.line > 0:
            return SourceLine(name, row.line)
        if not row.call:
            return None
        row = rows[row.call - 1]
    return None


class _Table:
    """The line table of one source in ``.debug_line``: a header, and a program whose results are the rows."""

    def __init__(self, content: bytes, start: int) -> None:
        length, version, header_length, self._step, _, self._line_base, self._line_range, self._opcode_base = (
            _HEADER.unpack_from(content, start)
        )
        if version not in _VERSIONS:
            raise ValueError(f"it has version {version} of DWARF")
        self._content = content
        self._at = start + _HEADER.size
        self._operands = [self._byte() for _ in range(self._opcode_base - 1)]
        folders = [""]
        while folder := self._string():
            folders.append(folder)
        self.files: list[str] = []
        while file := self._string():
            folder_number, _, _ = self._number(), self._number(), self._number()
            self.files.append(os.path.join(folders[folder_number], file))  # noqa: PTH118 - the table has text
        self._at = start + _HEADER_LENGTH_BYTES + header_length
        self.end = start + _LENGTH_BYTES + length

    def sequences(self) -> Iterator[_Sequence]:
        """Yield the rows of each kernel."""
        while self._at < self.end:
            yield self._sequence()

    def _sequence(self) -> _Sequence:
        """Run the program up to the end of a sequence."""
        sequence = _Sequence()
        while self._at < self.end:
            opcode = self._byte()
            if opcode >= self._opcode_base:
                advance, more_lines = divmod(opcode - self._opcode_base, self._line_range)
                sequence.address += advance * self._step
                sequence.line += self._line_base + more_lines
                sequence.add_row()
            elif opcode != _EXTENDED:
                self._standard(opcode, sequence)
            elif self._extended(sequence):
                break
        return sequence

    def _standard(self, opcode: int, sequence: _Sequence) -> None:
        """Run a standard instruction; one that changes neither address nor line is skipped."""
        if opcode == _COPY:
            sequence.add_row()
        elif opcode == _ADVANCE_PC:
            sequence.address += self._number() * self._step
        elif opcode == _ADVANCE_LINE:
            sequence.line += self._signed()
        elif opcode == _SET_FILE:
            sequence.file = self._number()
        elif opcode == _CONST_ADD_PC:
            sequence.address += (_LAST_OPCODE - self._opcode_base) // self._line_range * self._step
        elif opcode == _FIXED_ADVANCE_PC:
            sequence.address += int.from_bytes(self._content[self._at : self._at + 2], "little")
            self._at += 2
        else:
            for _ in range(self._operands[opcode - 1]):
                self._number()

    def _extended(self, sequence: _Sequence) -> bool:
        """Run an extended instruction; return whether it ends the sequence."""
        length = self._number()
        next_at = self._at + length
        opcode = self._byte()
        if opcode == _SET_ADDRESS:
            sequence.place = self._at
            (sequence.address,) = _ADDRESS.unpack_from(self._content, self._at)
        elif opcode == _INLINED_CALL:
            sequence.call = self._number()
            self._number()  # the name of the inlined function, which the length does not count
            next_at = max(next_at, self._at)
        self._at = next_at
        return opcode == _END_SEQUENCE

    def _byte(self) -> int:
        self._at += 1
        return self._content[self._at - 1]

    def _string(self) -> str:
        end = self._content.index(b"\0", self._at)
        text = self._content[self._at : end].decode(errors="surrogateescape")
        self._at = end + 1
        return text

    def _number(self) -> int:
        """Return the next number in base 128, the lowest digit first."""
        value, _, _ = self._digits()
        return value

    def _signed(self) -> int:
        """Return the next signed number in base 128."""
        value, shift, last = self._digits()
        return value - (1 << shift) if last & _SIGN else value

    def _digits(self) -> tuple[int, int, int]:
        """Return the next number without its sign, its size in bits, and its last byte."""
        value, shift = 0, 0
        while True:
            byte = self._byte()
            value |= (byte & _LOW_BITS) << shift
            shift += 7
            if not byte & _MORE:
                return value, shift, byte
