"""What came of a change: suspects, and findings that someone should look at."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import inf, log

from perfsvc.model.verdicts import Cause, Judgement, Series


class ChangeKind(StrEnum):
    """How a series moved."""

    REGRESSION = "regression"  # tonight, against its baseline
    STEP = "step"  # to another level, in its history
    TREND = "trend"  # slowly, in its history
    MIXTURE = "mixture"  # its mix of two levels, in its history


class Direction(StrEnum):
    """Where a series moved; of a metric other than time, lower is faster."""

    SLOWER = "slower"
    FASTER = "faster"


class FindingState(StrEnum):
    """The life of a finding."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"  # somebody looks at it
    ACCEPTED = "accepted"  # where its series are now is their level
    RESOLVED = "resolved"  # its series are back at their old level
    IGNORED = "ignored"  # nobody wants to hear of it


class EventKind(StrEnum):
    """What can befall a finding."""

    RAISED = "raised"
    JOINED = "joined"  # by more series of its cause
    REOPENED = "reopened"
    RESOLVED = "resolved"
    ACKNOWLEDGED = "acknowledged"
    ACCEPTED = "accepted"
    IGNORED = "ignored"
    ASSIGNED = "assigned"
    COMMENTED = "commented"
    SPLIT = "split"  # some of its series are a finding of their own


@dataclass(frozen=True, slots=True)
class Suspect:
    """A series that a night raised doubts of, before anybody measured again.

    Attributes:
        judgement: tonight's verdict on it; once it was measured again, what that says, with its cause.
        evidence: why it is one, as a sentence without its full stop.
    """

    judgement: Judgement
    change: ChangeKind
    direction: Direction
    evidence: str = ""

    @property
    def series(self) -> Series:
        """What moved."""
        return self.judgement.series


@dataclass(frozen=True, slots=True)
class RootCause:
    """Suspects of one run that have one cause, which their judgements name.

    Attributes:
        root_cause: what that is: the commits, the GPU, the change of an environment; empty where nobody knows.
        evidence: how it is known, as a sentence without its full stop.
        suspects: one at least, of any devices and directions.
    """

    root_cause: str
    evidence: str
    suspects: tuple[Suspect, ...]


@dataclass(frozen=True, slots=True)
class MovedSeries:
    """A series that a finding tells of.

    Attributes:
        ratio: its newest level over the one it was compared with, with its confidence interval.
        baseline_run: the run it was compared with.
        last_run: the newest run that shows the change; of it are ratio and ``candidate_s``.
        recovered_run: the run in which it was back at its old level; None while it is not.
        change: how it moved.
        direction: where to.
    """

    series: Series
    ratio: float | None
    low: float | None
    high: float | None
    baseline_run: int | None
    baseline_s: float | None
    candidate_s: float | None
    last_run: int
    recovered_run: int | None = None
    change: ChangeKind = ChangeKind.REGRESSION
    direction: Direction = Direction.SLOWER


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause that someone should look at, and the series it moved, on one device or several.

    Attributes:
        root_cause: what the cause is: the commits, the GPU, the change of an environment; empty where nobody knows.
        first_run: the run that raised it.
        last_run: the newest run that shows it.
        evidence: why it was raised.
        reason: why it is in its state; empty while it is open.
        by: who put it there; empty where perfsvc did.
        at: when.
        moved: what it moved, one at least.
        owner: who looks after it; empty where nobody does.
        ignored_until: when it is open again by itself; None where it is not ignored, or without an end.
        why: what its code does slower, by the newest profiles of one of its cases; empty where nobody looked.
    """

    id: int
    cause: Cause
    root_cause: str
    first_run: int
    last_run: int
    state: FindingState
    evidence: str
    reason: str
    by: str
    at: datetime
    moved: tuple[MovedSeries, ...]
    owner: str = ""
    ignored_until: datetime | None = None
    why: str = ""

    @property
    def direction(self) -> Direction:
        """Where its series moved: slower, unless all became faster."""
        slower = any(one.direction is Direction.SLOWER for one in self.moved)
        return Direction.SLOWER if slower else Direction.FASTER

    @property
    def changes(self) -> tuple[ChangeKind, ...]:
        """How its series moved, each way once."""
        return tuple(dict.fromkeys(one.change for one in self.moved))

    @property
    def devices(self) -> dict[str, str]:
        """The models of the devices that it shows on, by UUID."""
        return {one.series.device: one.series.device_model for one in self.moved}

    @property
    def standing(self) -> tuple[MovedSeries, ...]:
        """What is not back at its old level, the largest change first."""
        left = [one for one in self.moved if one.recovered_run is None]
        return tuple(sorted(left, key=lambda one: abs(log(one.ratio)) if one.ratio else inf, reverse=True))


@dataclass(frozen=True, slots=True)
class FindingEvent:
    """Something that befell a finding.

    Attributes:
        finding: its number.
        run: the run that did it; None where a person did.
        by: who did; empty where perfsvc did.
        said: what is to be said of it: the evidence, a reason, a comment, the new owner.
    """

    id: int
    finding: int
    kind: EventKind
    run: int | None
    by: str
    at: datetime
    said: str


@dataclass(frozen=True, slots=True)
class FindingUpdates:
    """What a run changed of findings, by their numbers.

    Attributes:
        raised: the new ones.
        joined: those that stood and tell of more series since.
        reopened: those that were resolved and show again, or whose time of being ignored is over.
        resolved: those whose series are all back.
        seen: those that stood and show still.
    """

    raised: tuple[int, ...] = ()
    joined: tuple[int, ...] = ()
    reopened: tuple[int, ...] = ()
    resolved: tuple[int, ...] = ()
    seen: tuple[int, ...] = ()
