"""Tokens of the server: make, find, list and revoke them; and the log of what their holders did."""

import hashlib
import re
import secrets
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.store.remote.rows import AuditEntry, Scope, TokenRow
from perfsvc.store.schema.engine import POSTGRESQL, Database
from perfsvc.store.schema.night_tables import AuditEntries, Tokens

LONGEST_TEXT = 500
"""Characters of a text that an entry keeps: a client could fill the database with longer ones."""


class AuditLog:
    """Entries of the audit log, which are never changed; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, entry: AuditEntry) -> None:
        """Store an entry; each of its texts is cut to ``LONGEST_TEXT`` characters."""
        row = {name: text[:LONGEST_TEXT] if isinstance(text, str) else text for name, text in asdict(entry).items()}
        with self._database.writing() as connection:
            connection.execute(insert(AuditEntries), row)

    def newest(self, limit: int) -> list[AuditEntry]:
        """Return the newest entries, newest first."""
        columns = [AuditEntries.__table__.c[field.name] for field in fields(AuditEntry)]
        query = select(*columns).order_by(AuditEntries.id.desc()).limit(limit)
        with self._database.reading() as connection:
            return [AuditEntry(*row) for row in connection.execute(query)]

    def prune(self, before: datetime, *, dry_run: bool) -> int:
        """Remove the entries that are older than a moment; return how many. A dry run only counts them."""
        old = AuditEntries.at < before
        with self._database.reading() if dry_run else self._database.writing() as connection:
            count = connection.scalar(select(func.count()).select_from(AuditEntries).where(old)) or 0
            if not dry_run:
                connection.execute(delete(AuditEntries).where(old))
        return count


PREFIX = "perfsvc_"
"""Each token begins with this text, so that programs that look for leaked secrets recognize it."""
SECRET_BYTES = 32
NOTED_EVERY = timedelta(hours=1)
"""How often the use of a token is noted: a request that only reads must not always write."""

_TOKEN = re.compile(rf"{PREFIX}[0-9a-f]{{{2 * SECRET_BYTES}}}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class TokenStore:
    """Tokens; each method is one transaction.

    The database has the SHA-256 of a token, not the token. A slow hash, such as those for passwords, would gain
    nothing: nobody can guess 256 random bits. A token is found by its hash, so the time of a look-up depends on the
    hash, which an attacker cannot choose, and not on how much of the token is right.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def make(
        self, name: str, scopes: Collection[Scope], *, by: str, expires: datetime | None = None
    ) -> tuple[TokenRow, str]:
        """Store a new token, and return it with its secret, which cannot be read again.

        Args:
            name: its name, which no other token has had: at most 64 ASCII letters, digits and ``. _ @ -``.
            scopes: what it permits.
            by: the person who makes it.
            expires: when it ends; None for never.

        Raises:
            UsageError: the name is not valid or is taken, or there is no scope.
        """
        _require_name(name)
        if not scopes:
            raise UsageError("a token without a scope permits nothing", cure="perfsvc token create NAME --scope read")
        secret = f"{PREFIX}{secrets.token_hex(SECRET_BYTES)}"
        ordered = tuple(scope for scope in Scope if scope in scopes)
        row = {
            "name": name,
            "scopes": ",".join(ordered),
            "sha256": _digest(secret),
            "made_at": datetime.now(UTC),
            "made_by": by,
            "expires_at": expires,
            "revoked_by": "",
        }
        with self._database.writing() as connection:
            if connection.dialect.name == POSTGRESQL:  # SQLite has one writer at a time
                connection.exec_driver_sql("LOCK TABLE tokens IN SHARE ROW EXCLUSIVE MODE")
            if connection.scalar(select(Tokens.id).where(Tokens.name == name)) is not None:
                raise UsageError(
                    f"there is a token {name} already, or there was one", cure="take another name: the audit log has it"
                )
            connection.execute(insert(Tokens), row)
            return _rows(connection, Tokens.name == name)[0], secret

    def of_secret(self, secret: str) -> TokenRow | None:
        """Return the token with this secret, also if it is expired or revoked; None if there is none."""
        return self._first(Tokens.sha256 == _digest(secret)) if _TOKEN.fullmatch(secret) else None

    def get(self, number: int) -> TokenRow | None:
        """Return the token with this id, also if it is expired or revoked; None if there is none."""
        return self._first(Tokens.id == number)

    def note_use(self, token: TokenRow, now: datetime) -> None:
        """Store that a token was used now, unless this was stored less than an hour ago."""
        if token.used is None or now - token.used >= NOTED_EVERY:
            with self._database.writing() as connection:
                connection.execute(update(Tokens).where(Tokens.id == token.id).values(used_at=now))

    def list(self) -> list[TokenRow]:
        """Return all tokens, also expired and revoked ones, in the order in which they were made."""
        with self._database.reading() as connection:
            return _rows(connection)

    def revoke(self, name: str, *, by: str) -> TokenRow:
        """Revoke a token: its sessions end, too. A token that was revoked before stays as it is.

        Raises ``NotMeasuredError`` if there is no such token.
        """
        unrevoked = update(Tokens).where(Tokens.name == name, Tokens.revoked_at.is_(None))
        with self._database.writing() as connection:
            connection.execute(unrevoked.values(revoked_at=datetime.now(UTC), revoked_by=by))
            rows = _rows(connection, Tokens.name == name)
        if not rows:
            raise NotMeasuredError(f"there is no token {name!r}", cure="perfsvc token list")
        return rows[0]

    def _first(self, condition: Any) -> TokenRow | None:
        with self._database.reading() as connection:
            return next(iter(_rows(connection, condition)), None)


def _require_name(name: str) -> None:
    """Raise ``UsageError`` if a name could be confused with another one, or cannot be shown everywhere."""
    if not _NAME.fullmatch(name):
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        suggestion = re.sub(r"[^A-Za-z0-9._@-]+", "-", plain).strip("-._@")[:64] or "box-1"
        raise UsageError(
            f"{name[:80]!r} is no name of a token",
            cure=f"write at most 64 letters, digits, or . _ @ -, such as {suggestion}",
        )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _rows(connection: Connection, *conditions: Any) -> list[TokenRow]:
    query = (
        select(Tokens.id, Tokens.name, Tokens.scopes, Tokens.made_at, Tokens.made_by)
        .add_columns(Tokens.expires_at, Tokens.used_at, Tokens.revoked_at, Tokens.revoked_by)
        .where(*conditions)
        .order_by(Tokens.id)
    )
    rows: Iterable[Any] = connection.execute(query)
    return [
        TokenRow(number, name, tuple(Scope(scope) for scope in scopes.split(",")), *rest)
        for number, name, scopes, *rest in rows
    ]
