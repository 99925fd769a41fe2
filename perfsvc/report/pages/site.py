"""What the dashboard shows, before anybody has put it into words: frozen values, made by the service."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from perfsvc.model import Environment, EventKind, Finding, FindingEvent, Judgement, Peak, Series, Status, Verdict


@dataclass(frozen=True, slots=True)
class RunShown:
    """A run as the pages name it."""

    run: int
    started: datetime
    finished: datetime | None
    commit: str
    dirty: bool
    label: str
    state: str
    host: str
    suite: str
    cases: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A series as one run saw it: its level with the interval of that, or why there is none.

    Attributes:
        segment: the id of its environment.
        level: in seconds, or in the metric's own unit.
        replicas: how many it rests on.
        verdict: what was judged of it where that tells of an event; None where it was as before.
    """

    run: int
    segment: int
    status: Status
    reason: str = ""
    level: float | None = None
    low: float | None = None
    high: float | None = None
    replicas: int = 0
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Runs in a row on one level: the first and the last of them, and their median."""

    first: int
    last: int
    level: float


@dataclass(frozen=True, slots=True)
class Chronicle:
    """A series through the runs, oldest first.

    Attributes:
        stretches: its levels, as its change points part them; runs with uncommitted changes have no part in them.
        samples: of the newest runs, a tuple a replica, in seconds; none of a metric other than time.
        tonight: the verdict of tonight's run on it; None where that has none.
    """

    series: Series
    seen: tuple[Seen, ...]
    stretches: tuple[Stretch, ...]
    samples: Mapping[int, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    tonight: Judgement | None = None


@dataclass(frozen=True, slots=True)
class BoardShown:
    """A GPU in tonight's run, and its measured peaks in this and the runs before, oldest first; None where it cannot say."""

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
class StageShown:
    """A stage of the night: how it ended, how long it took, what it said, and what to do about it."""

    name: str
    state: str
    wall_s: float | None
    said: str
    cure: str


@dataclass(frozen=True, slots=True)
class FindingShown:
    """A finding with what befell it, oldest first; ``news`` is what tonight's run did to it, None where nothing."""

    finding: Finding
    news: EventKind | None = None
    events: tuple[FindingEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """All that the pages show.

    Attributes:
        made: when, in UTC.
        runs: by their numbers, oldest first.
        tonight: the newest run that has ended; None where there is none.
        findings: every one, newest first.
        verdicts: tonight's.
        environments: by the ids that segments are.
        night: the number of the night that tonight's run is of; None where it is no night's.
        idle: the number of the newest night, where that came to no run.
    """

    made: datetime
    runs: Mapping[int, RunShown]
    tonight: RunShown | None
    chronicles: tuple[Chronicle, ...]
    findings: tuple[FindingShown, ...]
    verdicts: tuple[Judgement, ...]
    boards: tuple[BoardShown, ...]
    environments: Mapping[int, Environment]
    stages: tuple[StageShown, ...] = ()
    night: int | None = None
    idle: int | None = None
