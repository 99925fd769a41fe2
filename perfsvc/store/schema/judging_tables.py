"""The tables of judging: verdicts, pins, confirmations and findings."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import ForeignKey, Index, TextClause, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from perfsvc.model import (
    CacheState,
    Cause,
    ChangeKind,
    Direction,
    EventKind,
    ExpectedKind,
    FindingState,
    Status,
    Verdict,
)
from perfsvc.store.schema.tables import Base, Big, Free, Key, Uid

ACCEPTED = (Verdict.NEW, Verdict.IMPROVEMENT)
"""The verdicts that make the level of their run the baseline of later runs."""
EVENTS = (Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.BROKEN, Verdict.MISSING)
"""The verdicts that are events in a history."""


def _is_one_of(verdicts: Iterable[Verdict]) -> TextClause:
    """Return the condition of an index. The queries that use the index have the same list of literals."""
    return text(f"verdict IN ({', '.join(repr(verdict.value) for verdict in verdicts)})")


_ACCEPTED, _EVENTS = _is_one_of(ACCEPTED), _is_one_of(EVENTS)


class Verdicts(Base):
    """The verdict on a series when its run ended; ``ratio`` is candidate over baseline."""

    __tablename__ = "verdicts"
    __table_args__ = (
        Index(None, "case_id", "device_id", "metric", "cache", "run_id"),
        # Accepting verdicts are few, and every run looks for them among all verdicts on its series.
        Index("ix_verdicts_accepted", "case_id", sqlite_where=_ACCEPTED, postgresql_where=_ACCEPTED),
        # So are events, and the pages look for them in all runs that they show.
        Index("ix_verdicts_events", "run_id", sqlite_where=_EVENTS, postgresql_where=_EVENTS),
    )

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id", ondelete="RESTRICT"), primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id", ondelete="RESTRICT"), primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    cache: Mapped[CacheState] = mapped_column(primary_key=True)
    verdict: Mapped[Verdict]
    reason: Mapped[Free]
    ratio: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    baseline_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    baseline_s: Mapped[float | None]
    candidate_s: Mapped[float | None]
    smallest: Mapped[float | None]
    baseline_replicas: Mapped[int | None]
    candidate_replicas: Mapped[int | None]
    baseline_runs: Mapped[int]
    between_nights: Mapped[float | None]
    cause: Mapped[Cause | None]


class Pins(Base):
    """A baseline that a person fixed for a series; its run cannot be deleted."""

    __tablename__ = "pins"

    lineage_id: Mapped[int] = mapped_column(ForeignKey("lineages.id", ondelete="RESTRICT"), primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id", ondelete="RESTRICT"), primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    cache: Mapped[CacheState] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="RESTRICT"), index=True)
    set_at: Mapped[datetime]
    set_by: Mapped[str]
    comment: Mapped[Free]


class Exclusions(Base):
    """What a person did to a run: excluded the run or one of its cases, took this exclusion back, or deleted the run.

    An exclusion counts while ``included_at`` is NULL. ``case_id`` is NULL for a whole run. ``run_id`` is no foreign
    key, because the record of a deleted run stays.
    """

    __tablename__ = "exclusions"
    __table_args__ = (Index(None, "run_id", "case_id"),)

    id: Mapped[Key]
    run_id: Mapped[int]
    case_id: Mapped[int | None] = mapped_column(ForeignKey("cases.id", ondelete="RESTRICT"), index=True)
    reason: Mapped[Free]
    excluded_by: Mapped[str]
    excluded_at: Mapped[datetime]
    included_by: Mapped[str] = mapped_column(server_default="")
    included_at: Mapped[datetime | None]
    deleted: Mapped[bool]


class Confirmations(Base):
    """A suspect of a run that was measured again; ``judged`` and ``judged_…`` hold the verdict of the run itself."""

    __tablename__ = "confirmations"
    __table_args__ = (Index(None, "case_id", "device_id", "metric", "cache", "run_id"),)

    id: Mapped[Key]
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id", ondelete="RESTRICT"))
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id", ondelete="RESTRICT"))
    metric: Mapped[str]
    cache: Mapped[CacheState]
    baseline_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    judged: Mapped[Verdict]
    judged_ratio: Mapped[float | None]
    judged_baseline_s: Mapped[float | None]
    judged_candidate_s: Mapped[float | None]
    change: Mapped[ChangeKind]
    direction: Mapped[Direction]
    cause: Mapped[Cause]
    reason: Mapped[Free]
    verdict: Mapped[Verdict | None]
    ratio: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    looks: Mapped[int]
    drift: Mapped[float | None]
    same_code: Mapped[bool | None]
    threshold: Mapped[float]
    seed: Mapped[Big]
    budget_s: Mapped[float]
    wall_s: Mapped[float]
    confirmed_at: Mapped[datetime]


class ConfirmationRuns(Base):
    """A process that measured one side of a confirmation; ``number`` is its position in the order of measuring."""

    __tablename__ = "confirmation_runs"

    confirmation_id: Mapped[int] = mapped_column(ForeignKey("confirmations.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    side: Mapped[str]
    status: Mapped[Status]
    reason: Mapped[Free]
    samples: Mapped[bytes | None]
    sample_count: Mapped[int]
    value: Mapped[float | None]
    wall_s: Mapped[float]
    sm_clock_hz: Mapped[float | None]
    temperature_c: Mapped[float | None]
    power_w: Mapped[float | None]
    slowdowns: Mapped[str]
    rejected_batches: Mapped[int]


class Findings(Base):
    """One cause that a person should look at; ``reason``, ``set_by`` and ``set_at`` belong to its state.

    A finding about a missing host, GPU or case has neither a first nor a last run.
    """

    __tablename__ = "findings"
    __table_args__ = ({"sqlite_autoincrement": True},)  # people write the ids down: an id is never used again

    id: Mapped[Key]
    uid: Mapped[Uid]
    cause: Mapped[Cause]
    root_cause: Mapped[Free] = mapped_column(server_default="")
    first_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="RESTRICT"), index=True)
    last_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="RESTRICT"), index=True)
    evidence: Mapped[Free]
    state: Mapped[FindingState]
    reason: Mapped[Free]
    set_by: Mapped[str]
    set_at: Mapped[datetime]
    owner: Mapped[Free] = mapped_column(server_default="")
    ignored_until: Mapped[datetime | None]


class FindingCases(Base):
    """A step of a series of a finding.

    ``last_run_id`` is the newest run that shows this step but no later step; if the finding is accepted, the level of
    this run is the baseline. ``level_run_id`` is the run whose level the next step has to exceed.
    """

    __tablename__ = "finding_cases"
    __table_args__ = (Index(None, "case_id", "device_id", "metric", "cache"),)

    finding_id: Mapped[int] = mapped_column(ForeignKey("findings.id", ondelete="CASCADE"), primary_key=True)
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id", ondelete="RESTRICT"), primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id", ondelete="RESTRICT"), primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    cache: Mapped[CacheState] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    root_cause: Mapped[Free] = mapped_column(server_default="")
    change: Mapped[ChangeKind]
    direction: Mapped[Direction]
    ratio: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    baseline_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    baseline_s: Mapped[float | None]
    candidate_s: Mapped[float | None]
    first_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    level_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    last_run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="RESTRICT"), index=True)
    recovered_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)


class FindingEvents(Base):
    """A change of a finding; ``run_id`` is NULL if a person made it, ``done_by`` is empty if perfsvc made it.

    ``night`` is the number of the night that noticed that something is missing or back; NULL if ``perfsvc watchdog``
    noticed it. ``night`` is no foreign key, because people read the number when the night itself has been removed.
    """

    __tablename__ = "finding_events"

    id: Mapped[Key]
    finding_id: Mapped[int] = mapped_column(ForeignKey("findings.id", ondelete="CASCADE"), index=True)
    kind: Mapped[EventKind]
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    night: Mapped[int | None]
    done_by: Mapped[Free]
    done_at: Mapped[datetime]
    text: Mapped[Free]


class Bisections(Base):
    """The search for the commit that moved a case of a finding; ``answer`` is JSON: commits, comparisons, levels."""

    __tablename__ = "bisections"

    id: Mapped[Key]
    finding_id: Mapped[int] = mapped_column(ForeignKey("findings.id", ondelete="CASCADE"), index=True)
    answer: Mapped[Free]
    stored_at: Mapped[datetime]


class Expectations(Base):
    """A host, GPU or case that later nights of the host are expected to have; the unique columns identify it.

    ``finding_id`` is the finding that reports the host, GPU or case as missing; NULL while it is there. ``night`` is no
    foreign key, because people read the number when the night itself has been removed.
    """

    __tablename__ = "expectations"
    __table_args__ = (UniqueConstraint("host", "scope", "kind", "name", "devices"),)

    id: Mapped[Key]
    kind: Mapped[ExpectedKind]
    host: Mapped[str]
    scope: Mapped[Free]
    name: Mapped[str]
    devices: Mapped[str]
    model: Mapped[str]
    night: Mapped[int]
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    seen_at: Mapped[datetime]
    finding_id: Mapped[int | None] = mapped_column(ForeignKey("findings.id", ondelete="SET NULL"), index=True)
