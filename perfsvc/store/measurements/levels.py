"""The levels of a run's series, read as columns: a run has ten thousands of measurements."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Select, func, literal_column, select
from sqlalchemy import case as sql_case

from perfsvc.model import MAX_ERROR, TIME, UNJUDGED, CacheState, Case, Series, Status
from perfsvc.model.levels import LevelColumns
from perfsvc.store.cases import CASE_COLUMNS, case_of, reasons_of_exclusion
from perfsvc.store.histories import changes
from perfsvc.store.schema.column_types import report_damaged
from perfsvc.store.schema.engine import Database, among
from perfsvc.store.schema.kept_columns import Reading, columns_by_run
from perfsvc.store.schema.samples import DAMAGED, unpack_array, unpack_together
from perfsvc.store.schema.shared_reading import Columns, numbers
from perfsvc.store.schema.tables import Cases, Devices, Measurements, Metrics

Ints = NDArray[np.int64]

_MetricValues = tuple[Ints, Ints, NDArray[Any]]
"""The rows that measured a metric, in order, how many values each has, and the values, one row after the other."""

_STATES = tuple(CacheState)
_CODE_OF_STATE = {state.value: code for code, state in enumerate(_STATES)}
_KEY = (Measurements.case_id, Measurements.device_id, Measurements.cache)
_UNNAMED = Case("", "")
_OF_RUN = Measurements.__table__.alias()
_SAMPLES = (
    select(func.count())
    .where(_OF_RUN.c.run_id == Measurements.run_id, _OF_RUN.c.samples.is_not(None))
    .correlate(Measurements)
    .scalar_subquery()
)
"""The number of measurements of a run that have samples, which pruning removes; an index alone counts them."""


def levels_by_run(database: Database, runs: Sequence[int]) -> dict[int, LevelColumns]:
    """Return the levels of each run that measured anything. The levels of ended runs are cached in files.

    The metrics that verdicts do not judge are left out, and so is what is excluded from judging.

    Args:
        database: the database, of which this thread must have no transaction.
        runs: the runs.
    """
    reading = Reading(
        "levels",
        (_rows_of(), _named_metrics(None)),
        {0: Cases, 1: Devices},
        partial(_read_runs, database),
        _SAMPLES,
        lambda columns: bool(_StoredLevels(*columns).damaged.size),
    )
    parts = [_StoredLevels(*columns) for columns in columns_by_run(database, runs, reading)]
    with database.reading() as connection:
        series_by_key: dict[bytes, Sequence[Series]] = {}
        return {part.run: part.levels(connection, series_by_key) for part in parts}


def levels_in(
    connection: Connection, run: int, *where: ColumnElement[bool], metrics: Collection[str] | None = None
) -> LevelColumns:
    """Return the levels of a run's series, read from the database; what is excluded from judging is left out.

    Args:
        connection: a transaction.
        run: the run.
        where: conditions that limit the measurements.
        metrics: the metrics to read; None for all that verdicts judge.
    """
    stored = _read(connection, run, where, metrics)
    return LevelColumns.of({}) if stored is None else stored.levels(connection, {})


def _read_runs(database: Database, runs: Sequence[int]) -> dict[int, Columns]:
    """Return the fields of the ``_StoredLevels`` of each run that measured anything."""
    with database.reading() as connection:
        read = {run: _read(connection, run, (), None) for run in runs}
    return {run: stored.columns for run, stored in read.items() if stored is not None}


@dataclass(frozen=True, slots=True)
class _StoredLevels:
    """Levels of a run under the ids of the database, as arrays without objects, which files can hold.

    A group is what one case measured on one device in one cache state. The levels that are not ok come first, then
    those of the times.

    Attributes:
        cases: the id of the case of each group.
        devices: the id of the device of each group.
        states: the place of the cache state of each group among all cache states.
        groups: the group of each level.
        metrics: the place of the metric of each level among the names.
        sizes: the number of replicas of each level.
        lengths: the number of values of each replica.
        times: the values of the replicas of times, one after the other; a sample is a float32.
        others: the values of all other replicas.
        damaged: the ids of the cases with damaged samples.
        text: JSON, encoded: the run, the names of metrics, and the status and reason of each level that is not ok.
    """

    cases: Ints
    devices: Ints
    states: Ints
    groups: Ints
    metrics: Ints
    sizes: Ints
    lengths: Ints
    times: NDArray[Any]
    others: NDArray[np.float64]
    damaged: Ints
    text: NDArray[np.uint8]

    @property
    def columns(self) -> Columns:
        """The fields in order."""
        return [getattr(self, name) for name in self.__slots__]

    @property
    def run(self) -> int:
        """The run."""
        return int(json.loads(self.text.tobytes())["run"])

    def levels(self, connection: Connection, series_by_key: dict[bytes, Sequence[Series]]) -> LevelColumns:
        """Return the levels that are judged, and report damaged samples.

        Args:
            connection: a transaction.
            series_by_key: the series of runs read before in this transaction, by what decides them; this run's are
                added. Two nights of a suite have the same series.
        """
        text = json.loads(self.text.tobytes())
        excluded = {case for _, case in reasons_of_exclusion(connection, [text["run"]])}
        is_judged = ~np.isin(self.cases, [case for case in excluded if case is not None]) & (None not in excluded)
        keys = (self.cases, self.devices, self.states, self.groups, self.metrics)
        key = repr((text["metrics"], excluded)).encode() + b"".join(column.tobytes() for column in keys)
        if key not in series_by_key or self.damaged.size:
            query = select(Cases.id, *CASE_COLUMNS).where(among(Cases.id, np.unique(self.cases[is_judged]).tolist()))
            cases = {number: case_of(*name) for number, *name in connection.execute(query)}
            series_by_key[key] = self._series(connection, cases, text["metrics"])
            for case in self.damaged.tolist():
                if case in cases:
                    report_damaged(f"a blob of samples of {cases[case]}")
        levels = LevelColumns(
            series_by_key[key],
            np.full(self.groups.size, text["run"]),
            {at: (Status(status), reason) for at, (status, reason) in enumerate(text["bad"])},
            self.sizes.astype(np.int64),
            self.lengths.astype(np.int64),
            np.concatenate([self.times, self.others], dtype=np.float64),
            {},
        )
        return levels.where(np.array([series.case is not _UNNAMED for series in levels.series], np.bool_))

    def _series(self, connection: Connection, cases: Mapping[int, Case], metrics: Sequence[str]) -> Sequence[Series]:
        """Return the series of each level; ``cases`` lacks what is excluded, or was deleted by another transaction."""
        rows = connection.execute(select(Devices.id, Devices.uuid, Devices.model))
        devices = {number: (uuid, model) for number, uuid, model in rows}
        keys = zip(self.cases.tolist(), self.devices.tolist(), self.states.tolist(), strict=True)
        if not devices.keys() >= set(self.devices.tolist()):
            report_damaged("the device of a row of measurements")
        groups = [
            (
                cases.get(case, _UNNAMED) if device in devices else _UNNAMED,
                *devices.get(device, ("", "")),
                _STATES[state],
            )
            for case, device, state in keys
        ]
        series = []
        for group, metric in zip(self.groups.tolist(), self.metrics.tolist(), strict=True):
            case, uuid, model, state = groups[group]
            series.append(Series(case, uuid, model, metrics[metric], state))
        return series


# --- reading ---------------------------------------------------------------------------------------------------------


def _rows_of(*where: ColumnElement[bool]) -> Select[Any]:
    """Return the query of measurements in the order of cases, devices, cache states and replicas."""
    is_ok = sql_case({Status.OK: literal_column("1")}, value=Measurements.status, else_=literal_column("0"))
    values = (Measurements.median_s, Measurements.max_error, Measurements.samples)
    return select(*_KEY, Measurements.id, is_ok, *values).where(*where).order_by(*_KEY, Measurements.replica)


def _named_metrics(metrics: Collection[str] | None) -> Any:
    """Return the query of named metrics: of some, or of all that are judged."""
    named = Metrics.name.not_in(UNJUDGED) if metrics is None else Metrics.name.in_(metrics)
    return select(Metrics.measurement_id, Metrics.name, Metrics.value).where(named, Metrics.value.is_not(None))


def _read(
    connection: Connection, run: int, where: Collection[ColumnElement[bool]], metrics: Collection[str] | None
) -> _StoredLevels | None:
    """Read the levels of a run; None if no measurement fulfils the conditions."""
    measured = (Measurements.run_id == run, *where)
    with connection.execute(_rows_of(*measured)) as result:
        # SQLAlchemy would make an object of each row, which takes longer than reading the row.
        rows = _readable(result.cursor.fetchall())
    if not rows:
        return None
    cases, devices, states, ids, ok, stored_medians, stored_errors, blobs = zip(*rows, strict=True)
    medians, errors = numbers(stored_medians), numbers(stored_errors)
    identity = [np.array(cases), np.array(devices), np.array(list(map(_CODE_OF_STATE.__getitem__, states)))]
    firsts = np.flatnonzero(is_first := changes(*identity))
    row_ids, group = np.array(ids), np.cumsum(is_first) - 1
    is_good = np.logical_and.reduceat(np.array(ok) == 1, firsts)[group]
    bad = {} if is_good.all() else _bad(connection, row_ids, group, measured)
    good = np.flatnonzero(is_good)
    metric_values: list[tuple[str, _MetricValues]] = []
    damaged: list[int] = []
    if metrics is None or TIME in metrics:
        times, damaged = _times(good, medians, blobs)
        metric_values.append((TIME, times))
    with_error = good[~np.isnan(errors[good])]
    metric_values.append((MAX_ERROR, _alone(with_error, errors[with_error])))
    if metrics is None or not set(metrics) <= {TIME, MAX_ERROR}:
        metric_values += _named(connection, row_ids, is_good, metrics, measured if where else ())
    levels = [_by_level(group[at], lengths) for _, (at, lengths, _) in metric_values]
    counts = [groups.size for groups, _ in levels]
    numbers_of_metrics = [numbers for _, (_, _, numbers) in metric_values]
    has_times = metric_values[0][0] == TIME
    text = {
        "run": run,
        "metrics": [TIME, *(name for name, _ in metric_values)],
        "bad": list(bad.values()),
    }
    return _StoredLevels(
        identity[0][firsts],
        identity[1][firsts],
        identity[2][firsts],
        np.concatenate([np.array(list(bad), np.int64), *(groups for groups, _ in levels)]),
        np.repeat(np.arange(len(levels) + 1), [len(bad), *counts]),
        np.concatenate([np.zeros(len(bad), np.int64), *(sizes for _, sizes in levels)]),
        np.concatenate([lengths[lengths > 0] for _, (_, lengths, _) in metric_values]),
        numbers_of_metrics[0] if has_times else np.empty(0, np.float32),
        np.concatenate(numbers_of_metrics[has_times:] or [np.empty(0)]),
        np.unique(identity[0][damaged]) if damaged else np.empty(0, np.int64),
        np.frombuffer(json.dumps(text).encode(), np.uint8),
    )


def _readable(rows: Sequence[Any]) -> Sequence[Any]:
    """Return rows of ``_rows_of`` without those that name no case, device or cache state, which are reported."""
    readable = [row for row in rows if type(row[0]) is type(row[1]) is int and row[2] in _CODE_OF_STATE]
    if len(readable) < len(rows):
        report_damaged("a row of measurements")
    return readable


def _by_level(groups: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Return the group of each level of a metric, and how many of its rows have values.

    Args:
        groups: the group of each row, in order.
        lengths: how many values each row has.
    """
    begins = np.flatnonzero(changes(groups))
    return groups[begins], np.add.reduceat((lengths > 0).astype(np.int64), begins) if begins.size else begins


