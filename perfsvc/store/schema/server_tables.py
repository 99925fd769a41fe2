"""The tables of the server: tokens, runs that other hosts sent, and the audit log."""

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from perfsvc.store.schema.tables import Base, Free, Key


class Tokens(Base):
    """A token that lets a person or a program use the server; the token itself is not stored.

    ``sha256`` is the SHA-256 of the token. ``scopes`` are joined by a comma. ``used_at`` is accurate to an hour.
    """

    __tablename__ = "tokens"
    __table_args__ = ({"sqlite_autoincrement": True},)  # sessions name a token by its id: an id is never used again

    id: Mapped[Key]
    name: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[str]
    sha256: Mapped[str] = mapped_column(unique=True)
    made_at: Mapped[datetime]
    made_by: Mapped[Free]
    expires_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    revoked_by: Mapped[Free]


class ReceivedRuns(Base):
    """A run that another host sent; ``digest`` is the SHA-256 of what it sent, ``key`` its ``Idempotency-Key``.

    ``judged_at`` is when its verdicts and findings were complete; NULL if judging was interrupted or failed.
    """

    __tablename__ = "received_runs"
    __table_args__ = (UniqueConstraint("token_id", "key"),)

    digest: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    token_id: Mapped[int] = mapped_column(ForeignKey("tokens.id", ondelete="RESTRICT"))
    key: Mapped[Free]
    received_at: Mapped[datetime]
    judged_at: Mapped[datetime | None]


class AuditEntries(Base):
    """An entry of the audit log: who tried to change what through the server, from which address, with which outcome.

    ``status`` is the HTTP status of the answer; ``reason`` is why the server refused it, empty if it did not.
    """

    __tablename__ = "audit"

    id: Mapped[Key]
    at: Mapped[datetime] = mapped_column(index=True)
    who: Mapped[Free]
    action: Mapped[Free]
    target: Mapped[Free]
    address: Mapped[Free]
    status: Mapped[int]
    reason: Mapped[Free]
