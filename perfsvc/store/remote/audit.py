"""The audit log: what people and programs tried to change through the server."""

from datetime import datetime

from sqlalchemy import delete, func, insert, select

from perfsvc.store.remote.rows import AuditEntry
from perfsvc.store.schema.engine import Database
from perfsvc.store.schema.server_tables import AuditEntries

LONGEST_TEXT = 500
"""Characters of a text that an entry keeps: a client could fill the database with longer ones."""


class AuditLog:
    """Entries of the audit log, which are never changed; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, entry: AuditEntry) -> None:
        """Store an entry; each of its texts is cut to ``LONGEST_TEXT`` characters."""
        row = {
            "at": entry.at,
            "who": entry.who[:LONGEST_TEXT],
            "action": entry.action[:LONGEST_TEXT],
            "target": entry.target[:LONGEST_TEXT],
            "address": entry.address[:LONGEST_TEXT],
            "status": entry.status,
            "reason": entry.reason[:LONGEST_TEXT],
        }
        with self._database.writing() as connection:
            connection.execute(insert(AuditEntries), row)

    def newest(self, limit: int) -> list[AuditEntry]:
        """Return the newest entries, newest first."""
        query = select(AuditEntries).order_by(AuditEntries.id.desc()).limit(limit)
        with self._database.reading() as connection:
            return [
                AuditEntry(
                    row["at"], row["who"], row["action"], row["target"], row["address"], row["status"], row["reason"]
                )
                for row in connection.execute(query).mappings()
            ]

    def prune(self, before: datetime, *, dry_run: bool) -> int:
        """Remove the entries that are older than a moment; return how many. A dry run only counts them."""
        old = AuditEntries.at < before
        with self._database.reading() if dry_run else self._database.writing() as connection:
            count = connection.scalar(select(func.count()).select_from(AuditEntries).where(old)) or 0
            if not dry_run:
                connection.execute(delete(AuditEntries).where(old))
        return count
