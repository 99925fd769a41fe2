"""The tables of nights, their stages, and the messages about them."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from perfsvc.model import RunState, StageState
from perfsvc.store.schema.tables import Base, Free, Key, Uid


class Nights(Base):
    """One night; ``pid`` and ``process_start`` identify its process, ``settings`` are the settings at its begin.

    ``git_commit``, ``git_dirty`` and ``suite_digest`` are empty until the suite revision is stored. A night is resumed
    only if ``signatures`` holds a trusted signature of its host, suite and settings (``perfsvc.keys``).
    """

    __tablename__ = "nights"
    __table_args__ = ({"sqlite_autoincrement": True},)  # people write the numbers down: a number is never used again

    id: Mapped[Key]
    uid: Mapped[Uid]
    state: Mapped[RunState]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    host: Mapped[str] = mapped_column(index=True)
    pid: Mapped[int]
    process_start: Mapped[str]
    suite: Mapped[Free]
    git_commit: Mapped[str]
    git_dirty: Mapped[bool]
    suite_digest: Mapped[str]
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    command_line: Mapped[Free]
    settings: Mapped[dict[str, Any]]
    signatures: Mapped[str]
    exit_code: Mapped[int | None]


class Stages(Base):
    """A stage of a night: how it ended, how long it took, its result; ``number`` is its position among the stages."""

    __tablename__ = "stages"

    night_id: Mapped[int] = mapped_column(ForeignKey("nights.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int]
    state: Mapped[StageState]
    started_at: Mapped[datetime]
    wall_s: Mapped[float | None]
    message: Mapped[Free]
    cure: Mapped[Free]
    exit_code: Mapped[int]


class Messages(Base):
    """A message about a night or of ``perfsvc watchdog``; a target that receives it twice recognizes the ``key``.

    ``event_id`` is the newest event of the watchdog that the message reports. ``night_id`` is NULL if the watchdog
    sends the message.
    """

    __tablename__ = "messages"

    id: Mapped[Key]
    night_id: Mapped[int | None] = mapped_column(ForeignKey("nights.id", ondelete="CASCADE"), index=True)
    event_id: Mapped[int | None]
    key: Mapped[str] = mapped_column(unique=True)
    title: Mapped[Free]
    body: Mapped[Free]
    created_at: Mapped[datetime]


class Deliveries(Base):
    """The delivery of a message to a target; ``sent_at`` is NULL until it succeeds; ``error`` is the latest error.

    ``target`` is the name in the settings, never the address, which is a secret.
    """

    __tablename__ = "deliveries"

    message_id: Mapped[int] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True)
    target: Mapped[str] = mapped_column(primary_key=True)
    attempts: Mapped[int]
    error: Mapped[Free]
    tried_at: Mapped[datetime | None]
    sent_at: Mapped[datetime | None]
