"""What a profiler was asked for, and what came of it."""

from dataclasses import dataclass

from perfsvc.model.profiles import Profile
from perfsvc.model.timed import Case


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
