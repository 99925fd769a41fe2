"""What a profiler counts of one launch, and why one launch takes longer than another."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from perfsvc.model.cases import Case


@dataclass(frozen=True, slots=True)
class ProfilerRule:
    """A rule of Nsight Compute that found a problem with a launch.

    Attributes:
        name: the rule's identifier (``SharedMemoryConflicts``).
        message: the rule's message as one line of plain text.
        speedup: the rule's estimate of what could be saved, from 0 to 1: of the launch's time, or of the busy time of
            the unit that the rule is about; None without an estimate.
    """

    name: str
    message: str
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a source; the first line is 1.

    Attributes:
        file: the file's name relative to the folder of the source that was compiled (``../shared/tile.cuh``).
    """

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a profiled kernel.

    Attributes:
        offset: bytes from the start of the kernel.
        text: the instruction as the disassembler writes it (``STG.E [R4.64+0x60], R7``).
        counts: what was counted at the instruction, by perfsvc's names; counts of zero are absent.
        source: the source line; None if it is not known.
    """

    offset: int
    text: str
    counts: Mapping[str, float] = field(default_factory=dict)
    source: SourceLine | None = None

    @property
    def opcode(self) -> str:
        """The opcode with its modifiers: ``STG.E`` for ``@!P0 STG.E [R4.64], R7``; empty if the text is unknown."""
        return next((word for word in self.text.split() if not word.startswith("@")), "")


@dataclass(frozen=True, slots=True)
class ProfiledKernel:
    """A kernel among several that were profiled together; the time is None if it was not counted."""

    name: str
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class Profile:
    """A launch of a kernel as Nsight Compute saw it.

    Attributes:
        kernel: the kernel's name.
        metrics: the metrics by perfsvc's names, which end with the unit (``dram_read_bytes``); a metric is None if it
            was not counted.
        rules: the rules that found a problem.
        device: the model of the device (``NVIDIA H100 80GB HBM3``).
        chip: the device's architecture (``sm_90``).
        ncu_version: version of Nsight Compute.
        instructions: the instructions at which something was counted, in the order of their offsets.
        kernels: all kernels of a CUDA graph or a Python function, in the order in which they ran; the profile is that
            of the longest. Empty if there was only one kernel.
    """

    kernel: str
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    rules: tuple[ProfilerRule, ...] = ()
    device: str = ""
    chip: str = ""
    ncu_version: str = ""
    instructions: tuple[Instruction, ...] = ()
    kernels: tuple[ProfiledKernel, ...] = ()


MIN_NAMED = 0.25
"""The smallest share of the difference with which a reason is named, and of a reason with which a line is named."""


class ReasonKind(StrEnum):
    """What can make one launch slower than another; its absence makes the launch faster."""

    TENSOR = "tensor pipe unused"
    SPILLS = "register spills"
    ATOMICS = "contended atomics"
    BANK_CONFLICTS = "bank conflicts"
    UNCOALESCED = "uncoalesced access"
    CONSTANTS = "divergent constant addresses"
    FP64 = "double precision"
    SPECIAL = "special functions"
    DIVERGENCE = "divergent branches"
    SMALL_LAUNCH = "launch too small"
    OCCUPANCY = "lower occupancy"
    TAIL = "tail effect"
    BARRIERS = "barriers"
    TENSOR_WAIT = "tensor cores wait for shared memory"
    UNROLLING = "lost unrolling"
    INSTRUCTION_CACHE = "instruction cache misses"
    HIT_RATE = "lower hit rate"
    TRAFFIC = "more traffic"
    INSTRUCTIONS = "more instructions"
    CLOCKS = "lower clocks"
    STALLS = "longer stalls"  # of one kind, if none of the above explains them


@dataclass(frozen=True, slots=True)
class Evidence:
    """A metric in two profiles; None if a profile lacks it."""

    metric: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class HotLine:
    """A source line that carries a reason, or the instructions of one opcode without a known source line.

    Attributes:
        share: the share of what shows the reason that was counted here, from 0 to 1.
        instruction: the instruction with the largest count.
        instructions: how many instructions of the line, or of the opcode, count.
        source: the source line; None if it is not known.
        text: the text of the source line; empty if it is not known.
        changed: whether the source of the other launch has another text there.
    """

    share: float
    instruction: str
    instructions: int = 1
    source: SourceLine | None = None
    text: str = ""
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Reason:
    """Something in which two profiles differ, and how much of the difference in time it can account for.

    Attributes:
        share: the share of the difference in time, from 0 to 1; the shares of several reasons may add up to more than
            1.
        detail: how the profiles differ: ``loads 1-way → 32-way``.
        evidence: the metrics that show it.
        rules: rules of the slower profile that agree, and that are missing from the faster profile or have a smaller
            estimate there.
        follows: the reason that this one follows from; None if it stands on its own.
        counted: what shows where the reason is: ``excess sectors``; empty if it concerns the whole launch.
        before: the lines of the baseline with the largest shares of what is counted, the largest first.
        after: the same for the candidate.
    """

    kind: ReasonKind
    share: float
    detail: str
    evidence: tuple[Evidence, ...] = ()
    rules: tuple[ProfilerRule, ...] = ()
    follows: ReasonKind | None = None
    counted: str = ""
    before: tuple[HotLine, ...] = ()
    after: tuple[HotLine, ...] = ()

    @property
    def is_named(self) -> bool:
        """Whether the reason stands on its own, and is large enough to be named."""
        return self.follows is None and self.share >= MIN_NAMED

    def main_line(self, *, slower: bool) -> HotLine | None:
        """Return the line of the slower launch that carries most of the reason; None if no line carries much of it.

        Args:
            slower: whether the candidate is the slower launch.
        """
        line = next(iter(self.after if slower else self.before), None)
        return line if line and line.share >= MIN_NAMED else None


@dataclass(frozen=True, slots=True)
class SourceChange:
    """Neighbouring lines that differ between the sources of two launches.

    Attributes:
        file: the file's name relative to the folder of the source that was compiled.
        before_line: the first of the lines in the baseline's source, from 1.
        after_line: the same in the candidate's source.
        before: the baseline's lines, with single spaces, and empty if they are only a comment; none if the candidate
            added the lines.
        after: the candidate's lines, in the same form; none if the candidate removed the lines.
    """

    file: str
    before_line: int
    after_line: int
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one launch takes longer, or less long, than another.

    Attributes:
        factor: the time after over the time before.
        sentence: the answer with its evidence.
        reasons: the likeliest first; reasons that follow from another come last.
        changes: where the sources of the two launches differ; empty if they are equal or unknown.
    """

    factor: float
    sentence: str
    reasons: tuple[Reason, ...] = ()
    changes: tuple[SourceChange, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """The result of profiling a case's stored binary: its profile, or why there is none.

    Attributes:
        run: the run that stored the binary.
        binary: number of the binary in the store; None if it is no longer stored.
        device: UUID of the device that the binary was launched on.
        profiler: name and version of the profiler.
        sections: the set of sections that was requested.
        profile: the profile of one launch; None if profiling failed.
        launch: index of the profiled launch among the case's launches, from 0.
        reason: why there is no profile, without a full stop.
        cure: what to do about the reason.
        wall_s: seconds that profiling took, without the start of the profiler.
        id: number of the result in the store; None if it is not stored.
    """

    case: Case
    run: int
    binary: int | None
    device: str
    device_model: str
    profiler: str
    sections: str
    profile: Profile | None = None
    launch: int | None = None
    reason: str = ""
    cure: str = ""
    wall_s: float = 0.0
    id: int | None = None

    @property
    def range(self) -> str:
        """The name of the NVTX range in which the launch is found in the profiler's report."""
        return f"{self.case.id} of run {self.run}"


@dataclass(frozen=True, slots=True)
class CaseExplanation:
    """Why a case's binary of one run takes longer than that of another, from the profiles of both.

    Attributes:
        device: UUID of the device on which the case is slower. Both were profiled on it, or on another device of the
            same model; then the sentence says so.
        sentence: the answer; empty if one of the binaries could not be profiled.
        reasons: the reasons with their evidence and their source lines, the likeliest first; empty without a sentence.
        factor: the candidate's time over the baseline's, from the profiles.
        reason: why there is no sentence; empty if there is one.
        profiles: numbers of the two profiles in the store, the baseline's first.
    """

    case: Case
    device: str
    device_model: str
    baseline_run: int | None
    candidate_run: int
    sentence: str = ""
    reasons: tuple[Reason, ...] = ()
    factor: float | None = None
    reason: str = ""
    profiles: tuple[int | None, int | None] = (None, None)

    @property
    def main_reason(self) -> Reason | None:
        """The reason that the sentence names first; None if it names none."""
        return next((reason for reason in self.reasons if reason.is_named), None)

    @property
    def main_line(self) -> HotLine | None:
        """The line of the slower launch that carries most of the main reason; None if no line does."""
        reason = self.main_reason
        return reason.main_line(slower=self.factor is None or self.factor > 1) if reason else None

    @property
    def text(self) -> str:
        """The sentence, or why there is none."""
        return self.sentence or f"not explained: {self.reason}"
