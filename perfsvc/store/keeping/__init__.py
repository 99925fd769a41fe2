"""Keeping the database: copying its rows to another database, backing it up, and finding damaged rows."""
