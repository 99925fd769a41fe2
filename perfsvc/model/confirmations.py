"""The result of measuring a suspect again."""

from dataclasses import dataclass

from perfsvc.model.findings import Suspect
from perfsvc.model.measurements import Measurement, Status
from perfsvc.model.verdicts import Cause, Verdict


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A suspect measured again on its device: the baseline's stored binary and the candidate's in A/B pairs.

    Attributes:
        suspect: the suspect as the run saw it.
        cause: why its series moved, as far as this confirmation shows.
        reason: how the cause is known, without a full stop.
        threshold: the smallest relevant change, as a fraction.
        seed: decides the order of the processes.
        budget_s: the most seconds for all suspects of a device together.
        verdict: the verdict on the candidate compared with the baseline, both measured now; None if one of them was not
            measured.
        ratio: the candidate's level over the baseline's; ``low`` and ``high`` are its confidence interval over all
            looks together.
        looks: how often both sides were compared; 0 if an earlier run's answer still holds.
        drift: the level of the baseline's binary now over its stored level; None if no level on this device is stored.
        same_code: True if both binaries are the same code; None if one of them is not stored.
        wall_s: seconds that the measurements of this suspect took.
        baseline: one measurement of the baseline's binary for each process, with replicas numbered over both sides;
            empty if the answer is that of an earlier run or of another GPU of the model.
        candidate: the same for the candidate's binary.
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
        """True if the code is the cause, as written, launched or compiled."""
        return self.cause in {Cause.KERNEL, Cause.LAUNCH, Cause.TOOLCHAIN, Cause.INPUTS}

    @property
    def regressed(self) -> bool:
        """True if the code made the series slower."""
        return self.confirmed and self.verdict is Verdict.REGRESSION

    @property
    def cleared(self) -> bool:
        """True if the environment or noise is the cause."""
        return self.cause.blameless

    @property
    def carried_over(self) -> bool:
        """True if an earlier run's answer still holds, so that nothing was measured."""
        return self.confirmed and not self.looks

    @property
    def failed(self) -> bool:
        """True if a process had no correct result."""
        return any(measurement.status is not Status.OK for measurement in (*self.baseline, *self.candidate))

    @property
    def pairs(self) -> int:
        """The number of A/B pairs."""
        return min(len(self.baseline), len(self.candidate))
