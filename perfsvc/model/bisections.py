"""What came of looking for the commit that moved a case."""

from dataclasses import dataclass
from datetime import datetime

from perfsvc.model.cases import CacheState, Case
from perfsvc.model.devices import DeviceInfo
from perfsvc.model.measurements import Measurement
from perfsvc.model.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of the suite's repository.

    Attributes:
        author: name and address.
        date: when it was written.
        parents: their hashes; several of a merge.
    """

    hash: str
    subject: str
    author: str
    date: datetime
    parents: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """As many digits of its hash as people are shown."""
        return self.hash[:10]

    def __str__(self) -> str:
        return f"{self.short} ({self.subject})"


@dataclass(frozen=True, slots=True)
class Trial:
    """Two commits of a case measured in turn.

    Attributes:
        before: the earlier one.
        after: the later one.
        verdict: of the later one against the earlier; None where they were not both measured.
        reason: why, as a sentence without its full stop.
        ratio: later over earlier, with its confidence interval over all looks together.
        looks: how often the two were compared.
        baseline: what each process measured of the earlier one; their replicas count through both sides.
        candidate: likewise of the later one.
    """

    before: Commit
    after: Commit
    verdict: Verdict | None = None
    reason: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    looks: int = 0
    baseline: tuple[Measurement, ...] = ()
    candidate: tuple[Measurement, ...] = ()

    @property
    def pairs(self) -> int:
        """How many times both were measured."""
        return min(len(self.baseline), len(self.candidate))


@dataclass(frozen=True, slots=True)
class SkippedCommit:
    """A commit of which nobody can say whether the case is as in the good one, and why."""

    commit: Commit
    reason: str


@dataclass(frozen=True, slots=True)
class Bisection:
    """The search between two commits for the one that moved a case.

    Attributes:
        good: where it was as it should be.
        bad: a descendant, where it is not.
        threshold: the smallest relevant change, as a fraction.
        seed: decided the order of the processes.
        metric: what was compared.
        commits: how many there are after the good one, up to the bad one.
        builds: at how many of all of them the case was built, the others having the same files.
        compiled: how many binaries the compiler made for that, the others being in the cache.
        codes: how many different codes that gave.
        boundary: the ratio to the good one that is half the way to the bad one, of logarithms; None where the two do
            not differ.
        verdict: of the bad one against the good one.
        reason: what came of it, as a sentence without its full stop.
        culprits: the commit that moved it; several where skipped ones hide which, oldest first; none where the two do
            not differ.
        proof: the newest culprit against the newest good commit below it.
        changed: what is different between those two: ``binary``, ``launch``, ``benchmark file``.
        files: which of the case's files, by their paths in the repository.
        trials: all that was measured, in its order.
        skipped: the commits that could not be told, oldest first.
        wall_s: how long it took.
    """

    case: Case
    device: DeviceInfo
    cache: CacheState
    good: Commit
    bad: Commit
    threshold: float
    seed: int
    metric: str
    commits: int
    builds: int
    compiled: int
    codes: int = 0
    verdict: Verdict = Verdict.INCONCLUSIVE
    reason: str = ""
    boundary: float | None = None
    culprits: tuple[Commit, ...] = ()
    proof: Trial | None = None
    changed: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    skipped: tuple[SkippedCommit, ...] = ()
    wall_s: float = 0.0

    @property
    def proven(self) -> bool:
        """Whether one commit is named, and beside the one below it moves the case as the bad one does."""
        return len(self.culprits) == 1 and self.proof is not None and self.proof.verdict is self.verdict
