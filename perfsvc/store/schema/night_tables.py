"""The tables of nights, their stages, the messages about them, and of the server."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, ForeignKey, UniqueConstraint

from perfsvc.model import RunState, StageState
from perfsvc.store.schema.base import Base, Key, Uid, column


class Tokens(Base):
    """A token that lets a person or a program use the server; the token itself is not stored.

    ``sha256`` is the SHA-256 of the token. ``scopes`` are joined by a comma. ``used_at`` is accurate to an hour.
    """

    __tablename__ = "tokens"
    __table_args__ = ({"sqlite_autoincrement": True},)  # sessions name a token by its id: an id is never used again

    id: ColumnElement[Key]
    name: ColumnElement[str] = column(unique=True)
    scopes: ColumnElement[str]
    sha256: ColumnElement[str] = column(unique=True)
    made_at: ColumnElement[datetime]
    made_by: ColumnElement[str]
    expires_at: ColumnElement[datetime | None]
    used_at: ColumnElement[datetime | None]
    revoked_at: ColumnElement[datetime | None]
    revoked_by: ColumnElement[str]


class ReceivedRuns(Base):
    """A run that another host sent; ``digest`` is the SHA-256 of what it sent, ``key`` its ``Idempotency-Key``.

    ``judged_at`` is when its verdicts and findings were complete; NULL if judging was interrupted or failed.
    """

    __tablename__ = "received_runs"
    __table_args__ = (UniqueConstraint("token_id", "key"),)

    digest: ColumnElement[str] = column(primary_key=True)
    run_id: ColumnElement[int] = column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    token_id: ColumnElement[int] = column(ForeignKey("tokens.id", ondelete="RESTRICT"))
    key: ColumnElement[str]
    received_at: ColumnElement[datetime]
    judged_at: ColumnElement[datetime | None]


class AuditEntries(Base):
    """An entry of the audit log: who tried to change what through the server, from which address, with which outcome.

    ``status`` is the HTTP status of the answer; ``reason`` is why the server refused it, empty if it did not.
    """

    __tablename__ = "audit"

    id: ColumnElement[Key]
    at: ColumnElement[datetime] = column(index=True)
    who: ColumnElement[str]
    action: ColumnElement[str]
    target: ColumnElement[str]
    address: ColumnElement[str]
    status: ColumnElement[int]
    reason: ColumnElement[str]


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
