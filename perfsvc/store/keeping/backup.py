"""Backing up a database into one file, and giving free space back, while other commands use the database."""

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

from sqlalchemy import text

from perfsvc.errors import DatabaseError, UsageError
from perfsvc.files import Folder
from perfsvc.store.schema.engine import LOCK_WAIT_S, SQLITE, Database, file_of, shown, translated


def copy_file(path: Path, target: Path, *, sync: bool = False) -> None:
    """Copy a SQLite database with its write-ahead log into a new file, which appears only when it is complete.

    Writers may go on meanwhile: the copy has what was committed when it began.

    Args:
        path: the file of the database.
        target: the new file; its permissions are those of ``path``.
        sync: return only after the disk has stored the copy.

    Raises:
        DatabaseError: the file cannot be read or the copy cannot be written.
        FileExistsError: ``target`` exists.
    """
    try:
        with Folder.open(target.parent) as folder:
            folder.remove_abandoned()
            mode = stat.S_IMODE(path.stat().st_mode)
            with (
                folder.writing(target.name, mode=mode, replace=False, sync=sync) as file,
                closing(sqlite3.connect(path, timeout=LOCK_WAIT_S)) as source,
                closing(sqlite3.connect(file.name)) as copy,
            ):
                copy.execute("PRAGMA journal_mode = MEMORY")  # so that a killed process leaves no journal
                source.backup(copy)  # in one step: it has what is committed now, however many writers there are
    except FileExistsError:
        raise
    except (OSError, sqlite3.Error) as error:
        raise DatabaseError(
            f"{path} cannot be copied to {target}: {error}", cure="make its folder writable and free disk space"
        ) from error


def back_up(database: Database, target: Path) -> int:
    """Write a copy of a SQLite database into a new file, and return the file's size in bytes.

    Raises:
        DatabaseError: the copy cannot be written.
        UsageError: ``target`` exists, or the database is not a file.
    """
    url = database.engine.url
    path = file_of(url)
    if path is None:
        raise UsageError(
            f"{shown(url)} is not a file, and only files are copied like this",
            cure=f"pg_dump for a whole database; perfsvc sync {shown(url)} {target} for a SQLite file with its runs",
        )
    if target.exists():
        raise _exists(target)
    try:
        copy_file(path, target, sync=True)
    except FileExistsError:
        raise _exists(target) from None
    return target.stat().st_size


def vacuum(database: Database) -> tuple[int, int]:
    """Give free space back to the file system; return the size of the database in bytes before and after.

    SQLite rewrites the whole file and locks it meanwhile. PostgreSQL makes the space of removed rows usable for new
    rows, and counts the rows of its tables anew; other commands go on meanwhile.
    """
    engine = database.engine
    with translated(engine.url), engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        if connection.dialect.name == SQLITE:
            connection.exec_driver_sql("COMMIT")  # our connections begin a transaction even in autocommit mode
            before = _file_size(database)
            connection.exec_driver_sql("VACUUM")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            return before, _file_size(database)
        size = text("SELECT pg_database_size(current_database())")
        before = connection.execute(size).scalar_one()
        connection.exec_driver_sql("VACUUM ANALYZE")
        return int(before), int(connection.execute(size).scalar_one())


def _file_size(database: Database) -> int:
    """Return the size of a SQLite database with its write-ahead log; 0 for a database in memory."""
    path = file_of(database.engine.url)
    if path is None:
        return 0
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def _exists(target: Path) -> UsageError:
    return UsageError(f"{target} exists already, and a backup replaces no file", cure="name another file, or remove it")
