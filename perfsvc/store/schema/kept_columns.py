"""The columns of ended runs, kept in files, so that a later process reads only the runs that are new or have changed.

A file holds what one run measured. The file is used only if the run is as it was when the file was written: nothing in
perfsvc changes a stored measurement but the removal of old samples, so the number of a run's measurements, the newest
of them, the end of the run and the number of its samples show each change (docs/decisions.md). A repair of damaged
content shows in none of them, so a run with damaged content gets no file. A file that is missing or damaged costs only
time: it is written anew.
"""

import contextlib
import hashlib
import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Column, ColumnElement, Connection, Integer, Select, func, literal_column, or_, select
from sqlalchemy.sql.visitors import iterate

from perfsvc import __version__
from perfsvc.errors import InfrastructureError
from perfsvc.files import Folder
from perfsvc.model import PRECISIONS, CacheState, RunState, Status, digest
from perfsvc.store.schema.base import Base
from perfsvc.store.schema.column_types import Real
from perfsvc.store.schema.engine import POSTGRESQL, SQLITE, Database, among, file_of, identity_of
from perfsvc.store.schema.shared_reading import Columns
from perfsvc.store.schema.tables import Cases, Devices, Environments, Measurements, Metrics, Runs

FORMAT = 3
"""Is raised when the content of files changes in a way that neither a query nor perfsvc's version shows."""

LEAST_MEASUREMENTS = 200
"""A run with fewer measurements has no file: to read it from the database is as fast."""

MOST_BYTES = 2 * 2**30
"""The size of all files; beyond it, those that were not used for longest are removed."""

FOLDER = "columns"
PRIVATE_FILE = 0o600

_HEAD = struct.Struct("<II")  # the CRC-32 of all that follows it, and the length of the header
_PADDING = 8
_KIND = re.compile(r"[<|][iuf][1248]")
"""The types of columns, as numpy writes them."""
_NAMED: Final[dict[type[Base], tuple[Any, ...]]] = {
    Cases: (Cases.benchmark, Cases.variant, Cases.point, Cases.version),
    Devices: (Devices.uuid,),
    Environments: (
        Environments.driver,
        Environments.toolkit,
        Environments.power_limit_w,
        Environments.places,
        Environments.parts_digest,
    ),
}
"""What the ids in columns stand for. Rows of these tables are added and never renamed."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How columns of runs are read from the database.

    Attributes:
        name: names the columns.
        queries: what is read; files that other queries read are not used.
        ids: which columns hold ids, and of which table.
        is_whole: returns False for columns from a file of which some are missing or too short.
        read: returns the columns of each run, in any order; a run that measured nothing is absent.
        state: a number that a query by ``Measurements.run_id`` computes for each run: files are used only while it is
            the same. None if nothing in perfsvc changes what is read of a stored measurement.
        is_damaged: returns True for the columns of a run in which damaged content was found while reading it. None if
            only words and numbers can be damaged, which this module finds.
    """

    name: str
    queries: Sequence[Select[Any]]
    ids: Mapping[int, type[Base]]
    is_whole: Callable[[Columns], bool]
    read: Callable[[Sequence[int]], Mapping[int, Columns]]
    state: ColumnElement[int] | None = None
    is_damaged: Callable[[Columns], bool] | None = None


