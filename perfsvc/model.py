"""The words of perfsvc as frozen dataclasses (docs/glossary.md). Imports nothing of ours.

Times are seconds, sizes are bytes, clocks are hertz, timestamps are UTC.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

Value = int | float | str
Dim3 = tuple[int, int, int]


class Kind(StrEnum):
    """How a variant is timed."""

    KERNEL = "kernel"  # one stream, timed launch by launch by the device
    PIPELINE = "pipeline"  # its own streams, timed end to end by the host
    HOST = "host"  # returns its own metrics


class Role(StrEnum):
    """What a buffer is to a case."""

    INPUT = "input"  # uploaded, must not change
    OUTPUT = "output"  # poisoned before the check, compared with the reference after it
    INOUT = "inout"  # uploaded and compared
    SCRATCH = "scratch"  # poisoned, never compared


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


class Mode(StrEnum):
    """The state of the L2 cache before each sample."""

    COLD = "cold"
    WARM = "warm"


class Slowdown(StrEnum):
    """Why a board lowered its clocks while a batch ran."""

    POWER_CAP = "power cap"  # the load itself reached the power limit: recorded, never rejected
    THERMAL = "thermal slowdown"  # the driver's, at the board's temperature limit
    HARDWARE = "hardware slowdown"  # the board's own: too hot, or its power supply asked for it


class Verdict(StrEnum):
    """What a comparison says of one series."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"
    BROKEN = "broken"  # the candidate has no right result
    NEW = "new"  # the baseline does not have it
    MISSING = "missing"  # the candidate does not have it


# --- what is timed ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """A benchmark's variant at one point of its axes: the thing timed.

    ``version`` breaks history on purpose and is no part of the id; ``formerly`` are the variant's earlier names.
    """

    benchmark: str
    variant: str
    point: tuple[tuple[str, Value], ...] = ()
    version: int = 1
    formerly: tuple[str, ...] = field(default=(), compare=False)

    @property
    def id(self) -> str:
        """``transpose/tiled-TILE32-PAD1[n=4096]``."""
        return f"{self.benchmark}/{self.variant}" + (f"[{self.point_text}]" if self.point else "")

    @property
    def point_text(self) -> str:
        """``n=4096,dtype=f32``."""
        return ",".join(f"{axis}={value}" for axis, value in self.point)

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class Work:
    """What one launch has to do, by the problem and not by the implementation."""

    read_bytes: int = 0
    written_bytes: int = 0
    flops: int = 0

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest error a right result may have: |out - ref| / max(|ref|, rms(ref)), maximum and mean."""

    max: float
    mean: float


@dataclass(frozen=True, slots=True)
class Error:
    """The error of a result: |out - ref| / max(|ref|, rms(ref)), its maximum and its mean."""

    max: float
    mean: float


@dataclass(frozen=True, slots=True)
class Array:
    """An array by its name, NumPy dtype name and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Device memory that a case needs."""

    array: Array
    role: Role


@dataclass(frozen=True, slots=True)
class Unit:
    """One compilation: a source file with the ``-D`` parameters and options it is compiled with.

    Two cases with equal units share one binary file.
    """

    source: Path
    entries: tuple[str, ...]
    defines: tuple[tuple[str, Value], ...] = ()
    options: tuple[str, ...] = ()


# --- the steps of a variant, resolved for one case -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BufferArg:
    """A kernel argument: the address of a buffer."""

    buffer: str
    kind: Literal["buffer"] = "buffer"


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A kernel argument by value; ``dtype`` is a NumPy dtype name (``int32``, ``float32``)."""

    name: str
    dtype: str
    value: int | float
    kind: Literal["scalar"] = "scalar"


Arg = BufferArg | ScalarArg


@dataclass(frozen=True, slots=True)
class Memset:
    """Fill a buffer with one byte value."""

    buffer: str
    byte: int = 0
    step: Literal["memset"] = "memset"


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch an entry of one of the case's modules; ``constants`` fill ``__constant__`` symbols from buffers."""

    module: int
    entry: str
    grid: Dim3
    block: Dim3
    args: tuple[Arg, ...]
    shared_bytes: int = 0
    constants: tuple[tuple[str, str], ...] = ()
    step: Literal["launch"] = "launch"


@dataclass(frozen=True, slots=True)
class HostFinish:
    """Reduce a buffer into a one-element buffer on the host, in float64 (exact integers for integer dtypes)."""

    operation: Literal["sum", "min", "max"]
    source: str
    target: str
    step: Literal["finish"] = "finish"


@dataclass(frozen=True, slots=True)
class Call:
    """Call a Python function of the benchmark file with the case's device arrays and a stream."""

    function: str
    step: Literal["call"] = "call"


