"""What the dashboard shows, as frozen values that ``service`` reads from the store, and where each page lies."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import overload

import numpy as np
from numpy.typing import NDArray

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
from perfsvc.report.pages.details import Samples, SeriesDetails
from perfsvc.report.pages.fleet import Fleet
from perfsvc.report.rows import EnvironmentDifferences
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


@dataclass(frozen=True, slots=True, eq=False)
class RunPoints(Sequence[RunPoint]):
    """A series in each of its runs as arrays, oldest first; each item is a ``RunPoint``.

    Attributes:
        runs: the numbers of the runs, shape (runs,).
        segments: the id of the environment of each run, shape (runs,).
        level: in seconds, or in the metric's own unit, shape (runs,); NaN without a level.
        low: the low end of the interval, shape (runs,); NaN if unknown.
        high: the high end of the interval, shape (runs,); NaN if unknown.
        replicas: the number of replicas behind each level, shape (runs,).
        bad: the status and the reason of each run whose status is not ok, by its index.
        verdicts: the verdict of each run that the chart marks as an event, by its index.
        excluded: why a run is excluded from judging, by its index.
    """

    runs: NDArray[np.int64]
    segments: NDArray[np.int64]
    level: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    replicas: NDArray[np.int64]
    bad: Mapping[int, tuple[Status, str]] = field(default_factory=dict)
    verdicts: Mapping[int, Outcome] = field(default_factory=dict)
    excluded: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, index: int) -> RunPoint: ...

    @overload
    def __getitem__(self, index: slice) -> list[RunPoint]: ...

    def __getitem__(self, index: int | slice) -> RunPoint | list[RunPoint]:
        """Return the series in the run with this index."""
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        status, reason = self.bad.get(at, (Status.OK, ""))
        return RunPoint(
            int(self.runs[at]),
            int(self.segments[at]),
            status,
            reason,
            _known(self.level[at]),
            _known(self.low[at]),
            _known(self.high[at]),
            int(self.replicas[at]),
            self.verdicts.get(at),
            self.excluded.get(at, ""),
        )


def _known(value: np.float64) -> float | None:
    number = float(value)
    return None if number != number else number  # noqa: PLR0124 - NaN differs from itself; asking so is the fastest


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
        tonight: the verdict of tonight's run; None without one.
        levels: separated by the change points; excluded runs and runs with uncommitted changes are ignored. Empty in
            lists, which do not show them.
        samples: of the newest runs, an array a replica, in seconds; only for times, and not in lists.
    """

    series: Series
    points: RunPoints
    tonight: Judgement | None = None
    levels: tuple[LevelRange, ...] = ()
    samples: Samples = field(default_factory=dict)

    @property
    def has_level(self) -> bool:
        """Whether any run has a level."""
        return not np.isnan(self.points.level).all()


class SeriesViews(Sequence[SeriesView]):
    """The views of some series of a site, in order.

    Args:
        views: the series whose views are shown.
        known: every series that has a page; None for those of the views.
    """

    def __init__(self, views: Iterable[SeriesView] = (), known: Iterable[Series] | None = None) -> None:
        self._views = tuple(views)
        self._by_series = {view.series: view for view in self._views}
        self._by_case: dict[str, list[SeriesView]] = defaultdict(list)
        for view in self._views:
            self._by_case[view.series.case.id].append(view)
        self.known = frozenset(self._by_series if known is None else known)

    def __len__(self) -> int:
        return len(self._views)

    @overload
    def __getitem__(self, index: int) -> SeriesView: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[SeriesView, ...]: ...

    def __getitem__(self, index: int | slice) -> SeriesView | tuple[SeriesView, ...]:
        """Return the view with this index."""
        return self._views[index]

    def get(self, series: Series) -> SeriesView | None:
        """Return the view of a series; None if it is not among the views."""
        return self._by_series.get(series)

    def of(self, series: Series) -> SeriesView:
        """Return the view of a series that the site has."""
        view = self.get(series)
        if view is None:
            raise KeyError(series)
        return view

    def page(self, series: Series) -> str:
        """Return the path of a series' page; an empty text if no run on the site measured the series."""
        return series_page(series) if series in self.known else ""

    def of_case(self, case: str) -> Sequence[SeriesView]:
        """Return the views of all series of a case, by the id of the case."""
        return self._by_case.get(case, ())


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
    bad: Sequence[tuple[Series, RunPoint]] = ()


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
        late: what failed in the night before after it had built its pages.
        night: the number of the night of tonight's run; None if the run belongs to no night.
        idle: the number of the newest night, if that night made no run.
        environment: in what the environment of tonight's run differs from that of the run before; None if unknown.
        bad: the series that tonight's run measured without a correct result; excluded data is left out.
        compared: the runs that have a page that compares them with their baseline, the newest first.
        details: what the pages of series show besides the histories.
        fleet: the hosts and their GPUs.
    """

    made: datetime
    runs: Mapping[int, RunRow]
    tonight: RunRow | None
    series: SeriesViews
    findings: tuple[FindingView, ...]
    verdicts: tuple[Judgement, ...]
    devices: tuple[DevicePanel, ...]
    environments: Mapping[int, Environment]
    stages: tuple[StageRow, ...] = ()
    late: tuple[StageRow, ...] = ()
    night: int | None = None
    idle: int | None = None
    environment: EnvironmentDifferences | None = None
    bad: Sequence[tuple[Series, RunPoint]] = ()
    compared: tuple[int, ...] = ()
    details: SeriesDetails = field(default_factory=SeriesDetails)
    fleet: Fleet = field(default_factory=Fleet)


@lru_cache(maxsize=1 << 15)
def series_page(series: Series) -> str:
    """Return the path of a series' page: a readable part, and a digest of everything that identifies the series."""
    case = series.case.id
    identity = f"{case}\n{series.case.version}\n{series.device}\n{series.metric}\n{series.cache.value}"
    return f"series/{slug(series_name(series, case))}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}.html"


@lru_cache(maxsize=1 << 15)
def slug(name: str) -> str:
    """Return a name as the path of a page has it: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST_NAME].rstrip("-")


def benchmark_page(name: str) -> str:
    """Return the path of a benchmark's page: a readable part, and a digest of the whole name."""
    return f"benchmarks/{slug(name)}-{hashlib.sha256(name.encode()).hexdigest()[:10]}.html"


def finding_page(number: int) -> str:
    """Return the path of a finding's page."""
    return f"findings/{number}.html"


def comparison_page(run: int | None) -> str:
    """Return the path of the page that compares a run with its baseline."""
    return f"compare/{run}.html"
