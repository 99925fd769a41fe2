"""What the store takes and returns besides the classes of the model: frozen rows without SQLAlchemy."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from perfsvc.model import (
    CacheState,
    Case,
    Cause,
    DeviceInfo,
    Environment,
    Estimate,
    Measurement,
    Message,
    Provenance,
    PythonCode,
    ReplayRecord,
    Status,
    Verdict,
    Work,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CaseKey = tuple[str, Case, CacheState]
"""What a run measures once in each replica: the device (UUID), the case and the cache state."""


# --- runs and measurements -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MeasurementEntry:
    """A measurement with everything that is stored with it.

    Attributes:
        measurement: the measurement, on a device that is in the database.
        environment: the environment of the measurement.
        work: the work of one launch, from which bandwidth is derived.
        estimate: the median of the samples; None if there are no samples.
        binary: an id that ``store.binaries.put`` returned; None if there is no binary.
        variant_index: the position of the variant in its benchmark, from 0; None if unknown.
        relative_to: the reference variant; empty if there is none.
        measured_at: when it was measured; None for now.
    """

    measurement: Measurement
    environment: Environment
    work: Work
    estimate: Estimate | None = None
    binary: int | None = None
    variant_index: int | None = None
    relative_to: str = ""
    measured_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """A run that another tool measured, before it is stored.

    Attributes:
        provenance: where the run comes from.
        devices: the devices of its measurements.
        entries: its measurements; they are read while the run is stored, so that few of them are in memory.
        format: the format of its files.
        parts: the digest of each part of its files, with the path of the file.
    """

    provenance: Provenance
    devices: Collection[DeviceInfo]
    entries: Iterable[MeasurementEntry]
    format: str
    parts: Mapping[str, str]


class CasesInRun(NamedTuple):
    """What a run had of each case, by the present id of the case.

    Attributes:
        measured: the cases that a device ran, with the UUIDs of these devices.
        correct: the cases with a correct result.
        skipped: why each case that no device ran was skipped.
        over_budget: the cases that the budget had no time for.
        references: the variants with which other variants were compared (``relative_to``): ``matmul/cublas``.
    """

    measured: Mapping[str, Collection[str]]
    correct: Collection[str]
    skipped: Mapping[str, str]
    over_budget: Collection[str]
    references: Collection[str]


@dataclass(frozen=True, slots=True)
class StoredSamples:
    """The samples of a measurement.

    Attributes:
        case: the case id in the run.
        device: the UUID of the device.
        times_s: the seconds of each sample, shape (samples,).
    """

    case: str
    device: str
    cache: CacheState
    replica: int
    times_s: "NDArray[np.float32]"


class GpuRun(NamedTuple):
    """A run that measured on a GPU.

    Attributes:
        device: the UUID of the GPU.
        run: the number of the run.
        started: when the run began.
    """

    device: str
    run: int
    started: datetime


@dataclass(frozen=True, slots=True)
class DeviceInRun:
    """What a run measured on a device, and in which conditions. A value that the device does not report is None.

    Attributes:
        environment_id: the environment of its measurements; the newest of several, such as those of two compilers.
        statuses: the number of measurements by status.
        rejected_batches: the number of disturbed batches.
        ecc_errors: memory errors that could not be corrected.
        sm_clock_hz: the lowest clock of a measurement, as counted on the device.
        temperature_c: the highest temperature of a measurement.
        power_w: the highest power of a measurement.
        slowdowns: why the clocks were lowered, sorted.
        xids: faults that the driver reported, sorted.
        others: ids of other processes that used the device, sorted.
    """

    device: str
    device_model: str
    environment_id: int
    statuses: Mapping[Status, int]
    rejected_batches: int
    ecc_errors: int
    sm_clock_hz: float | None
    temperature_c: float | None
    power_w: float | None
    slowdowns: tuple[str, ...]
    xids: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def measured(self) -> int:
        """The number of measurements, without skipped measurements."""
        return sum(count for status, count in self.statuses.items() if status is not Status.SKIPPED)

    @property
    def failed(self) -> int:
        """The number of measurements that were wrong or failed."""
        return self.statuses.get(Status.WRONG, 0) + self.statuses.get(Status.FAILED, 0)


# --- series ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class CaseQuantities:
    """What some runs measured of a case on a device besides its times and named metrics, the oldest run first.

    Each array has the shape (runs,).

    Attributes:
        runs: the numbers of the runs; a run is absent if a replica of the case is not ok.
        max_error: the largest error of a result of any replica; NaN if no result was checked.
        moved_bytes: the bytes that a launch reads and writes; 0 if unknown, like ``flops`` and ``link_bytes``.
        flops: the operations of a launch.
        precision: of the operations, as an index of ``PRECISIONS``; -1 if unknown.
        link_bytes: the bytes of a launch over the busiest link between two GPUs.
        registers: the registers of a thread of the kernel that needs most; NaN if ``perfsvc check`` did not look at
            the commit of the run with the same compiler and for the architecture of the device.
        spilled_bytes: the bytes that all kernels move to the stack and back because registers ran out; NaN likewise.
    """

    runs: "NDArray[np.int64]"
    max_error: "NDArray[np.float64]"
    moved_bytes: "NDArray[np.float64]"
    flops: "NDArray[np.float64]"
    precision: "NDArray[np.int64]"
    link_bytes: "NDArray[np.float64]"
    registers: "NDArray[np.float64]"
    spilled_bytes: "NDArray[np.float64]"


@dataclass(frozen=True, slots=True, eq=False)
class SeriesHistory:
    """The history of a series as arrays, oldest run first.

    Attributes:
        runs: the numbers of the runs, shape (runs,).
        segments: the id of the environment of each run, shape (runs,).
        level: the level of each run, shape (runs,); NaN without a correct result.
        low: the lower end of its interval; of a single replica, that of the median of its samples. NaN if unknown.
        high: the upper end of the same interval.
        replicas: how many replicas each run has; 0 without a correct result.
        bad: the status and the reason of the worst replica, by the index of each run in which a replica is not ok.
        excluded: why a run is excluded from judging, by its index.
    """

    runs: "NDArray[np.int64]"
    segments: "NDArray[np.int64]"
    level: "NDArray[np.float64]"
    low: "NDArray[np.float64]"
    high: "NDArray[np.float64]"
    replicas: "NDArray[np.int64]"
    bad: Mapping[int, tuple[Status, str]] = field(default_factory=dict)
    excluded: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.runs)


@dataclass(frozen=True, slots=True)
class VerdictEvent:
    """A verdict that is an event in the history of a series: the series moved, broke or went missing."""

    run: int
    verdict: Verdict
    ratio: float | None
    cause: Cause | None


class UsedCode(NamedTuple):
    """The code that a case used in a run, by ids: equal ids are equal code, different ids may be.

    Attributes:
        binary: the id of the binary.
        python: the id of what its Python functions ran with; None if nothing is stored.
    """

    binary: int
    python: int | None


# --- binaries --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CaseCode:
    """The code of a case as it runs.

    Attributes:
        modules: the compiled modules by the digests that the record names.
        bench: the benchmark file that the record names.
        sources: source files by name, for people to read.
        lines: for modules whose source lines are known, by digest: the encoded lines (``build.lines``).
        built_with: what else decides the modules (``build.Binary.built_with``).
    """

    record: ReplayRecord
    modules: Mapping[str, bytes]
    bench: bytes
    sources: Mapping[str, bytes]
    lines: Mapping[str, bytes] = field(default_factory=dict)
    built_with: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CaseBinary:
    """What a case used in a run.

    Attributes:
        binary: the id of the case's binary; None without a binary.
        environment: the environment of the measurement.
        python: what the case's Python functions ran with; None if the case has no such function, or if this is unknown.
    """

    binary: int | None
    environment: Environment
    python: PythonCode | None = None


@dataclass(frozen=True, slots=True)
class BinaryRow:
    """A binary without its bytes.

    Attributes:
        sources: the names and SHA-256 digests of the source files.
        built_with: the same for what else decides its modules.
    """

    record: ReplayRecord
    sources: frozenset[tuple[str, str]]
    built_with: frozenset[tuple[str, str]] = frozenset()


# --- messages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A message that has not reached one of its targets.

    Attributes:
        night: the night that the message reports; None for a message of ``perfsvc watchdog``.
        target: the name of the target in the settings.
    """

    message: Message
    night: int | None
    target: str


# --- the database ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The state of a database: its schema revision, the revision that this perfsvc writes (head), and its problems."""

    url: str
    revision: str
    head: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return True if this perfsvc can use the database as it is."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The result of an upgrade: the revisions before (empty for an empty database) and after, and the backup if any."""

    before: str
    after: str
    backup: Path | None
