"""The result of searching for the commit that moved or broke a case."""

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
        parents: their hashes; several for a merge.
    """

    hash: str
    subject: str
    author: str
    date: datetime
    parents: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The abbreviated hash that people see."""
        return self.hash[:10]

    def __str__(self) -> str:
        return f"{self.short} ({self.subject})"


@dataclass(frozen=True, slots=True)
class Trial:
    """A case at two commits, measured in A/B pairs; of a broken case, a check of the later commit in one process.

    Attributes:
        before: the earlier commit; the good commit of the search if only ``after`` was checked.
        after: the later commit.
        verdict: the verdict on the later commit compared with the earlier; None if one of them was not measured.
        reason: the reason for the verdict, without a full stop.
        ratio: the later commit's level over the earlier's; ``low`` and ``high`` are its confidence interval over all
            looks together.
        looks: how often both commits were compared.
        baseline: one measurement of the earlier commit for each process, with replicas numbered over both sides.
        candidate: the same for the later commit.
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
        """The number of A/B pairs."""
        return min(len(self.baseline), len(self.candidate))


@dataclass(frozen=True, slots=True)
class SkippedCommit:
    """A commit that cannot be called good or bad, and why."""

    commit: Commit
    reason: str


@dataclass(frozen=True, slots=True)
class Bisection:
    """The search between a good and a bad commit for the commit that moved a case, or left it without a correct result.

    Attributes:
        good: a commit at which the case is still good.
        bad: a descendant of ``good`` at which the case is bad.
        threshold: the smallest relevant change, as a fraction.
        seed: decides the order of the processes.
        metric: what was compared.
        commits: number of commits after the good one, up to the bad one.
        builds: number of commits at which the case was built; the others have the same files.
        compiled: number of binaries that were compiled for this search; the others came from the cache.
        codes: number of commits that differ in the case's code.
        boundary: the ratio to the good commit's level above or below which a commit is bad: halfway to the bad commit's
            ratio on a logarithmic scale; None if good and bad do not differ.
        verdict: the verdict on the bad commit compared with the good one; ``broken`` if it has no correct result.
        reason: the result, without a full stop.
        culprits: the commit that moved or broke the case; several commits, oldest first, if skipped commits hide which
            of them did; empty if good and bad do not differ.
        proof: the newest culprit measured against the newest good commit below it.
        changed: what differs between the two commits of ``proof``: ``binary``, ``launch``, ``benchmark file``; empty if
            the case cannot be built at the culprit.
        files: the case's files that differ between these two commits, as paths in the repository.
        trials: everything that was measured, in order.
        skipped: the skipped commits, oldest first.
        wall_s: seconds that the search took.
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
        """True if there is one culprit, and measuring it against a good commit gave the verdict of the bad commit."""
        return len(self.culprits) == 1 and self.proof is not None and self.proof.verdict is self.verdict


@dataclass(frozen=True, slots=True)
class StoredBisection:
    """A bisection that was stored with a finding, and when. Of the samples of each process, only the median is left."""

    bisection: Bisection
    at: datetime
