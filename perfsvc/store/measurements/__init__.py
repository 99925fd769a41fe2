"""Measurements: store them, read them back, their noise, what they cost, and all columns for analysts.

Samples are stored as blobs: little-endian float32, compressed with zlib. A float32 keeps seven digits (a relative
rounding error of 6e-8 at most), far below what any clock resolves.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from statistics import fmean
from typing import Any

from sqlalchemy import CTE, ColumnElement, Connection, and_, func, insert, select, true

from perfsvc.keys import Keys
from perfsvc.model import TIME, CacheState, Case, Measurement, RunState, Series
from perfsvc.store.binaries import put_python_code
from perfsvc.store.cases import (
    CASE_COLUMNS,
    case_ids,
    case_of,
    device_ids,
    ids_of,
)
from perfsvc.store.measurements.batches import count_batches, measurement_columns
from perfsvc.store.measurements.columns import RowFilter, columns_of, further_of
from perfsvc.store.measurements.quantities import load_quantities
from perfsvc.store.rows import CaseCost, CaseQuantities, MeasurementEntry, StoredSamples
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.column_types import number
from perfsvc.store.schema.engine import StorePart, among, new_ids
from perfsvc.store.schema.environments import environment_id
from perfsvc.store.schema.samples import pack, readable_samples
from perfsvc.store.schema.tables import Cases, Devices, Levels, Measurements, Metrics, Runs, SeriesRows

NEWEST = 30
"""The measurements of a case on a device that are read: ten runs with three replicas, in one cache state. More would
change no plan."""


def costs_of(
    connection: Connection, cases: Iterable[Case], devices: Collection[str], before: int | None
) -> dict[tuple[str, str, CacheState], CaseCost]:
    """Return the cost and the noise of cases by device (UUID), case id and cache state; see ``CaseCost``."""
    ids = ids_of(connection, cases)
    newest = _newest(set(ids.values()), devices, before)
    measured = _measured(connection, newest, before)
    between = _between(connection, newest, before)
    found: dict[int, list[tuple[str, CacheState, CaseCost]]] = {case: [] for case in ids.values()}
    for place, past in measured.items():
        if past.walls_s:
            cost = CaseCost(fmean(past.walls_s), between.get(place), past.last, len(past.runs))
            found[place[0]].append((*place[1:], cost))
    return {(uuid, case.id, cache): cost for case, known in ids.items() for uuid, cache, cost in found[known]}


_Place = tuple[int, str, CacheState]
"""A case's id, a device's UUID, and a cache state."""


@dataclass(slots=True)
class _Past:
    """The newest measurements of a case on a device in a cache state.

    Attributes:
        last: when the last of them was made.
        runs: their runs.
        walls_s: the seconds of each replica in the newest run that has ended.
    """

    last: datetime
    runs: set[int] = field(default_factory=set)
    ended: int | None = None
    walls_s: list[float] = field(default_factory=list)

    def add(self, run: int, state: RunState, wall_s: float, measured_at: datetime) -> None:
        """Add a measurement; measurements come from the newest run to the oldest."""
        self.runs.add(run)
        self.last = max(self.last, measured_at)
        if self.ended is None and state in ENDED:
            self.ended = run
        if run == self.ended:
            self.walls_s.append(wall_s)


def _newest(cases: Collection[int], devices: Collection[str], before: int | None) -> CTE:
    """Return a query of the cases on each device, with the run of its ``NEWEST``-th newest measurement."""
    run = (
        select(Measurements.run_id)
        .where(Measurements.case_id == Cases.id, Measurements.device_id == Devices.id)
        .where(Measurements.wall_s > 0, *_earlier(Measurements, before))
        .order_by(Measurements.run_id.desc())
        .offset(NEWEST - 1)
        .limit(1)
        .scalar_subquery()
    )
    return (
        select(Cases.id.label("case_id"), Devices.id.label("device_id"), Devices.uuid)
        .add_columns(func.coalesce(run, 0).label("run_id"))
        .join(Devices, true())
        .where(among(Cases.id, cases), Devices.uuid.in_(devices))
        .cte()
        .prefix_with("MATERIALIZED")  # else SQLite computes the run again for every measurement of the case
    )


def _earlier(table: Any, before: int | None) -> tuple[ColumnElement[bool], ...]:
    return () if before is None else (table.run_id < before,)


def _measured(connection: Connection, newest: CTE, before: int | None) -> dict[_Place, _Past]:
    """Read the newest measurements; one that took no time is ignored: its case did not compile or was skipped."""
    query = (
        select(newest.c.case_id, newest.c.uuid, Measurements.cache, Measurements.run_id)
        .add_columns(Runs.state, Measurements.wall_s, Measurements.measured_at)
        .join(
            Measurements,
            and_(
                Measurements.case_id == newest.c.case_id,
                Measurements.device_id == newest.c.device_id,
                Measurements.run_id >= newest.c.run_id,
                *_earlier(Measurements, before),
            ),
        )
        .join(Runs, Runs.id == Measurements.run_id)
        .where(Measurements.wall_s > 0)
        .order_by(Measurements.run_id.desc())
    )
    measured: dict[_Place, _Past] = {}
    for case, uuid, cache, run, state, wall_s, measured_at in connection.execute(query):
        past = measured.setdefault((case, uuid, cache), _Past(measured_at))
        past.add(run, state, wall_s, measured_at)
    return measured


def _between(connection: Connection, newest: CTE, before: int | None) -> dict[_Place, float]:
    """Return the noise between replicas in the newest run that has such a value."""
    same = SeriesRows.case_id == newest.c.case_id, SeriesRows.device_id == newest.c.device_id, SeriesRows.metric == TIME
    query = (
        select(newest.c.case_id, newest.c.uuid, SeriesRows.cache, Levels.noise_between)
        .join(SeriesRows, and_(*same))
        .join(Levels, Levels.series_id == SeriesRows.id)
        .where(Levels.noise_between.is_not(None), Levels.run_id >= newest.c.run_id, *_earlier(Levels, before))
        .order_by(Levels.run_id)
    )
    return {(case, uuid, cache): between for case, uuid, cache, between in connection.execute(query)}


ROWS_AT_ONCE = 200
"""How many measurements a statement stores."""


class MeasurementStore(StorePart):
    """Measurements; each method is one transaction."""

    def put(self, run: int, entries: Sequence[MeasurementEntry]) -> None:
        """Store measurements of a run; once this returns, a crash of perfsvc loses none of them."""
        with self._database.writing() as connection:
            put_measurements(connection, run, entries, self._keys)

    def of_run(self, run: int) -> list[Measurement]:
        """Return a run's measurements in the order in which they were stored.

        Each measurement has its case, device, replica, cache state, status, reason, wall time and samples (rounded to
        float32).
        """
        query = (
            select(
                *CASE_COLUMNS,
                Devices.uuid,
                Measurements.replica,
                Measurements.cache,
                Measurements.status,
                Measurements.reason,
                Measurements.samples,
                Measurements.place_medians,
                Measurements.wall_s,
            )
            .join(Cases, Cases.id == Measurements.case_id)
            .join(Devices, Devices.id == Measurements.device_id)
            .where(Measurements.run_id == run)
            .order_by(Measurements.id)
        )
        with self._database.reading() as connection:
            return [
                Measurement(
                    case_of(row.benchmark, row.variant, row.point, row.version),
                    row.uuid,
                    row.replica,
                    row.status,
                    cache=row.cache,
                    reason=row.reason,
                    samples_s=_unpacked(row.samples, row.variant),
                    places_s=_unpacked(row.place_medians, row.variant),
                    wall_s=row.wall_s,
                )
                for row in connection.execute(query)
            ]

    def columns(
        self,
        runs: Sequence[int] | None = None,
        cases: Collection[str] | None = None,
        devices: Collection[str] | None = None,
        until: int | None = None,
    ) -> dict[str, list[Any]]:
        """Return the measurements of some runs, cases and devices, or of all, as equally long lists by column name.

        ``cases`` are ids as the runs had them; ``devices`` are UUIDs or models. Measurements with a larger id than
        ``until`` are left out.

        Besides the columns of the tables (docs/reference/database.md) there are:

        - ``axes``: a dict; ``metrics``: a dict of named values;
        - ``bandwidth_bytes_per_s`` and ``flops_per_s``: None if the work or the time is unknown;
        - ``peak`` and ``peak_share``: the measured peak of the device that the measurement comes nearest to, and its
          rate over this peak. The memory's peak is that of the run; the others are of the driver and power limit.
        - ``excluded``: why the measurement is excluded from judging; empty if it is judged.
        """
        with self._database.reading() as connection:
            return columns_of(connection, RowFilter(runs, cases, devices, until))

    def further(
        self,
        runs: Sequence[int] | None = None,
        cases: Collection[str] | None = None,
        devices: Collection[str] | None = None,
        until: int | None = None,
    ) -> tuple[list[dict[str, Any]], set[str]]:
        """Return the axes of each case in the rows of ``columns``, in their order, and the names of the metrics."""
        with self._database.reading() as connection:
            return further_of(connection, RowFilter(runs, cases, devices, until))

    def newest_id(self) -> int:
        """Return the id of the newest measurement, for ``until``; 0 if there is none."""
        with self._database.reading() as connection:
            return connection.scalar(select(func.max(Measurements.id))) or 0

    def quantities(self, runs: Collection[int], cases: Collection[Case] | None = None) -> dict[Series, CaseQuantities]:
        """Return the errors, the work and the static facts of cases in some runs, by the series of the time.

        A run in which a replica of the case is not ok is left out. Cases have their present names. With ``cases``, only
        the series of these cases are returned.
        """
        return load_quantities(self._database, runs, cases)

    def samples(
        self, run: int, cases: Collection[str] | None = None, devices: Collection[str] | None = None
    ) -> list[StoredSamples]:
        """Return the samples of a run's measurements, in the order of storing; measurements without samples are absent.

        ``cases`` are ids as the run had them; ``devices`` are UUIDs or models; None means all.
        """
        own = (Measurements.replica, Measurements.cache, Measurements.samples)
        query = (
            select(Cases.name, Devices.uuid, *own)
            .join(Cases, Cases.id == Measurements.case_id)
            .join(Devices, Devices.id == Measurements.device_id)
            .order_by(Measurements.id)
        )
        with self._database.reading() as connection:
            where = RowFilter([run], cases, devices).conditions()
            return [
                StoredSamples(case, uuid, cache, replica, samples)
                for case, uuid, replica, cache, blob in connection.execute(query.where(*where))
                if blob is not None and (samples := readable_samples(blob, case)) is not None
            ]

    def batch_counts(self, run: int) -> dict[tuple[str, str, CacheState], dict[str, int]]:
        """For each case with a rejected batch, return the number of batches by reason, in the order of measuring.

        Accepted batches have the empty reason. The keys are device (UUID), case id and cache state.
        """
        with self._database.reading() as connection:
            return count_batches(connection, run)

    def costs(
        self, cases: Iterable[Case], devices: Collection[str], *, before: int | None = None
    ) -> dict[tuple[str, str, CacheState], CaseCost]:
        """Return the cost and the noise of cases by device (UUID), case id and cache state.

        Only the newest measurements of a case are read (``costs.NEWEST``). Measurements under former names of a case
        count too. A case is absent for a device on which none of them took any time before run ``before``.
        """
        with self._database.reading() as connection:
            return costs_of(connection, cases, devices, before)


def _unpacked(blob: bytes | None, case: str) -> tuple[float, ...]:
    """Return the samples of a case; none if there are none, or if the blob is damaged."""
    samples = readable_samples(blob, case) if blob else None
    return () if samples is None else tuple(samples.tolist())


def put_measurements(connection: Connection, run: int, entries: Iterable[MeasurementEntry], keys: Keys) -> int:
    """Store measurements of a run with their metrics; return how many replicas the run needs for them."""
    replicas = 0
    remaining = iter(entries)
    while part := list(islice(remaining, ROWS_AT_ONCE)):
        _put_part(connection, run, part, keys)
        replicas = max(replicas, *(entry.measurement.replica + 1 for entry in part))
    return replicas


def _put_part(connection: Connection, run: int, entries: Sequence[MeasurementEntry], keys: Keys) -> None:
    """Store some measurements with few statements: a statement costs more than the row that it stores."""
    cases = case_ids(connection, (entry.measurement.case for entry in entries))
    devices = device_ids(connection, (entry.measurement.device for entry in entries))
    environments = {
        environment: environment_id(connection, environment)
        for environment in dict.fromkeys(entry.environment for entry in entries)
    }
    rows = []
    for entry in entries:
        measured = entry.measurement
        rows.append(
            {
                "run_id": run,
                "case_id": cases[measured.case],
                "device_id": devices[measured.device],
                "environment_id": environments[entry.environment],
                "python_code_id": put_python_code(connection, entry.binary, measured.python, measured.files, keys),
                **_own_columns(entry),
            }
        )
    ids = new_ids(connection, Measurements, rows)
    of_measurements = [(row_id, entry.measurement) for row_id, entry in zip(ids, entries, strict=True)]
    metrics = [
        {"measurement_id": row_id, "name": name, "value": number(value)}
        for row_id, measured in of_measurements
        for name, value in measured.metrics.items()
    ]
    if metrics:
        connection.execute(insert(Metrics), metrics)


def _own_columns(entry: MeasurementEntry) -> dict[str, Any]:
    """Return the columns of a measurement that refer to no other table, and its binary."""
    measurement, work, estimate = entry.measurement, entry.work, entry.estimate
    return {
        "binary_id": entry.binary,
        "replica": measurement.replica,
        "cache": measurement.cache,
        "status": measurement.status,
        "reason": measurement.reason,
        "cure": measurement.cure,
        "samples": pack(measurement.samples_s) if measurement.samples_s else None,
        "sample_count": len(measurement.samples_s),
        "place_medians": pack(measurement.places_s) if len(measurement.places_s) > 1 else None,
        "median_s": number(estimate.median_s) if estimate else None,
        "low_s": number(estimate.low_s) if estimate else None,
        "high_s": number(estimate.high_s) if estimate else None,
        "max_error": number(measurement.max_error),
        "mean_error": number(measurement.mean_error),
        "read_bytes": work.read_bytes,
        "written_bytes": work.written_bytes,
        "flops": work.flops,
        "precision": work.precision,
        "link_bytes": work.link_bytes,
        "stopped": measurement.stopped,
        "wall_s": measurement.wall_s,
        "measured_at": entry.measured_at or datetime.now(UTC),
        "warmup": measurement.warmup,
        "note": measurement.note,
        "check_s": measurement.check_s,
        "sampling_s": measurement.sampling_s,
        "busy_s": measurement.busy_s,
        "variant_index": entry.variant_index,
        "relative_to": entry.relative_to,
        **measurement_columns(measurement.batches),
    }