Step = Memset | Launch | HostFinish | Call


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """All that is needed, beside its modules and its benchmark file's text, to run a case again on a later night.

    ``modules`` and ``bench`` are SHA-256 hex digests: of the compiled binaries that ``Launch.module`` counts through,
    and of the benchmark file that made inputs and reference from ``seed`` (and holds the functions of ``Call``).
    """

    case: Case
    kind: Kind
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    modules: tuple[str, ...]
    bench: str
    seed: int
    format: int = 1


# --- where it is timed -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device as it describes itself; zero and empty where it cannot say.

    ``spec`` is what ``--device`` takes to name exactly this one (``cuda:GPU-5e…``, ``cpu``, ``fake:script.json``);
    ``target`` what binaries are built for (``sm_90``, ``cpu-x86_64``, ``fake``).
    """

    kind: Literal["cuda", "cpu", "fake"]
    spec: str
    uuid: str
    model: str
    target: str
    compute_capability: str = ""
    multiprocessors: int = 0
    clock_hz: float = 0.0
    memory_clock_hz: float = 0.0
    memory_bytes: int = 0
    l2_bytes: int = 0
    shared_bytes_per_block: int = 0
    registers_per_block: int = 0
    warp_size: int = 0
    driver: str = ""
    power_limit_w: float = 0.0


@dataclass(frozen=True, slots=True)
class Environment:
    """What must stay the same for times to be comparable without a thought: a change starts a segment of a series."""

    driver: str = ""
    toolkit: str = ""
    power_limit_w: float = 0.0


@dataclass(frozen=True, slots=True)
class Provenance:
    """Everything a run knows about where it came from."""

    started: datetime
    command_line: str
    suite: str
    commit: str = ""  # of the suite's repository; empty outside one
    dirty: bool = False
    branch: str = ""
    host: str = ""
    cpu: str = ""
    perfsvc_version: str = ""
    python_version: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    replicas: int = 0
    label: str = ""
    scope: str = ""  # how its cases were chosen; equal scopes mean the same cases, empty is not known


# --- what comes back -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a board was like while a batch ran; None and empty where it cannot say.

    Attributes:
        sm_clock_hz: the true clock, counted on the device: its cycles over its nanoseconds.
        memory_clock_hz: as the driver says, like all that follows.
        temperature_c: of the GPU.
        power_w: drawn by the whole board.
        slowdowns: why its clocks were lowered meanwhile, if they were.
        ecc_errors: errors of the memory that could not be corrected, new since the batch before.
        xids: faults that the driver reported, new since the batch before.
        others: ids of other processes that worked on the board.
    """

    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    slowdowns: tuple[Slowdown, ...] = ()
    ecc_errors: int = 0
    xids: tuple[int, ...] = ()
    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples that were released together.

    Attributes:
        samples_s: their times.
        gated: they were queued behind the gate.
        kept_ahead: the host had queued all of them before the device was through; None where nobody can tell.
        busy_s: how long the device worked on them, cache eviction included and waiting at the gate not.
        rejected: why they do not count; empty where they do.
        conditions: of the board meanwhile.
    """

    samples_s: tuple[float, ...]
    gated: bool = False
    kept_ahead: bool | None = None
    busy_s: float = 0.0
    rejected: str = ""
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True)
class Roof:
    """What a board's memory was measured to move: bytes read and written by a copy, bytes read by a read alone."""

    copy_bytes_per_s: float
    read_bytes_per_s: float

    @property
    def best_bytes_per_s(self) -> float:
        """The better of both: the board's own limit."""
        return max(self.copy_bytes_per_s, self.read_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Noise:
    """The two levels of a case's noise in a run, as relative standard deviations; None where too few tell it.

    Attributes:
        within: of the samples of one replica around its median.
        between: of the replicas' medians beyond what ``within`` explains.
    """

    within: float | None
    between: float | None


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
    mode: Mode = Mode.COLD
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


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number for many times with its confidence interval: of a replica's samples, or of a run's replicas."""

    median_s: float
    low_s: float
    high_s: float
    samples: int


TIME: Final = "time"
"""The metric of a case's samples."""

UNJUDGED: Final = frozenset({"sm_cycles", "back_to_back_s", "floor_s", "energy_j"})
"""Metrics that stand beside a time and say why it is so: shown and stored, never judged on their own."""

# --- what is judged --------------------------------------------------------------------------------------------------


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


def digest(content: bytes) -> str:
    """The SHA-256 hex digest by which artifacts are known."""
    return hashlib.sha256(content).hexdigest()
