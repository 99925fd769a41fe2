"""The tables of nights, their stages, and the messages about them."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, ForeignKey

from perfsvc.model import RunState, StageState
from perfsvc.store.schema.base import Base, Key, Uid, column


class Nights(Base):
    """One night; ``pid`` and ``process_start`` identify its process, ``settings`` are the settings at its begin.

    ``git_commit``, ``git_dirty`` and ``suite_digest`` are empty until the suite revision is stored. A night is resumed
    only if ``signatures`` holds a trusted signature of its host, suite and settings (``perfsvc.keys``).
    """

    __tablename__ = "nights"
    __table_args__ = ({"sqlite_autoincrement": True},)  # people write the numbers down: a number is never used again

    id: ColumnElement[Key]
    uid: ColumnElement[Uid]
    state: ColumnElement[RunState]
    started_at: ColumnElement[datetime]
    finished_at: ColumnElement[datetime | None]
    host: ColumnElement[str] = column(index=True)
    pid: ColumnElement[int]
    process_start: ColumnElement[str]
    suite: ColumnElement[str]
    git_commit: ColumnElement[str]
    git_dirty: ColumnElement[bool]
    suite_digest: ColumnElement[str]
    run_id: ColumnElement[int | None] = column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    command_line: ColumnElement[str]
    settings: ColumnElement[dict[str, Any]]
    signatures: ColumnElement[str]
    exit_code: ColumnElement[int | None]


class Stages(Base):
    """A stage of a night: how it ended, how long it took, its result; ``number`` is its position among the stages."""

    __tablename__ = "stages"

    night_id: ColumnElement[int] = column(ForeignKey("nights.id", ondelete="CASCADE"), primary_key=True)
    name: ColumnElement[str] = column(primary_key=True)
    number: ColumnElement[int]
    state: ColumnElement[StageState]
    started_at: ColumnElement[datetime]
    wall_s: ColumnElement[float | None]
    message: ColumnElement[str]
    cure: ColumnElement[str]
    exit_code: ColumnElement[int]


class Messages(Base):
    """A message about a night or of ``perfsvc watchdog``; a target that receives it twice recognizes the ``key``.

    ``event_id`` is the newest event of the watchdog that the message reports. ``night_id`` is NULL if the watchdog
    sends the message.
    """

    __tablename__ = "messages"

    id: ColumnElement[Key]
    night_id: ColumnElement[int | None] = column(ForeignKey("nights.id", ondelete="CASCADE"), index=True)
    event_id: ColumnElement[int | None]
    key: ColumnElement[str] = column(unique=True)
    title: ColumnElement[str]
    body: ColumnElement[str]
    created_at: ColumnElement[datetime]


class Deliveries(Base):
    """The delivery of a message to a target; ``sent_at`` is NULL until it succeeds; ``error`` is the latest error.

    ``target`` is the name in the settings, never the address, which is a secret.
    """

    __tablename__ = "deliveries"

    message_id: ColumnElement[int] = column(ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True)
    target: ColumnElement[str] = column(primary_key=True)
    attempts: ColumnElement[int]
    error: ColumnElement[str]
    tried_at: ColumnElement[datetime | None]
    sent_at: ColumnElement[datetime | None]
