"""What the store hands out beside the model's words: frozen rows, free of SQLAlchemy."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.model import (
    CacheState,
    Cause,
    Environment,
    Estimate,
    Measurement,
    Message,
    Provenance,
    ReplayRecord,
    Series,
    Status,
    Verdict,
    Work,
)


class State(StrEnum):
    """The life of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"  # stopped by a person, or its process died
    FAILED = "failed"  # stopped by an error of the infrastructure


class StageState(StrEnum):
    """The life of a stage of a night."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # the settings do not want it, or there is nothing for it to do


@dataclass(frozen=True, slots=True)
class Code:
    """The code of a case as it runs.

    Attributes:
        modules: the compiled modules by the digests that the record names.
        bench: the benchmark file that the record names.
        sources: source files by name, for people to read.
    """

    record: ReplayRecord
    modules: Mapping[str, bytes]
    bench: bytes
    sources: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Entry:
    """A measurement with all that is stored beside it.

    Attributes:
        measurement: its device must have been stored.
        environment: what it was measured in.
        work: what one launch does, from which bandwidth is derived.
        estimate: the median of its samples; None where it has none.
        binary: what ``Store.put_binaries`` returned; None where there is no binary.
        variant_index: the variant's place on its benchmark's ladder, from 0; None where nobody knows.
        relative_to: the variant that it is held against; empty where there is none.
    """

    measurement: Measurement
    environment: Environment
    work: Work
    estimate: Estimate | None = None
    binary: int | None = None
    variant_index: int | None = None
    relative_to: str = ""


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage of a night.

    Attributes:
        place: where it stands among the stages, from 0.
        wall_s: how long it took; None while it is under way.
        said: what came of it, in a line.
        cure: what to do about it, where it failed.
        exit_code: of a command that does no more than this; 0 where all is well.
    """

    name: str
    place: int
    state: StageState
    started: datetime
    wall_s: float | None = None
    said: str = ""
    cure: str = ""
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class NightRow:
    """One night with its stages in their order. What a series was like in one tell ``Nights``.

    Attributes:
        pid: with ``process_start``, the process that is at it or was last.
        commit: of the suite when the night took its snapshot; empty outside a repository, as before the snapshot.
        suite_digest: of the suite's files then; empty before the snapshot.
        run: what it measured; None until then.
        settings: what it began with.
        exit_code: None until it has ended by itself.
    """

    id: int
    state: State
    started: datetime
    finished: datetime | None
    host: str
    pid: int
    process_start: str
    suite: str
    commit: str
    dirty: bool
    suite_digest: str
    run: int | None
    command_line: str
    settings: Mapping[str, Any]
    exit_code: int | None
    stages: tuple[StageRow, ...] = ()


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A message to one of its targets.

    Attributes:
        night: of which it tells.
        target: by its name in the settings.
        error: why the last attempt failed; empty where none did.
        tried: when the last attempt was.
        sent: when it arrived; None while it has not.
    """

    message: Message
    night: int
    target: str
    attempts: int
    error: str
    tried: datetime | None
    sent: datetime | None


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run: where it came from and how much it holds.

    Attributes:
        counts: measurements (not cases) by status; a status that none has is absent.
        cases: how many distinct cases it measured.
        devices: the UUIDs it measured on, sorted.
    """

    id: int
    state: State
    provenance: Provenance
    finished: datetime | None
    counts: Mapping[Status, int]
    cases: int
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CaseInRun:
    """A case in one run on one device.

    Attributes:
        case: the id it was measured under, which may be a former name.
        status: of the worst replica.
        reason: why it is not ok.
        replicas: how many were ok.
        times: the median of each replica that was timed; none where any replica is not ok.
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
    replicas: int
    times: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True)
class Past:
    """What earlier runs tell of a case on a device in a cache state, for whoever plans under a budget.

    Attributes:
        cost_s: seconds that it took in a replica, the mean of the newest run that has ended.
        between: its noise between replicas as a relative standard deviation, from the newest run that could tell.
        last: when it was last measured, in whatever run.
    """

    cost_s: float
    between: float | None
    last: datetime


@dataclass(frozen=True, slots=True)
class Nights:
    """A metric of a case in its nights, oldest first.

    Attributes:
        runs: their numbers, shape (nights,).
        segments: the ids of the environments they ran in, shape (nights,).
        values: of their replicas, of the time the medians in seconds, shape (nights, replicas); NaN behind the last one
            of a night that has fewer, and throughout where any of a night is not ok.
    """

    runs: NDArray[np.intp]
    segments: NDArray[np.intp]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class InRun:
    """A series in one run.

    Attributes:
        segment: the id of the environment it ran in.
        status: of the worst replica.
        reason: why it is not ok.
        values: of its replicas, of the time their medians in seconds; none where any replica is not ok.
        low: the interval of the first replica's median, which is all that a run of one replica knows; None where the
            metric has one value a replica.
    """

    run: int
    segment: int
    status: Status
    reason: str
    values: tuple[float, ...]
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A verdict on a series that tells of an event: it moved, broke or went missing."""

    run: int
    verdict: Verdict
    ratio: float | None
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class BoardInRun:
    """What a GPU was like in a run; None where it cannot say.

    Attributes:
        failed: how many of its measurements were wrong or failed, of ``measured``.
        sm_clock_hz: the lowest true clock of a measurement.
        temperature_c: the highest of a measurement.
        power_w: the highest of a measurement.
        slowdowns: why its clocks were lowered, sorted.
        rejected_batches: how many were disturbed.
        ecc_errors: errors of its memory that could not be corrected.
        xids: faults that the driver reported, sorted.
        others: ids of other processes that worked on it, sorted.
    """

    device: str
    device_model: str
    measured: int
    failed: int
    sm_clock_hz: float | None
    temperature_c: float | None
    power_w: float | None
    slowdowns: tuple[str, ...]
    rejected_batches: int
    ecc_errors: int
    xids: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Built:
    """What a case of a run was made of: the id of its binary (None where it has none), and where it ran."""

    binary: int | None
    environment: Environment


@dataclass(frozen=True, slots=True)
class BinaryRow:
    """A binary without its bytes; ``sources`` are the names and SHA-256 digests of what it was compiled from."""

    record: ReplayRecord
    sources: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Pin:
    """A baseline that a person fixed: ``series`` is compared with ``run`` until it is unpinned."""

    series: Series
    run: int
    set_at: datetime
    set_by: str
    comment: str


@dataclass(frozen=True, slots=True)
class SchemaState:
    """How a database stands: its revision, the revision this perfsvc writes, and what is wrong with it."""

    url: str
    revision: str
    head: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether this perfsvc can use the database as it is."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What an upgrade did; ``before`` is empty where the database was, ``backup`` None where nothing was copied."""

    before: str
    after: str
    backup: Path | None
