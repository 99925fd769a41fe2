"""Runs, nights, their messages, what is expected of them, and pinned baselines, as the store keeps them."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any

from perfsvc.model.cases import CacheState, Case
from perfsvc.model.devices import Provenance
from perfsvc.model.measurements import Status
from perfsvc.model.verdicts import Series


class ExpectedKind(StrEnum):
    """What can go missing."""

    HOST = "host"
    GPU = "gpu"
    CASE = "case"


@dataclass(frozen=True, slots=True)
class Expected:
    """A host, GPU or case that a night had, and that later nights of the host are expected to have.

    Attributes:
        name: the name of the host, the UUID of the GPU, or the id of the case.
        host: the host of the night.
        night: the last night that had it.
        seen: when that night had it.
        scope: the scope of the night's run; empty for a host.
        devices: for a GPU, the devices that the night's settings asked for, so that nights which ask for other GPUs do
            not miss this one; else empty.
        model: the model of a GPU; else empty.
        run: the run of that night; None if it had none, or if the run is no longer stored.
        finding: the finding about its absence; None while it is present.
    """

    kind: ExpectedKind
    name: str
    host: str
    night: int
    seen: datetime
    scope: str = ""
    devices: str = ""
    model: str = ""
    run: int | None = None
    finding: int | None = None

    @property
    def key(self) -> tuple[str, str, ExpectedKind, str, str]:
        """The fields that identify what is expected."""
        return self.host, self.scope, self.kind, self.name, self.devices

    @property
    def suite(self) -> str:
        """The name of the suite's folder; empty for a host."""
        return scope_options(self.scope)[0]

    @property
    def text(self) -> str:
        """The thing in words: ``host a``, ``GPU-1 (NVIDIA H100)``, ``dot/tree[n=64]``."""
        texts = {ExpectedKind.HOST: f"host {self.name}", ExpectedKind.GPU: f"{self.name} ({self.model})"}
        return texts.get(self.kind, self.name)


@cache
def scope_options(scope: str) -> tuple[str, ...]:
    """Return the parts of a run's scope: the name of its suite's folder, then the options that select cases."""
    return tuple(shlex.split(scope)) or ("",)


@dataclass(frozen=True, slots=True)
class Absence:
    """Something that is missing, as one finding reports it.

    Attributes:
        subject: what is missing: ``GPU-1 (NVIDIA H100) on host a``.
        evidence: when the missing thing was last seen, and what else is known about it.
        expected: what is missing: one GPU, one host, or the cases of a benchmark.
    """

    subject: str
    evidence: str
    expected: tuple[Expected, ...]


@dataclass(frozen=True, slots=True)
class MessageText:
    """What a target receives about a night.

    Attributes:
        title: one line, the worst news first.
        body: plain text of several lines.
    """

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Message:
    """A message about a night, for the targets that receive the same text.

    Attributes:
        key: the same each time this message is sent, so that a receiver can recognize a second copy.
        title: one line, the worst news first.
        body: plain text of several lines.
    """

    key: str
    title: str
    body: str


class RunState(StrEnum):
    """The life of a run, and of a night."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"  # a person stopped it, or its process died
    FAILED = "failed"  # an error of the infrastructure stopped it


class StageState(StrEnum):
    """The life of a stage of a night."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # the settings switch it off, or it has nothing to do


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What a person did to a run: excluded it, or a case of it, from judging, or deleted it.

    Attributes:
        case: the id of the excluded case; empty for the whole run.
        reason: why.
        by: the person.
        included_by: the person who included it again; empty if it is still excluded.
        included_at: when; None if it is still excluded.
        deleted: whether the run was deleted.
    """

    run: int
    case: str
    reason: str
    by: str
    at: datetime
    included_by: str = ""
    included_at: datetime | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run: where it came from and how much it measured.

    Attributes:
        counts: measurements (not cases) by status; a status without measurements is absent.
        cases: the number of distinct cases.
        devices: the UUIDs of the devices it measured on, sorted.
        excluded: the exclusions of the run or of its cases from judging; empty if the whole run is judged.
    """

    id: int
    state: RunState
    provenance: Provenance
    finished: datetime | None
    counts: Mapping[Status, int]
    cases: int
    devices: tuple[str, ...]
    excluded: tuple[Exclusion, ...] = ()

    @property
    def why_excluded(self) -> str:
        """Why the whole run is excluded from judging; empty if it is not."""
        return next((exclusion.reason for exclusion in self.excluded if not exclusion.case), "")


