"""What a compiler made of a kernel: static facts, which need no device, and their verdicts."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from perfsvc.model.cases import Case
from perfsvc.model.measurements import Status
from perfsvc.model.verdicts import Cause, Verdict


class Limiter(StrEnum):
    """What keeps a multiprocessor from holding more blocks of a kernel."""

    WARPS = "warps"  # it is full, or has no room for the warps of another whole block
    BLOCKS = "blocks"
    REGISTERS = "registers"
    SHARED_MEMORY = "shared memory"
    BARRIERS = "barriers"


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The number of a launch's warps that fit on a multiprocessor, and what limits it; with 0 warps, it cannot run."""

    warps: int
    most_warps: int
    limiter: Limiter

    @property
    def share(self) -> float:
        """``warps`` over ``most_warps``, the number that the multiprocessor can hold; from 0 to 1."""
        return self.warps / self.most_warps


@dataclass(frozen=True, slots=True)
class StaticFacts:
    """A kernel for one architecture, as its binary and its assembler describe it.

    Attributes:
        registers: registers of a thread.
        stack_bytes: local memory of a thread, for spills and for arrays that are not indexed by constants.
        spill_store_bytes: bytes moved to the stack because registers ran out, each instruction counted once.
        spill_load_bytes: bytes moved back, counted likewise.
        shared_bytes: static shared memory of a block, without what the architecture reserves for itself.
        barriers: barriers of a block.
        instructions: number of instructions of each class; None without a disassembler.
        sass: SHA-256 hex digest of the instructions.
    """

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    barriers: int
    instructions: tuple[tuple[str, int], ...] | None
    sass: str

    @property
    def spill_bytes(self) -> int:
        """Bytes moved to the stack and back because registers ran out."""
        return self.spill_store_bytes + self.spill_load_bytes


@dataclass(frozen=True, slots=True)
class CheckedKernel:
    """A kernel of a case for one architecture.

    Attributes:
        kernel: its symbol; ``scale.cu:scale`` if several files of the case define the name; empty if the case has no
            kernel to look at.
        status: ``ok``, ``failed`` (does not compile, or forbids its launch) or ``skipped`` (this architecture cannot
            run it).
        reason: why the status is not ``ok``.
        facts: the static facts; None if the status is not ``ok``.
        occupancy: at the launch's block size and dynamic shared memory; None if Python launches the kernel, or if the
            architecture's limits are not published.
        threads: threads of a block; 0 if Python launches the kernel.
        dynamic_shared_bytes: dynamic shared memory of a block.
        source: SHA-256 hex digest of everything that decides the binary except the compiler.
    """

    case: Case
    architecture: str
    kernel: str
    status: Status = Status.OK
    reason: str = ""
    facts: StaticFacts | None = None
    occupancy: Occupancy | None = None
    threads: int = 0
    dynamic_shared_bytes: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class StaticBaseline:
    """What a kernel is compared with: the kernel as it was, its compiler, and the number of the check that found it."""

    checked: CheckedKernel
    toolkit: str
    check: int | None = None


@dataclass(frozen=True, slots=True)
class FactChange:
    """A static fact that changed. ``better`` is None if neither value is preferable."""

    fact: str
    before: float
    after: float
    better: bool | None = None


@dataclass(frozen=True, slots=True)
class LocalLine:
    """A source line whose instructions load or store local memory: they spill registers or access an array.

    Attributes:
        path: the file.
        line: the number of the line, from 1.
        instructions: number of loads and stores; an instruction inside a loop counts once.
    """

    path: Path
    line: int
    instructions: int


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """The verdict on a kernel's static facts compared with its baseline.

    Attributes:
        checked: the kernel now; if it is missing now, the kernel as it was.
        baseline: what it was compared with; None if there was nothing.
        changes: every fact that changed, judged or not.
        reason: why the verdict is as it is, if that is not obvious.
        cause: why the facts moved; None if they did not.
        baseline_check: number of the check that holds the baseline; None outside a database.
        local_lines: if spills, stack or registers got worse: the lines of the kernel that access local memory, the line
            with most instructions first; empty if none does or if the lines are unknown.
    """

    checked: CheckedKernel
    verdict: Verdict
    baseline: CheckedKernel | None = None
    changes: tuple[FactChange, ...] = ()
    reason: str = ""
    cause: Cause | None = None
    baseline_check: int | None = None
    local_lines: tuple[LocalLine, ...] = ()
