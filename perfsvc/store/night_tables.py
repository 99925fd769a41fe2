"""The tables of nights: what each did, stage by stage, and what people were told of it."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from perfsvc.store.columntypes import word
from perfsvc.store.rows import StageState, State
from perfsvc.store.tables import Base, Free, Key


class Nights(Base):
    """One night; ``pid`` and ``process_start`` tell whether its process lives, ``settings`` what it began with.

    What the snapshot finds (``git_commit``, ``git_dirty``, ``suite_digest``) is empty until then.
    """

    __tablename__ = "nights"
    __table_args__ = ({"sqlite_autoincrement": True},)  # people write their numbers down: one is never given twice

    id: Mapped[Key]
    state: Mapped[State]
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
    exit_code: Mapped[int | None]


class Stages(Base):
    """A stage of a night: how it ended, how long it took, what it said; ``place`` is where it stands among them."""

    __tablename__ = "stages"

    night_id: Mapped[int] = mapped_column(ForeignKey("nights.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    place: Mapped[int]
    state: Mapped[StageState] = mapped_column(word(StageState))
    started_at: Mapped[datetime]
    wall_s: Mapped[float | None]
    said: Mapped[Free]
    cure: Mapped[Free]
    exit_code: Mapped[int]


class Messages(Base):
    """What people are told of a night, once and for all: a target that gets it twice can tell by the ``key``."""

    __tablename__ = "messages"

    id: Mapped[Key]
    night_id: Mapped[int] = mapped_column(ForeignKey("nights.id", ondelete="CASCADE"), unique=True)
    key: Mapped[str] = mapped_column(unique=True)
    title: Mapped[Free]
    body: Mapped[Free]
    created_at: Mapped[datetime]


class Deliveries(Base):
    """A message to one of its targets; without ``sent_at`` it has not arrived, for the ``error`` of the last attempt.

    ``target`` is the name that the settings give it, never its address, which is a secret.
    """

    __tablename__ = "deliveries"

    message_id: Mapped[int] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True)
    target: Mapped[str] = mapped_column(primary_key=True)
    attempts: Mapped[int]
    error: Mapped[Free]
    tried_at: Mapped[datetime | None]
    sent_at: Mapped[datetime | None]
