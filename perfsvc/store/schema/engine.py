"""Connecting to a database, its transactions, and the translation of SQLAlchemy's errors into ours."""

import json
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, cast
from urllib.parse import quote

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Text,
    create_engine,
    event,
    func,
    insert,
    literal,
    make_url,
    select,
)
from sqlalchemy import cast as sql_cast
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.sql.functions import GenericFunction

from perfsvc import units
from perfsvc.errors import DatabaseError, MissingPackageError, UsageError
from perfsvc.installation import install_command
from perfsvc.keys import Keys
from perfsvc.store.schema.base import Base
from perfsvc.store.schema.column_types import stored_json
from perfsvc.text import url_without_password, without_password

LOCK_WAIT_S = 60
"""How long a writer waits for another process's transaction before it gives up."""

OUT_OF_RANGE = "22003"
"""PostgreSQL's code of the error about a number that does not fit its column."""

SQLITE, POSTGRESQL = "sqlite", "postgresql"
_CURES = {
    "database is locked": "another process is writing to it; let it end, then run this again",
    "unable to open database file": "check that its folder exists and that you may write to it",
    "readonly database": "make the file and its folder writable, or name another file with --db or PERFSVC_DB",
    "file is not a database": "name another file with --db or PERFSVC_DB",
    "malformed": "restore a backup (docs/how-to/keep-the-database.md)",
    "disk is full": "free some disk space",
    "authentication failed": "check user and password in the URL",
    "does not exist": "create it first (createdb), or check its name in the URL",
    "permission denied": "grant the user of the URL CREATE and USAGE on the database's schema",
    "connection": "check that the server runs and that host, port and network let you reach it",
}
_AWAY = ("database is locked", "connection", "starting up", "shutting down", "recovery mode", "timeout expired")
"""Parts of the messages of a database that may answer later, unless it refuses for one of the reasons below."""
_REFUSED = ("authentication failed", "does not exist", "permission denied", "no password supplied", "no pg_hba.conf")


class Database:
    """An engine and its transactions, and the keys of this user, which all parts of ``Store`` share."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.keys = Keys()
        self._watching: Connection | None = None
        self._watches = 0  # how many connections have watched
        self._watch = Lock()

    def reading(self) -> AbstractContextManager[Connection]:
        """Return a transaction that only reads."""
        return transaction(self.engine, writes=False)

    def writing(self) -> AbstractContextManager[Connection]:
        """Return a transaction that writes; it is committed when its block ends without an error."""
        return transaction(self.engine, writes=True)

    def state(self) -> str:
        """Return a text that is another one after each change of the database, by this process or any other.

        It may change without a change of the database too. Asking costs less than a millisecond.
        """
        with self._watch, translated(self.engine.url):
            if self._watching is not None:
                try:
                    return self._watched(self._watching)
                except DBAPIError:  # the server was restarted, or the connection cut: another one may do
                    pass
            self._watching = self.engine.connect().execution_options(watches=True)
            self._watches += 1
            return self._watched(self._watching)

    def _watched(self, connection: Connection) -> str:
        """Return the state; no state of one connection is that of another, because their counts begin anew."""
        try:
            with connection.begin():
                if self.engine.dialect.name == POSTGRESQL:
                    return f"{self._watches}:{connection.exec_driver_sql('SELECT pg_current_snapshot()').scalar()}"
                # SQLite counts what other connections commit, and the connection counts its own changes.
                commits = connection.exec_driver_sql("PRAGMA data_version").scalar()
                driver: Any = connection.connection.driver_connection
                return f"{self._watches}:{commits}:{driver.total_changes}"
        except BaseException:
            connection.invalidate()
            self._watching = None
            raise

    def close(self) -> None:
        """Close all connections."""
        self._end_watching()
        self.engine.dispose()

    def _end_watching(self) -> None:
        with self._watch:
            if self._watching is not None:
                self._watching.close()
                self._watching = None


class StorePart:
    """A part of ``Store``: the data of one kind in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys = database.keys


def resolve(location: str) -> URL:
    """Return the URL of a database, named by an SQLAlchemy URL or by the path of a SQLite file."""
    cure = "name a file (perfsvc.db) or a server (postgresql://user@host/database)"
    hidden = url_without_password(location)
    if "://" not in location:
        if hidden != location:
            raise DatabaseError(f"{hidden!r} is no database URL", cure=cure)
        try:
            path = location if location == ":memory:" else str(units.parse_path(location))
        except ValueError as error:
            raise DatabaseError(f"no database has this path: {error}", cure="name a file: perfsvc.db") from None
        return URL.create(SQLITE, database=path)
    if location.startswith("postgres://"):
        location = location.replace("postgres://", "postgresql://", 1)
    try:
        url = make_url(location)
    except ArgumentError:
        raise DatabaseError(f"{hidden!r} is no database URL", cure=cure) from None
    except ValueError:
        raise DatabaseError("the port in the database URL is no number", cure=cure) from None
    backend = url.get_backend_name()
    if backend not in {SQLITE, POSTGRESQL}:
        raise DatabaseError(f"{backend} is no database that perfsvc knows", cure=cure)
    if backend == POSTGRESQL and "@" in f"{url.host}{url.database}":  # else messages would name a part of the password
        raise DatabaseError(
            f"{hidden!r} holds an @ too many", cure="in a user name or a password write %40 for @, and %2F for /"
        )
    return url.set(drivername="postgresql+psycopg") if url.drivername == POSTGRESQL else url


