"""What the tables are made of.

Rows of other rooms of this layer (runs, histories) are taken by their shape, so that ``service`` hands them on as they
are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from perfsvc.model import Case, Judgement, Mode, Provenance, Series, Status


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One of the metrics that a case returned itself, over all replicas; lower is better.

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
    """A case on a device in one run, over all its replicas.

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
        metrics: what the case returned of itself, by the order of the metrics' names.
        judgement: what the judge says of its time; None where nothing was judged.
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


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run that is compared, and what it was called by who asked: ``main``, ``latest~1``, ``7``."""

    asked: str
    run: int
    label: str = ""
    commit: str = ""
    dirty: bool = False


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
    """

    run: int
    started: datetime
    commit: str
    dirty: bool
    label: str
    case: str
    device: str
    device_model: str
    mode: Mode
    status: Status
    reason: str
    median_s: float | None
    low_s: float | None
    high_s: float | None
    replicas: int


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