def columns_by_run(database: Database, runs: Sequence[int], reading: Reading) -> list[Columns]:
    """Return the columns of each run that measured anything, in the order of ``runs``.

    Integers may have any size; ``joined`` widens them.

    Args:
        database: the database, of which this thread must have no transaction.
        runs: the runs.
        reading: how the columns are read if no file has them.
    """
    files = _Files.of(database, reading)
    if files is None:
        fresh = reading.read(runs) if runs else {}
        return [fresh[run] for run in runs if run in fresh]
    before = database.read_before()
    with database.reading() as connection:
        keys = _keys(before, connection, runs, reading.state)
        names = _Names(connection, reading.ids) if keys else None
    kept = files.load(keys, names) if names else {}
    missing = [run for run in runs if run not in kept]
    read = dict(reading.read(missing)) if missing else {}
    if new := [run for run in missing if run in keys and run in read]:
        # A change may fall between the two transactions: columns are kept only if the run is the same before and after.
        with database.reading() as connection:
            after, names = _keys_of(connection, new, reading.state), _Names(connection, reading.ids)
            damaged = _with_damaged_words(connection, new) | _with_damaged_numbers(connection, new, reading.queries)
        if reading.is_damaged:
            damaged |= {run for run in new if reading.is_damaged(read[run])}
        same = [run for run in new if after.get(run) == keys[run] and run not in damaged]
        files.save({run: (keys[run], read[run]) for run in same}, names)
    return [kept[run] if run in kept else read[run] for run in runs if run in kept or run in read]


def joined(parts: Sequence[Columns]) -> list[NDArray[Any]]:
    """Return the columns of all parts, one after the other: integers as int64, other numbers as float64."""
    return [
        np.concatenate(each, dtype=np.float64 if each[0].dtype.kind == "f" else np.int64)
        for each in zip(*parts, strict=True)
    ]


def equally_long(columns: Columns, count: int) -> bool:
    """Return whether there are so many columns, all of one length that is not zero."""
    return len(columns) == count and {len(column) for column in columns} == {len(columns[0])} != {0}


def by_run(columns: Columns, runs: NDArray[np.int64]) -> dict[int, Columns]:
    """Divide rows among their runs.

    Args:
        columns: the columns, each of shape (rows,).
        runs: the run of each row.
    """
    in_order = np.argsort(runs, kind="stable")
    numbers, begins = np.unique(runs[in_order], return_index=True)
    divided = [np.split(column[in_order], begins[1:]) for column in columns]
    return {run: [column[at] for column in divided] for at, run in enumerate(numbers.tolist())}


def _keys(
    before: dict[Any, Any], connection: Connection, runs: Sequence[int], state: ColumnElement[int] | None
) -> dict[int, str]:
    """Return what ``_keys_of`` does, from what was read before the transaction began, if that has the runs."""
    known = before.setdefault(("keys", str(state)), {})
    if missing := [run for run in runs if run not in known]:
        read = _keys_of(connection, missing, state)
        known.update((run, read.get(run)) for run in missing)
    return {run: key for run in runs if (key := known[run]) is not None}


def _keys_of(connection: Connection, runs: Sequence[int], state: ColumnElement[int] | None) -> dict[int, str]:
    """Return the state of each run that has ended and is large enough for a file: another text after each change."""
    more = literal_column("0") if state is None else state
    counts = (
        select(
            Measurements.run_id,
            func.count().label("count"),
            func.max(Measurements.id).label("newest"),
            more.label("more"),
        )
        .where(among(Measurements.run_id, runs))
        .group_by(Measurements.run_id)
        .having(func.count() >= LEAST_MEASUREMENTS)
        .subquery()
    )
    query = (
        select(Runs.id, Runs.uid, Runs.state, Runs.finished_at, counts.c.count, counts.c.newest, counts.c.more)
        .join(counts, counts.c.run_id == Runs.id)
        .where(Runs.state != RunState.RUNNING)
    )
    if connection.dialect.name == POSTGRESQL:  # a database that was restored in place of another has another number
        query = query.add_columns(literal_column("(SELECT oid FROM pg_database WHERE datname = current_database())"))
    return {run: " ".join(map(str, (run, *state))) for run, *state in connection.execute(query)}


def _with_damaged_words(connection: Connection, runs: Sequence[int]) -> set[int]:
    """Return the runs with a measurement whose status, cache state or precision is no word of perfsvc."""
    is_damaged = or_(
        Measurements.status.not_in(list(Status)),
        Measurements.cache.not_in(list(CacheState)),
        Measurements.precision.not_in(["", *PRECISIONS]),
    )
    query = select(Measurements.run_id).where(among(Measurements.run_id, runs), is_damaged).distinct()
    return set(connection.scalars(query))


