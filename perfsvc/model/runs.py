"""Runs, nights and pinned baselines, as the store keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from perfsvc.model.cases import CacheState, Case
from perfsvc.model.devices import Provenance
from perfsvc.model.measurements import Status
from perfsvc.model.verdicts import Series


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
