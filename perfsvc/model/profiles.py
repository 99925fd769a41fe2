"""What a profiler counts of one launch, and why one launch takes longer than another."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from perfsvc.model.cases import Case


@dataclass(frozen=True, slots=True)
class ProfilerRule:
    """What a rule of Nsight Compute found wrong with a launch.

    Attributes:
        name: the rule's identifier (``SharedMemoryConflicts``).
        message: what it says, as one line of plain text.
        speedup: what it estimates could be saved, from 0 to 1, of the launch's time or of what the unit that it speaks
            of is busy; None where it does not.
    """

    name: str
    message: str
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A kernel's launch as Nsight Compute saw it.

    Attributes:
        kernel: the kernel's name.
        metrics: by our names, which end with their unit (``dram_read_bytes``); None where it was not counted.
        rules: those that found something.
        device: the model of the device (``NVIDIA H100 80GB HBM3``).
        chip: the device's architecture (``sm_90``).
        ncu_version: of the Nsight Compute that counted.
    """

    kernel: str
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    rules: tuple[ProfilerRule, ...] = ()
    device: str = ""
    chip: str = ""
    ncu_version: str = ""


class ReasonKind(StrEnum):
    """What can make one launch slower than another; its absence makes it faster."""

    TENSOR = "tensor pipe unused"
    SPILLS = "register spills"
    BANK_CONFLICTS = "bank conflicts"
    UNCOALESCED = "uncoalesced access"
    DIVERGENCE = "divergent branches"
    OCCUPANCY = "lower occupancy"
    TAIL = "tail effect"
    HIT_RATE = "lower hit rate"
    TRAFFIC = "more traffic"
    INSTRUCTIONS = "more instructions"
    CLOCKS = "lower clocks"
    STALLS = "longer stalls"  # of one kind, where nothing above says why


@dataclass(frozen=True, slots=True)
class Evidence:
    """A metric of two profiles; None where one lacks it."""

    metric: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Reason:
    """Something that two profiles differ in, and what it can account for.

    Attributes:
        kind: what it is.
        share: of the difference in time, from 0 to 1; the shares of several reasons may add up to more than 1.
        detail: how the profiles differ in it: ``loads 1-way → 32-way``.
        evidence: the metrics that say so.
        rules: those of the slower profile that say so too, and did not before, or with a smaller estimate.
        follows: another reason that this one comes of; None where it stands for itself.
    """

    kind: ReasonKind
    share: float
    detail: str
    evidence: tuple[Evidence, ...] = ()
    rules: tuple[ProfilerRule, ...] = ()
    follows: ReasonKind | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one launch takes longer than another, or less long.

    Attributes:
        factor: the time after over the time before.
        sentence: the answer, with what it rests on.
        reasons: the likeliest first, those that follow from another at the end.
    """

    factor: float
    sentence: str
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """A case's stored binary that a profiler was let look at: what it counted, or why it did not.

    Attributes:
        run: the run that stored the binary.
        binary: the binary's number in the store; None where nobody knows it any more.
        device: where it was launched (UUID), with ``device_model``.
        profiler: its name and version.
        sections: the set of sections that was asked for.
        profile: of one launch; None where there is none.
        launch: which of the case's launches, from 0.
        reason: why there is no profile, as a sentence without its full stop.
        cure: what to do about that.
        wall_s: how long it took.
        id: its number in the store; None where it is not in there.
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


@dataclass(frozen=True, slots=True)
class CaseExplanation:
    """Why a case's binary of one run takes longer than that of another, by the profiles of both.

    Attributes:
        device: where both were profiled (UUID), with ``device_model``.
        sentence: what it comes from; empty where nobody could look.
        evidence: what the sentence rests on, a line each.
        factor: the candidate's time over the baseline's, as the profiles have it.
        reason: why there is no sentence.
        profiles: the numbers of the two profiles in the store, the baseline's first.
    """

    case: Case
    device: str
    device_model: str
    baseline_run: int | None
    candidate_run: int
    sentence: str = ""
    evidence: tuple[str, ...] = ()
    factor: float | None = None
    reason: str = ""
    profiles: tuple[int | None, int | None] = (None, None)

    @property
    def told(self) -> str:
        """The sentence, or why there is none."""
        return self.sentence or f"not explained: {self.reason}"
