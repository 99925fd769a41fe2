"""Messages: one for each night, with its delivery to each target."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from sqlalchemy import Connection, insert, or_, select, update

from perfsvc.model import Message, RunState
from perfsvc.store.rows import DeliveryRow
from perfsvc.store.schema.engine import Database, new_id
from perfsvc.store.schema.night_tables import Deliveries, Messages, Nights

ABANDONED = timedelta(days=1)
"""A night that began this long before another one has died, even if it is still stored as running on a lost host."""


class MessageStore:
    """Messages; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, night: int, *, title: str, body: str, targets: Collection[str]) -> Message:
        """Store the message about a night and return it with its key.

        A night has only one message: if one is stored already, return it and store nothing.

        Args:
            night: the number of the night.
            title: one line.
            body: plain text.
            targets: the names of the targets in the settings.
        """
        with self._database.writing() as connection:
            stored = _message_of(connection, night)
            if stored is not None:
                return stored
            message = Message(f"perfsvc-{uuid4().hex}", title, body)
            row = {"night_id": night, "key": message.key, "title": title, "body": body, "created_at": datetime.now(UTC)}
            number = new_id(connection, Messages, row)
            rows = [
                {"message_id": number, "target": target, "attempts": 0, "error": ""} for target in sorted(set(targets))
            ]
            if rows:
                connection.execute(insert(Deliveries), rows)
            return message

    def get(self, night: int) -> Message | None:
        """Return the message about a night; None if there is none."""
        with self._database.reading() as connection:
            return _message_of(connection, night)

    def undelivered(self, night: int) -> list[DeliveryRow]:
        """Return the undelivered messages of a night and of the earlier nights of its suite, a row for each target.

        The oldest message comes first. A night that is still running on another host is left out: it delivers its
        message itself.
        """
        with self._database.reading() as connection:
            own = connection.execute(select(Nights.suite, Nights.started_at).where(Nights.id == night)).one()
            is_over = or_(
                Nights.id == night, Nights.state != RunState.RUNNING, Nights.started_at < own.started_at - ABANDONED
            )
            query = (
                select(Messages.key, Messages.title, Messages.body, Messages.night_id, Deliveries.target)
                .join(Messages, Messages.id == Deliveries.message_id)
                .join(Nights, Nights.id == Messages.night_id)
                .where(Deliveries.sent_at.is_(None), Nights.suite == own.suite, is_over)
                .order_by(Messages.id, Deliveries.target)
            )
            return [
                DeliveryRow(Message(row.key, row.title, row.body), row.night_id, row.target)
                for row in connection.execute(query)
            ]

    def put_attempt(self, key: str, target: str, *, error: str = "") -> None:
        """Store an attempt, made now, to send the message with a key to a target; ``error`` is why it failed."""
        now = datetime.now(UTC)
        number = select(Messages.id).where(Messages.key == key).scalar_subquery()
        delivery = update(Deliveries).where(Deliveries.message_id == number, Deliveries.target == target)
        attempt = {"attempts": Deliveries.attempts + 1, "error": error, "tried_at": now}
        with self._database.writing() as connection:
            connection.execute(delivery.values(**attempt, sent_at=None if error else now))


def _message_of(connection: Connection, night: int) -> Message | None:
    query = select(Messages.key, Messages.title, Messages.body).where(Messages.night_id == night)
    row = connection.execute(query).one_or_none()
    return None if row is None else Message(row.key, row.title, row.body)
