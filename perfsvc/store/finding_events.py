"""What befell findings: who did what when."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, ForeignKey, insert, select
from sqlalchemy.orm import Mapped, mapped_column

from perfsvc.model import EventKind, FindingEvent
from perfsvc.store.columntypes import word
from perfsvc.store.tables import Base, Free, Key


class FindingEvents(Base):
    """Something that befell a finding: ``run_id`` is NULL where a person did it, ``done_by`` empty where a run did."""

    __tablename__ = "finding_events"

    id: Mapped[Key]
    finding_id: Mapped[int] = mapped_column(ForeignKey("findings.id", ondelete="CASCADE"), index=True)
    kind: Mapped[EventKind] = mapped_column(word(EventKind))
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    done_by: Mapped[Free]
    done_at: Mapped[datetime]
    said: Mapped[Free]


def put(
    connection: Connection,
    findings: Iterable[int],
    kind: EventKind,
    said: str,
    *,
    at: datetime,
    run: int | None = None,
    by: str = "",
) -> None:
    """Stores that the same befell some findings."""
    rows = [
        {"finding_id": one, "kind": kind, "run_id": run, "done_by": by, "done_at": at, "said": said} for one in findings
    ]
    if rows:
        connection.execute(insert(FindingEvents), rows)


def events(connection: Connection, *, run: int | None = None, finding: int | None = None) -> list[FindingEvent]:
    """What befell a finding, or what a run did to findings, or all there is, in its order."""
    where: list[ColumnElement[bool]] = []
    if run is not None:
        where.append(FindingEvents.run_id == run)
    if finding is not None:
        where.append(FindingEvents.finding_id == finding)
    rows = connection.execute(select(FindingEvents).where(*where).order_by(FindingEvents.id))
    return [
        FindingEvent(row.id, row.finding_id, row.kind, row.run_id, row.done_by, row.done_at, row.said) for row in rows
    ]
