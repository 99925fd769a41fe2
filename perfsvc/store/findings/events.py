"""The events of findings: what a run or a person changed, and when."""

from datetime import datetime

from sqlalchemy import ColumnElement, Connection, insert, select

from perfsvc.model import EventKind, FindingEvent
from perfsvc.store.schema.judging_tables import FindingEvents


def put(
    connection: Connection,
    finding: int,
    kind: EventKind,
    text: str,
    *,
    at: datetime,
    run: int | None = None,
    by: str = "",
) -> None:
    """Store an event of a finding: ``run`` or the person ``by`` caused it."""
    row = {"finding_id": finding, "kind": kind, "run_id": run, "done_by": by, "done_at": at, "text": text}
    connection.execute(insert(FindingEvents).values(row))


def load(connection: Connection, *, run: int | None, finding: int | None) -> list[FindingEvent]:
    """Return the events of a run, of a finding, or all events, oldest first."""
    where: list[ColumnElement[bool]] = []
    if run is not None:
        where.append(FindingEvents.run_id == run)
    if finding is not None:
        where.append(FindingEvents.finding_id == finding)
    rows = connection.execute(select(FindingEvents).where(*where).order_by(FindingEvents.id))
    return [
        FindingEvent(row.id, row.finding_id, row.kind, row.run_id, row.done_by, row.done_at, row.text) for row in rows
    ]
