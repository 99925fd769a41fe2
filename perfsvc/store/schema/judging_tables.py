"""The tables of judging: verdicts, pins, confirmations and findings."""

from datetime import datetime

from sqlalchemy import ColumnElement, ForeignKey, Index, UniqueConstraint

from perfsvc.model import (
    Cause,
    ChangeKind,
    Direction,
    EventKind,
    ExpectedKind,
    FindingState,
    Status,
    Verdict,
)
from perfsvc.store.schema.base import Base, Big, Key, Uid, column

STEP = ("finding_id", "series_id", "step")
"""The columns that identify a row of ``finding_cases``."""


class Pins(Base):
    """A baseline that a person fixed for a series; its run cannot be deleted."""

    __tablename__ = "pins"

    series_id: ColumnElement[int] = column(ForeignKey("series.id", ondelete="RESTRICT"), primary_key=True)
    run_id: ColumnElement[int] = column(ForeignKey("runs.id", ondelete="RESTRICT"), index=True)
    set_at: ColumnElement[datetime]
    set_by: ColumnElement[str]
    comment: ColumnElement[str]


class Exclusions(Base):
    """What a person did to a run: excluded the run or one of its cases, took this exclusion back, or deleted the run.

    An exclusion counts while ``included_at`` is NULL. ``case_id`` is NULL for a whole run. ``run_id`` is no foreign
    key, because the record of a deleted run stays.
    """

    __tablename__ = "exclusions"
    __table_args__ = (Index(None, "run_id", "case_id"),)

    id: ColumnElement[Key]
    run_id: ColumnElement[int]
    case_id: ColumnElement[int | None] = column(ForeignKey("cases.id", ondelete="RESTRICT"), index=True)
    reason: ColumnElement[str]
    excluded_by: ColumnElement[str]
    excluded_at: ColumnElement[datetime]
    included_by: ColumnElement[str] = column(server_default="")
    included_at: ColumnElement[datetime | None]
    deleted: ColumnElement[bool]


class Confirmations(Base):
    """A suspect of a run that was measured again; ``judged`` and ``judged_…`` hold the verdict of the run itself."""

    __tablename__ = "confirmations"
    __table_args__ = (Index(None, "series_id", "run_id"),)

    id: ColumnElement[Key]
    run_id: ColumnElement[int] = column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    series_id: ColumnElement[int] = column(ForeignKey("series.id", ondelete="RESTRICT"))
    baseline_run_id: ColumnElement[int | None] = column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    judged: ColumnElement[Verdict]
    judged_ratio: ColumnElement[float | None]
    judged_baseline_s: ColumnElement[float | None]
    judged_candidate_s: ColumnElement[float | None]
    change: ColumnElement[ChangeKind]
    direction: ColumnElement[Direction]
    cause: ColumnElement[Cause]
    reason: ColumnElement[str]
    verdict: ColumnElement[Verdict | None]
    ratio: ColumnElement[float | None]
    low: ColumnElement[float | None]
    high: ColumnElement[float | None]
    looks: ColumnElement[int]
    drift: ColumnElement[float | None]
    same_code: ColumnElement[bool | None]
    threshold: ColumnElement[float]
    seed: ColumnElement[Big]
    budget_s: ColumnElement[float]
    wall_s: ColumnElement[float]
    confirmed_at: ColumnElement[datetime]


class ConfirmationRuns(Base):
    """A process that measured one side of a confirmation; ``number`` is its position in the order of measuring."""

    __tablename__ = "confirmation_runs"

    confirmation_id: ColumnElement[int] = column(ForeignKey("confirmations.id", ondelete="CASCADE"), primary_key=True)
    number: ColumnElement[int] = column(primary_key=True)
    side: ColumnElement[str]
    status: ColumnElement[Status]
    reason: ColumnElement[str]
    samples: ColumnElement[bytes | None]
    sample_count: ColumnElement[int]
    value: ColumnElement[float | None]
    wall_s: ColumnElement[float]
    sm_clock_hz: ColumnElement[float | None]
    temperature_c: ColumnElement[float | None]
    power_w: ColumnElement[float | None]
    slowdowns: ColumnElement[str]
    rejected_batches: ColumnElement[int]


class Findings(Base):
    """One cause that a person should look at; ``reason``, ``set_by`` and ``set_at`` belong to its state.

    ``decided`` says that a person set the state; else the state follows from what runs measured.

    A finding about a missing host, GPU or case has neither a first nor a last run.
    """

    __tablename__ = "findings"
    __table_args__ = ({"sqlite_autoincrement": True},)  # people write the ids down: an id is never used again

    id: ColumnElement[Key]
    uid: ColumnElement[Uid]
    cause: ColumnElement[Cause]
    root_cause: ColumnElement[str] = column(server_default="")
    first_run_id: ColumnElement[int | None] = column(ForeignKey("runs.id", ondelete="RESTRICT"), index=True)
    last_run_id: ColumnElement[int | None] = column(ForeignKey("runs.id", ondelete="RESTRICT"), index=True)
    evidence: ColumnElement[str]
    state: ColumnElement[FindingState]
    reason: ColumnElement[str]
    set_by: ColumnElement[str]
    set_at: ColumnElement[datetime]
    decided: ColumnElement[bool]
    owner: ColumnElement[str] = column(server_default="")
    ignored_until: ColumnElement[datetime | None]


