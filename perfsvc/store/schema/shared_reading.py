"""Large queries of numbers, read by several processes at once: most of the time is for making objects of the values."""

import os
import threading
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from sqlalchemy import Connection

from perfsvc.process.shared_work import MOST_PROCESSES, SharedWork
from perfsvc.store.schema.engine import Database

LEAST_RUNS = 30
"""The measurements of fewer runs are read by one process: beginning another takes some hundredths of a second."""

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
