"""Opening a database: its URL, its connection settings, and the one place where SQLAlchemy's errors become ours."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from perfsvc.errors import DatabaseError, MissingPackageError
from perfsvc.installation import install_command

LOCK_WAIT_S = 60
"""How long a writer waits for another process's transaction before it gives up."""

SQLITE, POSTGRESQL = "sqlite", "postgresql"
_CURES = {
    "database is locked": "another process is writing to it; let it end, then run this again",
    "unable to open database file": "check that its folder exists and that you may write to it",
    "readonly database": "make the file and its folder writable, or name another one with --db or PERFSVC_DB",
    "file is not a database": "name another file with --db or PERFSVC_DB",
    "malformed": "restore a backup (docs/reference/database.md)",
    "disk is full": "free some disk space",
    "authentication failed": "check user and password in the URL",
    "does not exist": "create it first (createdb), or check its name in the URL",
    "permission denied": "grant the user of the URL CREATE and USAGE on the database's schema",
    "connection": "check that the server runs and that host, port and network let you reach it",
}


def resolve(place: str) -> URL:
    """An SQLAlchemy URL, or a plain path to a SQLite file, as the URL to connect to (psycopg 3 for PostgreSQL)."""
    if "://" not in place:
        path = place if place == ":memory:" else str(Path(place).expanduser())
        return URL.create(SQLITE, database=path)
    cure = "name a file (perfsvc.db) or a server (postgresql://user@host/database)"
    try:
        url = make_url(place.replace("postgres://", "postgresql://", 1) if place.startswith("postgres://") else place)
    except ArgumentError:
        raise DatabaseError(f"{place!r} is no database URL", cure=cure) from None
    backend = url.get_backend_name()
    if backend not in {SQLITE, POSTGRESQL}:
        raise DatabaseError(f"{backend} is no database that perfsvc knows", cure=cure)
    return url.set(drivername="postgresql+psycopg") if url.drivername == POSTGRESQL else url


def shown(url: URL) -> str:
    """The database as messages name it: a path, or the URL without its password."""
    return url.database or ":memory:" if url.get_backend_name() == SQLITE else url.render_as_string(hide_password=True)


def file_of(url: URL) -> Path | None:
    """The file of a SQLite database; None for a server and for memory."""
    in_memory = url.database in {None, "", ":memory:"} or "cache" in url.query
    return None if url.get_backend_name() != SQLITE or in_memory else Path(str(url.database))


def connect(url: URL) -> Engine:
    """An engine of a database, with our connection settings; of a server or a file that is there, the process's one.

    An engine keeps how its statements are written, which is most of their work. What is in memory goes with its
    connections, and a file that is not there yet is none that another engine may still have open under its name.
    """
    path = file_of(url)
    if path is not None and path.is_dir():
        raise DatabaseError(f"{path} is a folder", cure=f"name a file in it: {path / 'perfsvc.db'}")
    if path is not None and not path.parent.is_dir():
        raise DatabaseError(f"the folder of {path} does not exist", cure=f"mkdir -p {path.parent}")
    try:
        if url.get_backend_name() != SQLITE:
            return _kept(url)
        return _kept(url, path.absolute(), path.stat().st_ino) if path and path.exists() else _made(url)
    except ImportError as error:
        raise MissingPackageError(
            f"{shown(url)} needs the package {error.name}", cure=install_command("postgresql")
        ) from None
    except (NoSuchModuleError, ArgumentError) as error:
        raise DatabaseError(f"{shown(url)} cannot be opened: {error}", cure="use sqlite:/// or postgresql://") from None


@lru_cache(maxsize=8)
def _kept(url: URL, *_file: object) -> Engine:
    """The engine that was made for a database; a file is told by its place and its inode."""
    return _made(url)


def _made(url: URL) -> Engine:
    if url.get_backend_name() != SQLITE:
        timeout = {} if "connect_timeout" in url.query else {"connect_timeout": 10}
        return create_engine(url, pool_pre_ping=True, connect_args={"application_name": "perfsvc", **timeout})
    engine = create_engine(url, connect_args={"timeout": LOCK_WAIT_S})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # we begin transactions ourselves: sqlite3 would leave DDL and reads outside them
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")  # with WAL, a crash of the machine may lose rows, never the file


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later cannot wait for a lock, since its snapshot would be stale. So
    # writers say at the start that they write, and wait there.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def transaction(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    """One transaction, committed at the end; every SQLAlchemy error in it comes out as ``DatabaseError``."""
    with translated(engine.url), engine.connect().execution_options(writes=writes) as connection, connection.begin():
        yield connection


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Turns any error of SQLAlchemy and its drivers into ``DatabaseError`` with a cure."""
    try:
        yield
    except IntegrityError as error:
        raise DatabaseError(f"{shown(url)} refused a row: {_line(error.orig)}", cure="store each thing once") from error
    except DBAPIError as error:
        said = _line(error.orig)
        cure = next((cure for sign, cure in _CURES.items() if sign in said.lower()), "perfsvc db check")
        raise DatabaseError(f"{shown(url)}: {said}", cure=cure) from error
    except SQLAlchemyError as error:
        raise DatabaseError(f"{shown(url)}: {_line(error)}", cure="perfsvc db check") from error


def _line(error: Any) -> str:
    return " ".join(str(error).split()).rstrip(".")
