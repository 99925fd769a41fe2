"""What came of a change: suspects, and findings that someone should look at."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from perfsvc.model.judged import Cause, Judgement, Series


class Shift(StrEnum):
    """How a series moved."""

    LOSS = "loss"  # tonight, against its baseline
    STEP = "step"  # to another level, in its history
    TREND = "trend"  # slowly, in its history
    MODE = "mode"  # its mix of two levels, in its history


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


@dataclass(frozen=True, slots=True)
class Suspect:
    """A series that a night raised doubts of, before anybody measured again.

    Attributes:
        judgement: tonight's verdict on it; once it was measured again, what that says, with its cause.
        evidence: why it is one, as a sentence without its full stop.
    """

    judgement: Judgement
    shift: Shift
    direction: Direction
    evidence: str = ""

    @property
    def series(self) -> Series:
        """What moved."""
        return self.judgement.series


@dataclass(frozen=True, slots=True)
class Moved:
    """A series that a finding tells of.

    Attributes:
        ratio: its newest level over the one it was compared with, with its confidence interval.
        baseline_run: the run it was compared with.
        last_run: the newest run that shows the change.
        recovered_run: the run in which it was back at its old level; None while it is not.
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


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause that someone should look at, on one device, and the series it moved.

    Attributes:
        first_run: the run that raised it.
        last_run: the newest run that shows it.
        evidence: why it was raised.
        reason: why it is in its state; empty while it is open.
        by: who put it there; empty where perfsvc did.
        at: when.
        why: what its code does slower, by the newest profiles of one of its cases; empty where nobody looked.
    """

    id: int
    cause: Cause
    shift: Shift
    direction: Direction
    device: str  # UUID
    device_model: str
    first_run: int
    last_run: int
    state: FindingState
    evidence: str
    reason: str
    by: str
    at: datetime
    moved: tuple[Moved, ...]
    why: str = ""
