"""What comes back: samples in batches, measurements, estimates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from perfsvc.model.cases import CacheState, Case
from perfsvc.model.devices import Conditions

TIME: Final = "time"
"""The metric of a case's samples."""

UNJUDGED: Final = frozenset({"sm_cycles", "back_to_back_s", "timer_overhead_s", "registers"})
"""Metrics that say why a time is as it is: shown and stored, never judged on their own."""

MAX_ERROR: Final = "max_error"
"""The metric of a right result's error."""

ENERGY: Final = "energy_j"
"""The metric of a sample's energy, in joules, which is measured where somebody asks for it."""

AUXILIARY: Final = UNJUDGED | {ENERGY, MAX_ERROR}
"""All metrics that perfsvc has beside a time. Energy and error are judged like it, and told of where they moved."""


class Status(StrEnum):
    """How a measurement ended."""

    OK = "ok"
    WRONG = "wrong"  # a result beyond its tolerance, or a write outside the buffers
    FAILED = "failed"  # did not compile, was refused, crashed, ran past its time limit
    SKIPPED = "skipped"  # this device cannot run it, or a requirement is not met

    @property
    def severity(self) -> int:
        """How bad it is, from 0 for ok: of several replicas, the one of the greatest severity speaks for the case."""
        return (Status.OK, Status.SKIPPED, Status.FAILED, Status.WRONG).index(self)


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples in a row, between two looks at the GPU.

    Attributes:
        samples_s: their times.
        blocked: each was queued behind the blocking kernel.
        kept_ahead: the host had always queued a sample before the device began it; None where nobody can tell.
        busy_s: how long the device worked on them, cache eviction included and waiting behind the blocking kernel not.
        rejected: why they do not count; empty where they do.
        conditions: of the GPU meanwhile.
    """

    samples_s: tuple[float, ...]
    blocked: bool = False
    kept_ahead: bool | None = None
    busy_s: float = 0.0
    rejected: str = ""
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A case on a device in a replica: its samples, or why there are none.

    Attributes:
        samples_s: of the batches that were not rejected.
        batches: all of them, in the order they were taken; the rejected ones are kept with their reasons.
        warmup: samples taken before them and thrown away.
        note: what a reader of the times has to know, as a sentence without its full stop; empty where it is nothing.
        check_s: seconds of ``wall_s`` that went into checking results, and ``sampling_s`` into taking samples.
        busy_s: seconds that the device worked on samples, warm-up included.
    """

    case: Case
    device: str  # the device's UUID
    replica: int
    status: Status
    cache: CacheState = CacheState.COLD
    reason: str = ""
    cure: str = ""
    samples_s: tuple[float, ...] = ()
    max_error: float | None = None
    mean_error: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    stopped: str = ""  # why sampling stopped
    batches: tuple[Batch, ...] = ()
    warmup: int = 0
    note: str = ""
    wall_s: float = 0.0
    check_s: float = 0.0
    sampling_s: float = 0.0
    busy_s: float = 0.0

    def values_of(self, metric: str) -> tuple[float, ...]:
        """What it has of a metric: of the time its samples in seconds, of any other one value, or none."""
        if metric == TIME:
            return self.samples_s
        value = self.max_error if metric == MAX_ERROR else self.metrics.get(metric)
        return () if value is None else (value,)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number for many times with its confidence interval: of a replica's samples, or of a run's replicas."""

    median_s: float
    low_s: float
    high_s: float
    samples: int


@dataclass(frozen=True, slots=True)
class Noise:
    """The two levels of a case's noise in a run, as relative standard deviations; None where too few tell it.

    Attributes:
        within: of the samples of one replica around its median.
        between: of the replicas' medians beyond what ``within`` explains.
    """

    within: float | None
    between: float | None
