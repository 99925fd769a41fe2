"""What Nsight Compute counted of one launch, and why another one takes longer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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
