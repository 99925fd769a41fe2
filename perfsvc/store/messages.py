"""Messages: those of each night, with their delivery to each target."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, func, insert, or_, select, update

from perfsvc.model import EventKind, Message, MessageText, RunState
from perfsvc.store.findings.read import put_event
from perfsvc.store.rows import DeliveryRow
from perfsvc.store.schema.engine import StorePart, new_id
from perfsvc.store.schema.night_tables import Deliveries, Messages, Nights

ABANDONED = timedelta(days=1)
"""A night that began this long before another one has died, even if it is still stored as running on a lost host."""


class MessageStore(StorePart):
    """Messages; each method is one transaction."""

    def put(
        self,
        night: int,
        texts: Mapping[str, MessageText],
        *,
        event: int | None = None,
        reminded: Collection[int] = (),
        now: datetime | None = None,
    ) -> list[Message]:
        """Store what each target receives about a night, and return the messages with their keys.

        Targets with the same text share a message. All messages of a night are stored at once: if some are stored
        already, return them and store nothing.

        Args:
            night: the number of the night.
            texts: the text for each target, by the target's name in the settings.
            event: the newest event of ``perfsvc watchdog`` that the messages report.
            reminded: the findings that the messages remind of; each gets an event.
            now: the time; by default the current time.
        """
        at = now or datetime.now(UTC)
        with self._database.writing() as connection:
            stored = _messages_of(connection, night)
            if stored or not texts:
                return stored
            _put(connection, texts, at, night=night, event=event)
            for finding in sorted(reminded):
                put_event(
                    connection, finding, EventKind.REMINDED, f"in the message of night {night}", night=night, at=at
                )
            return _messages_of(connection, night)

    def put_of_watchdog(self, event: int, texts: Mapping[str, MessageText]) -> None:
        """Store what each target receives from ``perfsvc watchdog``, unless a message already reports the event.

        Args:
            event: the newest event of a finding that the messages report.
            texts: the text for each target, by the target's name in the settings.
        """
        with self._database.writing() as connection:
            if event > _newest_event(connection):
                _put(connection, texts, datetime.now(UTC), event=event)

    def newest_event(self) -> int:
        """Return the newest event of ``perfsvc watchdog`` that a message reports; 0 without such a message."""
        with self._database.reading() as connection:
            return _newest_event(connection)

    def of_night(self, night: int) -> list[Message]:
        """Return the messages about a night, in the order in which they were stored."""
        with self._database.reading() as connection:
            return _messages_of(connection, night)

    def newest(self, suite: str) -> dict[str, datetime]:
        """Return, by target, when the newest message about a night of a suite, or of the watchdog, was stored."""
        query = (
            select(Deliveries.target, func.max(Messages.created_at))
            .join(Messages, Messages.id == Deliveries.message_id)
            .outerjoin(Nights, Nights.id == Messages.night_id)
            .where(or_(Nights.suite == suite, Messages.night_id.is_(None)))
            .group_by(Deliveries.target)
        )
        with self._database.reading() as connection:
            return dict(connection.execute(query).all())

    def undelivered(self, night: int) -> list[DeliveryRow]:
        """Return the undelivered messages of a night and of the earlier nights of its suite, a row for each target.

        The oldest message comes first. A night that is still running on another host is left out, because that night
        delivers its message itself.
        """
        with self._database.reading() as connection:
            own = connection.execute(select(Nights.suite, Nights.started_at).where(Nights.id == night)).one()
            is_over = or_(
                Nights.id == night, Nights.state != RunState.RUNNING, Nights.started_at < own.started_at - ABANDONED
            )
            return _undelivered(connection, Nights.suite == own.suite, is_over)

    def undelivered_of_watchdog(self) -> list[DeliveryRow]:
        """Return the undelivered messages of ``perfsvc watchdog``, a row for each target, the oldest message first."""
        with self._database.reading() as connection:
            return _undelivered(connection, Messages.night_id.is_(None))

    def put_attempt(self, key: str, target: str, *, error: str = "") -> None:
        """Store an attempt, made now, to send the message with a key to a target; ``error`` is why it failed."""
        now = datetime.now(UTC)
        number = select(Messages.id).where(Messages.key == key).scalar_subquery()
        delivery = update(Deliveries).where(Deliveries.message_id == number, Deliveries.target == target)
        attempt = {"attempts": Deliveries.attempts + 1, "error": error, "tried_at": now}
        with self._database.writing() as connection:
            connection.execute(delivery.values(**attempt, sent_at=None if error else now))


def _put(
    connection: Connection,
    texts: Mapping[str, MessageText],
    at: datetime,
    *,
    night: int | None = None,
    event: int | None = None,
) -> None:
    """Store the text for each target; targets with the same text share a message."""
    targets: dict[MessageText, list[str]] = defaultdict(list)
    for target, text in sorted(texts.items()):
        targets[text].append(target)
    for text, of_text in targets.items():
        row = {"night_id": night, "event_id": event, "key": f"perfsvc-{uuid4().hex}", "created_at": at}
        number = new_id(connection, Messages, row | {"title": text.title, "body": text.body})
        rows = [{"message_id": number, "target": target, "attempts": 0, "error": ""} for target in of_text]
        connection.execute(insert(Deliveries), rows)


def _undelivered(connection: Connection, *where: ColumnElement[bool]) -> list[DeliveryRow]:
    query = (
        select(Messages.key, Messages.title, Messages.body, Messages.night_id, Deliveries.target)
        .join(Messages, Messages.id == Deliveries.message_id)
        .outerjoin(Nights, Nights.id == Messages.night_id)
        .where(Deliveries.sent_at.is_(None), *where)
        .order_by(Messages.id, Deliveries.target)
    )
    return [
        DeliveryRow(Message(row.key, row.title, row.body), row.night_id, row.target)
        for row in connection.execute(query)
    ]


def _newest_event(connection: Connection) -> int:
    return connection.scalar(select(func.max(Messages.event_id))) or 0


def _messages_of(connection: Connection, night: int) -> list[Message]:
    query = select(Messages.key, Messages.title, Messages.body).where(Messages.night_id == night).order_by(Messages.id)
    return [Message(row.key, row.title, row.body) for row in connection.execute(query)]
