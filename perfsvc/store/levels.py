"""Levels: what each ended run says about each series.

``write_levels`` computes the levels of a run from its measurements, in the transaction that ends, imports, receives,
copies or rebuilds the run. Verdicts, exclusions and pruning change columns of levels, each in a module of its own.
Comparisons and histories read levels alone: only they are small enough to read years of them. Pages also read the
samples of the newest runs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, or_, select, update
from sqlalchemy import case as sql_case

from perfsvc import judge
from perfsvc.model import MAX_ERROR, TIME, UNJUDGED, Noise, Series, Status
from perfsvc.model.levels import LevelColumns, SideColumns
from perfsvc.store.cases import SeriesKey, put_series_rows, reason_of_exclusion, reasons_of_exclusion
from perfsvc.store.rows import SeriesHistory
from perfsvc.store.run_devices import write_run_devices
from perfsvc.store.schema.column_types import damaged, number
from perfsvc.store.schema.engine import among
from perfsvc.store.schema.samples import readable_samples
from perfsvc.store.schema.tables import Cases, Devices, Environments, Levels, Measurements, Metrics, SeriesRows

_VALUE = np.dtype("<f8")
ROWS_AT_ONCE = 20_000
"""How many rows are held as Python objects until they become arrays."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


# --- writing ----------------------------------------------------------------------------------------------------------


def write_levels(connection: Connection, run: int) -> dict[int, str]:
    """Compute the levels of a run from its measurements, and store them; return what was stored otherwise, by series.

    What the run measured on each device is stored too (``write_run_devices``). Verdicts stay. Of measurements whose
    samples were removed or are damaged, the stored level keeps what only samples show.
    """
    write_run_devices(connection, run)
    found = _packed(_computed(connection, run))
    ids = put_series_rows(connection, found)
    excluded = reasons_of_exclusion(connection, [run])
    query = select(Levels, SeriesRows.case_id).join(SeriesRows, SeriesRows.id == Levels.series_id)
    found_rows = [dict(row) for row in connection.execute(query.where(Levels.run_id == run)).mappings()]
    case_of = {row["series_id"]: row.pop("case_id") for row in found_rows}
    stored = {row["series_id"]: row for row in found_rows}
    unmeasured = dict.fromkeys(_MEASURED) | {"reason": ""}
    rows = {number: dict(unmeasured) for number, before in stored.items() if before["verdict"]}
    for key, level in found.items():
        rows[ids[key]] = dict(level)
        case_of[ids[key]] = key.case
    for series, row in rows.items():
        row["excluded"] = reason_of_exclusion(excluded, run, case_of[series]) or None
        if row.pop("lacks_samples", False) and (before := stored.get(series)):
            kept = _OF_SAMPLES if before["medians"] == row["medians"] else ()
            row.update({name: before[name] for name in kept})
    changes: dict[int, str] = {}
    for series in sorted(rows.keys() | stored.keys()):
        before, after = stored.get(series), rows.get(series)
        others = [name for name, value in (after or {}).items() if before and before[name] != value]
        if before is None or after is None or others:
            changes[series] = "was missing" if before is None else "belongs to no measurement"
            if others:
                changes[series] = f"stored otherwise: {', '.join(others)}"
    if changes:
        connection.execute(delete(Levels).where(Levels.run_id == run, among(Levels.series_id, changes)))
        verdicts = dict.fromkeys(VERDICT)
        new = [
            {"run_id": run, "series_id": series, **verdicts, **stored.get(series, {}), **rows[series]}
            for series in changes
            if series in rows
        ]
        if new:
            connection.execute(insert(Levels), new)
    return changes


VERDICT = (
    *("verdict", "verdict_reason", "ratio", "low", "high", "baseline_run_id", "baseline_s", "smallest"),
    *("baseline_replicas", "baseline_runs", "between_nights", "cause"),
)
"""The columns of the verdict on a level."""

_OF_SAMPLES = (
    *("spread", "step_s", "noise_within", "noise_between", "noise_places", "lowest_place_s", "highest_place_s"),
)
"""What of a level only samples show."""
_MEASURED = (
    "status",
    "environment_id",
    "binary_id",
    "python_code_id",
    "medians",
    "level",
    "level_low",
    "level_high",
    *_OF_SAMPLES,
)
"""What of a level measurements show, besides its reason."""


