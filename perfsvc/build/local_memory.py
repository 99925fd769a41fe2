"""The source lines of loads and stores of local memory: where a kernel spills registers, or accesses a local array."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from perfsvc import elf, entries
from perfsvc.build import sources
from perfsvc.build.cache import Cache
from perfsvc.build.compile import compile_all
from perfsvc.build.disassembly import Disassembler
from perfsvc.build.facts import VerboseNvcc, machine_code
from perfsvc.build.libraries import is_library
from perfsvc.build.lines import LineTable, TwinNvcc, lines_of_all
from perfsvc.build.toolchain import Binary
from perfsvc.errors import CaseError
from perfsvc.model import LocalLine, Unit, digest

KernelLines = Mapping[str, tuple[LocalLine, ...]]
"""The lines of each kernel of a unit, by symbol."""


def local_lines_of_all(
    units: Collection[Unit],
    toolchain: VerboseNvcc,
    cache: Cache,
    disassembler: Disassembler,
    *,
    on_done: Callable[[Unit], None] = lambda _: None,
) -> dict[Unit, KernelLines | CaseError]:
    """Return the lines of each unit's kernels that access local memory, or why they are unknown.

    The line with most instructions is first. Instructions that have no line in the user's files are left out.

    Args:
        units: units that ``facts_of_all`` has compiled with ``toolchain``.
        toolchain: the compiler of the binaries.
        cache: where binaries, their line tables and the places of instructions are looked up and kept.
        disassembler: finds the instructions.
        on_done: called with each unit after its line table is there or has failed.

    Raises:
        InfrastructureError: there is no compiler, the disassembler does not work, or the cache cannot be written.
    """
    tables = lines_of_all(units, TwinNvcc(toolchain.target), cache, on_done=on_done)
    built = compile_all(units, toolchain, cache)
    codes = {unit: machine_code(binary) for unit, binary in built.items() if isinstance(binary, Binary)}
    texts = {unit: elf.kernel_texts(code) for unit, code in codes.items()}
    distinct = {digest(text): text for kernels in texts.values() for text in kernels.values()}
    accesses = disassembler.local_accesses(toolchain.target, distinct)
    lines: dict[Unit, KernelLines | CaseError] = {}
    for unit, table in tables.items():
        binary = built[unit]
        if isinstance(table, CaseError):
            lines[unit] = table
        elif not isinstance(binary, Binary):
            lines[unit] = binary
        elif not table.holds_for(codes[unit]):
            lines[unit] = CaseError("with -lineinfo, the compiler makes other code")
        else:
            names = {} if is_library(unit) else entries.readable(codes[unit], unit.entries)
            lines[unit] = {
                names.get(symbol, symbol): _local_lines(unit, table, symbol, accesses[digest(text)])
                for symbol, text in texts[unit].items()
            }
    return lines


def _local_lines(unit: Unit, table: LineTable, kernel: str, offsets: Collection[int]) -> tuple[LocalLine, ...]:
    """Return the lines of the instructions at some offsets of a kernel, the line with most instructions first.

    Args:
        unit: the kernel's unit.
        table: the lines of the unit.
        kernel: the kernel's symbol.
        offsets: the offsets of the instructions in bytes.
    """
    counts = Counter(line for offset in offsets if (line := table.line(kernel, offset)))
    lines = [
        LocalLine(sources.user_path(unit, line.file).resolve(), line.line, number) for line, number in counts.items()
    ]
    return tuple(sorted(lines, key=lambda line: (-line.instructions, str(line.path), line.line)))
