"""Histories of series over runs, read as columns: a year of nights has millions of measurements."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Select, func, literal_column, or_, select
from sqlalchemy import case as sql_case

from perfsvc.model import MAX_ERROR, TIME, UNJUDGED, CacheState, Series, Status
from perfsvc.store.cases import Names, reason_of_exclusion, reasons_of_exclusion
from perfsvc.store.rows import SeriesHistory
from perfsvc.store.schema.engine import Database, among
from perfsvc.store.schema.kept_columns import Reading, by_run, columns_by_run, joined
from perfsvc.store.schema.newest_rows import newest_rows, places
from perfsvc.store.schema.shared_reading import ROWS_AT_ONCE, Columns, numbers, read_columns, read_together, shares
from perfsvc.store.schema.tables import Cases, Devices, Environments, Measurements, Metrics

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_RANGES, LEAST_GAP = 100, 1_000
"""At most how many ranges of ids a query names, and how many unwanted ids are read rather than named."""

_STATES = tuple(CacheState)
_WIDTH = 12
"""How many columns ``_rows_of`` has with the errors; the four of ``_named_metrics`` follow in files."""


def histories(
    connection: Connection,
    runs: Collection[int],
    *where: ColumnElement[bool],
    errors: bool = False,
    names: Names | None = None,
) -> dict[Series, SeriesHistory]:
    """Return the history over some runs of every series whose metric is judged.

    If a replica of a case is not ok in a run, only the time of this case is present in this run, without values.

    Args:
        connection: a transaction.
        runs: the runs.
        where: conditions that limit the measurements.
        errors: whether to return the errors of results too.
        names: makes the series; None to read all names.
    """
    measured = (among(Measurements.run_id, runs), *where)
    rows = _Rows.of(_read_rows(connection, _rows_of(*measured, errors=errors)), errors=errors)
    query = _named_metrics().join(Measurements, Measurements.id == Metrics.measurement_id).where(*measured)
    return _split_by_series(connection, measured, rows, [_read_named(connection, query)], names)


def all_histories(
    database: Database, runs: Sequence[int], *, errors: bool = False, judged: bool = False, newest: int | None = None
) -> dict[Series, SeriesHistory]:
    """Return the same as ``histories`` of all cases; what runs measured that have ended is kept in files.

    Several processes read the measurements of many runs. With ``judged``, excluded data is left out. With
    ``newest``, histories may lack older points than so many.
    """
    parts = columns_by_run(database, sorted(runs), _reading(database))
    if newest is not None:
        parts = newest_rows(parts, newest)
    if not parts:
        return {}
    columns: Columns = joined([part[:_WIDTH] for part in parts])
    with database.reading() as connection:
        columns = of_stored_cases(connection, columns, 2)
        if judged:
            columns = _of_judged(connection, columns)
        rows = _Rows.of(columns, errors=errors)
        named = [part[_WIDTH:] for part in parts]
        return _split_by_series(connection, (among(Measurements.run_id, np.unique(rows.runs).tolist()),), rows, named)


def _reading(database: Database) -> Reading:
    """Return how the measurements and the named metrics of runs are read: the columns of both, one after the other."""
    queries = (_rows_of(Measurements.run_id.in_([0]), errors=True), _named_metrics())
    ids = {2: Cases, 3: Devices, 6: Environments}
    return Reading("histories", queries, ids, partial(_read_runs, database))


def _read_runs(database: Database, runs: Sequence[int]) -> dict[int, Columns]:
    """Return the measurements and the named metrics of each run that measured anything."""
    parts = shares(runs)
    queries = [_rows_of(among(Measurements.run_id, part), errors=True) for part in parts]
    columns = joined(read_together(database, queries, _read_rows))
    if not columns[0].size:
        return {}
    by_id = np.argsort(columns[0])
    ids, run_of = columns[0][by_id], columns[1][by_id]
    named = [_named_metrics().where(condition) for condition in _ranges(ids, len(parts))]
    known, code, values, names = _joined_names(read_together(database, named, _read_named))
    at = np.searchsorted(ids, known).clip(max=ids.size - 1)
    # Other runs have measurements between these, and on PostgreSQL some may have been stored after the first query.
    own = ids[at] == known
    metrics = by_run([known[own], code[own], values[own]], run_of[at[own]])
    text = np.frombuffer(json.dumps(names).encode(), np.uint8)
    none = [np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)]
    return {run: [*of_run, *metrics.get(run, none), text] for run, of_run in by_run(columns, columns[1]).items()}


def _ranges(ids: Ints, count: int) -> list[ColumnElement[bool]]:
    """Return conditions that hold for the metrics of all measurements, each for about as many of them.

    Args:
        ids: the ids of the measurements, in order. The measurements of consecutive runs are almost all those between
            the first and the last, so that a condition has few ranges of ids.
        count: how many conditions.
    """
    conditions = []
    for part in np.array_split(ids, min(count, ids.size)):
        gaps = np.diff(part)
        cuts = np.flatnonzero(gaps > LEAST_GAP)
        largest = np.sort(cuts[np.argsort(gaps[cuts])][1 - MOST_RANGES :])
        ranges = [(int(each[0]), int(each[-1])) for each in np.split(part, largest + 1)]
        conditions.append(or_(*(Metrics.measurement_id.between(first, last) for first, last in ranges)))
    return conditions


def _of_judged(connection: Connection, columns: Columns) -> Columns:
    """Return the columns of measurements without those that are excluded from judging."""
    runs, cases = columns[1], columns[2]
    is_judged = np.ones(runs.size, np.bool_)
    for run, case in reasons_of_exclusion(connection, np.unique(runs).tolist()):
        is_judged &= (runs != run) if case is None else (runs != run) | (cases != case)
    return [column[is_judged] for column in columns]


def _split_by_series(
    connection: Connection,
    measured: Collection[ColumnElement[bool]],
    rows: "_Rows",
    named: Sequence[Columns],
    names: Names | None = None,
) -> dict[Series, SeriesHistory]:
    """Return the history of each series from the measurements and the named metrics of some runs."""
    if not rows.ids.size:
        return {}
    names = names or Names(connection)
    bad = _bad_replicas(connection, rows, measured)
    excluded = _excluded(connection, rows)
    found: dict[tuple[int, str], SeriesHistory] = {}
    for metric, at, values in _metrics(rows, named):
        for group, history in _split(rows, at, values, excluded, bad if metric == TIME else None):
            found[group, metric] = history
    result: dict[Series, SeriesHistory] = {}
    for (group, metric), history in sorted(found.items(), key=lambda item: rows.order[item[0][0]]):
        case, device, state = (int(column[rows.first_of_group[group]]) for column in rows.identity)
        if series := names.series(case, device, metric, _STATES[state]):
            result[series] = history
    return result


def measured(connection: Connection, run: int) -> set[Series]:
    """Return the series of ``histories`` of one run; the values are not read, so this is faster than ``histories``."""
    of_run = Measurements.run_id == run
    is_ok = sql_case({Status.OK: literal_column("1")}, value=Measurements.status, else_=literal_column("0"))
    identity = (Measurements.case_id, Measurements.device_id, Measurements.cache)
    cells = connection.execute(
        select(*identity, func.min(is_ok), func.count(Measurements.median_s))
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Devices, Devices.id == Measurements.device_id)  # leaves a row with a damaged device out
        .where(of_run)
        .group_by(*identity)
        .order_by(*identity)
    ).all()
    named = (
        select(*identity, Metrics.name)
        .join(Measurements, Measurements.id == Metrics.measurement_id)
        .where(of_run, Metrics.name.not_in(UNJUDGED), Metrics.value.is_not(None))
        .distinct()
    )
    metrics: dict[tuple[int, int, CacheState], list[str]] = defaultdict(list)
    for case, device, cache, metric in connection.execute(named).all():
        metrics[case, device, cache].append(metric)
    names = Names(connection)
    found: set[Series] = set()
    for case, device, cache, all_ok, times in cells:
        of_cell = [TIME] if times or not all_ok else []
        of_cell += metrics[case, device, cache] if all_ok else []
        series = (names.series(case, device, metric, cache) for metric in of_cell)
        found |= {each for each in series if each is not None}
    return found


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rows:
    """Measurements as columns, sorted by case, device, cache state, run and replica.

    A group is what one series measured in all runs; a cell is what it measured in one run.

    Attributes:
        identity: case, device and cache state of each row.
        group: the group of each row, from 0.
        cell: the cell of each row, from 0.
        first_of_group: the first row of each group.
        first_of_cell: the first row of each cell.
        errors: the errors of results; empty if they are not asked for.
        order: the place of each group in the order of runs, cases and devices.
        ok: whether all replicas of a cell are ok.
    """

    ids: Ints
    runs: Ints
    cases: Ints
    environments: Ints
    medians: Floats
    lows: Floats
    highs: Floats
    errors: Floats
    identity: tuple[Ints, Ints, Ints]
    group: Ints
    cell: Ints
    first_of_group: Ints
    first_of_cell: Ints
    order: Ints
    ok: NDArray[np.bool_]

    @classmethod
    def of(cls, columns: Columns, *, errors: bool) -> "_Rows":
        """Sort and group the columns of measurements as ``_read_rows`` returns them."""
        ids, runs, cases, devices, states, replicas, environments, ok, medians, lows, highs, *max_errors = columns
        in_order = np.lexsort((replicas, runs, states, devices, cases))
        identity = cases[in_order], devices[in_order], states[in_order]
        new_group = changes(*identity)
        new_cell = new_group | changes(runs[in_order])
        first_of_group, first_of_cell = np.flatnonzero(new_group), np.flatnonzero(new_cell)
        first_cases, first_devices, first_states = (column[first_of_group] for column in identity)
        by_run = np.lexsort((first_states, first_devices, first_cases, runs[in_order][first_of_group]))
        order = np.empty_like(by_run)
        order[by_run] = np.arange(by_run.size)
        return cls(
            ids=ids[in_order],
            runs=runs[in_order],
            cases=identity[0],
            environments=environments[in_order],
            medians=medians[in_order],
            lows=lows[in_order],
            highs=highs[in_order],
            errors=max_errors[0][in_order] if errors else np.empty(0),
            identity=identity,
            group=np.cumsum(new_group) - 1,
            cell=np.cumsum(new_cell) - 1,
            first_of_group=first_of_group,
            first_of_cell=first_of_cell,
            order=order,
            ok=np.logical_and.reduceat(ok[in_order] == 1, first_of_cell) if ids.size else np.empty(0, np.bool_),
        )


def _rows_of(*measured: ColumnElement[bool], errors: bool) -> Select[Any]:
    """Return the query of the measurements that fulfil some conditions."""
    state = sql_case({state: literal_column(str(at)) for at, state in enumerate(_STATES)}, value=Measurements.cache)
    is_ok = sql_case({Status.OK: literal_column("1")}, value=Measurements.status, else_=literal_column("0"))
    return select(
        Measurements.id,
        Measurements.run_id,
        Measurements.case_id,
        Measurements.device_id,
        state,
        Measurements.replica,
        Measurements.environment_id,
        is_ok,
        Measurements.median_s,
        Measurements.low_s,
        Measurements.high_s,
        *([Measurements.max_error] if errors else []),
    ).where(*measured)


def _named_metrics() -> Any:
    """Return the query of the named metrics that are judged."""
    return select(Metrics.measurement_id, Metrics.name, Metrics.value).where(
        Metrics.name.not_in(UNJUDGED), Metrics.value.is_not(None)
    )


def _read_rows(connection: Connection, query: Select[Any]) -> Columns:
    return read_columns(connection, query, "iiiiiiii" + "f" * (len(query.selected_columns) - 8))


def _read_named(connection: Connection, query: Select[Any]) -> Columns:
    """Return named metrics as columns: measurement, index of the name, value, and the names as encoded JSON."""
    code_of: dict[str, int] = defaultdict(count().__next__)  # each metric gets the next number
    empty: Any = np.empty(0)
    parts = [(empty, empty, empty)]
    with connection.execute(query) as result:
        while some := result.cursor.fetchmany(ROWS_AT_ONCE):
            ids, names, values_of_names = zip(*some, strict=True)
            coded = np.fromiter(map(code_of.__getitem__, names), np.int64, len(some))
            known, values = numbers(ids), numbers(values_of_names)
            readable = ~(np.isnan(known) | np.isnan(values))
            parts.append((known[readable], coded[readable], values[readable]))
    known, code, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    return (
        known.astype(np.int64),
        code.astype(np.int64),
        values,
        np.frombuffer(json.dumps(list(code_of)).encode(), np.uint8),
    )


def of_stored_cases(connection: Connection, columns: Columns, cases_at: int) -> Columns:
    """Return the columns without the rows whose case was deleted since another transaction read them.

    Args:
        connection: a transaction.
        columns: the columns.
        cases_at: which of the columns has the ids of the cases.
    """
    stored = np.isin(columns[cases_at], list(connection.scalars(select(Cases.id))))
    return columns if stored.all() else [column[stored] for column in columns]


def changes(*columns: Ints) -> NDArray[np.bool_]:
    """Return whether each row differs from the row before in any of the columns; True for the first row."""
    changes = np.ones(columns[0].size, np.bool_)
    changes[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return changes


def _bad_replicas(
    connection: Connection, rows: _Rows, measured: Collection[ColumnElement[bool]]
) -> Mapping[int, tuple[Status, str]]:
    """Return the status and the reason of the worst replica of each cell that is not ok."""
    if rows.ok.all():
        return {}
    query = select(Measurements.id, Measurements.status, Measurements.reason).where(
        *measured, Measurements.status != Status.OK
    )
    reasons = {number: (status, reason) for number, status, reason in connection.execute(query)}
    bad: dict[int, tuple[Status, str]] = {}
    for row in np.flatnonzero(~rows.ok[rows.cell]).tolist():
        replica, cell = reasons.get(int(rows.ids[row])), int(rows.cell[row])
        if replica and (cell not in bad or replica[0].severity > bad[cell][0].severity):
            bad[cell] = replica
    return bad


def _excluded(connection: Connection, rows: _Rows) -> Mapping[int, str]:
    """Return why each excluded cell is excluded."""
    reasons = reasons_of_exclusion(connection, np.unique(rows.runs).tolist())
    cells = np.flatnonzero(np.isin(rows.runs[rows.first_of_cell], [run for run, _ in reasons]))
    firsts = {cell: rows.first_of_cell[cell] for cell in cells.tolist()}
    found = {
        cell: reason_of_exclusion(reasons, int(rows.runs[row]), int(rows.cases[row])) for cell, row in firsts.items()
    }
    return {cell: why for cell, why in found.items() if why}


def _metrics(rows: _Rows, named: Sequence[Columns]) -> Iterator[tuple[str, Ints, Floats]]:
    """Yield each metric with the rows that measured it, in order, and their values.

    Args:
        rows: the measurements.
        named: parts of the named metrics as ``_read_named`` returns them; others' metrics are left out.
    """
    ok = rows.ok[rows.cell]
    yield TIME, *_known(np.arange(rows.ids.size), np.where(ok, rows.medians, np.nan))
    known, code, values, names = _joined_names(named)
    at = places(rows.ids, known)
    # On PostgreSQL, this query may see measurements that were stored after the first query.
    wanted = ok[at] & (rows.ids[at] == known)
    at, code, values = at[wanted], code[wanted], values[wanted]
    in_order = np.lexsort((at, code))
    at, code, values = at[in_order], code[in_order], values[in_order]
    edges = np.searchsorted(code, np.arange(len(names) + 1))
    for metric, (begin, end) in sorted(zip(names, pairwise(edges.tolist()), strict=True)):
        yield metric, at[begin:end], values[begin:end]
    if rows.errors.size:
        yield MAX_ERROR, *_known(np.arange(rows.ids.size), np.where(ok, rows.errors, np.nan))


def _joined_names(parts: Sequence[Columns]) -> tuple[Ints, Ints, Floats, list[str]]:
    """Return parts of named metrics as one: measurement, index of the name, value, and the names."""
    code_of: dict[str, int] = defaultdict(count().__next__)  # each metric gets the next number
    coded = []
    for known, code, values, names in parts:
        same = np.array([code_of[name] for name in json.loads(names.tobytes())], np.int64)
        coded.append((known, same[code], values))
    known, code, values = joined(coded)
    return known, code, values, list(code_of)


def _known(at: Ints, values: Floats) -> tuple[Ints, Floats]:
    """Return the rows that have a value, and their values."""
    known = ~np.isnan(values)
    return at[known], values[known]


# --- splitting -------------------------------------------------------------------------------------------------------


def _split(
    rows: _Rows, at: Ints, values: Floats, excluded: Mapping[int, str], bad: Mapping[int, tuple[Status, str]] | None
) -> Iterator[tuple[int, SeriesHistory]]:
    """Yield the history of each group that measured a metric.

    Args:
        rows: the measurements.
        at: the rows that have a value, in order.
        values: their values.
        excluded: why cells are excluded.
        bad: the cells that are not ok, which belong to the times; None for another metric.
    """
    is_time = bad is not None
    shown = ~rows.ok if is_time else np.zeros(rows.ok.size, np.bool_)
    shown[rows.cell[at]] = True
    cells = np.flatnonzero(shown)
    if not cells.size:
        return
    of_value = np.searchsorted(cells, rows.cell[at])  # which of these cells each value belongs to
    counts = np.bincount(of_value, minlength=cells.size)
    ends = np.cumsum(counts)
    place = np.arange(at.size) - (ends - counts)[of_value]  # the place of each value in its cell
    first = rows.first_of_cell[cells]
    groups = rows.group[first]
    begins = np.flatnonzero(changes(groups))
    limits = [*begins.tolist(), cells.size]
    for begin, end in pairwise(limits):
        low, high = int(ends[begin] - counts[begin]), int(ends[end - 1])
        matrix = np.full((end - begin, max(int(counts[begin:end].max()), 1)), np.nan)
        matrix[of_value[low:high] - begin, place[low:high]] = values[low:high]
        firsts = first[begin:end]
        spoiled = {}
        why = {}
        if bad or excluded:
            numbers = cells[begin:end].tolist()
            spoiled = {index: bad[cell] for index, cell in enumerate(numbers) if bad and cell in bad}
            why = {index: excluded[cell] for index, cell in enumerate(numbers) if cell in excluded}
        yield (
            int(groups[begin]),
            SeriesHistory(
                rows.runs[firsts],
                rows.environments[firsts],
                matrix,
                rows.lows[firsts] if is_time else None,
                rows.highs[firsts] if is_time else None,
                spoiled,
                why,
            ),
        )
