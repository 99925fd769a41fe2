"""What befell findings: who did what when."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, insert, select

from perfsvc.model import EventKind, FindingEvent
from perfsvc.store.schema.judging_tables import FindingEvents


def put(
    connection: Connection,
    findings: Iterable[int],
    kind: EventKind,
    text: str,
    *,
    at: datetime,
    run: int | None = None,
    by: str = "",
) -> None:
    """Stores that the same befell some findings."""
    rows = [
        {"finding_id": one, "kind": kind, "run_id": run, "done_by": by, "done_at": at, "text": text} for one in findings
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
        FindingEvent(row.id, row.finding_id, row.kind, row.run_id, row.done_by, row.done_at, row.text) for row in rows
    ]