def shown(url: URL) -> str:
    """Return the database as messages name it: a path, or the URL without its password."""
    return (
        url.database or ":memory:" if url.get_backend_name() == SQLITE else url_without_password(url.render_as_string())
    )


def file_of(url: URL) -> Path | None:
    """Return the file of a SQLite database; None for a server and for a database in memory."""
    in_memory = url.database in {None, "", ":memory:"} or "mode" in url.query
    return None if url.get_backend_name() != SQLITE or in_memory else Path(str(url.database))


def identity_of(url: URL) -> str:
    """Return a name that is the same for every process that opens this database by a path or a URL."""
    path = file_of(url)
    return str(path.resolve()) if path else f"{url.host}:{url.port}/{url.database} {sorted(url.query.items())}"


def connect(url: URL, *, read_only: bool = False) -> Engine:
    """Return an engine with perfsvc's connection settings.

    Args:
        url: the database.
        read_only: whether the database refuses every change by this engine.

    Raises:
        DatabaseError: the folder of the file is missing, the path is a folder, or the URL is unusable.
        MissingPackageError: the driver is not installed.
    """
    path = file_of(url)
    if path is not None and "\0" in str(path):
        raise DatabaseError(f"{str(path)!r} holds the character NUL", cure="name a file: perfsvc.db")
    if path is not None and path.is_dir():
        raise DatabaseError(f"{path} is a folder", cure=f"name a file in it: {path / 'perfsvc.db'}")
    if path is not None and not path.parent.is_dir():
        raise DatabaseError(f"the folder of {path} does not exist", cure=f"mkdir -p {path.parent}")
    try:
        if url.get_backend_name() == SQLITE:
            engine = create_engine(url, connect_args={"timeout": LOCK_WAIT_S}, json_deserializer=stored_json)
            if path is not None:
                event.listen(engine, "do_connect", partial(_open_as_permitted, path))
                event.listen(engine, "connect", partial(_note_file, path.absolute()))
                event.listen(engine, "begin", partial(_require_same_file, path.absolute()))
            event.listen(engine, "connect", _set_up_sqlite)
            if read_only:
                event.listen(engine, "connect", _refuse_changes)
            event.listen(engine, "begin", _begin_sqlite)
            return engine
        timeout = {} if "connect_timeout" in url.query else {"connect_timeout": 10}
        options = {"postgresql_readonly": True} if read_only else {}
        return create_engine(
            url,
            pool_pre_ping=True,
            connect_args={"application_name": "perfsvc", **timeout},
            execution_options=options,
        )
    except ImportError as error:
        raise MissingPackageError(
            f"{shown(url)} needs the package {error.name}", cure=install_command("postgresql")
        ) from None
    except (NoSuchModuleError, ArgumentError) as error:
        raise DatabaseError(f"{shown(url)} cannot be opened: {error}", cure="use sqlite:/// or postgresql://") from None


def _open_as_permitted(
    path: Path, _dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]
) -> None:
    """Let SQLite open a file only for reading if this user may not write in its folder.

    With write-ahead logging, even a reader makes files beside the database, unless the reader opens the database as
    immutable. If a writer has the database open, these files exist already.
    """
    if not path.exists() or os.access(path.parent, os.W_OK):
        return
    is_in_use = path.with_name(f"{path.name}-wal").exists()
    arguments[0] = f"file:{quote(str(path.absolute()))}?mode=ro" + ("" if is_in_use else "&immutable=1")
    options["uri"] = True


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    """Set up a new connection to a SQLite file."""
    connection.isolation_level = None  # we begin transactions ourselves: sqlite3 would leave DDL and reads outside them
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")  # with WAL, a crash of the machine may lose rows, never the file


def _refuse_changes(connection: sqlite3.Connection, _record: object) -> None:
    """Let a connection to a SQLite file only read."""
    connection.execute("PRAGMA query_only = ON")