def _bad(
    connection: Connection, ids: Ints, group: Ints, measured: Collection[ColumnElement[bool]]
) -> dict[int, tuple[Status, str]]:
    """Return the status and the reason of the worst replica of each group that is not ok."""
    columns = (Measurements.id, Measurements.status, Measurements.reason)
    bad_rows = connection.execute(select(*columns).where(*measured, Measurements.status != Status.OK))
    replicas = {number: (status, reason) for number, status, reason in bad_rows}
    worst: dict[int, tuple[Status, str]] = {}
    for number, place in zip(ids.tolist(), group.tolist(), strict=True):
        if number in replicas and (place not in worst or replicas[number][0].severity > worst[place][0].severity):
            worst[place] = replicas[number]
    return worst


def _times(good: Ints, medians: NDArray[np.float64], blobs: Sequence[bytes | None]) -> tuple[_MetricValues, list[int]]:
    """Return the times, and the rows whose samples are damaged; the median stands for samples that are not there.

    Args:
        good: the rows of the groups that are ok.
        medians: the median of each row in seconds, or NaN.
        blobs: the packed samples of each row, or None.
    """
    has_median = (~np.isnan(medians)).tolist()
    rows = [row for row in good.tolist() if blobs[row] is not None or has_median[row]]
    at = np.array(rows, np.int64)
    packed = [blob for row in rows if (blob := blobs[row]) is not None]
    if packed and len(packed) == len(rows):
        with suppress(*DAMAGED):  # by some blob, so unpack each alone
            samples, lengths = unpack_together(packed)
            return (at, lengths, samples), []
    parts: list[Any] = []
    damaged = []
    for row in rows:
        blob = blobs[row]
        parts.append([medians[row]] if has_median[row] else [])
        if blob is not None:
            try:
                parts[-1] = unpack_array(blob)
            except DAMAGED:
                damaged.append(row)
    values = np.concatenate(parts, dtype=np.float64) if parts else np.empty(0)
    return (at, np.array(list(map(len, parts)), np.int64), values), damaged


