"""The outbox: what people are told of each night, and to whom it was delivered."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, insert, or_, select, update

from perfsvc.model import Message
from perfsvc.store.rows import DeliveryRow, RunState
from perfsvc.store.schema.engine import Database, new_id
from perfsvc.store.schema.night_tables import Deliveries, Messages, Nights

ABANDONED = timedelta(days=1)
"""After so long nobody is at a night any more, whatever is stored of it: its host may be gone for good."""


class MessageStore:
    """Messages about nights and their deliveries; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, night: int, *, title: str, body: str, targets: Collection[str]) -> Message:
        """Stores what people are told of a night, and returns it with its key.

        A night is told of once and for all: where there is a message already, that one is returned.

        Args:
            night: of which night.
            title: one line.
            body: plain text.
            targets: whom it is for, by the names of the settings.
        """
        with self._database.writing() as connection:
            found = connection.execute(_messages().where(Messages.night_id == night)).one_or_none()
            if found is not None:
                return _message(found)
            message = Message(f"perfsvc-{uuid4().hex}", title, body)
            row = {"night_id": night, "key": message.key, "title": title, "body": body, "created_at": datetime.now(UTC)}
            number = new_id(connection, Messages, row)
            new = {"message_id": number, "attempts": 0, "error": ""}
            if targets:
                connection.execute(insert(Deliveries), [new | {"target": target} for target in sorted(set(targets))])
            return message

    def get(self, night: int) -> Message | None:
        """What people are told of a night; None where nothing was composed."""
        with self._database.reading() as connection:
            found = connection.execute(_messages().where(Messages.night_id == night)).one_or_none()
        return None if found is None else _message(found)

    def undelivered(self, night: int) -> list[DeliveryRow]:
        """What has not arrived yet, the oldest first: of a night and of the earlier ones of its suite.

        A night that is still under way elsewhere sees to its own.
        """
        with self._database.reading() as connection:
            own = connection.execute(select(Nights.suite, Nights.started_at).where(Nights.id == night)).one()
            over = or_(
                Nights.id == night, Nights.state != RunState.RUNNING, Nights.started_at < own.started_at - ABANDONED
            )
            return _deliveries(connection, Deliveries.sent_at.is_(None), Nights.suite == own.suite, over)

    def deliveries(self, night: int) -> list[DeliveryRow]:
        """A night's message to each of its targets."""
        with self._database.reading() as connection:
            return _deliveries(connection, Messages.night_id == night)

    def put_attempt(self, key: str, target: str, *, error: str = "") -> None:
        """Stores that a message was sent to a target now: that it arrived, or why it did not."""
        now = datetime.now(UTC)
        number = select(Messages.id).where(Messages.key == key).scalar_subquery()
        this = update(Deliveries).where(Deliveries.message_id == number, Deliveries.target == target)
        came = {"attempts": Deliveries.attempts + 1, "error": error, "tried_at": now}
        with self._database.writing() as connection:
            connection.execute(this.values(**came, sent_at=None if error else now))


def _messages() -> Any:
    return select(Messages.key, Messages.title, Messages.body)


def _message(row: Any) -> Message:
    return Message(row.key, row.title, row.body)


def _deliveries(connection: Connection, *where: ColumnElement[bool]) -> list[DeliveryRow]:
    tried = (Deliveries.target, Deliveries.attempts, Deliveries.error, Deliveries.tried_at, Deliveries.sent_at)
    query = (
        _messages()
        .add_columns(Messages.night_id, *tried)
        .select_from(Deliveries)
        .join(Messages, Messages.id == Deliveries.message_id)
        .join(Nights, Nights.id == Messages.night_id)
        .where(*where)
        .order_by(Messages.id, Deliveries.target)
    )
    return [
        DeliveryRow(_message(row), row.night_id, row.target, row.attempts, row.error, row.tried_at, row.sent_at)
        for row in connection.execute(query)
    ]
