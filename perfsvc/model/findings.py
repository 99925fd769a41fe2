"""What follows from a change: suspects, confirmations of them, and findings for people to look at."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import inf, log

from perfsvc.model.measurements import Measurement, Status
from perfsvc.model.profiles import CaseExplanation
from perfsvc.model.verdicts import Cause, Judgement, Series, Verdict
from perfsvc.units import some


class ChangeKind(StrEnum):
    """How a series moved."""

    REGRESSION = "regression"  # in this run, against its baseline
    STEP = "step"  # to another level, in its history
    TREND = "trend"  # slowly, in its history
    MIXTURE = "mixture"  # between two levels that it alternates between, in its history
    FAILURE = "failure"  # it has no correct result any more
    AGAIN = "again"  # in this run, against the level at which the last step of its finding left it


class Direction(StrEnum):
    """The direction in which a series moved; for metrics other than time, lower is faster."""

    BROKEN = "broken"  # it has no correct result any more
    SLOWER = "slower"
    FASTER = "faster"


class FindingState(StrEnum):
    """The state of a finding."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"  # a person looks at it
    ACCEPTED = "accepted"  # the new level of its series is their baseline now, or what is missing is gone on purpose
    RESOLVED = "resolved"  # its series are back at their old level
    IGNORED = "ignored"  # raises no alarm, for a time or for good


class EventKind(StrEnum):
    """What happened to a finding."""

    RAISED = "raised"
    JOINED = "joined"  # more series with the same root cause
    STEP = "step"  # a series of the finding moved again
    CONFIRMED = "confirmed"  # the cause, which was unknown until then, is named
    REOPENED = "reopened"
    RESOLVED = "resolved"
    ACKNOWLEDGED = "acknowledged"
    ACCEPTED = "accepted"
    IGNORED = "ignored"
    ASSIGNED = "assigned"
    COMMENTED = "commented"
    REMINDED = "reminded"  # a message repeated it, because no person had done anything with it
    RETURNED = "returned"  # a part of what is missing is back
    SPLIT = "split"  # some of its series became a finding of their own


@dataclass(frozen=True, slots=True)
class Suspect:
    """A series that seems to have moved, before it is measured again.

    Attributes:
        judgement: this run's verdict on the series; it names the cause once the series was measured again.
        evidence: why the series is a suspect, without a full stop.
        since: the earlier run that showed the same change, if the run before this one did; None otherwise.
    """

    judgement: Judgement
    change: ChangeKind
    direction: Direction
    evidence: str = ""
    since: int | None = None

    @property
    def series(self) -> Series:
        """The series that moved."""
        return self.judgement.series


@dataclass(frozen=True, slots=True)
class RootCause:
    """Suspects of one run that share a cause, which their judgements name.

    Attributes:
        root_cause: the commits, the GPU or the change of environment; empty if unknown.
        evidence: how the cause is known, without a full stop.
        suspects: at least one suspect, on any devices and in any direction.
        finding: the active finding that reports the same change of the code on another device; None if there is none.
    """

    root_cause: str
    evidence: str
    suspects: tuple[Suspect, ...]
    finding: int | None = None

    @property
    def cause(self) -> Cause:
        """The cause that its suspects share."""
        return self.suspects[0].judgement.cause or Cause.UNCONFIRMED


@dataclass(frozen=True, slots=True)
class SlowGpu:
    """A GPU that is slower than the other GPUs of its model with the same binaries.

    Attributes:
        device: its UUID.
        model: its model.
        host: the host of the run that shows it.
        evidence: how much slower it is, over how many cases, and in which runs; without a full stop.
    """

    device: str
    model: str
    host: str
    evidence: str

    @property
    def text(self) -> str:
        """The GPU in words: ``GPU-1 (NVIDIA H100) on host a``."""
        return f"{self.device} ({self.model}) on host {self.host}"


def evidence_of(suspects: Sequence[Suspect]) -> str:
    """Return the first suspect's evidence, after the names of the cases with the same evidence.

    The text is empty if the first suspect has no evidence.
    """
    first = suspects[0].evidence
    cases = dict.fromkeys(suspect.series.case.id for suspect in suspects if suspect.evidence == first)
    return f"{some(list(cases))}: {first}" if first else ""


