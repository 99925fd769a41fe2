"""The tables of findings: what someone should look at, and what it moved."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from perfsvc.model import CacheState, Cause, ChangeKind, Direction, FindingState
from perfsvc.store.tables import Base, Free, Key


class Findings(Base):
    """One cause that someone should look at; ``reason``, ``set_by`` and ``set_at`` are of its state."""

    __tablename__ = "findings"
    __table_args__ = ({"sqlite_autoincrement": True},)  # people write their ids down as well

    id: Mapped[Key]
    cause: Mapped[Cause]
    root_cause: Mapped[Free] = mapped_column(server_default="")
    first_run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="RESTRICT"), index=True)
    last_run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="RESTRICT"), index=True)
    evidence: Mapped[Free]
    state: Mapped[FindingState]
    reason: Mapped[Free]
    set_by: Mapped[str]
    set_at: Mapped[datetime]
    owner: Mapped[Free] = mapped_column(server_default="")
    ignored_until: Mapped[datetime | None]


class FindingCases(Base):
    """A series that a finding moved; ``last_run_id`` is the newest run that shows the change, the one to accept."""

    __tablename__ = "finding_cases"
    __table_args__ = (Index(None, "case_id", "device_id", "metric", "cache"),)

    finding_id: Mapped[int] = mapped_column(ForeignKey("findings.id", ondelete="CASCADE"), primary_key=True)
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id", ondelete="RESTRICT"), primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id", ondelete="RESTRICT"), primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    cache: Mapped[CacheState] = mapped_column(primary_key=True)
    change: Mapped[ChangeKind]
    direction: Mapped[Direction]
    ratio: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    baseline_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    baseline_s: Mapped[float | None]
    candidate_s: Mapped[float | None]
    last_run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="RESTRICT"), index=True)
    recovered_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