def note_exclusions(connection: Connection, run: int) -> None:
    """Store in the levels of a run why they are excluded from judging, or that they are not."""
    reasons = reasons_of_exclusion(connection, [run])
    connection.execute(update(Levels).where(Levels.run_id == run).values(excluded=reasons.get((run, None))))
    for (_, case), reason in reasons.items():
        if case is not None and (run, None) not in reasons:
            of_case = select(SeriesRows.id).where(SeriesRows.case_id == case)
            is_case = (Levels.run_id == run, Levels.series_id.in_(of_case))
            connection.execute(update(Levels).where(*is_case).values(excluded=reason))


def _packed(levels: Iterable[tuple[SeriesKey, dict[str, Any]]]) -> dict[SeriesKey, dict[str, Any]]:
    """Return levels with their medians as blobs, and the number and the interval of each, computed together."""
    found = dict(levels)
    medians = [np.asarray(level["medians"], _VALUE) for level in found.values()]
    sizes = np.array(list(map(len, medians)), np.int64)
    values = SideColumns.of(sizes, np.concatenate(medians) if medians else np.empty(0)).medians
    ends = zip(*(end.tolist() for end in judge.levels_of(values)), strict=True)
    for level, of_replicas, (center, low, high) in zip(found.values(), medians, ends, strict=True):
        level["medians"] = of_replicas.tobytes() or None
        level["level"] = _finite(center)
        if of_replicas.size > 1:
            level["level_low"], level["level_high"] = _finite(low), _finite(high)
    return found


def _computed(connection: Connection, run: int) -> Iterator[tuple[SeriesKey, dict[str, Any]]]:
    """Yield the columns of the level of each series of a run, with the medians as numbers."""
    metrics = _named_metrics(connection, run)
    for (case, device, cache), group in groupby(_measured(connection, run), lambda row: row[:3]):
        replicas = list(group)
        time = SeriesKey(case, device, TIME, cache)
        samples = [None if row.samples is None else readable_samples(row.samples, row.name) for row in replicas]
        noise = _noise(replicas, samples)
        lacks = any(of is None and row.sample_count for row, of in zip(replicas, samples, strict=True))
        lacking = {"lacks_samples": True} if lacks else {}
        worst = max(replicas, key=lambda row: row.status.severity)
        if worst.status is not Status.OK:
            yield time, _row(replicas, worst.status, worst.reason, noise=noise) | lacking
            continue
        times = [
            (row.median_s, (row.median_s,) if of is None or not len(of) else of)
            for row, of in zip(replicas, samples, strict=True)
            if row.median_s is not None
        ]
        if times:
            level = judge.level_of_samples([of for _, of in times])
            ends = (replicas[0].low_s, replicas[0].high_s) if len(times) == 1 else (None, None)
            numbers = (*ends, level.spread, level.step)
            yield time, _row(replicas, values=[median for median, _ in times], numbers=numbers, noise=noise) | lacking
        of_metrics: dict[str, list[float]] = defaultdict(list)
        for row in replicas:
            for name, value in metrics.get(row.id, ()):
                of_metrics[name].append(value)
        if errors := [row.max_error for row in replicas if row.max_error is not None]:
            of_metrics[MAX_ERROR] = errors
        for name, of_replicas in of_metrics.items():
            yield SeriesKey(case, device, name, cache), _row(replicas, values=of_replicas)


def _measured(connection: Connection, run: int) -> Sequence[Any]:
    """Return the measurements of a run, by case, device and cache state, without rows that refer to nothing."""
    query = (
        select(Measurements.case_id, Measurements.device_id, Measurements.cache, Measurements.id)
        .add_columns(Measurements.status, Measurements.reason, Measurements.environment_id)
        .add_columns(Measurements.binary_id, Measurements.python_code_id)
        .add_columns(Measurements.median_s, Measurements.low_s, Measurements.high_s, Measurements.max_error)
        .add_columns(Measurements.sample_count, Measurements.samples, Measurements.place_medians, Cases.name)
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Devices, Devices.id == Measurements.device_id)
        .join(Environments, Environments.id == Measurements.environment_id)
        .where(Measurements.run_id == run)
        .order_by(Measurements.case_id, Measurements.device_id, Measurements.cache, Measurements.replica)
    )
    return connection.execute(query).all()


def _named_metrics(connection: Connection, run: int) -> Mapping[int, Sequence[tuple[str, float]]]:
    """Return the named metrics of a run that are judged, by measurement."""
    query = (
        select(Metrics.measurement_id, Metrics.name, Metrics.value)
        .join(Measurements, Measurements.id == Metrics.measurement_id)
        .where(Measurements.run_id == run, Metrics.name.not_in(UNJUDGED), Metrics.value.is_not(None))
        .order_by(Metrics.measurement_id, Metrics.name)
    )
    metrics: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for measurement, name, value in connection.execute(query):
        if value is not None:  # a damaged number is read as None
            metrics[measurement].append((name, value))
    return metrics


