"""The tables of runs and measurements (docs/reference/database.md), and the base of all tables.

Only ``migrations/`` creates tables; a test compares the result with these classes. Column names contain their units.
Natural keys are interned: measurements refer to their case, device, environment and binary by id.
"""

from datetime import datetime
from typing import Annotated, Any
from uuid import uuid4

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, LargeBinary, MetaData, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from perfsvc.model import (
    CacheState,
    Cause,
    ChangeKind,
    Direction,
    EventKind,
    ExpectedKind,
    FindingState,
    Limiter,
    RunState,
    StageState,
    Status,
    Verdict,
)
from perfsvc.store.schema.column_types import FreeText, Utc, Word

Key = Annotated[int, mapped_column(primary_key=True)]
Big = Annotated[int, mapped_column(BigInteger)]
Free = Annotated[str, mapped_column(FreeText)]
Uid = Annotated[str, mapped_column(FreeText, unique=True, default=lambda: uuid4().hex)]
"""An identity that is the same in every database to which ``perfsvc sync`` copies the row; ids are not."""

CONSTRAINT_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Every constraint has a name, because Alembic's batch mode for SQLite can alter only named constraints."""


class Base(DeclarativeBase):
    """The metadata of all tables."""

    metadata = MetaData(naming_convention=CONSTRAINT_NAMES)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own name, read once at class creation
        str: FreeText,
        float: Double,
        bytes: LargeBinary,
        datetime: Utc,
        dict[str, Any]: JSON,
        Cause: Word(Cause, Cause.UNCONFIRMED),
        Direction: Word(Direction, Direction.SLOWER),
        EventKind: Word(EventKind, EventKind.COMMENTED),
        ExpectedKind: Word(ExpectedKind, needed=True),
        FindingState: Word(FindingState, FindingState.OPEN),
        Limiter: Word(Limiter),
        CacheState: Word(CacheState, needed=True),
        ChangeKind: Word(ChangeKind, ChangeKind.REGRESSION),
        RunState: Word(RunState, RunState.FAILED),
        StageState: Word(StageState, StageState.FAILED),
        Status: Word(Status, Status.FAILED),
        Verdict: Word(Verdict, Verdict.INCONCLUSIVE),
    }


class Runs(Base):
    """One execution of a plan with its provenance; ``pid`` and ``process_start`` identify its process."""

    __tablename__ = "runs"
    __table_args__ = ({"sqlite_autoincrement": True},)  # people write run ids down: an id is never used again

    id: Mapped[Key]
    uid: Mapped[Uid]
    state: Mapped[RunState]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    label: Mapped[str] = mapped_column(index=True)
    suite: Mapped[Free]
    scope: Mapped[Free] = mapped_column(index=True)
    command_line: Mapped[Free]
    git_commit: Mapped[str] = mapped_column(index=True)
    git_dirty: Mapped[bool]
    git_branch: Mapped[str]
    host: Mapped[str]
    cpu: Mapped[str]
    pid: Mapped[int]
    process_start: Mapped[str]
    perfsvc_version: Mapped[str]
    python_version: Mapped[str]
    packages: Mapped[dict[str, Any]]
    seed: Mapped[Big]
    replicas: Mapped[int]
    full_environment_id: Mapped[int | None] = mapped_column(
        ForeignKey("full_environments.id", ondelete="SET NULL"), index=True
    )


class Devices(Base):
    """A device by its UUID, as it last described itself."""

    __tablename__ = "devices"

    id: Mapped[Key]
    uuid: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]
    spec: Mapped[str]
    model: Mapped[str]
    target: Mapped[str]
    compute_capability: Mapped[str]
    multiprocessors: Mapped[int]
    clock_hz: Mapped[float]
    memory_clock_hz: Mapped[float]
    memory_bytes: Mapped[Big]
    l2_bytes: Mapped[Big]
    shared_bytes_per_block: Mapped[int]
    registers_per_block: Mapped[int]
    warp_size: Mapped[int]
    interconnect: Mapped[Free] = mapped_column(server_default="")


class FullEnvironments(Base):
    """Everything recorded about where runs are measured: ``parts`` is JSON, ``digest`` the SHA-256 of ``parts``."""

    __tablename__ = "full_environments"

    id: Mapped[Key]
    digest: Mapped[str] = mapped_column(unique=True)
    parts: Mapped[Free]


class Environments(Base):
    """What must stay the same for times to be comparable directly.

    ``parts`` is a JSON object of the further parts that the setting ``segments.parts`` chose, ``parts_digest`` the
    SHA-256 of ``parts``, because ``parts`` may be too long for an index.
    """

    __tablename__ = "environments"
    __table_args__ = (
        UniqueConstraint("driver", "toolkit", "power_limit_w", "places", "parts_digest", name="uq_environments"),
    )

    id: Mapped[Key]
    driver: Mapped[str]
    toolkit: Mapped[str]
    power_limit_w: Mapped[float]
    places: Mapped[int]
    parts: Mapped[Free]
    parts_digest: Mapped[str]


