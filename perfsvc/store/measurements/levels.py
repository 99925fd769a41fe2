"""The levels of a run's series, read as columns: a run has ten thousands of measurements."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, literal_column, select
from sqlalchemy import case as sql_case

from perfsvc.model import MAX_ERROR, TIME, UNJUDGED, CacheState, Case, Level, Series, Status
from perfsvc.store.cases import judged, names_of, present_cases
from perfsvc.store.histories import changes
from perfsvc.store.measurements import DAMAGED, readable_samples
from perfsvc.store.schema.column_types import unpack_together
from perfsvc.store.schema.tables import Devices, Measurements, Metrics

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_MetricValues = tuple[str, Ints, Sequence[Sequence[float] | Floats]]
"""A metric, the rows that measured it, in order, and what each measured."""

_STATES = {state.value: state for state in CacheState}
_KEY = (Measurements.case_id, Measurements.device_id, Measurements.cache)


def levels_in(
    connection: Connection, run: int, *where: ColumnElement[bool], wanted: Collection[Series] | None = None
) -> dict[Series, Level]:
    """Return the levels of a run's series, or only of ``wanted``; ``where`` limits the measurements that are read.

    Without ``wanted``, the metrics that verdicts do not judge are left out.
    """
    measured = (Measurements.run_id == run, judged(Measurements.run_id, Measurements.case_id), *where)
    rows = _LevelRows.read(connection, measured)
    if rows is None:
        return {}
    levels = _bad_levels(connection, run, rows, measured)
    metrics = None if wanted is None else {series.metric for series in wanted}
    of_metrics: list[_MetricValues] = [
        (TIME, *_times(rows, rows.good & _are_times_wanted(rows, wanted))),
        (MAX_ERROR, *_errors(rows)),
    ]
    of_metrics += _named(connection, rows, metrics, measured if where else ())
    for metric, at, values in of_metrics:
        groups = rows.group[at]
        edges = [*np.flatnonzero(changes(groups)).tolist(), at.size] if at.size else []
        for group, (begin, end) in zip(groups[edges[:-1]].tolist(), pairwise(edges), strict=True):
            replicas = tuple(filter(len, values[begin:end]))  # damaged samples have no values
            levels[rows.series(group, metric)] = Level(run, Status.OK, "", replicas)
    return levels if wanted is None else {series: level for series, level in levels.items() if series in wanted}


@dataclass(frozen=True, slots=True)
class _LevelRows:
    """The measurements of a run in the order of cases, devices, cache states and replicas.

    A group is what one case measured on one device in one cache state.

    Attributes:
        ids: the id of each measurement.
        group: the group of each measurement, from 0.
        good: whether every replica of a group is ok.
        names: the case, the UUID and the model of the device, and the cache state of each group.
        medians: the median of each measurement in seconds, or None.
        errors: the largest error of each measurement's result, or None.
        blobs: the packed samples of each measurement, or None.
    """

    ids: Ints
    group: Ints
    good: NDArray[np.bool_]
    names: Sequence[tuple[Case, str, str, CacheState]]
    medians: Sequence[float | None]
    errors: Sequence[float | None]
    blobs: Sequence[bytes | None]

    @classmethod
    def read(cls, connection: Connection, measured: Collection[ColumnElement[bool]]) -> "_LevelRows | None":
        """Read the measurements that fulfil some conditions; None if there are none."""
        is_ok = sql_case({Status.OK: literal_column("1")}, value=Measurements.status, else_=literal_column("0"))
        values = (Measurements.median_s, Measurements.max_error, Measurements.samples)
        query = (
            select(*_KEY, Devices.uuid, Devices.model, Measurements.id, is_ok, *values)
            .join(Devices, Devices.id == Measurements.device_id)
            .where(*measured)
            .order_by(*_KEY, Measurements.replica)
        )
        with connection.execute(query) as result:
            # SQLAlchemy would make an object of each row, which takes longer than reading the row.
            rows = result.cursor.fetchall()
        if not rows:
            return None
        cases, devices, states, uuids, models, ids, ok, medians, errors, blobs = zip(*rows, strict=True)
        is_first = changes(np.array(cases), np.array(devices), np.array(states))
        firsts = np.flatnonzero(is_first)
        of_run = select(Measurements.case_id).where(*measured).distinct()
        known = present_cases(connection.execute(names_of(of_run)).all())
        return cls(
            np.array(ids),
            np.cumsum(is_first) - 1,
            np.logical_and.reduceat(np.array(ok) == 1, firsts),
            [(known[cases[at]], uuids[at], models[at], _STATES[states[at]]) for at in firsts.tolist()],
            medians,
            errors,
            blobs,
        )

    def series(self, group: int, metric: str) -> Series:
        """Return the series of a metric of a group."""
        case, uuid, model, cache = self.names[group]
        return Series(case, uuid, model, metric, cache)


def _bad_levels(
    connection: Connection, run: int, rows: _LevelRows, measured: Collection[ColumnElement[bool]]
) -> dict[Series, Level]:
    """Return the levels of the groups that are not ok: each has the status and the reason of its worst replica."""
    if rows.good.all():
        return {}
    columns = (Measurements.id, Measurements.status, Measurements.reason)
    found = connection.execute(select(*columns).where(*measured, Measurements.status != Status.OK))
    replicas = {number: (status, reason) for number, status, reason in found}
    worst: dict[int, tuple[Status, str]] = {}
    for number, group in zip(rows.ids.tolist(), rows.group.tolist(), strict=True):
        if number in replicas and (group not in worst or replicas[number][0].severity > worst[group][0].severity):
            worst[group] = replicas[number]
    return {rows.series(group, TIME): Level(run, *why) for group, why in worst.items()}


def _are_times_wanted(rows: _LevelRows, wanted: Collection[Series] | None) -> Any:
    """Return whether the times of each group are needed: to unpack samples takes long."""
    return wanted is None or np.array([rows.series(group, TIME) in wanted for group in range(rows.good.size)])


def _times(rows: _LevelRows, wanted: NDArray[np.bool_]) -> tuple[Ints, list[Floats]]:
    """Return the rows with a time and the samples of each; the median stands for samples that were pruned or damaged.

    Args:
        rows: the measurements.
        wanted: whether the times of a group are needed, and every replica is ok.
    """
    medians, blobs = rows.medians, rows.blobs
    asked = np.flatnonzero(wanted[rows.group]).tolist()
    at = [row for row in asked if blobs[row] is not None or medians[row] is not None]
    packed = [(row, blob) for row in at if (blob := blobs[row]) is not None]
    samples: Mapping[int, Any] = {}
    try:
        samples = dict(zip([row for row, _ in packed], unpack_together([blob for _, blob in packed]), strict=True))
    except DAMAGED:  # by some blob, so unpack each alone
        samples = {row: readable_samples(blob, rows.names[rows.group[row]][0]) for row, blob in packed}

    def of_row(row: int) -> Floats:
        known = samples.get(row)
        if known is not None:
            return np.asarray(known, np.float64)
        return np.array([] if medians[row] is None else [medians[row]], np.float64)

    return np.array(at, np.int64), [of_row(row) for row in at]


def _errors(rows: _LevelRows) -> tuple[Ints, list[tuple[float]]]:
    """Return the rows with a largest error, and the errors."""
    good = np.flatnonzero(rows.good[rows.group]).tolist()
    known = [(row, (error,)) for row in good if (error := rows.errors[row]) is not None]
    return np.array([row for row, _ in known], np.int64), [error for _, error in known]


def _named(
    connection: Connection, rows: _LevelRows, metrics: set[str] | None, measured: Collection[ColumnElement[bool]]
) -> Iterator[_MetricValues]:
    """Yield each named metric with the rows that have it and the value of each.

    Args:
        connection: a transaction.
        rows: the measurements.
        metrics: the names of the metrics; None for all that verdicts judge.
        measured: conditions on the measurements; without any, the metrics of all measurements of the run are read.
    """
    if metrics is not None and metrics <= {TIME, MAX_ERROR}:
        return
    named = Metrics.name.not_in(UNJUDGED) if metrics is None else Metrics.name.in_(metrics)
    query = select(Metrics.measurement_id, Metrics.name, Metrics.value).where(named, Metrics.value.is_not(None))
    if measured:
        query = query.join(Measurements, Measurements.id == Metrics.measurement_id).where(*measured)
    else:  # the measurements of a run are almost all those between the first and the last
        query = query.where(Metrics.measurement_id.between(int(rows.ids.min()), int(rows.ids.max())))
    with connection.execute(query) as result:
        found = result.cursor.fetchall()
    if not found:
        return
    numbers, names, values = zip(*found, strict=True)
    known = sorted(set(names))
    code = np.array(list(map(known.index, names)))
    by_id = np.argsort(rows.ids)
    at = by_id[np.searchsorted(rows.ids, numbers, sorter=by_id).clip(max=by_id.size - 1)]
    is_known = (rows.ids[at] == numbers) & rows.good[rows.group[at]]
    order = np.lexsort((at, code))
    order = order[is_known[order]]
    for number, name in enumerate(known):
        of_name = order[code[order] == number]
        yield name, at[of_name], [(values[place],) for place in of_name.tolist()]
