"""The tables of runs and measurements (docs/reference/database.md).

Only ``migrations/`` creates tables; a test compares the result with these classes. Column names contain their units.
Natural keys are interned: measurements refer to their case, device, environment and binary by id.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ColumnElement, ForeignKey, Index, UniqueConstraint

from perfsvc.model import CacheState, Cause, RunState, Status, Verdict
from perfsvc.store.schema.base import Base, Big, Key, Uid, column, partial_index

BY_KEY = {"sqlite_with_rowid": False}
"""The option of a table that SQLite stores in the order of its primary key, without an index beside it.

A table with many small rows takes a quarter less space.
"""


class Runs(Base):
    """One execution of a plan with its provenance; ``pid`` and ``process_start`` identify its process.

    ``cases`` is how many cases it measured; NULL until it ends.
    """

    __tablename__ = "runs"
    __table_args__ = ({"sqlite_autoincrement": True},)  # people write run ids down: an id is never used again

    id: ColumnElement[Key]
    uid: ColumnElement[Uid]
    state: ColumnElement[RunState]
    started_at: ColumnElement[datetime]
    finished_at: ColumnElement[datetime | None]
    label: ColumnElement[str] = column(index=True)
    suite: ColumnElement[str]
    scope: ColumnElement[str] = column(index=True)
    command_line: ColumnElement[str]
    git_commit: ColumnElement[str] = column(index=True)
    git_dirty: ColumnElement[bool]
    git_branch: ColumnElement[str]
    host: ColumnElement[str]
    cpu: ColumnElement[str]
    pid: ColumnElement[int]
    process_start: ColumnElement[str]
    perfsvc_version: ColumnElement[str]
    python_version: ColumnElement[str]
    packages: ColumnElement[dict[str, Any]]
    seed: ColumnElement[Big]
    replicas: ColumnElement[int]
    cases: ColumnElement[int | None]
    full_environment_id: ColumnElement[int | None] = column(
        ForeignKey("full_environments.id", ondelete="SET NULL"), index=True
    )


class Devices(Base):
    """A device by its UUID, as it last described itself."""

    __tablename__ = "devices"

    id: ColumnElement[Key]
    uuid: ColumnElement[str] = column(unique=True)
    kind: ColumnElement[str]
    spec: ColumnElement[str]
    model: ColumnElement[str]
    target: ColumnElement[str]
    compute_capability: ColumnElement[str]
    multiprocessors: ColumnElement[int]
    clock_hz: ColumnElement[float]
    memory_clock_hz: ColumnElement[float]
    memory_bytes: ColumnElement[Big]
    l2_bytes: ColumnElement[Big]
    shared_bytes_per_block: ColumnElement[int]
    registers_per_block: ColumnElement[int]
    warp_size: ColumnElement[int]
    interconnect: ColumnElement[str] = column(server_default="")


class FullEnvironments(Base):
    """Everything recorded about where runs are measured: ``parts`` is JSON, ``digest`` the SHA-256 of ``parts``."""

    __tablename__ = "full_environments"

    id: ColumnElement[Key]
    digest: ColumnElement[str] = column(unique=True)
    parts: ColumnElement[str]


class Environments(Base):
    """What must stay the same for times to be comparable directly.

    ``parts`` is a JSON object of the further parts that the setting ``segments.parts`` chose, ``parts_digest`` the
    SHA-256 of ``parts``, because ``parts`` may be too long for an index.
    """

    __tablename__ = "environments"
    __table_args__ = (
        UniqueConstraint("driver", "toolkit", "power_limit_w", "places", "parts_digest", name="uq_environments"),
    )

    id: ColumnElement[Key]
    driver: ColumnElement[str]
    toolkit: ColumnElement[str]
    power_limit_w: ColumnElement[float]
    places: ColumnElement[int]
    parts: ColumnElement[str]
    parts_digest: ColumnElement[str]


class Cases(Base):
    """A case under its present name.

    ``point`` is a compact JSON object of axes and values, in the order of the axes; ``name`` is the case id as printed.
    """

    __tablename__ = "cases"
    __table_args__ = (UniqueConstraint("benchmark", "variant", "point", "version"),)

    id: ColumnElement[Key]
    name: ColumnElement[str] = column(index=True)
    benchmark: ColumnElement[str]
    variant: ColumnElement[str]
    point: ColumnElement[str]
    version: ColumnElement[int]


class FormerNames(Base):
    """A variant and a name that a case had before; ``until_run`` is the last run that knew the case by them.

    ``until_run`` is NULL if no run did: the case was measured under its present name first. It is no foreign key,
    because the run may be deleted.
    """

    __tablename__ = "former_names"

    case_id: ColumnElement[int] = column(ForeignKey("cases.id", ondelete="CASCADE"), primary_key=True)
    variant: ColumnElement[str] = column(primary_key=True)
    name: ColumnElement[str] = column(index=True)
    until_run: ColumnElement[int | None]


class Artifacts(Base):
    """Bytes by the SHA-256 of their content, compressed with zlib; ``size_bytes`` is the size before compression."""

    __tablename__ = "artifacts"

    sha256: ColumnElement[str] = column(primary_key=True)
    kind: ColumnElement[str]
    size_bytes: ColumnElement[Big]
    content: ColumnElement[bytes]


class Binaries(Base):
    """The code of a case as it ran; ``record`` is its replay record as JSON, ``digest`` the SHA-256 of the record.

    ``signatures`` holds signatures of the record (``perfsvc.keys``), which names all of the code by its SHA-256.
    """

    __tablename__ = "binaries"

    id: ColumnElement[Key]
    digest: ColumnElement[str] = column(unique=True)
    record: ColumnElement[str]
    signatures: ColumnElement[str]


class BinaryFiles(Base):
    """An artifact of a binary: ``role`` is module, bench, source, built with, lines, python or cubin.

    ``name`` is its name in that role: a path for a source, what it is for ``built with``, else the digest.
    """

    __tablename__ = "binary_files"

    binary_id: ColumnElement[int] = column(ForeignKey("binaries.id", ondelete="CASCADE"), primary_key=True)
    role: ColumnElement[str] = column(primary_key=True)
    name: ColumnElement[str] = column(primary_key=True)
    sha256: ColumnElement[str] = column(ForeignKey("artifacts.sha256", ondelete="RESTRICT"), index=True)


class PythonCodes(Base):
    """What Python functions ran with: ``record`` is JSON (``PythonCode``), ``digest`` is the SHA-256 of the record.

    ``signatures`` holds signatures of the record, as in ``binaries``.
    """

    __tablename__ = "python_codes"

    id: ColumnElement[Key]
    digest: ColumnElement[str] = column(unique=True)
    record: ColumnElement[str]
    signatures: ColumnElement[str]


class Measurements(Base):
    """A case on a device in one replica: its samples and their summary, or why there are none.

    ``samples`` holds the seconds of each sample as a blob (``perfsvc.store.measurements``), and ``batches`` the batches
    (``perfsvc.store.measurements.batches``). The summary is computed from the unrounded times. ``slowdowns``, ``xids``
    and ``others`` are lists, separated by a comma and a space. Values that an earlier schema revision did not store are
    NULL. The device has no index of its own: SQLite would prefer it to the index of a case, and one GPU has measured
    everything.
    """

    __tablename__ = "measurements"
    __table_args__ = (
        UniqueConstraint("run_id", "case_id", "device_id", "replica", "cache"),
        Index(None, "case_id", "device_id", "run_id"),
        Index(None, "environment_id", "run_id", "device_id"),
        # Retention looks each night for old samples, and nearly all old measurements have none.
        partial_index("ix_measurements_with_samples", "run_id", "case_id", where="samples IS NOT NULL"),
    )

    id: ColumnElement[Key]
    run_id: ColumnElement[int] = column(ForeignKey("runs.id", ondelete="CASCADE"))
    case_id: ColumnElement[int] = column(ForeignKey("cases.id", ondelete="RESTRICT"))
    device_id: ColumnElement[int] = column(ForeignKey("devices.id", ondelete="RESTRICT"))
    environment_id: ColumnElement[int] = column(ForeignKey("environments.id", ondelete="RESTRICT"))
    binary_id: ColumnElement[int | None] = column(ForeignKey("binaries.id", ondelete="SET NULL"), index=True)
    python_code_id: ColumnElement[int | None] = column(ForeignKey("python_codes.id", ondelete="SET NULL"), index=True)
    replica: ColumnElement[int]
    cache: ColumnElement[CacheState]
    status: ColumnElement[Status]
    reason: ColumnElement[str]
    cure: ColumnElement[str]
    sample_count: ColumnElement[int]
    median_s: ColumnElement[float | None]
    low_s: ColumnElement[float | None]
    high_s: ColumnElement[float | None]
    max_error: ColumnElement[float | None]
    mean_error: ColumnElement[float | None]
    read_bytes: ColumnElement[Big]
    written_bytes: ColumnElement[Big]
    flops: ColumnElement[Big]
    precision: ColumnElement[str] = column(server_default="")
    link_bytes: ColumnElement[Big] = column(server_default="0")
    stopped: ColumnElement[str]
    wall_s: ColumnElement[float]
    measured_at: ColumnElement[datetime]
    warmup: ColumnElement[int | None]
    note: ColumnElement[str] = column(server_default="")
    check_s: ColumnElement[float | None]
    sampling_s: ColumnElement[float | None]
    busy_s: ColumnElement[float | None]
    sm_clock_hz: ColumnElement[float | None]
    temperature_c: ColumnElement[float | None]
    power_w: ColumnElement[float | None]
    slowdowns: ColumnElement[str] = column(server_default="")
    rejected_batches: ColumnElement[int] = column(server_default="0")
    ecc_errors: ColumnElement[int] = column(server_default="0")
    xids: ColumnElement[str] = column(server_default="")
    others: ColumnElement[str] = column(server_default="")
    variant_index: ColumnElement[int | None]
    relative_to: ColumnElement[str] = column(server_default="")
    # The blobs are last: SQLite reads a row up to the last column that a query wants.
    samples: ColumnElement[bytes | None]
    place_medians: ColumnElement[bytes | None]
    batches: ColumnElement[bytes | None]


class Metrics(Base):
    """A named value of a measurement; NULL if it was not a number."""

    __tablename__ = "metrics"
    __table_args__ = (BY_KEY,)

    measurement_id: ColumnElement[int] = column(ForeignKey("measurements.id", ondelete="CASCADE"), primary_key=True)
    name: ColumnElement[str] = column(primary_key=True)
    value: ColumnElement[float | None]


class Imports(Base):
    """A part of another tool's result file that was imported; ``digest`` is the SHA-256 of its content.

    A part may hold results of several runs, such as a CSV file with several commits.
    """

    __tablename__ = "imports"

    digest: ColumnElement[str] = column(primary_key=True)
    run_id: ColumnElement[int] = column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, index=True)
    format: ColumnElement[str]
    path: ColumnElement[str]
    imported_at: ColumnElement[datetime]


ACCEPTED = (Verdict.NEW, Verdict.IMPROVEMENT)
"""The verdicts that make the level of their run the baseline of later runs."""
EVENTS = (Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.BROKEN, Verdict.MISSING)
"""The verdicts that are events in a history."""


def _is_one_of(verdicts: Iterable[Verdict]) -> str:
    """Return the condition of an index. The queries that use the index have the same list of literals."""
    return f"verdict IN ({', '.join(repr(verdict.value) for verdict in verdicts)})"


class SeriesRows(Base):
    """A series: the history of a case on a device, for one metric and one cache state."""

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("case_id", "device_id", "metric", "cache"),)

    id: ColumnElement[Key]
    case_id: ColumnElement[int] = column(ForeignKey("cases.id", ondelete="RESTRICT"))
    device_id: ColumnElement[int] = column(ForeignKey("devices.id", ondelete="RESTRICT"))
    metric: ColumnElement[str]
    cache: ColumnElement[CacheState]


class Levels(Base):
    """What an ended run says about a series, computed from its measurements, and the verdict on it.

    ``perfsvc.store.levels`` writes and reads levels. ``medians`` holds a float64 for each replica: the median of its
    times in seconds, or its value of another metric. ``level_low`` and ``level_high`` are the interval of the level; of
    a single replica, that of its median. The noise is a property of times; its columns have a prefix because
    ``between`` is a keyword of SQL. ``excluded`` is why the level is not judged; NULL if it is. If a replica of a case
    is not ok, the case has only a level of its time, without medians.

    ``ratio`` is candidate over baseline. If the run did not measure the series, ``status`` is NULL and the verdict is
    ``missing``. ``binary_id`` is NULL if the code is unknown, or differs between the replicas. It, ``python_code_id``
    and ``baseline_run_id`` are no foreign keys, because their indexes would be large and have no other use.
    """

    __tablename__ = "levels"
    __table_args__ = (
        Index(None, "series_id", "run_id"),
        # Accepting verdicts are few, and every run looks for them among all verdicts on its series.
        partial_index("ix_levels_accepted", "series_id", where=_is_one_of(ACCEPTED)),
        # So are events, and the pages look for them in all runs that they show.
        partial_index("ix_levels_events", "run_id", where=_is_one_of(EVENTS)),
        BY_KEY,
    )

    run_id: ColumnElement[int] = column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    series_id: ColumnElement[int] = column(ForeignKey("series.id", ondelete="RESTRICT"), primary_key=True)
    status: ColumnElement[Status | None]
    reason: ColumnElement[str]
    environment_id: ColumnElement[int | None] = column(ForeignKey("environments.id", ondelete="RESTRICT"))
    binary_id: ColumnElement[int | None]
    python_code_id: ColumnElement[int | None]
    medians: ColumnElement[bytes | None]
    level: ColumnElement[float | None]
    level_low: ColumnElement[float | None]
    level_high: ColumnElement[float | None]
    spread: ColumnElement[float | None]
    step_s: ColumnElement[float | None]
    noise_within: ColumnElement[float | None]
    noise_between: ColumnElement[float | None]
    noise_places: ColumnElement[float | None]
    lowest_place_s: ColumnElement[float | None]
    highest_place_s: ColumnElement[float | None]
    excluded: ColumnElement[str | None]
    verdict: ColumnElement[Verdict | None]
    verdict_reason: ColumnElement[str | None]
    ratio: ColumnElement[float | None]
    low: ColumnElement[float | None]
    high: ColumnElement[float | None]
    baseline_run_id: ColumnElement[int | None]
    baseline_s: ColumnElement[float | None]
    smallest: ColumnElement[float | None]
    baseline_replicas: ColumnElement[int | None]
    baseline_runs: ColumnElement[int | None]
    between_nights: ColumnElement[float | None]
    cause: ColumnElement[Cause | None]


class RunDevices(Base):
    """What a run measured on a device.

    The measured peak bandwidths of its memory are stored at the start of the run; the other columns are computed from
    the measurements when the run ends, and NULL until then. ``statuses`` counts measurements by status. The environment
    is the newest of several. The clock is the lowest, the temperature and the power are the highest.
    """

    __tablename__ = "run_devices"

    run_id: ColumnElement[int] = column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    device_id: ColumnElement[int] = column(ForeignKey("devices.id", ondelete="RESTRICT"), primary_key=True)
    copy_bytes_per_s: ColumnElement[float | None]
    read_bytes_per_s: ColumnElement[float | None]
    environment_id: ColumnElement[int | None] = column(ForeignKey("environments.id", ondelete="RESTRICT"))
    statuses: ColumnElement[dict[str, Any] | None] = column(type_=JSON(none_as_null=True))
    rejected_batches: ColumnElement[int | None]
    ecc_errors: ColumnElement[int | None]
    sm_clock_hz: ColumnElement[float | None]
    temperature_c: ColumnElement[float | None]
    power_w: ColumnElement[float | None]
    slowdowns: ColumnElement[str | None]
    xids: ColumnElement[str | None]
    others: ColumnElement[str | None]


class GpuPeaks(Base):
    """A measured peak of a GPU's arithmetic or L2 cache, which its driver and its power limit may change.

    ``rate`` is operations a second, or bytes a second for the L2 cache. ``version`` is that of the kernels that
    measured it.
    """

    __tablename__ = "gpu_peaks"

    device_id: ColumnElement[int] = column(ForeignKey("devices.id", ondelete="RESTRICT"), primary_key=True)
    driver: ColumnElement[str] = column(primary_key=True)
    power_limit_w: ColumnElement[float] = column(primary_key=True)
    name: ColumnElement[str] = column(primary_key=True)
    rate: ColumnElement[float]
    version: ColumnElement[int]
    measured_at: ColumnElement[datetime]


class OverBudgetCases(Base):
    """A case that a run did not measure because the budget was used up, as the series of its time."""

    __tablename__ = "over_budget"

    run_id: ColumnElement[int] = column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    series_id: ColumnElement[int] = column(ForeignKey("series.id", ondelete="RESTRICT"), primary_key=True)


class RemovedUids(Base):
    """The ``uid`` of a run or a night that was removed from this database: it is not copied or received again."""

    __tablename__ = "removed_uids"

    uid: ColumnElement[str] = column(primary_key=True)
    removed_at: ColumnElement[datetime]
