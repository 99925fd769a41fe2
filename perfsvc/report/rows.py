"""What the tables are made of.

Rows of other rooms of this layer (runs, histories) are taken by their shape, so that ``service`` hands them on as they
are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from perfsvc.errors import SuiteError
from perfsvc.model import CacheState, Case, Judgement, Peak, Provenance, Series, Status

SEPARATOR = "; "
"""Between the sentences of a note, and the reasons why sampling stopped."""

Key = tuple[str, str, CacheState]
"""What has a row: a device's UUID, a case's id and a cache state."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One of a case's metrics beside its time, over all replicas; lower is better.

    Attributes:
        metric: its name.
        value: its level, in the metric's own unit; None where the run does not have it.
        low: where the level's interval begins; None where a single replica tells no spread.
        high: where it ends.
        judgement: what the judge says of it; None where it was not judged.
    """

    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    judgement: Judgement | None = None


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A case in one cache state on a device in one run, over all its replicas.

    Attributes:
        case: the case.
        device: UUID of the device.
        device_model: its model.
        device_kind: ``cuda``, ``cpu`` or ``fake``.
        status: of the worst replica; None for a case that is missing: the run before had it and this one does not.
        reason: why it is not ok.
        cure: what to do about it.
        replicas: how many were ok.
        median_s: the level of its time, in seconds; None where any replica is not ok.
        low_s: where the level's interval begins; None where a single sample tells no spread.
        high_s: where it ends.
        bandwidth_bytes_per_s: the work's bytes over the level; None where the work is not known.
        flops_per_s: the work's floating-point operations over the level, likewise.
        max_error: the largest of the replicas.
        mean_error: likewise.
        metrics: what else is known of the case, by the order of the metrics' names.
        judgement: what the judge says of its time; None where nothing was judged.
        cache: the state of the L2 cache before each sample.
        peak_share: its bandwidth over the better of the GPU's measured peaks; None where either is not known.
        relative_to: the variant that it is held against; empty where there is none.
        relative_speed: the reference variant's median over its own; None where the run has no time of either.
        noise_within: relative deviation of its samples around their replica's median.
        noise_between: of the replicas' medians beyond what that explains.
        stopped: why sampling stopped, each reason once.
        notes: what a reader of its time has to know, each once.
    """

    case: Case
    device: str
    device_model: str
    device_kind: str
    status: Status | None
    reason: str = ""
    cure: str = ""
    replicas: int = 0
    median_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    bandwidth_bytes_per_s: float | None = None
    flops_per_s: float | None = None
    max_error: float | None = None
    mean_error: float | None = None
    metrics: tuple[MetricRow, ...] = ()
    judgement: Judgement | None = None
    cache: CacheState = CacheState.COLD
    peak_share: float | None = None
    relative_to: str = ""
    relative_speed: float | None = None
    noise_within: float | None = None
    noise_between: float | None = None
    stopped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Doubt:
    """A case whose declared work no memory can have moved in the time it took.

    Attributes:
        declared_bytes: read and written by a launch, as its benchmark says.
        bytes_per_s: what that would mean.
        roof_bytes_per_s: what its GPU was measured to move at most.
    """

    case: Case
    device: str
    cache: CacheState
    declared_bytes: int
    bytes_per_s: float
    roof_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run that is compared, and what it was called by who asked: ``main``, ``latest~1``, ``7``."""

    asked: str
    run: int
    label: str = ""
    commit: str = ""
    dirty: bool = False

    @property
    def words(self) -> str:
        """What was asked for and what it is: ``HEAD = run 7, 1a2b3c4d5 with uncommitted changes``."""
        run = f"run {self.run}"
        named = run if self.asked == str(self.run) else f"{self.asked} = {run}"
        label = f"“{self.label}”" if self.label not in {"", self.asked} else ""
        commit = self.commit[:9] + (" with uncommitted changes" if self.dirty else "")
        return ", ".join(filter(None, [named, label, commit]))


@dataclass(frozen=True, slots=True)
class RunDetails:
    """What one run tells of a case beside its time, over all its replicas; None and empty where it cannot say.

    Attributes:
        stopped: why sampling stopped, each reason once.
        note: what a reader of the time has to know, each once.
        noise_within: relative deviation of the samples around their replica's median.
        noise_between: of the replicas' medians beyond what that explains.
        bandwidth_bytes_per_s: the work's bytes over the level.
        flops_per_s: its operations over the level.
        peak_share: the bandwidth over the better of the GPU's measured peaks.
        relative_speed: the reference variant's median over the level.
        sm_clock_hz: the true clock, the mean of the replicas.
        temperature_c: the highest.
        power_w: the highest.
        slowdowns: why clocks were lowered, each reason once.
        rejected_batches: how many do not count.
        metrics: the level of each.
    """

    stopped: str = ""
    note: str = ""
    noise_within: float | None = None
    noise_between: float | None = None
    bandwidth_bytes_per_s: float | None = None
    flops_per_s: float | None = None
    peak_share: float | None = None
    relative_speed: float | None = None
    sm_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    slowdowns: str = ""
    rejected_batches: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A case in one run on one device, over all its replicas.

    Attributes:
        case: the id it was measured under, which may be a former name.
        status: of the worst replica.
        reason: why it is not ok.
        median_s: the level of its time, in seconds; None where any replica is not ok, or it is not timed.
        low_s: where the level's interval begins.
        high_s: where it ends.
        replicas: how many were ok.
        details: what else is known of it; only of the newest run on a device and in a cache state.
        why: what made it slower than its baseline, where both were profiled; else empty.
    """

    run: int
    started: datetime
    commit: str
    dirty: bool
    label: str
    case: str
    device: str
    device_model: str
    cache: CacheState
    status: Status
    reason: str
    median_s: float | None
    low_s: float | None
    high_s: float | None
    replicas: int
    details: RunDetails | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One thing that ``perfsvc doctor`` looked at.

    Attributes:
        check: what was looked for.
        ok: whether it is there; None where it is not, and only some work needs it.
        found: what was found.
        cure: what to do where it is not ok.
    """

    check: str
    ok: bool | None
    found: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """All that is shown of a run.

    Attributes:
        rows: of its cases.
        problems: benchmark files that cannot be used.
        peaks: of its GPUs, by UUID.
        over_budget: what it had no time for.
        doubts: declared work that cannot be right.
    """

    run: int
    rows: Sequence[ResultRow]
    problems: Sequence[SuiteError] = ()
    peaks: Mapping[str, Peak] = field(default_factory=dict)
    over_budget: Sequence["OverBudgetLike"] = ()
    doubts: Sequence[Doubt] = ()


class RunLike(Protocol):
    """A run as a list shows it."""

    @property
    def id(self) -> int:
        """Its number."""
        ...

    @property
    def state(self) -> str:
        """Running, finished, or how it ended early."""
        ...

    @property
    def provenance(self) -> Provenance:
        """Where it came from."""
        ...

    @property
    def counts(self) -> Mapping[Status, int]:
        """Measurements by status."""
        ...

    @property
    def cases(self) -> int:
        """How many distinct cases it measured."""
        ...

    @property
    def devices(self) -> tuple[str, ...]:
        """UUIDs of its devices."""
        ...


class PinLike(Protocol):
    """A series whose baseline a person fixed."""

    @property
    def series(self) -> Series:
        """What is compared."""
        ...

    @property
    def run(self) -> int:
        """The run it is compared with."""
        ...

    @property
    def set_at(self) -> datetime:
        """When it was pinned."""
        ...

    @property
    def set_by(self) -> str:
        """Who pinned it."""
        ...

    @property
    def comment(self) -> str:
        """Why."""
        ...


class OverBudgetLike(Protocol):
    """A case in one cache state that a run did not measure on a device, for want of time."""

    @property
    def device(self) -> str:
        """UUID of the device."""
        ...

    @property
    def case(self) -> Case:
        """The case."""
        ...

    @property
    def cache(self) -> CacheState:
        """Its cache state."""
        ...

    @property
    def reason(self) -> str:
        """Why there was no time for it."""
        ...
