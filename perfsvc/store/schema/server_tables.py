"""The tables of the server: tokens, runs that other hosts sent, and the audit log."""

from datetime import datetime

from sqlalchemy import ColumnElement, ForeignKey, UniqueConstraint

from perfsvc.store.schema.base import Base, Key, column


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
