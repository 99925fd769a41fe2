"""The columns for analysts: one row a measurement, everything about it in plain values."""

import json
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum
from typing import Any

from sqlalchemy import Connection, and_, select

from perfsvc.model import TIME, Peak
from perfsvc.store.cases import case_of
from perfsvc.store.schema.judging_tables import Verdicts
from perfsvc.store.schema.tables import (
    Cases,
    Devices,
    Environments,
    Measurements,
    Metrics,
    NoiseOfCases,
    Peaks,
    Runs,
)

_STORED = {
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
    "case": Cases.name,
    "lineage": Cases.lineage_id,
    "benchmark": Cases.benchmark,
    "variant": Cases.variant,
    "point": Cases.point,
    "version": Cases.version,
    "cache": Measurements.cache,
    "replica": Measurements.replica,
    "status": Measurements.status,
    "reason": Measurements.reason,
    "median_s": Measurements.median_s,
    "low_s": Measurements.low_s,
    "high_s": Measurements.high_s,
    "samples": Measurements.sample_count,
    "max_error": Measurements.max_error,
    "mean_error": Measurements.mean_error,
    "read_bytes": Measurements.read_bytes,
    "written_bytes": Measurements.written_bytes,
    "flops": Measurements.flops,
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
    "noise_within": NoiseOfCases.noise_within,
    "noise_between": NoiseOfCases.noise_between,
    "copy_bytes_per_s": Peaks.copy_bytes_per_s,
    "read_bytes_per_s": Peaks.read_bytes_per_s,
    "verdict": Verdicts.verdict,
    "verdict_reason": Verdicts.reason,
    "ratio": Verdicts.ratio,
    "ratio_low": Verdicts.low,
    "ratio_high": Verdicts.high,
    "baseline_run": Verdicts.baseline_run_id,
    "cause": Verdicts.cause,
}
_SAME_NOISE = and_(
    NoiseOfCases.run_id == Measurements.run_id,
    NoiseOfCases.case_id == Measurements.case_id,
    NoiseOfCases.device_id == Measurements.device_id,
    NoiseOfCases.cache == Measurements.cache,
)
_SAME_VERDICT = and_(
    Verdicts.run_id == Measurements.run_id,
    Verdicts.case_id == Measurements.case_id,
    Verdicts.device_id == Measurements.device_id,
    Verdicts.cache == Measurements.cache,
    Verdicts.metric == TIME,
)
_SAME_PEAK = and_(Peaks.run_id == Measurements.run_id, Peaks.device_id == Measurements.device_id)


def columns(connection: Connection, runs: Sequence[int] | None) -> dict[str, list[Any]]:
    """Return all columns of the measurements of some runs, or of all; see ``MeasurementStore.columns``."""
    of_runs = () if runs is None else (Measurements.run_id.in_(runs),)
    query = (
        select(Measurements.id, *_STORED.values())
        .join(Runs, Runs.id == Measurements.run_id)
        .join(Devices, Devices.id == Measurements.device_id)
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Environments, Environments.id == Measurements.environment_id)
        .outerjoin(NoiseOfCases, _SAME_NOISE)
        .outerjoin(Peaks, _SAME_PEAK)
        .outerjoin(Verdicts, _SAME_VERDICT)
        .where(*of_runs)
        .order_by(Measurements.run_id, Measurements.case_id, Measurements.device_id, Measurements.replica)
        .order_by(Measurements.cache)
    )
    rows = [tuple(row) for row in connection.execute(query)]
    table = {name: [_plain(row[place]) for row in rows] for place, name in enumerate(_STORED, start=1)}
    _derive(table)
    metrics: dict[int, dict[str, float | None]] = defaultdict(dict)
    values = select(Metrics.measurement_id, Metrics.name, Metrics.value).join(Measurements).where(*of_runs)
    for measurement, name, value in connection.execute(values):
        metrics[measurement][name] = value
    table["metrics"] = [metrics.get(row[0], {}) for row in rows]
    return table


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _derive(table: dict[str, list[Any]]) -> None:
    """Add the columns that follow from others: the axes, and the rates that work and time give."""
    cases = zip(table["benchmark"], table["variant"], table["point"], table["version"], strict=True)
    table["axes"] = [json.loads(point) for point in table["point"]]
    table["point"] = [case_of(*case).point_text for case in cases]
    moved = [read + written for read, written in zip(table["read_bytes"], table["written_bytes"], strict=True)]
    table["bandwidth_bytes_per_s"] = _per_second(moved, table["median_s"])
    table["flops_per_s"] = _per_second(table["flops"], table["median_s"])
    table["peak_share"] = [
        None if bandwidth is None or copied is None else bandwidth / Peak(copied, read).best_bytes_per_s
        for bandwidth, copied, read in zip(
            table["bandwidth_bytes_per_s"], table["copy_bytes_per_s"], table["read_bytes_per_s"], strict=True
        )
    ]


def _per_second(amounts: Sequence[int], times_s: Sequence[float | None]) -> list[float | None]:
    return [amount / time if amount and time else None for amount, time in zip(amounts, times_s, strict=True)]