def _noise(replicas: Iterable[Any], samples: Iterable[Any]) -> Noise:
    """Return the noise of a case's times from its correct replicas."""
    timed = [
        (values, row)
        for row, values in zip(replicas, samples, strict=True)
        if row.status is Status.OK and values is not None and len(values) and np.isfinite(values).all()
    ]
    if not timed or not all((values > 0).all() for values, _ in timed):
        return Noise(None, None)
    blobs = [(row.place_medians, row.name) for _, row in timed]
    places = [() if blob is None else readable_samples(blob, name) for blob, name in blobs]
    return judge.noise_of([values for values, _ in timed], [() if of is None else of for of in places])


def _row(
    replicas: Sequence[Any],
    status: Status = Status.OK,
    reason: str = "",
    *,
    values: Sequence[float] = (),
    numbers: tuple[float | None, ...] = (None, None, None, None),
    noise: Noise = Noise(None, None),  # noqa: B008 - it cannot be changed
) -> dict[str, Any]:
    """Return the columns of a level that do not name its run and series.

    Args:
        replicas: its replicas.
        status: the status of the worst replica.
        reason: its reason.
        values: ``Level.medians``.
        numbers: the interval of a single replica, ``Level.spread`` and ``Level.step``.
        noise: the noise of a time.
    """
    first = replicas[0]
    has_one = len({row.environment_id for row in replicas}) == 1
    binaries, codes = ({getattr(row, name) for row in replicas} for name in ("binary_id", "python_code_id"))
    low, high, spread, step_s = map(_finite, numbers)
    return {
        "status": status,
        "reason": reason,
        "environment_id": first.environment_id,
        "binary_id": first.binary_id if has_one and len(binaries) == 1 else None,
        "python_code_id": first.python_code_id if has_one and len(codes) == 1 else None,
        "medians": values,
        "level_low": low,
        "level_high": high,
        "spread": spread,
        "step_s": step_s,
        "noise_within": number(noise.within),
        "noise_between": number(noise.between),
        "noise_places": number(noise.places),
        "lowest_place_s": number(noise.lowest_place_s),
        "highest_place_s": number(noise.highest_place_s),
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else value


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredLevels:
    """Levels of any series in any runs, as columns; each array has a row for each level.

    Attributes:
        runs: the run of each level.
        series: the id of its series.
        sides: its replicas.
        bad: the status and the reason of each level that is not ok, by row.
    """

    runs: Ints
    series: Ints
    sides: SideColumns
    bad: Mapping[int, tuple[Status, str]]

    def values(self, row: int) -> tuple[float, ...]:
        """Return the value of each replica of a level."""
        return tuple(self.sides.medians[row, : self.sides.sizes[row]].tolist())

    def columns(self, series: Mapping[int, Series], rows: NDArray[np.bool_]) -> LevelColumns:
        """Return some of the levels, which are all of one series each, in the order of ``series``.

        Args:
            series: the series by their id; levels of others are left out.
            rows: True for each level that is returned.
        """
        place = {number: at for at, number in enumerate(series)}
        chosen = [row for row in np.flatnonzero(rows).tolist() if int(self.series[row]) in place]
        chosen.sort(key=lambda row: place[int(self.series[row])])
        return LevelColumns(
            [series[number] for number in self.series[chosen].tolist()],
            self.runs[chosen],
            {at: self.bad[row] for at, row in enumerate(chosen) if row in self.bad} if self.bad else {},
            self.sides.where(np.array(chosen, np.intp)),
            {},
        )


def replicas_in(medians: bytes | None) -> int:
    """Return how many replicas a level with these medians has."""
    return len(medians or b"") // _VALUE.itemsize


def read_levels(connection: Connection, *where: ColumnElement[bool]) -> StoredLevels:
    """Return the levels that meet some conditions, as comparisons need them."""
    keys, numbers, medians = _read(connection, where, (Levels.spread, Levels.step_s), with_medians=True)
    bad, _ = _odd(connection, where, keys)
    steps = np.where(np.isnan(numbers[1]), np.inf, numbers[1])
    sides = SideColumns(medians.sizes, medians.medians, np.nan_to_num(numbers[0]), steps)
    return StoredLevels(keys[0], keys[1], sides, bad)


def read_histories(
    connection: Connection, series: Mapping[int, Series], *where: ColumnElement[bool], positive: bool = False
) -> dict[Series, SeriesHistory]:
    """Return the history of each series in the levels that meet some conditions, the series measured first at first.

    Args:
        connection: a transaction.
        series: the series by their id; levels of others are left out.
        where: the conditions.
        positive: whether a level counts only if all its replicas are above 0; else its number is NaN.
    """
    columns = (Levels.environment_id, Levels.level, Levels.level_low, Levels.level_high, func.length(Levels.medians))
    keys, numbers, medians = _read(connection, where, columns, with_medians=positive)
    bad, excluded = _odd(connection, where, keys)
    runs, ids, _ = keys
    segments, level, low, high, sizes = numbers
    if positive:
        level = np.where((medians.medians <= 0).any(axis=1), np.nan, level)
    replicas = np.nan_to_num(sizes).astype(np.int64) // _VALUE.itemsize
    order = np.lexsort((runs, ids))
    found, begins = np.unique(ids[order], return_index=True)
    rows_of = dict(zip(found.tolist(), np.split(order, begins[1:]), strict=False))  # no level is one empty part
    rank = {of: at for at, of in enumerate(series)}
    known = [of for of in rows_of if of in rank]
    known.sort(key=lambda of: (int(runs[rows_of[of][0]]), rank[of]))
    odd = bad.keys() | excluded.keys()
    histories = {}
    for of in known:
        rows = rows_of[of]
        of_rows = [(at, row) for at, row in enumerate(rows.tolist()) if row in odd] if odd else []
        histories[series[of]] = SeriesHistory(
            runs[rows],
            segments[rows].astype(np.int64),
            level[rows],
            low[rows],
            high[rows],
            replicas[rows],
            {at: bad[row] for at, row in of_rows if row in bad},
            {at: excluded[row] for at, row in of_rows if row in excluded},
        )
    return histories


_IS_ODD = or_(Levels.status != Status.OK, Levels.excluded.is_not(None))


def _read(
    connection: Connection,
    where: Sequence[ColumnElement[bool]],
    columns: Sequence[ColumnElement[Any]],
    *,
    with_medians: bool,
) -> tuple[Ints, Floats, SideColumns]:
    """Return columns of numbers of the levels that meet some conditions, shape (columns, levels).

    The first result has the run, the series, and 1 for levels with a status or an exclusion to read; the last one has
    the medians of the replicas, or none.
    """
    query: Select[Any] = select(Levels.run_id, Levels.series_id, sql_case((_IS_ODD, 1), else_=0), *columns)
    if with_medians:
        query = query.add_columns(Levels.medians)
    tables, blobs = [np.empty((3 + len(columns), 0))], list[bytes]()
    with connection.execute(query.where(Levels.status.is_not(None), *where)) as result:
        # SQLAlchemy would make an object of each row, which takes longer than reading the row.
        while rows := result.cursor.fetchmany(ROWS_AT_ONCE):
            found = list(zip(*rows, strict=True))
            if with_medians:
                blobs += [blob or b"" for blob in found.pop()]
            tables.append(np.array(found, np.float64))
    table = np.concatenate(tables, axis=1)
    lengths = np.array(list(map(len, blobs)), np.int64)
    if (lengths % _VALUE.itemsize).any():
        at = int(np.flatnonzero(lengths % _VALUE.itemsize)[0])
        raise damaged(f"the level of series {table[1, at]:.0f} in run {table[0, at]:.0f}")
    sizes = lengths // _VALUE.itemsize
    return table[:3].astype(np.int64), table[3:], SideColumns.of(sizes, np.frombuffer(b"".join(blobs), _VALUE))


def _odd(
    connection: Connection, where: Sequence[ColumnElement[bool]], keys: Ints
) -> tuple[dict[int, tuple[Status, str]], dict[int, str]]:
    """Return why levels are not ok, and why levels are excluded, by their row in what ``_read`` returned."""
    bad: dict[int, tuple[Status, str]] = {}
    excluded: dict[int, str] = {}
    place = {(int(keys[0, at]), int(keys[1, at])): at for at in np.flatnonzero(keys[2]).tolist()}
    query = select(Levels.run_id, Levels.series_id, Levels.status, Levels.reason, Levels.excluded)
    rows: Iterable[Any] = connection.execute(query.where(_IS_ODD, Levels.status.is_not(None), *where)) if place else ()
    for run, series, status, reason, exclusion in rows:
        if status is not Status.OK:
            bad[place[run, series]] = status, reason
        if exclusion is not None:
            excluded[place[run, series]] = exclusion
    return bad, excluded