class Lineages(Base):
    """The history that the names of a renamed case share."""

    __tablename__ = "lineages"

    id: Mapped[Key]
    started_at: Mapped[datetime]


class Cases(Base):
    """A case under one of its names; ``former`` is true if a later name of its lineage has replaced this name.

    ``point`` is a compact JSON object of axes and values, in the order of the axes; ``name`` is the case id as printed.
    """

    __tablename__ = "cases"
    __table_args__ = (
        UniqueConstraint("benchmark", "variant", "point", "version"),
        Index(
            "uq_cases_present_of_lineage",
            "lineage_id",
            unique=True,
            sqlite_where=text("NOT former"),
            postgresql_where=text("NOT former"),
        ),
        Index(None, "lineage_id", "id"),
    )

    id: Mapped[Key]
    lineage_id: Mapped[int] = mapped_column(ForeignKey("lineages.id", ondelete="RESTRICT"))
    name: Mapped[str] = mapped_column(index=True)
    benchmark: Mapped[str]
    variant: Mapped[str]
    point: Mapped[str]
    version: Mapped[int]
    former: Mapped[bool]


class Artifacts(Base):
    """Bytes by the SHA-256 of their content, compressed with zlib; ``size_bytes`` is the size before compression."""

    __tablename__ = "artifacts"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    size_bytes: Mapped[Big]
    content: Mapped[bytes]


class Binaries(Base):
    """The code of a case as it ran; ``record`` is its replay record as JSON, ``digest`` the SHA-256 of the record.

    ``signatures`` holds signatures of the record (``perfsvc.keys``), which names all of the code by its SHA-256.
    """

    __tablename__ = "binaries"

    id: Mapped[Key]
    digest: Mapped[str] = mapped_column(unique=True)
    record: Mapped[str]
    signatures: Mapped[str]


class BinaryFiles(Base):
    """An artifact that a binary consists of: ``role`` is module, bench, source, lines, python or cubin.

    ``name`` is its name in that role: a path for a source, else the digest.
    """

    __tablename__ = "binary_files"

    binary_id: Mapped[int] = mapped_column(ForeignKey("binaries.id", ondelete="CASCADE"), primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("artifacts.sha256", ondelete="RESTRICT"), index=True)


class PythonCodes(Base):
    """What Python functions ran with: ``record`` is JSON (``PythonCode``), ``digest`` is the SHA-256 of the record.

    ``signatures`` holds signatures of the record, as in ``binaries``.
    """

    __tablename__ = "python_codes"

    id: Mapped[Key]
    digest: Mapped[str] = mapped_column(unique=True)
    record: Mapped[str]
    signatures: Mapped[str]


class Measurements(Base):
    """A case on a device in one replica: its samples and their summary, or why there are none.

    ``samples`` holds the seconds of each sample as a blob (``perfsvc.store.measurements``); the summary is computed
    from the unrounded times. Values that an earlier schema revision did not store are NULL. The device has no index of
    its own: SQLite would prefer it to the index of a case, and one GPU has measured everything.
    """

    __tablename__ = "measurements"
    __table_args__ = (
        UniqueConstraint("run_id", "case_id", "device_id", "replica", "cache"),
        Index(None, "case_id", "device_id", "run_id"),
        Index(None, "environment_id", "run_id", "device_id"),
        Index(None, "run_id", "status", "device_id"),  # counts the measurements of each run
        # Retention looks each night for old samples, and nearly all old measurements have none.
        Index(
            "ix_measurements_with_samples",
            "run_id",
            "case_id",
            sqlite_where=text("samples IS NOT NULL"),
            postgresql_where=text("samples IS NOT NULL"),
        ),
    )

    id: Mapped[Key]
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id", ondelete="RESTRICT"))
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id", ondelete="RESTRICT"))
    environment_id: Mapped[int] = mapped_column(ForeignKey("environments.id", ondelete="RESTRICT"))
    binary_id: Mapped[int | None] = mapped_column(ForeignKey("binaries.id", ondelete="SET NULL"), index=True)
    python_code_id: Mapped[int | None] = mapped_column(ForeignKey("python_codes.id", ondelete="SET NULL"), index=True)
    replica: Mapped[int]
    cache: Mapped[CacheState]
    status: Mapped[Status]
    reason: Mapped[Free]
    cure: Mapped[Free]
    samples: Mapped[bytes | None]
    sample_count: Mapped[int]
    place_medians: Mapped[bytes | None]
    median_s: Mapped[float | None]
    low_s: Mapped[float | None]
    high_s: Mapped[float | None]
    max_error: Mapped[float | None]
    mean_error: Mapped[float | None]
    read_bytes: Mapped[Big]
    written_bytes: Mapped[Big]
    flops: Mapped[Big]
    precision: Mapped[Free] = mapped_column(server_default="")
    link_bytes: Mapped[Big] = mapped_column(server_default="0")
    stopped: Mapped[Free]
    wall_s: Mapped[float]
    measured_at: Mapped[datetime]
    warmup: Mapped[int | None]
    note: Mapped[Free] = mapped_column(server_default="")
    check_s: Mapped[float | None]
    sampling_s: Mapped[float | None]
    busy_s: Mapped[float | None]
    sm_clock_hz: Mapped[float | None]
    temperature_c: Mapped[float | None]
    power_w: Mapped[float | None]
    slowdowns: Mapped[str | None]
    rejected_batches: Mapped[int] = mapped_column(server_default="0")
    variant_index: Mapped[int | None]
    relative_to: Mapped[str] = mapped_column(server_default="")


