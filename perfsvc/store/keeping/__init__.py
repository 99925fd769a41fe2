"""Keeping the database: upgrading it, copying its rows to another database, backing it up, and finding damaged rows."""
