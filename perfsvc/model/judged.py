"""What is judged: series, their levels, verdicts."""

from dataclasses import dataclass
from enum import StrEnum

from perfsvc.model.measured import TIME, Status
from perfsvc.model.timed import Case, Mode


class Verdict(StrEnum):
    """What a comparison says of one series."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"
    BROKEN = "broken"  # the candidate has no right result
    NEW = "new"  # the baseline does not have it
    MISSING = "missing"  # the candidate does not have it


@dataclass(frozen=True, slots=True)
class Series:
    """The history of a case on one device, one metric, one mode; ``case`` bears the variant's present name."""

    case: Case
    device: str  # UUID
    device_model: str
    metric: str = TIME
    mode: Mode = Mode.COLD


@dataclass(frozen=True, slots=True)
class Level:
    """A series as one run saw it: a tuple of values for each replica that has any, or why there is none."""

    run: int
    status: Status
    reason: str = ""
    replicas: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one series; ``ratio`` is candidate over baseline with its confidence interval."""

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
