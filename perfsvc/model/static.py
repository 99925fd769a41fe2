"""What a compiler made of a kernel: facts that need no device, and what comes of comparing them."""

from dataclasses import dataclass
from enum import StrEnum

from perfsvc.model.cases import Case
from perfsvc.model.measurements import Status
from perfsvc.model.verdicts import Cause, Verdict


class Limiter(StrEnum):
    """What keeps a multiprocessor from holding more blocks of a kernel."""

    WARPS = "warps"  # it holds as many as it can, or another block would be one too many
    BLOCKS = "blocks"
    REGISTERS = "registers"
    SHARED_MEMORY = "shared memory"
    BARRIERS = "barriers"


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many warps of a launch a multiprocessor can hold at once, and what keeps it from more; 0: none can run."""

    warps: int
    most_warps: int
    limiter: Limiter

    @property
    def share(self) -> float:
        """Of the warps that the multiprocessor could hold, from 0 to 1."""
        return self.warps / self.most_warps


@dataclass(frozen=True, slots=True)
class StaticFacts:
    """A kernel for one architecture as its binary holds it and its assembler told.

    Attributes:
        registers: of a thread.
        stack_bytes: of a thread, in local memory: spills, and arrays that are not indexed by constants.
        spill_store_bytes: moved to the stack for want of registers, each instruction counted once.
        spill_load_bytes: moved back, likewise.
        shared_bytes: static shared memory of a block, without what an architecture reserves for itself.
        barriers: of a block.
        instructions: how many there are of each class, by class; None where there was no disassembler.
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
        """Moved to the stack and back for want of registers."""
        return self.spill_store_bytes + self.spill_load_bytes


@dataclass(frozen=True, slots=True)
class CheckedKernel:
    """A kernel of a case for one architecture; where the case has none to look at, ``kernel`` is empty.

    Attributes:
        kernel: its symbol; ``scale.cu:scale`` where several files of the case have one of that name.
        status: ``ok``, ``failed`` (it does not compile, or forbids its launch) or ``skipped`` (this architecture
            cannot run it).
        reason: why it is not ok.
        facts: None where it is not ok.
        occupancy: at the launch's block and dynamic shared memory; None where Python launches it, or where nobody
            published what the architecture holds.
        threads: of a block; 0 where Python launches it.
        dynamic_shared_bytes: of a block.
        source: SHA-256 hex digest of all that decides the binary but the compiler.
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
    """What a kernel is compared with: as it was, by which compiler, and the number of the check that says so."""

    checked: CheckedKernel
    toolkit: str
    check: int | None = None


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact that is another one than before, as numbers; ``better`` is None where nobody can say which one is."""

    fact: str
    before: float
    after: float
    better: bool | None = None


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """What came of comparing a kernel's facts with those of its baseline.

    Attributes:
        checked: as it is; as it was where it is missing.
        baseline: what it was compared with; None where there was nothing.
        changes: every fact that is another one, whether it is judged or not.
        reason: why the verdict is not plain.
        cause: why it moved; None where it did not.
        baseline_check: the number of the check that holds the baseline; None outside a database.
    """

    checked: CheckedKernel
    verdict: Verdict
    baseline: CheckedKernel | None = None
    changes: tuple[FactChange, ...] = ()
    reason: str = ""
    cause: Cause | None = None
    baseline_check: int | None = None
