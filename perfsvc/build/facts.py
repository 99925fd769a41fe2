"""Units in, the facts of their kernels out: what a compiler made of them, on a machine without a GPU."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from functools import cached_property

from perfsvc import elf
from perfsvc.build import instruction_classes, ptxas, sources
from perfsvc.build.cache import Cache
from perfsvc.build.compile import compile_all
from perfsvc.build.disassembly import Disassembler
from perfsvc.build.nvcc import PTX, NvccToolchain
from perfsvc.build.toolchain import Binary
from perfsvc.errors import CaseError
from perfsvc.model import StaticFacts, Unit, digest


class Kernels(dict[str, StaticFacts]):
    """The facts of a unit's kernels by their symbols.

    Args:
        facts: those.
        most_threads: of a block, of the kernels that are bounded (``__launch_bounds__``); more cannot be launched.
    """

    def __init__(self, facts: Mapping[str, StaticFacts], most_threads: Mapping[str, int]) -> None:
        super().__init__(facts)
        self.most_threads = most_threads


Found = Kernels | CaseError
"""The kernels of a unit, or why there are none."""

_FORMAT = b"facts 1\n"
_END = b"\0"


def facts_of_all(
    units: Collection[Unit],
    toolchain: "TellingToolchain",
    cache: Cache,
    disassembler: Disassembler | None,
    *,
    on_done: Callable[[Unit], None] = lambda _: None,
) -> dict[Unit, Found]:
    """The facts of every kernel of some units, for one architecture; what was found before is looked up.

    Args:
        units: what to compile; none of them to PTX, which holds no facts.
        toolchain: the compiler.
        cache: where binaries and counts of instructions are looked up and kept.
        disassembler: counts instructions; None where there is none.
        on_done: called with each unit once it is compiled.

    Raises:
        InfrastructureError: no compiler, a disassembler that does not work, or a cache that cannot be written.
    """
    built = compile_all(units, toolchain, cache, on_done=lambda unit, _: on_done(unit))
    texts: dict[str, bytes] = {}
    kernels: dict[Unit, dict[str, str]] = {}
    for unit, binary in built.items():
        if isinstance(binary, Binary):
            found = elf.kernel_texts(binary.code.partition(_END)[2])
            kernels[unit] = {name: digest(text) for name, text in found.items()}
            texts |= {digest(text): text for text in found.values()}
    opcodes = disassembler.opcodes(toolchain.target, texts) if disassembler else {}
    return {
        unit: _facts(binary, kernels[unit], opcodes) if isinstance(binary, Binary) else binary
        for unit, binary in built.items()
    }


def is_ptx(unit: Unit) -> bool:
    """Whether a unit becomes PTX, of which a driver makes the binary."""
    return any(option in PTX for option in unit.options)


def source_digest(unit: Unit) -> str:
    """The SHA-256 hex digest of all that decides a unit's binary but compiler and target; raises ``CompileError``."""
    return digest(sources.preimage(unit, sources.local_files(unit), target="", version=""))


class TellingToolchain:
    """A ``Toolchain`` whose binaries begin with what their assembler told.

    Args:
        target: the architecture, as ``sm_90``.

    Raises:
        NoCompilerError: there is no nvcc, or it cannot be run.
    """

    preprocesses = False

    def __init__(self, target: str) -> None:
        self._nvcc = NvccToolchain(target)
        self.target = target
        self.version = self._nvcc.version

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """Every architecture that this compiler builds for."""
        return self._nvcc.targets

    def preimage(self, unit: Unit, files: Mapping[str, bytes]) -> bytes:
        """Everything that decides the binary, and the form in which it is kept."""
        return _FORMAT + self._nvcc.preimage(unit, files)

    def compile(self, unit: Unit) -> bytes:
        """What the assembler told, and the binary; raises ``CompileError``."""
        code, said = self._nvcc.compile_verbosely(unit)
        return said.replace("\0", " ").encode() + _END + code


def _facts(binary: Binary, kernels: Mapping[str, str], opcodes: Mapping[str, Mapping[str, int]]) -> Kernels:
    """The facts of each kernel of a binary, given the digest of its instructions, and the opcodes by that."""
    said, _, code = binary.code.partition(_END)
    told = ptxas.read(said.decode())
    facts = {
        name: StaticFacts(
            **asdict(told.get(name, ptxas.Told())),
            instructions=instruction_classes.count(opcodes[sass]) if sass in opcodes else None,
            sass=sass,
        )
        for name, sass in kernels.items()
    }
    return Kernels(facts, elf.most_threads(code))
