"""All columns of measurements, for analysts: what the tables hold, and what follows from it."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from perfsvc.model import MEMORY, CacheState, Peak, Rates, peak_of_case, plausible
from perfsvc.store.cases import TIME_OF_MEASUREMENT, axes_of, case_of, reason_of_exclusion, reasons_of_exclusion
from perfsvc.store.devices import GpuState, gpu_peaks
from perfsvc.store.schema.engine import among
from perfsvc.store.schema.tables import (
    Cases,
    Devices,
    Environments,
    Levels,
    Measurements,
    Metrics,
    RunDevices,
    Runs,
    SeriesRows,
)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The measurements that meet all conditions; None means that a condition is not set.

    Attributes:
        runs: the numbers of runs.
        cases: the ids of cases, as they were in the run.
        devices: the UUIDs or models of devices.
        until: the id of the newest measurement; later ones are left out.
    """

    runs: Sequence[int] | None = None
    cases: Collection[str] | None = None
    devices: Collection[str] | None = None
    until: int | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return the conditions for a query of ``measurements``."""
        conditions = []
        if self.runs is not None:
            conditions.append(among(Measurements.run_id, self.runs))
        if self.cases is not None:
            cases = select(Cases.id).where(among(Cases.name, self.cases))
            conditions.append(Measurements.case_id.in_(cases))
        if self.devices is not None:
            named = or_(Devices.uuid.in_(self.devices), Devices.model.in_(self.devices))
            conditions.append(Measurements.device_id.in_(select(Devices.id).where(named)))
        if self.until is not None:
            conditions.append(Measurements.id <= self.until)
        return conditions


_COLUMNS: dict[str, Any] = {
    "run": Runs.id,
    "label": Runs.label,
    "commit": Runs.git_commit,
    "dirty": Runs.git_dirty,
    "branch": Runs.git_branch,
    "started_at": Runs.started_at,
    "host": Runs.host,
    "perfsvc_version": Runs.perfsvc_version,
    "device": Devices.uuid,
    "device_kind": Devices.kind,
    "device_model": Devices.model,
    "interconnect": Devices.interconnect,
    "case": Cases.name,
    "benchmark": Cases.benchmark,
    "variant": Cases.variant,
    "point": Cases.point,
    "version": Cases.version,
    "cache": Measurements.cache,
    "replica": Measurements.replica,
    "status": Measurements.status,
    "reason": Measurements.reason,
    "cure": Measurements.cure,
    "median_s": Measurements.median_s,
    "low_s": Measurements.low_s,
    "high_s": Measurements.high_s,
    "samples": Measurements.sample_count,
    "max_error": Measurements.max_error,
    "mean_error": Measurements.mean_error,
    "read_bytes": Measurements.read_bytes,
    "written_bytes": Measurements.written_bytes,
    "flops": Measurements.flops,
    "precision": Measurements.precision,
    "link_bytes": Measurements.link_bytes,
    "stopped": Measurements.stopped,
    "wall_s": Measurements.wall_s,
    "measured_at": Measurements.measured_at,
    "driver": Environments.driver,
    "toolkit": Environments.toolkit,
    "power_limit_w": Environments.power_limit_w,
    "warmup": Measurements.warmup,
    "note": Measurements.note,
    "check_s": Measurements.check_s,
    "sampling_s": Measurements.sampling_s,
    "busy_s": Measurements.busy_s,
    "sm_clock_hz": Measurements.sm_clock_hz,
    "temperature_c": Measurements.temperature_c,
    "power_w": Measurements.power_w,
    "slowdowns": Measurements.slowdowns,
    "rejected_batches": Measurements.rejected_batches,
    "variant_index": Measurements.variant_index,
    "relative_to": Measurements.relative_to,
    "noise_within": Levels.noise_within,
    "noise_between": Levels.noise_between,
    "noise_places": Levels.noise_places,
    "lowest_place_s": Levels.lowest_place_s,
    "highest_place_s": Levels.highest_place_s,
    "copy_bytes_per_s": RunDevices.copy_bytes_per_s,
    "read_bytes_per_s": RunDevices.read_bytes_per_s,
    "verdict": Levels.verdict,
    "verdict_reason": Levels.verdict_reason,
    "ratio": Levels.ratio,
    "ratio_low": Levels.low,
    "ratio_high": Levels.high,
    "baseline_run": Levels.baseline_run_id,
    "baseline_runs": Levels.baseline_runs,
    "noise_between_nights": Levels.between_nights,
    "cause": Levels.cause,
}
_OF_VERDICT = (
    *("verdict", "verdict_reason", "ratio", "ratio_low", "ratio_high"),
    *("baseline_run", "baseline_runs", "noise_between_nights", "cause"),
)
SAME_LEVEL = and_(Levels.run_id == Measurements.run_id, Levels.series_id == SeriesRows.id)
_STATE = ("device", "driver", "power_limit_w", "copy_bytes_per_s", "read_bytes_per_s")
"""The columns that decide which measured peaks a GPU has."""
_WORK = ("median_s", "flops", "precision", "cache", "link_bytes")
"""The columns that decide which of them a measurement comes nearest to."""
_SAME_PEAK = and_(RunDevices.run_id == Measurements.run_id, RunDevices.device_id == Measurements.device_id)


_NUMBERS = frozenset({int, float, type(None)})
"""The types of most cells, which stay as they are."""
PART = 10_000
"""How many rows are fetched at a time. The rows of a large database, all at once, would fill the memory."""


def columns_of(connection: Connection, rows: RowFilter) -> dict[str, list[Any]]:
    """Return all columns of some measurements as lists by column name."""
    where = rows.conditions()
    query = (
        select(Measurements.id, *_COLUMNS.values(), Measurements.case_id, Devices.l2_bytes)
        .join(Runs, Runs.id == Measurements.run_id)
        .join(Devices, Devices.id == Measurements.device_id)
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Environments, Environments.id == Measurements.environment_id)
        .outerjoin(SeriesRows, TIME_OF_MEASUREMENT)
        .outerjoin(Levels, SAME_LEVEL)
        .outerjoin(RunDevices, _SAME_PEAK)
        .where(*where)
        .order_by(Measurements.run_id, Measurements.case_id, Measurements.device_id, Measurements.replica)
        .order_by(Measurements.cache)
    )
    ids: list[int] = []
    case_ids: list[int] = []
    l2_bytes: list[int] = []
    table: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    shared: dict[Any, Any] = {}
    with connection.execute(query, execution_options={"yield_per": PART}) as result:  # a damaged row raises an error
        for part in result.partitions():
            own, *values, part_case_ids, part_l2_bytes = zip(*part, strict=True)
            for column, cells in zip(table.values(), values, strict=True):
                column += [cell if type(cell) in _NUMBERS else _plain(cell, shared) for cell in cells]
            ids += own
            case_ids += part_case_ids
            l2_bytes += part_l2_bytes
    _derive(table, l2_bytes, gpu_peaks(connection))
    metrics: dict[int, dict[str, float | None]] = defaultdict(dict)
    named = select(Metrics.measurement_id, Metrics.name, Metrics.value).join(Measurements).where(*where)
    for measurement, name, value in connection.execute(named, execution_options={"yield_per": PART}):
        metrics[measurement][shared.setdefault(name, name)] = value
    table["metrics"] = [metrics.get(measurement, {}) for measurement in ids]
    excluded = reasons_of_exclusion(connection, rows.runs)
    table["excluded"] = [
        reason_of_exclusion(excluded, run, case) for run, case in zip(table["run"], case_ids, strict=True)
    ]
    for name in _OF_VERDICT if any(table["excluded"]) else ():
        table[name] = [None if why else cell for why, cell in zip(table["excluded"], table[name], strict=True)]
    return table


def further_of(connection: Connection, rows: RowFilter) -> tuple[list[dict[str, Any]], set[str]]:
    """Return the axes of each case of some measurements, in the order of their rows, and the names of the metrics."""
    where = rows.conditions()
    first = (
        select(Measurements.case_id, func.min(Measurements.run_id).label("run"))
        .where(*where)
        .group_by(Measurements.case_id)
        .subquery()
    )
    points = select(Cases.point).join(first, first.c.case_id == Cases.id).order_by(first.c.run, Cases.id)
    names = select(Metrics.name).distinct()
    if where:
        names = names.join(Measurements).where(*where)
    return [axes_of(point) for point in connection.scalars(points)], set(connection.scalars(names))


def _plain(value: Any, shared: dict[Any, Any]) -> Any:
    """Return a cell without enumerations; equal texts and timestamps become one object, which saves much memory."""
    if isinstance(value, Enum):
        return value.value
    return shared.setdefault(value, value) if isinstance(value, str | datetime) else value


def _derive(table: dict[str, list[Any]], l2_bytes: Sequence[int], peaks: Mapping[GpuState, Rates]) -> None:
    """Add the derived columns: the axes, the bandwidth, the FLOP/s and the nearest peak. Shorten the points.

    Args:
        table: the columns.
        l2_bytes: the size of the L2 cache of each row's device.
        peaks: the measured peaks of arithmetic and L2 caches.
    """
    axes = {point: axes_of(point) for point in set(table["point"])}
    texts = {point: case_of("", "", point, 1).point_text for point in axes}
    table["axes"] = [axes[point] for point in table["point"]]
    table["point"] = [texts[point] for point in table["point"]]
    moved = [read + written for read, written in zip(table["read_bytes"], table["written_bytes"], strict=True)]
    table["bandwidth_bytes_per_s"] = _per_second(moved, table["median_s"])
    table["flops_per_s"] = _per_second(table["flops"], table["median_s"])
    table["bus_bytes_per_s"] = _per_second(table["link_bytes"], table["median_s"])
    nearest = []
    states = zip(*(table[name] for name in _STATE), strict=True)
    rows = zip(*(table[name] for name in _WORK), strict=True)
    of_state: dict[tuple[Any, ...], dict[str, float]] = {}
    for state, (time_s, flops, precision, cache, link), nbytes, l2 in zip(states, rows, moved, l2_bytes, strict=True):
        if state not in of_state:
            *gpu, copied, read = state
            memory = {MEMORY: Peak(copied, read).best_bytes_per_s} if plausible(copied) and plausible(read) else {}
            of_state[state] = {**peaks.get((gpu[0], gpu[1], gpu[2]), {}), **memory}
        rates, warm = of_state[state], cache == CacheState.WARM
        nearest.append(peak_of_case(time_s, nbytes, flops, precision, rates, warm=warm, l2_bytes=l2, link_bytes=link))
    table["peak"] = [near.peak if near else None for near in nearest]
    table["peak_share"] = [near.share if near else None for near in nearest]


def _per_second(amounts: Sequence[int], times_s: Sequence[float | None]) -> list[float | None]:
    return [amount / time if amount and time else None for amount, time in zip(amounts, times_s, strict=True)]
