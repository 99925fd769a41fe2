"""Whole runs, read to send them to the server of another host."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, exists, select

from perfsvc.errors import UsageError
from perfsvc.model import (
    Batch,
    Estimate,
    Measurement,
    Work,
)
from perfsvc.store.cases import CASE_COLUMNS, case_of, former_variants
from perfsvc.store.devices import DeviceStore
from perfsvc.store.measurements.batches import unpack_batches
from perfsvc.store.remote.rows import SentMeasurement, SentPeak, SentRun
from perfsvc.store.runs import ENDED, RunStore
from perfsvc.store.schema.column_types import damaged
from perfsvc.store.schema.engine import Database
from perfsvc.store.schema.environments import ENVIRONMENT, environment_of
from perfsvc.store.schema.samples import DAMAGED, unpack
from perfsvc.store.schema.tables import (
    Cases,
    Devices,
    Environments,
    FormerNames,
    GpuPeaks,
    Measurements,
    Metrics,
)

FORMAT = 1
"""The version of the format of sent runs."""
PART = 200
"""How many measurements are read at a time: their samples fill some MB."""


class SendingStore:
    """Reads whole runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def run(self, number: int) -> SentRun:
        """Return a run without its measurements.

        Raises:
            NotMeasuredError: there is no such run.
            UsageError: the run has not ended, or has no measurements.
        """
        runs, devices = RunStore(self._database), DeviceStore(self._database)
        row = runs.get(number)
        if row.state not in ENDED:
            raise UsageError(f"run {number} has not ended", cure="send it when it has ended")
        if not row.counts:
            raise UsageError(f"run {number} has no measurements", cure="perfsvc runs lists the runs")
        over_budget = runs.over_budget(number)
        used = {*row.devices, *(uuid for uuid, _, _ in over_budget)}
        peaks = devices.peaks(number)
        return SentRun(
            FORMAT,
            runs.uid(number),
            row.state,
            row.finished or row.provenance.started,
            row.provenance,
            tuple(device for uuid, device in devices.all().items() if uuid in used | peaks.keys()),
            devices.full_environments([number]).get(number),
            peaks,
            self._gpu_peaks(number),
            tuple(over_budget),
            sum(row.counts.values()),
        )

    def measurements(self, number: int) -> Iterator[SentMeasurement]:
        """Yield the measurements of a run, those of renamed cases first, else in the order in which they were stored.

        The receiver then knows a renamed case before a new variant with its former name.

        Raises ``UsageError`` if their samples were removed: then the receiver could not compute what this host has.
        """
        is_renamed = exists().where(FormerNames.case_id == Measurements.case_id)
        query = select(Measurements.id).where(Measurements.run_id == number)
        query = query.order_by(is_renamed.desc(), Measurements.id)
        with self._database.reading() as connection:
            ids = connection.scalars(query).all()
        for start in range(0, len(ids), PART):
            with self._database.reading() as connection:
                part = _measurements(connection, number, ids[start : start + PART])
            yield from part

    def _gpu_peaks(self, run: int) -> tuple[SentPeak, ...]:
        """Return the measured peaks of arithmetic and caches in the states that the devices of a run had."""
        states = (
            select(Measurements.device_id, Environments.driver, Environments.power_limit_w)
            .join(Environments, Environments.id == Measurements.environment_id)
            .where(Measurements.run_id == run)
            .distinct()
            .subquery()
        )
        query = (
            select(Devices.uuid, GpuPeaks)
            .join(Devices, Devices.id == GpuPeaks.device_id)
            .join(
                states,
                (states.c.device_id == GpuPeaks.device_id)
                & (states.c.driver == GpuPeaks.driver)
                & (states.c.power_limit_w == GpuPeaks.power_limit_w),
            )
            .order_by(Devices.id, GpuPeaks.name)
        )
        with self._database.reading() as connection:
            return tuple(
                SentPeak(row.uuid, row.driver, row.power_limit_w, row.name, row.rate, row.version, row.measured_at)
                for row in connection.execute(query)
            )


def _measurements(connection: Connection, run: int, ids: Sequence[int]) -> list[SentMeasurement]:
    """Return some measurements of a run, in the order of ``ids``."""
    query = (
        select(*CASE_COLUMNS, Devices.uuid, *ENVIRONMENT, Measurements)
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Devices, Devices.id == Measurements.device_id)
        .join(Environments, Environments.id == Measurements.environment_id)
        .where(Measurements.id.in_(ids))
    )
    places = {number: place for place, number in enumerate(ids)}
    rows = sorted(connection.execute(query), key=lambda row: places[row.id])
    former = former_variants(connection, {row.case_id for row in rows})
    metrics: dict[int, dict[str, float]] = defaultdict(dict)
    values = select(Metrics).where(Metrics.measurement_id.in_(ids), Metrics.value.is_not(None))
    for metric in connection.execute(values):
        metrics[metric.measurement_id][metric.name] = metric.value
    return [_sent(run, row, former, metrics[row.id]) for row in rows]


def _sent(
    run: int,
    row: Any,
    former: Mapping[int, tuple[str, ...]],
    metrics: Mapping[str, float],
) -> SentMeasurement:
    """Return a measurement from its row, the former names of cases, and its metrics."""
    if row.samples is None and row.sample_count:
        raise UsageError(
            f"the samples of run {run} were removed", cure="send runs before perfsvc db prune removes them"
        )
    case = case_of(row.benchmark, row.variant, row.point, row.version)
    samples_s = _short(row.samples)
    measurement = Measurement(
        replace(case, formerly=former.get(row.case_id, ())),
        row.uuid,
        row.replica,
        row.status,
        cache=row.cache,
        reason=row.reason,
        cure=row.cure,
        samples_s=samples_s,
        places_s=_short(row.place_medians),
        max_error=row.max_error,
        mean_error=row.mean_error,
        metrics=dict(metrics),
        stopped=row.stopped,
        batches=_batches(row.batches, samples_s),
        warmup=row.warmup or 0,
        note=row.note,
        wall_s=row.wall_s,
        check_s=row.check_s or 0.0,
        sampling_s=row.sampling_s or 0.0,
        busy_s=row.busy_s or 0.0,
    )
    estimate = None if row.median_s is None else Estimate(row.median_s, row.low_s, row.high_s, row.sample_count)
    return SentMeasurement(
        measurement,
        environment_of(row),
        Work(row.read_bytes, row.written_bytes, row.flops, row.precision, row.link_bytes),
        estimate,
        row.variant_index,
        row.relative_to,
        row.measured_at,
    )


def _batches(blob: bytes | None, samples_s: tuple[float, ...]) -> tuple[Batch, ...]:
    """Return the batches of a measurement; an accepted batch gets its share of the samples."""
    try:
        return unpack_batches(blob, samples_s)
    except DAMAGED as error:
        raise damaged("a blob of batches") from error


def _short(blob: bytes | None) -> tuple[float, ...]:
    """Return the samples of a blob with nine digits, which name each float32 exactly and are half as long."""
    if blob is None:
        return ()
    try:
        return tuple(float(f"{sample:.9g}") for sample in unpack(blob))
    except DAMAGED as error:
        raise damaged("a blob of samples") from error