def _with_damaged_numbers(connection: Connection, runs: Sequence[int], queries: Sequence[Select[Any]]) -> set[int]:
    """Return the runs with a measurement or a metric that has a text in a column of numbers that ``queries`` read."""
    if connection.dialect.name != SQLITE:  # others refuse such values
        return set()
    read = {part for query in queries for part in iterate(query) if isinstance(part, Column)}
    of_runs = among(Measurements.run_id, runs)
    damaged: set[int] = set()
    for table in (Measurements, Metrics):
        numeric = [column for column in read if column.table is table.__table__ and _is_numeric(column)]
        if not numeric:
            continue
        query = select(Measurements.run_id).where(of_runs, or_(*map(_has_another_type, numeric))).distinct()
        if table is Metrics:
            query = query.join(Metrics, Metrics.measurement_id == Measurements.id)
        damaged |= set(connection.scalars(query))
    return damaged


def _is_numeric(column: Column[Any]) -> bool:
    return isinstance(column.type, Real | Integer)


def _has_another_type(column: Column[Any]) -> ColumnElement[bool]:
    return func.typeof(column).not_in(("integer", "real", "null"))


class _Names:
    """What ids stand for, as digests: two databases may have one run under one number, and its cases under others.

    The digest of an id covers the names of all smaller ids of its table too.

    Args:
        connection: a transaction.
        ids: the columns that hold ids, and their tables.
    """

    def __init__(self, connection: Connection, ids: Mapping[int, type[Base]]) -> None:
        self.columns = tuple(ids)
        self._digests: list[dict[int, Any]] = []
        for table in ids.values():
            key = table.__table__.columns["id"]
            names = hashlib.sha256()
            digests: dict[int, Any] = {}
            with connection.execute(select(key, *_NAMED[table]).order_by(key)) as result:
                for row in result.cursor.fetchall():  # SQLAlchemy's rows would take longer
                    names.update(repr(row).encode())
                    digests[row[0]] = names.copy()
            self._digests.append(digests)

    def of(self, newest: Sequence[int]) -> str:
        """Return the digests of ids, one for each column that holds ids; of an unknown id it is a question mark."""
        found = (digests.get(number) for digests, number in zip(self._digests, newest, strict=True))
        return " ".join("?" if names is None else names.hexdigest() for names in found)


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of one database with the columns of one reading."""

    path: Path
    identity: str
    is_whole: Callable[[Columns], bool]

    @classmethod
    def of(cls, database: Database, reading: Reading) -> "_Files | None":
        """Return the files of a database; None if it has none, or if their folder cannot be used."""
        # Only what reads many runs needs the package of compilers, which has the folder.
        from perfsvc.build.cache import default_folder, private_folder

        url = database.engine.url
        file = file_of(url)
        try:
            if database.engine.dialect.name == POSTGRESQL:
                which = identity_of(url)
            elif file is None:
                return None
            else:  # another file at this path is another database
                which = f"{identity_of(url)} {file.stat().st_ino}"
            private_folder(default_folder())
            path = private_folder(default_folder() / FOLDER)
        except (InfrastructureError, OSError):
            return None
        return cls(path, f"{which} {reading.name} {FORMAT} {__version__} {_digest(reading.queries)}", reading.is_whole)

    def load(self, keys: Mapping[int, str], names: _Names) -> dict[int, Columns]:
        """Return the columns of the runs whose file was written when they had these keys, and their ids these names."""
        found: dict[int, Columns] = {}
        with contextlib.suppress(OSError), Folder.open(self.path) as folder:
            for run, key in keys.items():
                with contextlib.suppress(OSError):
                    descriptor = folder.open_file(self._name(run), os.O_RDONLY)
                    with os.fdopen(descriptor, "rb") as file:
                        columns = _decoded(file.read(), key, names, self.is_whole)
                        if columns is not None:
                            found[run] = columns
                            os.utime(descriptor)  # the files that were not used for longest are removed first
        return found

    def save(self, columns: Mapping[int, tuple[str, Columns]], names: _Names) -> None:
        """Write a file for each run, from its key and its columns, and remove old files if all are too large."""
        with contextlib.suppress(OSError), Folder.open(self.path) as folder:
            folder.remove_abandoned()
            for run, (key, of_run) in columns.items():
                folder.write(self._name(run), _encoded(of_run, key, names), mode=PRIVATE_FILE)
            _limit(folder)

    def _name(self, run: int) -> str:
        return digest(f"{self.identity} {run}".encode())


def _digest(queries: Sequence[Select[Any]]) -> str:
    """Return a digest of the text and the parameters of queries."""
    texts = []
    for query in queries:
        compiled = query.compile()
        parameters = {
            name: sorted(value) if isinstance(value, list | set | frozenset) else value
            for name, value in compiled.params.items()
        }
        texts.append(f"{compiled} {parameters}")
    return digest("\n".join(texts).encode())


def _encoded(columns: Columns, key: str, names: _Names) -> bytes:
    """Return the content of a file: a header, and the columns with integers as small as their values allow.

    The header is JSON: ``key``, the state of the run; ``newest``, the largest id in each column that holds ids;
    ``names``, the digests of what the ids up to these stand for; ``columns``, the type and the length of each column.
    """
    newest = [int(columns[at].max()) for at in names.columns]
    narrow = [_narrow(column) for column in columns]
    kinds = [(column.dtype.str, column.size) for column in narrow]
    header = json.dumps({"key": key, "newest": newest, "names": names.of(newest), "columns": kinds}).encode()
    parts = [header, *(column.tobytes() for column in narrow)]
    content = b"".join(part + bytes(-len(part) % _PADDING) for part in parts)
    length = struct.pack("<I", len(header))
    return _HEAD.pack(zlib.crc32(content, zlib.crc32(length)), len(header)) + content


def _decoded(content: bytes, key: str, names: _Names, is_whole: Callable[[Columns], bool]) -> Columns | None:
    """Return the columns of a file; None if it is damaged, or was written for another key or for other names.

    The checksum of a damaged file may be right, because another program wrote the file.
    """
    if len(content) < _HEAD.size:
        return None
    checksum, length = _HEAD.unpack_from(content)
    if zlib.crc32(memoryview(content)[4:]) != checksum:
        return None
    try:
        header = json.loads(content[_HEAD.size : _HEAD.size + length])
        if header["key"] != key or header["names"] != names.of(header["newest"]):
            return None
        columns = _columns(content, _HEAD.size + length, header["columns"])
        return columns if is_whole(columns) else None
    except (LookupError, TypeError, ValueError, RecursionError):
        return None


def _columns(content: bytes, at: int, kinds: Sequence[tuple[str, int]]) -> Columns:
    """Return the columns behind ``at``; raise ``ValueError`` if the content is too short, or a type is none of ours."""
    columns = []
    for kind, size in kinds:
        if not _KIND.fullmatch(kind) or not 0 <= size <= len(content):
            raise ValueError(f"a column of {size} {kind}")
        at += -at % _PADDING
        columns.append(np.frombuffer(content, kind, size, at))
        at += columns[-1].nbytes
    return columns


def _narrow(column: NDArray[Any]) -> NDArray[Any]:
    """Return signed integers in the smallest type that holds them; other columns as they are."""
    if column.dtype.kind != "i" or not column.size:
        return column
    return column.astype(np.min_scalar_type(min(int(column.min()), -1 - int(column.max()))))


def _limit(folder: Folder) -> None:
    """Remove the files that were not used for longest until the others are at most ``MOST_BYTES`` large."""
    files = []
    with os.scandir(folder.descriptor) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                state = entry.stat(follow_symlinks=False)
                files.append((state.st_mtime, state.st_size, entry.name))
    total = 0
    for _, size, name in sorted(files, reverse=True):
        total += size
        if total > MOST_BYTES:
            folder.remove(name)