@dataclass(frozen=True, slots=True)
class MovedSeries:
    """A step of a series of a finding. A series that moves again after the first step has a row for each step.

    Attributes:
        ratio: the newest level of the step over the baseline's; ``low`` and ``high`` are its confidence interval.
        baseline_run: the run that the series was compared with; from step 2 on, a run at the level that the step before
            left.
        last_run: the newest run that shows the step and no later one; ``ratio`` and ``candidate_s`` come from this run.
        recovered_run: the run in which the series was back at the level before the step; None if it is not.
        step: 1, 2, …
        root_cause: the root cause of this step; empty if unknown.
        first_run: the run that raised the step; None in a finding that is not stored.
        level_run: the run whose level the next step has to exceed: ``first_run``, or a later run that was faster.
        explanation: what the code of this case does more slowly, from its newest profiles, or why there is no answer;
            None if the case was not profiled.
        awaits_profile: whether its run profiled other cases, and not yet this one: the budget ended before it.
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
    explanation: CaseExplanation | None = None
    awaits_profile: bool = False
    step: int = 1
    root_cause: str = ""
    first_run: int | None = None
    level_run: int | None = None

    @property
    def why(self) -> str:
        """What the code of this case does more slowly, as a sentence; empty without an explanation."""
        return self.explanation.sentence if self.explanation else ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause for people to look at, and the series that it moved, on one device or several.

    Attributes:
        root_cause: the commits, the GPU or the change of environment; empty if unknown.
        first_run: the run that raised the finding; None if it is about something missing.
        last_run: the newest run that shows the finding; None if it is about something missing.
        evidence: why the finding was raised.
        reason: why the finding is in its state; empty while it is open.
        by: who set the state; empty if perfsvc did.
        at: when the state was set.
        moved: the series that moved; none if the finding is about something missing, which ``root_cause`` names.
        owner: who looks after it; empty without an owner.
        ignored_until: when an ignored finding reopens; None if it is not ignored, or ignored for good.
    """

    id: int
    cause: Cause
    root_cause: str
    first_run: int | None
    last_run: int | None
    state: FindingState
    evidence: str
    reason: str
    by: str
    at: datetime
    moved: tuple[MovedSeries, ...]
    owner: str = ""
    ignored_until: datetime | None = None

    @property
    def worst(self) -> MovedSeries | None:
        """The series that a headline shows: the largest change in the finding's direction; None without series.

        Series that have not recovered go first.
        """
        every_series = self.shown
        in_direction = (moved for moved in every_series if moved.direction is self.direction)
        return next(in_direction, next(iter(every_series), None))

    @property
    def explained(self) -> MovedSeries | None:
        """The series that explains the finding in a headline: the largest slowdown that is explained; None without."""
        return next((moved for moved in self.shown if moved.why and moved.direction is Direction.SLOWER), None)

    @property
    def why(self) -> str:
        """What the code of the ``explained`` series does more slowly; empty without an explanation."""
        return self.explained.why if self.explained else ""

    @property
    def direction(self) -> Direction | None:
        """Broken if any of its series broke, else slower if any became slower, else faster; None without series."""
        directions = {moved.direction for moved in self.moved}
        return next((direction for direction in Direction if direction in directions), None)

    @property
    def changes(self) -> tuple[ChangeKind, ...]:
        """The kinds of change of its series, each once; ``AGAIN`` is included only if there is no other kind."""
        kinds = dict.fromkeys(moved.change for moved in self.moved)
        return tuple(kind for kind in kinds if kind is not ChangeKind.AGAIN or len(kinds) == 1)

    @property
    def devices(self) -> dict[str, str]:
        """The models of the devices on which the finding shows, by UUID."""
        return {moved.series.device: moved.series.device_model for moved in self.moved}

    @property
    def shown(self) -> tuple[MovedSeries, ...]:
        """The series that have not recovered, or all if all have; the largest change first."""
        return self.standing or _furthest_first(self.moved)

    @property
    def standing(self) -> tuple[MovedSeries, ...]:
        """The series that are not back at their old level, the largest change first."""
        return _furthest_first(moved for moved in self.moved if moved.recovered_run is None)


