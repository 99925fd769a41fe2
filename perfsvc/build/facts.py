"""The static facts of kernels: what a compiler made of them, found on a machine without a GPU."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace

from perfsvc import elf, entries
from perfsvc.build import linking, sources
from perfsvc.build.cache import Cache
from perfsvc.build.compile import compile_all
from perfsvc.build.disassembly import Disassembler, count_classes
from perfsvc.build.libraries import is_library
from perfsvc.build.nvcc import NvccToolchain
from perfsvc.build.toolchain import Binary
from perfsvc.errors import CaseError
from perfsvc.model import StaticFacts, Unit, digest

_FORMAT = b"facts 1\n"
_END = b"\0"

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_CUMULATIVE = re.compile(r"(\d+) bytes cumulative stack size")


class Kernels(dict[str, StaticFacts]):
    """The facts of a unit's kernels: by the names that the unit gives them, and all others by symbol.

    Args:
        facts: the facts by name.
        most_threads: the largest block of each kernel with ``__launch_bounds__``; larger blocks cannot be launched.
        source: the digest of everything of the user that decides the binary.
    """

    def __init__(self, facts: Mapping[str, StaticFacts], most_threads: Mapping[str, int], source: str = "") -> None:
        super().__init__(facts)
        self.most_threads = most_threads
        self.source = source


UnitFacts = Kernels | CaseError
"""The kernels of a unit, or why it does not compile."""


class VerboseNvcc(NvccToolchain):
    """nvcc, with binaries that begin with what the assembler printed about each kernel."""

    def preimage(self, unit: Unit) -> bytes:
        """Return everything that decides the binary except its files, and the format in which it is kept."""
        return _FORMAT + super().preimage(unit)

    def compile(self, unit: Unit) -> bytes:
        """Return what the assembler printed, and the binary; raises ``CompileError``."""
        code, printed = self.compile_verbosely(unit)
        return printed.replace("\0", " ").encode() + _END + code


def facts_of_all(
    units: Collection[Unit],
    toolchain: VerboseNvcc,
    cache: Cache,
    disassembler: Disassembler | None,
    *,
    on_done: Callable[[Unit], None] = lambda _: None,
) -> dict[Unit, UnitFacts]:
    """Return the facts of each unit's kernels for one architecture, or the error of a unit that does not compile.

    Args:
        units: what to compile; units that become PTX are not allowed, because PTX has no facts.
        toolchain: the compiler.
        cache: where binaries and counts of instructions are looked up and kept.
        disassembler: counts instructions; None if there is no disassembler.
        on_done: called with each unit after it has compiled or failed.

    Raises:
        InfrastructureError: there is no compiler, the disassembler does not work, or the cache cannot be written.
    """
    built = compile_all(units, toolchain, cache, on_done=lambda unit, _: on_done(unit))
    texts: dict[str, bytes] = {}
    kernels: dict[Unit, dict[str, str]] = {}
    for unit, binary in built.items():
        if isinstance(binary, Binary):
            texts_of_unit = elf.kernel_texts(machine_code(binary))
            kernels[unit] = {symbol: digest(text) for symbol, text in texts_of_unit.items()}
            texts |= {digest(text): text for text in texts_of_unit.values()}
    opcodes = disassembler.opcodes(toolchain.target, texts) if disassembler else {}
    return {
        unit: _facts(unit, binary, kernels[unit], opcodes) if isinstance(binary, Binary) else binary
        for unit, binary in built.items()
    }


def machine_code(binary: Binary) -> bytes:
    """Return the machine code in what ``VerboseNvcc`` compiled."""
    return binary.code.partition(_END)[2]


def _source_digest(unit: Unit, binary: Binary) -> str:
    """Return a digest of what decides a unit's binary apart from compiler, target and environment."""
    settings = [f"{name} {content}" for name, content in linking.libraries(unit).items()]
    settings += [f"{name} {digest(text)}" for name, text in sorted(binary.sources.items())]
    return digest(sources.preimage(unit, target="", version="", settings=settings))


def _facts(unit: Unit, binary: Binary, kernels: Mapping[str, str], opcodes: Mapping[str, Mapping[str, int]]) -> Kernels:
    """Return the facts of a binary's kernels.

    Args:
        unit: the unit, which names kernels as its author does.
        binary: what ``VerboseNvcc`` compiled: the text that the assembler printed, followed by the machine code.
        kernels: the digest of each kernel's instructions, by symbol.
        opcodes: the number of instructions of each opcode, by the digest of a kernel's instructions; if a kernel has no
            entry, its facts have no counts.
    """
    printed, _, code = binary.code.partition(_END)
    reports = read_ptxas(printed.decode())
    if linking.is_linked(unit):  # a kernel needs the registers of the functions that it calls in other sources, too
        linked = elf.kernel_registers(code)
        reports = {name: replace(report, registers=linked.get(name, 0)) for name, report in reports.items()}
    names = {} if is_library(unit) else entries.readable(code, unit.entries)
    facts = {
        names.get(symbol, symbol): StaticFacts(
            **asdict(reports.get(symbol, PtxasReport())),
            instructions=count_classes(opcodes[sass]) if sass in opcodes else None,
            sass=sass,
        )
        for symbol, sass in kernels.items()
    }
    most_threads = {names.get(symbol, symbol): most for symbol, most in elf.most_threads(code).items()}
    return Kernels(facts, most_threads, _source_digest(unit, binary))


# --- what NVIDIA's assembler prints with -v: the only source of spills -----------------------------------------------


@dataclass(frozen=True, slots=True)
class PtxasReport:
    """What the assembler prints about one kernel; the fields are those of ``perfsvc.model.StaticFacts``."""

    registers: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    shared_bytes: int = 0
    barriers: int = 0


def read_ptxas(printed: str) -> dict[str, PtxasReport]:
    """Return what the assembler ptxas reports about each kernel, by symbol.

    Functions that were not inlined have spills of their own. The output does not show which kernels call such a
    function, so its spills are added to every kernel.

    Args:
        printed: all that nvcc printed with ``-Xptxas=-v``.
    """
    kernels: dict[str, PtxasReport] = {}
    functions: dict[str, PtxasReport] = {}
    kernel = function = ""
    for line in printed.splitlines():
        if match := _ENTRY.search(line):
            kernel = match[1]
            kernels[kernel] = PtxasReport()
        elif match := _FUNCTION.search(line):
            function = match[1]
        elif match := _STACK.search(line):
            stack, stored, loaded = map(int, match.groups())
            report = PtxasReport(stack_bytes=stack, spill_store_bytes=stored, spill_load_bytes=loaded)
            (kernels if function in kernels else functions)[function] = report
        elif _REGISTERS.search(line) and kernel in kernels:
            kernels[kernel] = _with_usage(kernels[kernel], line)
    spill_stores = sum(report.spill_store_bytes for report in functions.values())
    spill_loads = sum(report.spill_load_bytes for report in functions.values())
    return {
        name: replace(
            report,
            spill_store_bytes=report.spill_store_bytes + spill_stores,
            spill_load_bytes=report.spill_load_bytes + spill_loads,
        )
        for name, report in kernels.items()
    }


def _with_usage(report: PtxasReport, line: str) -> PtxasReport:
    """Return the report with the registers, barriers and shared memory that a line of the assembler's output names."""

    def number(pattern: re.Pattern[str]) -> int:
        match = pattern.search(line)
        return int(match[1]) if match else 0

    return replace(
        report,
        registers=number(_REGISTERS),
        barriers=number(_BARRIERS),
        shared_bytes=number(_SHARED),
        stack_bytes=max(report.stack_bytes, number(_CUMULATIVE)),
    )
