"""Measurements: store them, read them back, their noise, what they cost, and all columns for analysts.

Samples are stored as blobs: little-endian float32, compressed with zlib. A float32 keeps seven digits (a relative
rounding error of 6e-8 at most), far below what any clock resolves.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from sqlalchemy import CTE, ColumnElement, Connection, and_, func, insert, select, true

from perfsvc.keys import Keys
from perfsvc.model import CacheState, Case, CostHistory, Measurement, Series
from perfsvc.store.binaries import put_python_code
from perfsvc.store.cases import CASE_COLUMNS, TIME_OF_MEASUREMENT, case_ids, case_of, device_ids, ids_of
from perfsvc.store.measurements.batches import measurement_columns, unpack_batches
from perfsvc.store.measurements.columns import SAME_LEVEL, RowFilter, columns_of, further_of
from perfsvc.store.measurements.quantities import load_quantities
from perfsvc.store.rows import CaseQuantities, MeasurementEntry, StoredSamples
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.base import from_row, to_row
from perfsvc.store.schema.column_types import number, report_damaged
from perfsvc.store.schema.engine import StorePart, among, new_ids
from perfsvc.store.schema.environments import environment_id
from perfsvc.store.schema.samples import DAMAGED, pack, readable_samples
from perfsvc.store.schema.tables import Cases, Devices, Levels, Measurements, Metrics, Runs, SeriesRows

NEWEST = 30
"""The measurements of a case on a device that are read: ten runs with three replicas, in one cache state. More would
change no plan."""


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
                from_row(
                    Measurement,
                    row,
                    case=case_of(row.benchmark, row.variant, row.point, row.version),
                    device=row.uuid,
                    samples_s=_unpacked(row.samples, row.variant),
                    places_s=_unpacked(row.place_medians, row.variant),
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
        with self._database.reading() as connection:
            return load_quantities(connection, runs, cases)

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
        of_run = Measurements.run_id == run
        disturbed = select(Measurements.case_id).where(of_run, Measurements.rejected_batches > 0)
        query = (
            select(Devices.uuid, Cases.name, Measurements.cache, Measurements.batches)
            .join(Devices, Devices.id == Measurements.device_id)
            .join(Cases, Cases.id == Measurements.case_id)
            .where(of_run, Measurements.case_id.in_(disturbed))
            .order_by(Measurements.replica, Measurements.id)
        )
        counts: dict[tuple[str, str, CacheState], Counter[str]] = defaultdict(Counter)
        with self._database.reading() as connection:
            for uuid, case, cache, blob in connection.execute(query):
                try:
                    batches = unpack_batches(blob)
                except DAMAGED:  # of samples, whose damage costs only themselves
                    report_damaged(f"a blob of batches of {case}")
                else:
                    counts[uuid, case, cache].update(batch.rejected for batch in batches)
        return {at: dict(of_case) for at, of_case in counts.items() if any(of_case)}

    def costs(
        self, cases: Iterable[Case], devices: Collection[str], *, before: int | None = None
    ) -> dict[tuple[str, str, CacheState], CostHistory]:
        """Return the cost and the noise of cases by device (UUID), case id and cache state.

        Only the newest measurements of a case are read (``NEWEST``). Measurements under former names of a case count
        too. A case is absent for a device on which none of them took any time before run ``before``.
        """
        earlier = () if before is None else (Measurements.run_id < before,)
        found: dict[int, dict[tuple[str, CacheState], list[Any]]] = defaultdict(lambda: defaultdict(list))
        with self._database.reading() as connection:
            ids = ids_of(connection, cases)
            newest = _newest(set(ids.values()), devices, earlier)
            same = Measurements.case_id == newest.c.case_id, Measurements.device_id == newest.c.device_id
            run = newest.c.case_id, newest.c.uuid, Measurements.cache, Measurements.run_id, Runs.state
            query = (
                select(*run, func.avg(Measurements.wall_s).label("wall_s"))
                .add_columns(func.max(Measurements.measured_at).label("measured_at"))
                .add_columns(func.max(Levels.noise_between).label("between"))
                .select_from(newest)
                .join(Measurements, and_(*same, Measurements.run_id >= newest.c.run_id, *earlier))
                .join(Runs, Runs.id == Measurements.run_id)
                .outerjoin(SeriesRows, TIME_OF_MEASUREMENT)
                .outerjoin(Levels, SAME_LEVEL)
                .where(Measurements.wall_s > 0)  # else the case did not compile, or was skipped
                .group_by(*run)
                .order_by(Measurements.run_id.desc())
            )
            for row in connection.execute(query):
                found[row.case_id][row.uuid, row.cache].append(row)
        costs: dict[tuple[str, str, CacheState], CostHistory] = {}
        for case, case_number in ids.items():
            for (uuid, cache), rows in found[case_number].items():
                ended = [row.wall_s for row in rows if row.state in ENDED]
                between = next((row.between for row in rows if row.between is not None), None)
                if ended:
                    last = max(row.measured_at for row in rows)
                    costs[uuid, case.id, cache] = CostHistory(ended[0], between, last, len(rows))
        return costs


def _newest(cases: Collection[int], devices: Collection[str], earlier: Iterable[ColumnElement[bool]]) -> CTE:
    """Return a query of the cases on each device, with the run of its ``NEWEST``-th newest measurement."""
    run = (
        select(Measurements.run_id)
        .where(Measurements.case_id == Cases.id, Measurements.device_id == Devices.id)
        .where(Measurements.wall_s > 0, *earlier)
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
                **_own_columns(entry),
                "run_id": run,
                "case_id": cases[measured.case],
                "device_id": devices[measured.device],
                "environment_id": environments[entry.environment],
                "python_code_id": put_python_code(connection, entry.binary, measured.python, measured.files, keys),
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
    measurement, estimate = entry.measurement, entry.estimate
    return {
        **dict.fromkeys(("median_s", "low_s", "high_s")),
        **to_row(Measurements, *([estimate] if estimate else []), measurement, entry.work, entry),
        "samples": pack(measurement.samples_s) if measurement.samples_s else None,
        "sample_count": len(measurement.samples_s),
        "place_medians": pack(measurement.places_s) if len(measurement.places_s) > 1 else None,
        "measured_at": entry.measured_at or datetime.now(UTC),
        **measurement_columns(measurement.batches),
    }
