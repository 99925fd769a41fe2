"""What the dashboard shows, as frozen values that ``service`` reads from the store, and where each page lies."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from perfsvc.model import (
    CaseExplanation,
    Environment,
    EventKind,
    Finding,
    FindingEvent,
    Judgement,
    LaunchPicture,
    MovedSeries,
    Peak,
    RunRow,
    Series,
    StageRow,
    Status,
)
from perfsvc.report.pages.compared import ComparedSides
from perfsvc.report.rows import EnvironmentDifferences, Key, ResultRow
from perfsvc.report.wording import Outcome, series_name

LONGEST_NAME = 60
"""Characters of the readable part of a page's name."""


@dataclass(frozen=True, slots=True)
class RunPoint:
    """A series in one run: its level with the interval, or why there is none.

    Attributes:
        segment: the id of its environment.
        level: in seconds, or in the metric's own unit.
        replicas: the number of replicas behind the level.
        verdict: only if the chart marks the run as an event; else None. The cause instead if no code is to blame.
        excluded: why it is excluded from judging; empty if it is judged.
    """

    run: int
    segment: int
    status: Status
    reason: str = ""
    level: float | None = None
    low: float | None = None
    high: float | None = None
    replicas: int = 0
    verdict: Outcome | None = None
    excluded: str = ""


@dataclass(frozen=True, slots=True)
class LevelRange:
    """Consecutive runs on one level: the first run, the last run and their median."""

    first: int
    last: int
    level: float


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A series through the runs, oldest first.

    Attributes:
        levels: separated by the change points; excluded runs and runs with uncommitted changes are ignored.
        samples: of the newest runs, a tuple a replica, in seconds; only for times.
        tonight: the verdict of tonight's run; None without one.
    """

    series: Series
    points: tuple[RunPoint, ...]
    levels: tuple[LevelRange, ...]
    samples: Mapping[int, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    tonight: Judgement | None = None


@dataclass(frozen=True, slots=True)
class DevicePanel:
    """A device in tonight's run; ``peaks`` are its measured peaks up to this run, oldest first. None is unknown."""

    device: str
    device_model: str
    measured: int
    failed: int
    sm_clock_hz: float | None
    temperature_c: float | None
    power_w: float | None
    troubles: tuple[str, ...]
    peaks: tuple[Peak, ...] = ()


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding with its events, oldest first; ``news`` is tonight's last event, None without one.

    Attributes:
        environment: in what the environment changed when the finding began; None if that is unknown.
    """

    finding: Finding
    news: EventKind | None = None
    events: tuple[FindingEvent, ...] = ()
    environment: EnvironmentDifferences | None = None


@dataclass(frozen=True, slots=True)
class PicturedCase:
    """A case of a finding, and why it is slower.

    Attributes:
        moved: how the case moved on the first of the devices.
        explanation: why, or why that is not known.
        devices: the devices on which this explanation holds, by UUID.
        picture: both launches; None if their profiles are no longer stored, or are not drawn.
    """

    moved: MovedSeries
    explanation: CaseExplanation
    devices: tuple[str, ...]
    picture: LaunchPicture | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that the pages show.

    Attributes:
        made: when the pages were made, in UTC.
        runs: by number, oldest first.
        tonight: the newest run that has ended and is judged; None if there is none.
        series: every series that the runs measured.
        findings: every finding in the database, newest first.
        verdicts: the verdicts of tonight's run.
        devices: the devices of tonight's run.
        environments: by the id that ``RunPoint.segment`` has.
        stages: the stages of the newest night that are over.
        night: the number of the night of tonight's run; None if the run belongs to no night.
        idle: the number of the newest night, if that night made no run.
        environment: in what the environment of tonight's run differs from that of the run before; None if unknown.
        comparisons: each of the newest judged runs against its baseline, the newest first.
        results: the results of the newest run of each case, by run, and by device, case and cache state, as reports
            show them: with shares of measured peaks.
    """

    made: datetime
    runs: Mapping[int, RunRow]
    tonight: RunRow | None
    series: tuple[SeriesView, ...]
    findings: tuple[FindingView, ...]
    verdicts: tuple[Judgement, ...]
    devices: tuple[DevicePanel, ...]
    environments: Mapping[int, Environment]
    stages: tuple[StageRow, ...] = ()
    night: int | None = None
    idle: int | None = None
    environment: EnvironmentDifferences | None = None
    comparisons: tuple[ComparedSides, ...] = ()
    results: Mapping[tuple[int, Key], ResultRow] = field(default_factory=dict)


def series_page(series: Series) -> str:
    """Return the path of a series' page: a readable part, and a digest of everything that identifies the series."""
    identity = "\n".join((series.case.id, str(series.case.version), series.device, series.metric, series.cache.value))
    return f"series/{_file_name(series_name(series), identity)}"


def benchmark_page(name: str) -> str:
    """Return the path of a benchmark's page: a readable part, and a digest of the whole name."""
    return f"benchmarks/{_file_name(name, name)}"


def _file_name(name: str, identity: str) -> str:
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST_NAME].rstrip("-")
    return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}.html"


def finding_page(number: int) -> str:
    """Return the path of a finding's page."""
    return f"findings/{number}.html"


def comparison_page(run: int | None) -> str:
    """Return the path of the page that compares a run with its baseline."""
    return f"compare/{run}.html"