class FindingCases(Base):
    """A step of a series of a finding.

    ``last_run_id`` is the newest run that shows this step but no later step; if the finding is accepted, the level of
    this run is the baseline. ``level_run_id`` is the run whose level the next step has to exceed.
    """

    __tablename__ = "finding_cases"
    __table_args__ = (UniqueConstraint(*STEP), Index(None, "series_id"))

    id: ColumnElement[Key]
    finding_id: ColumnElement[int] = column(ForeignKey("findings.id", ondelete="CASCADE"))
    series_id: ColumnElement[int] = column(ForeignKey("series.id", ondelete="RESTRICT"))
    step: ColumnElement[int]
    root_cause: ColumnElement[str] = column(server_default="")
    change: ColumnElement[ChangeKind]
    direction: ColumnElement[Direction]
    ratio: ColumnElement[float | None]
    low: ColumnElement[float | None]
    high: ColumnElement[float | None]
    baseline_run_id: ColumnElement[int | None] = column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    baseline_s: ColumnElement[float | None]
    candidate_s: ColumnElement[float | None]
    first_run_id: ColumnElement[int | None] = column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    level_run_id: ColumnElement[int | None] = column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    last_run_id: ColumnElement[int] = column(ForeignKey("runs.id", ondelete="RESTRICT"), index=True)
    recovered_run_id: ColumnElement[int | None] = column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)


class Sightings(Base):
    """A run that shows a step of a series of a finding, or in which the series was back at the level before (``back``).

    The row of the step in ``finding_cases`` follows from its sightings in judged runs. ``new_level`` says that the next
    step has to exceed the level of this run.
    """

    __tablename__ = "sightings"

    step_id: ColumnElement[int] = column(ForeignKey("finding_cases.id", ondelete="CASCADE"), primary_key=True)
    run_id: ColumnElement[int] = column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, index=True)
    back: ColumnElement[bool]
    new_level: ColumnElement[bool]
    baseline_run_id: ColumnElement[int | None] = column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    baseline_s: ColumnElement[float | None]
    candidate_s: ColumnElement[float | None]
    ratio: ColumnElement[float | None]
    low: ColumnElement[float | None]
    high: ColumnElement[float | None]


class FindingEvents(Base):
    """A change of a finding; ``run_id`` is NULL if a person made it, ``done_by`` is empty if perfsvc made it.

    ``night`` is the number of the night that noticed that something is missing or back; NULL if ``perfsvc watchdog``
    noticed it. ``night`` is no foreign key, because people read the number when the night itself has been removed.
    """

    __tablename__ = "finding_events"

    id: ColumnElement[Key]
    finding_id: ColumnElement[int] = column(ForeignKey("findings.id", ondelete="CASCADE"), index=True)
    kind: ColumnElement[EventKind]
    run_id: ColumnElement[int | None] = column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    night: ColumnElement[int | None]
    done_by: ColumnElement[str]
    done_at: ColumnElement[datetime]
    text: ColumnElement[str]


class Bisections(Base):
    """The search for the commit that moved a case of a finding; ``answer`` is JSON: commits, comparisons, levels."""

    __tablename__ = "bisections"

    id: ColumnElement[Key]
    finding_id: ColumnElement[int] = column(ForeignKey("findings.id", ondelete="CASCADE"), index=True)
    answer: ColumnElement[str]
    stored_at: ColumnElement[datetime]


class Expectations(Base):
    """A host, GPU or case that later nights of the host are expected to have; the unique columns identify it.

    ``finding_id`` is the finding that reports the host, GPU or case as missing; NULL while it is there. ``night`` is no
    foreign key, because people read the number when the night itself has been removed.
    """

    __tablename__ = "expectations"
    __table_args__ = (UniqueConstraint("host", "scope", "kind", "name", "devices"),)

    id: ColumnElement[Key]
    kind: ColumnElement[ExpectedKind]
    host: ColumnElement[str]
    scope: ColumnElement[str]
    name: ColumnElement[str]
    devices: ColumnElement[str]
    model: ColumnElement[str]
    night: ColumnElement[int]
    run_id: ColumnElement[int | None] = column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    seen_at: ColumnElement[datetime]
    finding_id: ColumnElement[int | None] = column(ForeignKey("findings.id", ondelete="SET NULL"), index=True)
