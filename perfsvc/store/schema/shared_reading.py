"""Large queries of numbers, read by several processes at once: most of the time is for making objects of the values."""

import os
import threading
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from perfsvc.process.shared_work import MOST_PROCESSES, SharedWork
from perfsvc.store.schema.column_types import readable_number, report_damaged
from perfsvc.store.schema.engine import Database

LEAST_RUNS = 30
"""The measurements of fewer runs are read by one process: beginning another takes some hundredths of a second."""

ROWS_AT_ONCE = 2_000
"""How many rows are held as Python objects until they become arrays: so few that they stay in the processor's cache."""

Columns = Sequence[Any]
"""Arrays without objects."""


def shares(runs: Sequence[int]) -> list[Sequence[int]]:
    """Divide runs into as many shares, each of consecutive runs, as there are processes to read them."""
    alone = len(runs) < LEAST_RUNS or threading.active_count() > 1
    processes = 1 if alone else min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
    size = -(-len(runs) // processes) or 1
    return [runs[begin : begin + size] for begin in range(0, len(runs), size)]


def read_together(
    database: Database, queries: Sequence[Any], read: Callable[[Connection, Any], Columns]
) -> list[Columns]:
    """Return the columns of each query; several queries are read by several processes, each in its own transaction.

    Args:
        database: the database, of which this thread must have no transaction.
        queries: the queries.
        read: reads a query.
    """

    def do(at: int) -> bytes:
        file = BytesIO()
        with database.reading() as connection:
            for column in read(connection, queries[at]):
                np.save(file, column, allow_pickle=False)
        return file.getvalue()

    if len(queries) == 1 or not database.release():
        with database.reading() as connection:
            return [read(connection, query) for query in queries]
    with SharedWork(len(queries), do, portion=1) as shared:
        return [_loaded(content) for content in shared.results()]


def _loaded(content: bytes) -> list[Any]:
    file, columns = BytesIO(content), []
    while file.tell() < len(content):
        columns.append(np.load(file, allow_pickle=False))
    return columns


def read_columns(connection: Connection, query: Any, kinds: str) -> list[Any]:
    """Return the columns of a query of measurements as arrays; damaged content is reported.

    A damaged number is NaN. A row with a damaged integer is left out, because it names nothing that is stored.

    Args:
        connection: a transaction.
        query: the query; it returns the values of the database as they are, without the types of SQLAlchemy.
        kinds: a letter for each column: i for integers below 2^53, f for numbers, in which NULL is NaN.
    """
    parts = [np.empty((0, len(kinds)))]
    with connection.execute(query) as result:
        # SQLAlchemy would make an object of each row, which takes longer than reading the row.
        while rows := result.cursor.fetchmany(ROWS_AT_ONCE):
            parts.append(_table(rows, len(kinds)))
    table = np.concatenate(parts).T
    is_damaged = np.isnan(table[[at for at, kind in enumerate(kinds) if kind == "i"]]).any(axis=0)
    if is_damaged.any():
        report_damaged("a row of measurements")
        table = table[:, ~is_damaged]
    return [table[at].astype(np.int64 if kind == "i" else np.float64) for at, kind in enumerate(kinds)]


def _table(rows: Sequence[tuple[Any, ...]], width: int) -> NDArray[np.float64]:
    """Return rows of numbers as an array, shape (rows, width); NULL and damaged numbers are NaN."""
    if _NUMBERS.issuperset(map(type, chain.from_iterable(rows))):
        return np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * width).reshape(-1, width)
    return numbers(list(chain.from_iterable(rows))).reshape(-1, width)  # some value is NULL or damaged: the slower way


def numbers(values: Sequence[Any]) -> NDArray[np.float64]:
    """Return values from the database as an array; NULL is NaN, and so is a damaged number, which is reported."""
    if not _NUMBERS_AND_NULL.issuperset(map(type, values)):  # NumPy would take a text such as "inf" for a number
        values = list(map(readable_number, values))
    return np.array(values, np.float64)


_NUMBERS = frozenset({int, float})
_NUMBERS_AND_NULL = _NUMBERS | {type(None)}