@dataclass(frozen=True, slots=True)
class OverBudget:
    """A case in one cache state that no replica measured on a device because the time budget was used up."""

    device: str  # UUID
    case: Case
    cache: CacheState
    reason: str


@dataclass(frozen=True, slots=True)
class Pin:
    """A baseline that a person fixed: ``series`` is compared with ``run`` until it is unpinned."""

    series: Series
    run: int
    set_at: datetime
    set_by: str
    comment: str


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage of a night.

    Attributes:
        number: its position among the stages, from 0.
        wall_s: how long it took; None while it is running.
        message: the result in one line.
        cure: what to do if it failed.
        exit_code: the exit code of a command that runs only this stage; 0 if all is well.
    """

    name: str
    number: int
    state: StageState
    started: datetime
    wall_s: float | None = None
    message: str = ""
    cure: str = ""
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class NightRow:
    """One execution of ``perfsvc nightly`` with its stages in order.

    Attributes:
        pid: the process that executes the night, or executed it last; ``process_start`` tells it from later processes.
        commit: the commit of the suite revision; empty outside a repository and before the revision is stored.
        suite_digest: the digest of the files of that revision; empty before it is stored.
        run: the run that holds its measurements; None until there is one.
        settings: the settings it began with.
        exit_code: the night's exit code; None until the night has ended by itself.
    """

    id: int
    state: RunState
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
class RunDetails:
    """The details of a case in a run, over all replicas; an unknown detail is None or empty.

    Attributes:
        stopped: why sampling stopped, each reason once.
        note: what a reader of the time has to know, each note once.
        noise_within: relative deviation of the samples around their replica's median.
        noise_between: deviation of the replicas' medians beyond what ``noise_within`` explains.
        noise_places: deviation of the medians at several places of the arrays beyond what ``noise_within`` explains.
        noise_between_nights: deviation of the baseline's runs beyond what their replicas explain.
        bandwidth_bytes_per_s: the bytes of the work over the level.
        flops_per_s: the operations of the work over the level.
        bus_bytes_per_s: the bytes over the busiest link between two GPUs over the level.
        peak: the measured peak that the case comes nearest to, such as ``memory`` or ``fp32``.
        peak_share: the rate of the case over this peak.
        relative_to: the reference variant.
        relative_speed: the reference variant's level over the case's level.
        sm_clock_hz: the actual clock, mean of the replicas.
        temperature_c: the highest temperature in a replica.
        power_w: the highest power in a replica.
        slowdowns: why clocks were lowered, each reason once.
        rejected_batches: the number of batches that do not count.
        metrics: the level of each metric.
    """

    stopped: str = ""
    note: str = ""
    noise_within: float | None = None
    noise_between: float | None = None
    noise_places: float | None = None
    noise_between_nights: float | None = None
    bandwidth_bytes_per_s: float | None = None
    flops_per_s: float | None = None
    bus_bytes_per_s: float | None = None
    peak: str = ""
    peak_share: float | None = None
    relative_to: str = ""
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
        case: the id of the case.
        status: of the worst replica.
        reason: why it is not ok.
        median_s: the level of its time, in seconds; None if the case is not timed or a replica is not ok.
        low_s: the lower end of the level's interval.
        high_s: the upper end.
        replicas: how many are ok.
        details: only for the newest run of a device and cache state.
        why: why the case became slower than its baseline; empty unless both were profiled.
        metrics: the level of each metric that explains no time, by name.
        excluded: why it is excluded from judging; empty if it is judged.
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
    metrics: Mapping[str, float] = field(default_factory=dict)
    excluded: str = ""
