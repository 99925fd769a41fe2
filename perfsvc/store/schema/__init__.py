"""The database itself: connections, migrations, column types and all tables."""
