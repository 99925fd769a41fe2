"""The schema revision of a database: check it, create the tables, upgrade.

Migrations run in one transaction on both databases, so that a failed upgrade changes nothing. There is no downgrade:
a SQLite file is copied before it is upgraded.
"""

import re
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sqlalchemy import Connection, Engine, column, inspect, select, table, text

from perfsvc import units
from perfsvc.errors import DatabaseError, NoDatabaseError
from perfsvc.installation import data_folder, upgrade_command
from perfsvc.store.rows import SchemaState, Upgrade
from perfsvc.store.schema.engine import POSTGRESQL, SQLITE, file_of, shown, transaction, translated

if TYPE_CHECKING:
    from alembic.config import Config

# Alembic and all tables are imported where a schema is made, changed or checked: Alembic alone would be a third of the
# time that a command takes to open a database.

_UPGRADE_LOCK = 0x7065726673766300  # "perfsvc": an advisory lock of PostgreSQL, so that one process migrates at a time
_NAMED_REVISION = re.compile(r"""^revision(?:: str)? = ["'](\w+)["']""", re.MULTILINE)
_REVISION = table("alembic_version", column("version_num"))
"""The table in which Alembic keeps the revision of a database."""


def head() -> str:
    """Return the revision that this perfsvc reads and writes."""
    return _revisions(data_folder("migrations"))[0]


def open_at_head(engine: Engine, *, create: bool, read_only: bool = False) -> None:
    """Create the tables in an empty database; check that any other database has this perfsvc's schema revision.

    Raises ``DatabaseError`` if the revision differs, ``NoDatabaseError`` if the database is empty and ``create`` False.
    """
    with transaction(engine, writes=False) as connection:
        revision = _revision(connection)
        empty = not revision and _is_empty(connection)
    if empty and not create:
        raise NoDatabaseError(f"{shown(engine.url)} is empty", cure="perfsvc run makes its tables")
    if empty:
        _migrate(engine)
    else:
        _refuse_other(engine, revision)
    if not read_only:
        _use_wal(engine)


def upgrade(engine: Engine) -> Upgrade:
    """Migrate a database to the newest revision and return what was done; an older SQLite file is copied first."""
    with transaction(engine, writes=False) as connection:
        before, empty = _revision(connection), _is_empty(connection)
    _refuse_unknown(engine, before, empty=empty)
    path = file_of(engine.url)
    backup = None
    if before and before != head() and path is not None:
        from perfsvc.store.keeping.backup import copy_file

        backup = path.with_name(f"{path.name}.{before}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.backup")
        copy_file(path, backup)
    _migrate(engine)
    _use_wal(engine)
    return Upgrade(before, head(), backup)


def check(engine: Engine) -> SchemaState:
    """Return the revision of a database and everything that is wrong with it; change nothing."""
    with transaction(engine, writes=False) as connection:
        revision, empty = _revision(connection), _is_empty(connection)
        problems = _damage(connection)
        if revision == head():
            changes = [f"the schema differs from revision {revision}: {change}" for change in drift(connection)]
            if not changes and not problems:  # else reading the rows may fail
                from perfsvc.store.keeping.damage import damaged_rows

                problems += damaged_rows(connection)
            problems += changes
    if empty:
        problems.append("it is empty: perfsvc db upgrade makes its tables")
    else:
        try:
            _refuse_other(engine, revision)
        except DatabaseError as error:
            problems.append(f"{error.what}: {error.cure}")
    return SchemaState(shown(engine.url), revision, head(), tuple(problems))