def _note_file(path: Path, _connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
    """Note which file a new connection has opened; nothing if the URL names it in another way (``file:…?uri=true``)."""
    record.info["file"] = path.stat() if path.exists() else None


def _require_same_file(path: Path, connection: Connection) -> None:
    """Raise ``DatabaseError`` if the file of an open connection is no longer at its path.

    SQLite would continue without an error in a file that no other process can open, and all would be lost.
    """
    opened = connection.info["file"]
    if opened and not (path.exists() and os.path.samestat(path.stat(), opened)):
        raise DatabaseError(
            f"{path} was deleted or replaced while it was in use",
            cure="restore a backup (docs/how-to/keep-the-database.md), and repeat the command",
        )


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction on SQLite; a transaction that writes takes the write lock at once."""
    # A transaction that reads first and writes later cannot wait for a lock, since its view of the database would be
    # stale. So writers take the lock when they begin, and wait there.
    options = connection.get_execution_options()
    if not options.get("watches", False):  # the counts of a connection need no transaction
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes", False) else "BEGIN")


@contextmanager
def transaction(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    """Run one transaction and commit it at the end; SQLAlchemy's errors become errors of perfsvc with a cure."""
    with translated(engine.url), engine.connect().execution_options(writes=writes) as connection, connection.begin():
        yield connection


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Turn any error of SQLAlchemy and its drivers into a ``DatabaseError`` with a cure.

    If a user typed a number that is too large for the database, the error becomes a ``UsageError``.
    """
    try:
        yield
    except IntegrityError as error:
        raise DatabaseError(
            f"{shown(url)} refused a row: {_in_one_line(error.orig)}",
            cure="perfsvc db check; if it finds nothing wrong, report this error as a fault of perfsvc",
        ) from error
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", "") == OUT_OF_RANGE:
            raise _too_large() from error
        message = _in_one_line(error.orig)
        cure = next((cure for sign, cure in _CURES.items() if sign in message.lower()), "perfsvc db check")
        raise DatabaseError(f"{shown(url)}: {message}", cure=cure, again=_is_away(message)) from error
    except SQLAlchemyError as error:
        raise DatabaseError(f"{shown(url)}: {_in_one_line(error)}", cure="perfsvc db check") from error
    except OverflowError as error:
        if "SQLite INTEGER" not in str(error):
            raise
        raise _too_large() from error


def _too_large() -> UsageError:
    return UsageError("a number is too large for the database", cure="give one of at most 9 digits")


def _is_away(message: str) -> bool:
    """Return True if a driver's message means that the database is locked or does not answer now."""
    lowered = message.lower()
    return any(sign in lowered for sign in _AWAY) and not any(sign in lowered for sign in _REFUSED)


def _in_one_line(error: Any) -> str:
    return without_password(" ".join(str(error).split()).rstrip("."))


def new_id(connection: Connection, table: type[Base], row: Mapping[str, Any]) -> int:
    """Insert a row and return its id."""
    key = connection.execute(insert(table), row).inserted_primary_key
    assert key is not None  # noqa: S101 - for mypy: only an insert of several rows has none
    return int(key[0])


def new_ids(connection: Connection, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Insert rows, which have the same columns, and return their ids in the order of the rows."""
    number = table.__table__.c.id
    if connection.dialect.name == POSTGRESQL:
        # Not by RETURNING: psycopg would parse the statement with the values of all rows anew for each transaction, and
        # spend a quarter of its time on this.
        next_id = func.nextval(func.pg_get_serial_sequence(table.__tablename__, number.name))
        ids = list(connection.scalars(select(next_id).select_from(func.generate_series(1, len(rows)))))
        connection.execute(insert(table), [{number.name: own, **row} for own, row in zip(ids, rows, strict=True)])
        return ids
    return list(connection.scalars(insert(table).returning(number, sort_by_parameter_order=True), rows))


def insert_new(connection: Connection, table: type[Base], row: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """Insert a row, or several, unless this process or another one has already stored a row with this key."""
    # Imported here because the import of both dialects with all their drivers is long, and only one of them is used.
    if connection.dialect.name == POSTGRESQL:
        from sqlalchemy.dialects import postgresql

        connection.execute(postgresql.insert(table).on_conflict_do_nothing(), row)
        return
    from sqlalchemy.dialects import sqlite

    connection.execute(sqlite.insert(table).on_conflict_do_nothing(), row)


MOST_PARAMETERS = 500
"""The most values of a list that a statement gets one by one. JSON is faster for SQLAlchemy, and SQLite takes 32766 for
all lists of a statement."""


def among(column: Any, values: Collection[Any]) -> ColumnElement[bool]:
    """Return the condition that a column has one of some values; there may be any number of values."""
    if len(values) <= MOST_PARAMETERS:
        return cast("ColumnElement[bool]", column.in_(values))
    # Many values become one parameter, a JSON array: this is faster, and several lists fit into a statement.
    members = _JsonMembers(literal(json.dumps(list(values)), Text)).table_valued("value")
    return cast("ColumnElement[bool]", column.in_(select(sql_cast(members.c.value, column.type))))


class _JsonMembers(GenericFunction[Any]):
    """The members of a JSON array, as the rows of a table whose column is ``value``."""

    name = "json_each"
    inherit_cache = True


@compiles(_JsonMembers, POSTGRESQL)
def _on_postgresql(element: _JsonMembers, compiler: Any, **options: Any) -> str:
    return f"json_array_elements_text(CAST({compiler.process(element.clauses, **options)} AS JSON))"
