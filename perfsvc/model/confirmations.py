"""What came of measuring a suspect again."""

from dataclasses import dataclass

from perfsvc.model.findings import Suspect
from perfsvc.model.measurements import Measurement, Status
from perfsvc.model.verdicts import Cause, Verdict


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A suspect measured again on its GPU, the baseline's stored binary and the candidate's in turn.

    Attributes:
        suspect: it, as the night saw it.
        cause: why its series moved, as far as this could tell.
        reason: how that is known, as a sentence without its full stop.
        threshold: the smallest relevant change, as a fraction.
        seed: decided the order of the processes.
        budget_s: how long it might take.
        verdict: of the candidate against the baseline, both measured now; None where they were not both measured.
        ratio: candidate over baseline, with its confidence interval over all looks together.
        looks: how often the two were compared.
        drift: the baseline's binary now over its own stored level; None where there is none of this GPU.
        same_code: whether both binaries are the same code; None where one of them is not stored.
        wall_s: how long it took.
        baseline: what each process measured of the baseline's binary; their replicas count through both sides. None
            where the answer of an earlier night holds still.
        candidate: likewise of the candidate's.
    """

    suspect: Suspect
    cause: Cause
    reason: str
    threshold: float
    seed: int
    budget_s: float
    verdict: Verdict | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    looks: int = 0
    drift: float | None = None
    same_code: bool | None = None
    wall_s: float = 0.0
    baseline: tuple[Measurement, ...] = ()
    candidate: tuple[Measurement, ...] = ()

    @property
    def confirmed(self) -> bool:
        """Whether the code is to blame, as it is written or as it is compiled."""
        return self.cause in {Cause.KERNEL, Cause.TOOLCHAIN}

    @property
    def regressed(self) -> bool:
        """Whether the code is to blame for being slower."""
        return self.confirmed and self.verdict is Verdict.REGRESSION

    @property
    def cleared(self) -> bool:
        """Whether the GPU is, or nothing that stays."""
        return self.cause.blameless

    @property
    def carried_over(self) -> bool:
        """Whether it is the answer of an earlier night, which holds still: nothing was measured for it."""
        return self.confirmed and not self.pairs

    @property
    def failed(self) -> bool:
        """Whether a process had no right result of its binary."""
        return any(one.status is not Status.OK for one in (*self.baseline, *self.candidate))

    @property
    def pairs(self) -> int:
        """How many times both sides were measured."""
        return min(len(self.baseline), len(self.candidate))
