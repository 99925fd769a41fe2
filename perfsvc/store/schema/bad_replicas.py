"""Replicas that are not ok, also those whose damaged row does not say any more which case they measured.

A cell is what one run measured of one case on one device in one cache state.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, literal_column, or_, select
from sqlalchemy import case as sql_case

from perfsvc.model import CacheState, Status
from perfsvc.store.schema.column_types import report_damaged
from perfsvc.store.schema.engine import SQLITE, among
from perfsvc.store.schema.tables import Measurements

BadReplica = tuple[int, Status, str]
"""The cell of a replica, its status and its reason."""


def worst_by_cell(replicas: Iterable[BadReplica]) -> dict[int, tuple[Status, str]]:
    """Return the status and the reason of the worst replica of each cell; of equally bad ones, the first counts."""
    worst: dict[int, tuple[Status, str]] = {}
    for cell, status, reason in replicas:
        if cell not in worst or status.severity > worst[cell][0].severity:
            worst[cell] = status, reason
    return worst


class LostFailure(NamedTuple):
    """A failed or wrong measurement of a run; what its row does not say any more is None.

    Attributes:
        state: the place of the cache state among all cache states.
    """

    run: int
    case: int | None
    device: int | None
    state: int | None
    replica: int | None
    status: Status
    reason: str


def lost_failures(connection: Connection, runs: Collection[int]) -> list[LostFailure]:
    """Return the failed measurements of some runs that have another value than a number where an id should be.

    Only SQLite stores such values. An index finds the failed measurements of a run.
    """
    if connection.dialect.name != SQLITE:
        return []
    own = Measurements
    states: dict[Any, Any] = {state: literal_column(str(at)) for at, state in enumerate(CacheState)}
    ids = (own.case_id, own.device_id, own.replica, own.environment_id)
    case, device, replica, _ = (sql_case((_is_number(column), column)) for column in ids)
    query = select(own.run_id, case, device, sql_case(states, value=own.cache), replica, own.status, own.reason).where(
        among(own.run_id, runs),
        own.status.in_([Status.FAILED, Status.WRONG]),
        or_(own.cache.not_in(list(CacheState)), *(~_is_number(column) for column in ids)),
    )
    failures = [LostFailure(*row) for row in connection.execute(query)]
    if failures:
        report_damaged("a row of measurements")
    return failures


def _is_number(column: Any) -> Any:
    return func.typeof(column) == "integer"


def cells_of(
    failures: Collection[LostFailure], cells: NDArray[np.int64], *columns: NDArray[Any]
) -> Iterator[BadReplica]:
    """Yield each cell to which a lost failure may belong, with the status and the reason that the cell gets.

    These are the cells that have all that the damaged row still says, but no such replica: one cell, unless other
    cells lack the replica too.

    Args:
        failures: the lost failures.
        cells: the cell of each readable measurement, shape (rows,).
        columns: the run, case, device, cache state and replica of each readable measurement, as in ``LostFailure``.
    """
    for failure in failures:
        *is_same, is_replica = (
            np.full(cells.size, value is None) | (column == value)
            for column, value in zip(columns, failure, strict=False)
        )
        may_be = np.logical_and.reduce(is_same)
        others = cells[may_be & is_replica] if failure.replica is not None else cells[:0]
        reason = f"its row in the database is damaged, and may be one of this case: {failure.reason}"
        for cell in np.setdiff1d(cells[may_be], others).tolist():
            yield cell, failure.status, reason