def _furthest_first(every_series: Iterable[MovedSeries]) -> tuple[MovedSeries, ...]:
    """Return the series by the size of their change, the largest first; an unknown change counts as the largest."""
    return tuple(sorted(every_series, key=lambda moved: abs(log(moved.ratio)) if moved.ratio else inf, reverse=True))


@dataclass(frozen=True, slots=True)
class FindingEvent:
    """Something that happened to a finding.

    Attributes:
        finding: number of the finding.
        run: the run that caused the event; None if a person or an absence caused it.
        night: the night that noticed an absence; None for other events, and if ``perfsvc watchdog`` noticed the
            absence.
        by: the person; empty if perfsvc did.
        text: the evidence, a reason, a comment or the new owner.
    """

    id: int
    finding: int
    kind: EventKind
    run: int | None
    by: str
    at: datetime
    text: str
    night: int | None = None


@dataclass(frozen=True, slots=True)
class FindingUpdates:
    """What a run changed about findings, as finding numbers.

    Attributes:
        raised: new findings.
        joined: active findings that got more series.
        stepped: active findings with a series that moved again.
        reopened: findings that were resolved and show again, or whose time of being ignored is over.
        resolved: findings whose series are all back at their old level.
        seen: active findings that still show.
    """

    raised: tuple[int, ...] = ()
    joined: tuple[int, ...] = ()
    stepped: tuple[int, ...] = ()
    reopened: tuple[int, ...] = ()
    resolved: tuple[int, ...] = ()
    seen: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A suspect measured again on its device: the baseline's stored binary and the candidate's in A/B pairs.

    Attributes:
        suspect: the suspect as the run saw it.
        cause: why its series moved, as far as this confirmation shows.
        reason: how the cause is known, without a full stop.
        threshold: the smallest relevant change, as a fraction.
        seed: decides the order of the processes.
        budget_s: the most seconds for all suspects of a device together.
        verdict: the verdict on the candidate compared with the baseline, both measured now; None if one of them was not
            measured.
        ratio: the candidate's level over the baseline's; ``low`` and ``high`` are its confidence interval over all
            looks together.
        looks: how often both sides were compared; 0 if an earlier run's answer still holds.
        drift: the level of the baseline's binary now over its stored level; None if no level on this device is stored.
        same_code: True if both binaries are the same code; None if one of them is not stored.
        wall_s: seconds that the measurements of this suspect took.
        baseline: one measurement of the baseline's binary for each process, with replicas numbered over both sides;
            empty if the answer is that of an earlier run or of another GPU of the model.
        candidate: the same for the candidate's binary.
    """

    suspect: Suspect
    cause: Cause
    reason: str
    threshold: float
    seed: int
    budget_s: float
    verdict: Verdict | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    looks: int = 0
    drift: float | None = None
    same_code: bool | None = None
    wall_s: float = 0.0
    baseline: tuple[Measurement, ...] = ()
    candidate: tuple[Measurement, ...] = ()

    @property
    def confirmed(self) -> bool:
        """True if the code is the cause, as written, launched or compiled."""
        return self.cause in {Cause.KERNEL, Cause.LAUNCH, Cause.TOOLCHAIN, Cause.INPUTS}

    @property
    def regressed(self) -> bool:
        """True if the code made the series slower."""
        return self.confirmed and self.verdict is Verdict.REGRESSION

    @property
    def cleared(self) -> bool:
        """True if the environment or noise is the cause."""
        return self.cause.blameless

    @property
    def carried_over(self) -> bool:
        """True if an earlier run's answer still holds, so that nothing was measured."""
        return self.confirmed and not self.looks

    @property
    def failed(self) -> bool:
        """True if a process had no correct result."""
        return any(measurement.status is not Status.OK for measurement in (*self.baseline, *self.candidate))

    @property
    def pairs(self) -> int:
        """The number of A/B pairs."""
        return min(len(self.baseline), len(self.candidate))
