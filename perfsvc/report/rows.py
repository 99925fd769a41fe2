"""What the tables are made of.

Rows of other rooms of this layer (runs, histories) are taken by their shape, so that ``service`` hands them on as they
are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from perfsvc.model import Judgement, Provenance, Series, Status


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One of the metrics that a case returned itself, over all replicas; lower is better.

    Attributes:
        metric: its name.
        value: the median of the replicas' values, in the metric's own unit.
        low: the lowest of them; None where fewer than two replicas tell a spread.
        high: the highest.
        judgement: what the judge says of it; None where it was not judged.
    """

    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    judgement: Judgement | None = None


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A case on a device in one run, over all its replicas.

    Attributes:
        case: the case's id.
        device: UUID of the device.
        device_model: its model.
        device_kind: ``cuda``, ``cpu`` or ``fake``.
        status: of the worst replica.
        reason: why it is not ok.
        cure: what to do about it.
        median_s: the median of the replicas' medians, in seconds.
        low_s: the fastest replica's median; None where fewer than two replicas tell a spread.
        high_s: the slowest replica's.
        bandwidth_bytes_per_s: the work's bytes over the median; None where the work is not known.
        flops_per_s: the work's floating-point operations over the median, likewise.
        max_error: the largest of the replicas.
        mean_error: likewise.
        metrics: what the case returned of itself, by the order of the metrics' names.
        judgement: what the judge says of its time; None where nothing was judged.
    """

    case: str
    device: str
    device_model: str
    device_kind: str
    status: Status
    reason: str = ""
    cure: str = ""
    median_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    bandwidth_bytes_per_s: float | None = None
    flops_per_s: float | None = None
    max_error: float | None = None
    mean_error: float | None = None
    metrics: tuple[MetricRow, ...] = ()
    judgement: Judgement | None = None


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


class HistoryLike(Protocol):
    """A case on a device in one run of its history; times in seconds."""

    @property
    def run(self) -> int:
        """The run's number."""
        ...

    @property
    def started(self) -> datetime:
        """When the run began."""
        ...

    @property
    def commit(self) -> str:
        """The suite's commit."""
        ...

    @property
    def dirty(self) -> bool:
        """Whether the suite had changes beside the commit."""
        ...

    @property
    def label(self) -> str:
        """The run's label."""
        ...

    @property
    def case(self) -> str:
        """The id it was measured under."""
        ...

    @property
    def device(self) -> str:
        """UUID of the device."""
        ...

    @property
    def device_model(self) -> str:
        """Its model."""
        ...

    @property
    def status(self) -> Status:
        """How the measurement ended."""
        ...

    @property
    def reason(self) -> str:
        """Why it is not ok."""
        ...

    @property
    def median_s(self) -> float | None:
        """The level."""
        ...

    @property
    def low_s(self) -> float | None:
        """Where its interval begins."""
        ...

    @property
    def high_s(self) -> float | None:
        """Where its interval ends."""
        ...