def drift(connection: Connection) -> list[str]:
    """Return the differences between the tables in the database and the tables in the code."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from perfsvc.store.schema.all_tables import metadata

    return [str(change) for change in compare_metadata(MigrationContext.configure(connection), metadata())]


@cache
def _revisions(migrations: Path) -> tuple[str, ...]:
    """Return all revisions in a folder of migrations, newest first; the names of the files are in their order."""
    files = sorted((migrations / "versions").glob("*.py"), reverse=True)
    found = (_NAMED_REVISION.search(path.read_text(encoding="utf-8")) for path in files)
    return tuple(match[1] for match in found if match)


def _revision(connection: Connection) -> str:
    """Return the revision of a database, empty if it has none; raises ``DatabaseError`` if it has several."""
    if not inspect(connection).has_table(_REVISION.name):
        return ""
    revisions = connection.scalars(select(_REVISION.c.version_num)).all()
    if len(revisions) > 1:
        raise DatabaseError(
            f"{shown(connection.engine.url)} has {len(revisions)} schema revisions in its table alembic_version: "
            + ", ".join(revisions),
            cure="restore a backup (docs/how-to/keep-the-database.md)",
        )
    return next(iter(revisions), "")


def _is_empty(connection: Connection) -> bool:
    return not inspect(connection).get_table_names()


def _refuse_other(engine: Engine, revision: str) -> None:
    """Raise ``DatabaseError`` if a database with tables has another schema revision than this perfsvc needs."""
    _refuse_unknown(engine, revision, empty=False)
    if revision != head():
        raise DatabaseError(
            f"{shown(engine.url)} has schema revision {revision}, and this perfsvc needs {head()}",
            cure="perfsvc db upgrade",
        )


def _refuse_unknown(engine: Engine, revision: str, *, empty: bool) -> None:
    """Raise ``DatabaseError`` if the tables are of another program or of a newer perfsvc."""
    if not revision and not empty:
        raise DatabaseError(
            f"{shown(engine.url)} holds tables of another program", cure="name another database with --db or PERFSVC_DB"
        )
    if revision and revision not in _revisions(data_folder("migrations")):
        raise DatabaseError(
            f"{shown(engine.url)} was written by a newer perfsvc (schema revision {revision}; this one knows {head()})",
            cure=upgrade_command(),
        )


def _migrate(engine: Engine) -> None:
    """Migrate a database to the newest revision in one transaction, with SQLite's foreign keys switched off."""
    with translated(engine.url), engine.connect().execution_options(writes=True) as connection:
        # Alembic's batch mode drops and renames tables: with foreign keys on, dropping a table would delete the rows
        # that refer to it. SQLite switches foreign keys on and off only outside transactions.
        _foreign_keys(connection, "OFF")
        try:
            with connection.begin():
                _migrate_in(connection)
        finally:
            _foreign_keys(connection, "ON")


def _foreign_keys(connection: Connection, switch: Literal["ON", "OFF"]) -> None:
    if connection.dialect.name == SQLITE:
        connection.connection.cursor().execute(f"PRAGMA foreign_keys = {switch}")


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(data_folder("migrations")).replace("%", "%%"))
    return config


def _migrate_in(connection: Connection) -> None:
    """Run the migrations in a transaction; raise ``DatabaseError`` if rows then refer to rows that do not exist."""
    if connection.dialect.name == POSTGRESQL:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if connection.dialect.name == SQLITE and (broken := connection.exec_driver_sql("PRAGMA foreign_key_check").all()):
        raise DatabaseError(f"the upgrade would leave {len(broken)} rows without what they refer to")


def _use_wal(engine: Engine) -> None:
    """Switch a SQLite file to write-ahead logging, so that readers and the one writer do not wait for each other."""
    if engine.dialect.name != SQLITE:
        return
    with translated(engine.url), closing(engine.raw_connection()) as connection:
        cursor = connection.cursor()
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            cursor.execute("PRAGMA journal_mode = WAL")


def _damage(connection: Connection) -> list[str]:
    """Return a text for each fault that SQLite's own checks find; none for PostgreSQL."""
    if connection.dialect.name != SQLITE:
        return []
    reports = [row[0] for row in connection.exec_driver_sql("PRAGMA integrity_check")]
    orphans = Counter(map(tuple, connection.exec_driver_sql("PRAGMA foreign_key_check")))
    return [report for report in reports if report != "ok"] + [
        # SQLite does not name the rows of a table that it stores in the order of its primary key.
        f"{units.count(rows, 'row')} of {table} {'refers' if rows == 1 else 'refer'} to no {target}"
        if row is None
        else f"row {row} of {table} refers to no {target}"
        for (table, row, target, _), rows in orphans.items()
    ]
