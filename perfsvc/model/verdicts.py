"""What is judged: series, their levels, verdicts."""

from dataclasses import dataclass
from enum import StrEnum

from perfsvc.model.cases import CacheState, Case
from perfsvc.model.measurements import TIME, Status


class Verdict(StrEnum):
    """What a comparison says of one series."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"
    BROKEN = "broken"  # the candidate has no right result
    NEW = "new"  # the baseline does not have it
    MISSING = "missing"  # the candidate does not have it


class Cause(StrEnum):
    """Why a series moved."""

    KERNEL = "kernel"  # its code: confirmed by measuring both binaries again, in turn
    TOOLCHAIN = "toolchain"  # another compiler made other code of an equal source
    ENVIRONMENT = "environment"  # the GPU, its driver or its host
    NOISE = "noise"  # nothing that stays
    UNCONFIRMED = "unconfirmed"  # nobody measured both sides again, or nobody can

    @property
    def blameless(self) -> bool:
        """Whether no code can be at fault: what moved is shown with its cause, and is no alarm."""
        return self in {Cause.ENVIRONMENT, Cause.NOISE}


@dataclass(frozen=True, slots=True)
class Series:
    """The history of a case on one device, one metric, one cache state; ``case`` bears the variant's present name."""

    case: Case
    device: str  # UUID
    device_model: str
    metric: str = TIME
    cache: CacheState = CacheState.COLD


@dataclass(frozen=True, slots=True)
class Level:
    """A series as one run saw it: a tuple of values for each replica that has any, or why there is none."""

    run: int
    status: Status
    reason: str = ""
    replicas: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one series.

    Attributes:
        ratio: candidate over baseline, with its confidence interval.
        baseline_s: the level that it was compared with, in seconds or in the metric's own unit.
        candidate_s: its level, likewise.
        smallest: the smallest change that could have been seen, as a fraction; None where nothing tells it.
        baseline_replicas: how many the baseline's level rests on.
        candidate_replicas: how many the candidate's does.
        cause: why it moved; None where it did not.
    """

    series: Series
    verdict: Verdict
    reason: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    baseline_run: int | None = None
    candidate_run: int | None = None
    baseline_s: float | None = None
    candidate_s: float | None = None
    smallest: float | None = None
    baseline_replicas: int | None = None
    candidate_replicas: int | None = None
    cause: Cause | None = None