def _alone(rows: Ints, values: NDArray[np.float64]) -> _MetricValues:
    """Return the values of a metric of which each row has one."""
    return rows, np.ones(rows.size, np.int64), values


def _named(
    connection: Connection,
    ids: Ints,
    is_good: NDArray[np.bool_],
    metrics: Collection[str] | None,
    measured: Collection[ColumnElement[bool]],
) -> Iterator[tuple[str, _MetricValues]]:
    """Yield each named metric.

    Args:
        connection: a transaction.
        ids: the measurement of each row.
        is_good: whether every replica of the group of a row is ok.
        metrics: the names of the metrics; None for all that verdicts judge.
        measured: conditions on the measurements; without any, the metrics of all measurements of the run are read.
    """
    query = _named_metrics(metrics)
    if measured:
        query = query.join(Measurements, Measurements.id == Metrics.measurement_id).where(*measured)
    else:  # the measurements of a run are almost all those between the first and the last
        query = query.where(Metrics.measurement_id.between(int(ids.min()), int(ids.max())))
    with connection.execute(query) as result:
        rows = result.cursor.fetchall()
    if not rows:
        return
    measurements, names_of_rows, stored_values = zip(*rows, strict=True)
    names = sorted(set(names_of_rows))
    code, values = np.array(list(map(names.index, names_of_rows))), numbers(stored_values)
    by_id = np.argsort(ids)
    at = by_id[np.searchsorted(ids, measurements, sorter=by_id).clip(max=by_id.size - 1)]
    order = np.lexsort((at, code))
    order = order[((ids[at] == measurements) & is_good[at] & ~np.isnan(values))[order]]
    for number, name in enumerate(names):
        of_name = order[code[order] == number]
        yield name, _alone(at[of_name], values[of_name])
