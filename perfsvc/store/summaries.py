"""The summaries of an ended run's measurements in one row, which is what a night reads of each night before it.

A year of a suite is some hundred thousand measurements, and their rows hold ten times as much as the histories need.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import BigInteger, ColumnElement, Connection, case, cast, delete, exists, select

from perfsvc.model import UNJUDGED, CacheState, Status
from perfsvc.store.interning import insert_into
from perfsvc.store.lookup import ENDED
from perfsvc.store.tables import Measurements, Metrics, Runs, Summaries

Rows = NDArray[np.void]
"""With columns that have names."""

_PLACED = [("run", "<i8"), ("key", "<i8")]  # the key says of what: ``parted``
TIMED = np.dtype([*_PLACED, ("segment", "<i8"), ("median_s", "<f8"), ("max_error", "<f8")])
"""A measurement; its segment is its environment, with a minus where it is not ok."""
NAMED = np.dtype([*_PLACED, ("value", "<f8")])
"""What a measurement has of a metric."""

_TIMES = ""
"""In place of a metric, each of which has a name, for the rows that are ``TIMED``."""
_DEVICES = 1 << 24
"""More ids than devices will ever have; a factor in what is stored, like the next."""
_MODES = 1 << 4
_MODE = case({cache: place for place, cache in enumerate(CacheState)}, value=Measurements.cache)

KEY: ColumnElement[int] = (cast(Measurements.case_id, BigInteger) * _DEVICES + Measurements.device_id) * _MODES + _MODE
"""Case, device and cache state of a measurement in one number: the driver makes an object of each that it hands out."""

_TIMED = select(
    Measurements.run_id,
    KEY,
    case((Measurements.status == Status.OK, Measurements.environment_id), else_=-Measurements.environment_id),
    Measurements.median_s,
    Measurements.max_error,
).order_by(Measurements.replica)

_NAMED = (
    select(Metrics.name, Measurements.run_id, KEY, Metrics.value)
    .join(Measurements, Measurements.id == Metrics.measurement_id)
    .where(Metrics.name.not_in(UNJUDGED), Metrics.value.is_not(None))
    .order_by(Metrics.name, Measurements.replica)
)


def parted(key: int) -> tuple[int, int, int]:
    """Case, device, and the cache state's place in ``CacheState``, of a measurement's key."""
    rest, cache = divmod(key, _MODES)
    return (*divmod(rest, _DEVICES), cache)


def cases_of(rows: Rows) -> NDArray[np.intp]:
    """The case of each of some measurements."""
    of_each: NDArray[np.intp] = rows["key"] // (_DEVICES * _MODES)
    return of_each


def put(connection: Connection, run: int) -> None:
    """Stores the summaries of what a run measured, in place of what was stored of it before."""
    drop(connection, run)
    found = _of_run(connection, run).items()
    connection.execute(
        insert_into(Summaries), [{"run_id": run, "metric": name, "content": rows} for name, rows in found]
    )


def put_missing(connection: Connection) -> None:
    """Stores those of all runs that have ended and have none, as after an upgrade."""
    lacking = select(Runs.id).where(Runs.state.in_(ENDED), ~exists().where(Summaries.run_id == Runs.id))
    for run in connection.scalars(lacking.order_by(Runs.id)).all():
        put(connection, run)


def drop(connection: Connection, run: int) -> None:
    """Takes away what is stored of a run that goes on: whoever reads it looks at its measurements then.

    Whoever ends it meanwhile waits until this transaction is over, and so sees all that it puts.
    """
    connection.execute(select(Runs.id).where(Runs.id == run).with_for_update(key_share=True))
    connection.execute(delete(Summaries).where(Summaries.run_id == run))


def read(connection: Connection, runs: Sequence[int]) -> tuple[Rows, dict[str, Rows]]:
    """The measurements of some runs as ``TIMED``, and as ``NAMED`` what they have of each metric that is judged.

    They are in the order of the runs and, within one, of the replicas. A run that has no summaries, for it has not
    ended or has measured since, is read row by row.
    """
    stored: dict[int, dict[str, bytes]] = defaultdict(dict)
    of_runs = select(Summaries.run_id, Summaries.metric, Summaries.content).where(Summaries.run_id.in_(runs))
    for run, metric, content in connection.execute(of_runs):
        stored[run][metric] = content
    contents = [stored.get(run) or _of_run(connection, run) for run in runs]
    names = sorted({name for of_run in contents for name in of_run} - {_TIMES})
    named = {name: np.frombuffer(b"".join(of_run.get(name, b"") for of_run in contents), NAMED) for name in names}
    return np.frombuffer(b"".join(of_run[_TIMES] for of_run in contents), TIMED), named


def _of_run(connection: Connection, run: int) -> dict[str, bytes]:
    """The rows of a run's measurements by metric, as they are stored."""
    timed = connection.execute(_TIMED.where(Measurements.run_id == run))
    rows = {_TIMES: np.array([tuple(row) for row in timed], TIMED).tobytes()}
    named = connection.execute(_NAMED.where(Measurements.run_id == run))
    for name, values in groupby(named, itemgetter(0)):
        rows[name] = np.array([tuple(value[1:]) for value in values], NAMED).tobytes()
    return rows
