"""What a run measures: batches of samples, measurements, estimates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from perfsvc.model.cases import CacheState, Case
from perfsvc.model.devices import Conditions
from perfsvc.model.steps import PythonCode

TIME: Final = "time"
"""The metric of a case's samples."""

MAX_ERROR: Final = "max_error"
"""The metric of a correct result's error."""

ENERGY: Final = "energy_j"
"""The metric of a sample's energy in joules; measured on request."""

UNJUDGED: Final = frozenset(
    {"sm_cycles", "back_to_back_s", "timer_overhead_s", "steps_s", "registers", "compile_s", "bus_bytes_per_s"}
)
"""Metrics that explain a time. They are shown and stored, never judged."""

AUXILIARY: Final = UNJUDGED | {ENERGY, MAX_ERROR}
"""All metrics that perfsvc itself adds to a time. Energy and error are judged, and shown if they moved.

A benchmark may not use these names, so the changelog has to announce a new one."""


class Status(StrEnum):
    """How a measurement ended."""

    OK = "ok"
    WRONG = "wrong"  # the error exceeds the tolerance, or the case wrote outside its buffers
    FAILED = "failed"  # did not compile, was refused, crashed or exceeded its time limit
    SKIPPED = "skipped"  # this device cannot run it, or a requirement is not met

    @property
    def severity(self) -> int:
        """How bad the status is, from 0 for ok. The worst replica decides the status of a case."""
        return (Status.OK, Status.SKIPPED, Status.FAILED, Status.WRONG).index(self)


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive samples between two readings of the GPU's conditions.

    Attributes:
        samples_s: the times.
        blocked: True if each sample was queued behind the blocking kernel.
        kept_ahead: True if the host had queued every sample before the device started it; None if unknown.
        busy_s: how long the device worked on the samples, with cache eviction and without waiting in the blocking
            kernel.
        rejected: why the samples do not count; empty if they do.
        conditions: the conditions of the GPU during the batch.
    """

    samples_s: tuple[float, ...]
    blocked: bool = False
    kept_ahead: bool | None = None
    busy_s: float = 0.0
    rejected: str = ""
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A case measured on a device in one replica: its samples, or why there are none.

    Attributes:
        device: the device's UUID.
        samples_s: the samples of all batches that were not rejected, without the differences between places.
        places_s: the median of the samples at each place of the case's arrays.
        stopped: why sampling stopped.
        batches: all batches in the order they were taken; a rejected batch is kept with its reason.
        warmup: samples taken first and thrown away.
        note: what a reader of the times has to know, without a full stop; empty if there is nothing to know.
        wall_s: seconds that the whole case took.
        check_s: the part of ``wall_s`` spent on checking results.
        sampling_s: the part of ``wall_s`` spent on taking samples.
        busy_s: seconds that the device worked on samples, including warm-up.
        python: what the Python functions of the case ran with; None if it has none, or no correct result.
        files: the modules and cubins that ``python`` names, by their SHA-256 digests.
    """

    case: Case
    device: str
    replica: int
    status: Status
    cache: CacheState = CacheState.COLD
    reason: str = ""
    cure: str = ""
    samples_s: tuple[float, ...] = ()
    places_s: tuple[float, ...] = ()
    max_error: float | None = None
    mean_error: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    stopped: str = ""
    batches: tuple[Batch, ...] = ()
    warmup: int = 0
    note: str = ""
    wall_s: float = 0.0
    check_s: float = 0.0
    sampling_s: float = 0.0
    busy_s: float = 0.0
    python: PythonCode | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)

    def values_of(self, metric: str) -> tuple[float, ...]:
        """Return the samples in seconds if the metric is the time; for any other metric, return one value or none."""
        if metric == TIME:
            return self.samples_s
        value = self.max_error if metric == MAX_ERROR else self.metrics.get(metric)
        return () if value is None else (value,)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The median of many times with its confidence interval: of a replica's samples, or of a run's replicas."""

    median_s: float
    low_s: float
    high_s: float
    samples: int


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a case in a run by its sources, as relative standard deviations; None if data is too scarce.

    Attributes:
        within: the spread of the samples of one replica around its median.
        between: the spread of the replicas' medians beyond what ``within`` explains.
        places: the spread of the medians at several places of the arrays beyond what ``within`` explains.
        lowest_place_s: the lowest median of a place, in seconds; the mean over the replicas.
        highest_place_s: the highest one.
    """

    within: float | None
    between: float | None
    places: float | None = None
    lowest_place_s: float | None = None
    highest_place_s: float | None = None


@dataclass(frozen=True, slots=True)
class CostHistory:
    """What the newest measurements of a case on a device in a cache state say about its cost, for planning a run.

    Attributes:
        cost_s: the mean seconds of a replica in the newest run that has ended; None if unknown.
        between: the noise between replicas as a relative standard deviation, from the newest run that stored it.
        last: when the case was last measured; None if never.
        runs: how many of the newest runs measured the case.
    """

    cost_s: float | None = None
    between: float | None = None
    last: datetime | None = None
    runs: int = 0