class MeasurementBatches(Base):
    """A batch of a measurement, numbered in the order of measuring, and the conditions of the GPU during it.

    ``samples`` holds the samples of a rejected batch; accepted samples are in the measurement, batch after batch.
    ``slowdowns``, ``xids`` and ``others`` are lists, separated by a comma and a space.
    """

    __tablename__ = "batches"

    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurements.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    blocked: Mapped[bool]
    kept_ahead: Mapped[bool | None]
    busy_s: Mapped[float]
    rejected: Mapped[Free]
    sample_count: Mapped[int]
    samples: Mapped[bytes | None]
    sm_clock_hz: Mapped[float | None]
    memory_clock_hz: Mapped[float | None]
    temperature_c: Mapped[float | None]
    power_w: Mapped[float | None]
    slowdowns: Mapped[str]
    ecc_errors: Mapped[int]
    xids: Mapped[str]
    others: Mapped[str]


class Metrics(Base):
    """A named value of a measurement; NULL if it was not a number."""

    __tablename__ = "metrics"

    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurements.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]


class Imports(Base):
    """A part of another tool's result file that was imported; ``digest`` is the SHA-256 of its content.

    A part may hold results of several runs, such as a CSV file with several commits.
    """

    __tablename__ = "imports"

    digest: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, index=True)
    format: Mapped[str]
    path: Mapped[Free]
    imported_at: Mapped[datetime]


class NoiseOfCases(Base):
    """The noise of a case's times in a run; the columns have a prefix because ``between`` is a keyword of SQL."""

    __tablename__ = "noise"
    __table_args__ = (Index(None, "case_id", "device_id", "cache", "run_id"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id", ondelete="RESTRICT"), primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id", ondelete="RESTRICT"), primary_key=True)
    cache: Mapped[CacheState] = mapped_column(primary_key=True)
    noise_within: Mapped[float | None]
    noise_between: Mapped[float | None]
    noise_places: Mapped[float | None]
    lowest_place_s: Mapped[float | None]
    highest_place_s: Mapped[float | None]
    replicas: Mapped[int]


class Peaks(Base):
    """The measured peak bandwidths of a GPU's memory at the start of a run."""

    __tablename__ = "peaks"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id", ondelete="RESTRICT"), primary_key=True)
    copy_bytes_per_s: Mapped[float]
    read_bytes_per_s: Mapped[float]


class GpuPeaks(Base):
    """A measured peak of a GPU's arithmetic or L2 cache, which its driver and its power limit may change.

    ``rate`` is operations a second, or bytes a second for the L2 cache. ``version`` is that of the kernels that
    measured it.
    """

    __tablename__ = "gpu_peaks"

    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id", ondelete="RESTRICT"), primary_key=True)
    driver: Mapped[Free] = mapped_column(primary_key=True)
    power_limit_w: Mapped[float] = mapped_column(primary_key=True)
    name: Mapped[Free] = mapped_column(primary_key=True)
    rate: Mapped[float]
    version: Mapped[int]
    measured_at: Mapped[datetime]


class OverBudgetCases(Base):
    """A case that a run did not measure because the budget was used up.

    Later runs look for these rows by lineage, so that they find a case that was renamed meanwhile.
    """

    __tablename__ = "over_budget"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id", ondelete="RESTRICT"), primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id", ondelete="RESTRICT"), primary_key=True)
    cache: Mapped[CacheState] = mapped_column(primary_key=True)


class RemovedUids(Base):
    """The ``uid`` of a run or a night that was removed from this database: it is not copied or received again."""

    __tablename__ = "removed_uids"

    uid: Mapped[Free] = mapped_column(primary_key=True)
    removed_at: Mapped[datetime]
