"""The results of stored runs as rows: one row a case, device and cache state."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from perfsvc import units
from perfsvc.model import TIME, CacheState, Case, Judgement, Peak, Status, Verdict
from perfsvc.report.export.frames import METRIC, metric_intervals, parse_point, summary
from perfsvc.report.rows import SEPARATOR, Key, MetricRow, ResultRow, RunReport

Verdicts = Mapping[Key, Mapping[str, Judgement]]
"""Verdicts by device, case and cache state, then by metric."""

LARGE_PLACES = 0.01
"""The noise between places of the arrays, as a share of the time, from which on a note has the range of times."""

BatchCounts = Mapping[str, int]
"""The number of a case's batches by why they were rejected; accepted batches have an empty reason."""


def run_report(
    run: int,
    table: pd.DataFrame,
    judgements: Iterable[Judgement],
    batches: Mapping[Key, BatchCounts],
) -> RunReport:
    """Return the report of a stored run: a row for each measured case, then a row for each missing case.

    Args:
        run: the run's number.
        table: the run's measurements, as ``frames.frame`` returns them.
        judgements: the run's verdicts.
        batches: the batch counts of each case.
    """
    verdicts: dict[Key, dict[str, Judgement]] = defaultdict(dict)
    for judgement in judgements:
        series = judgement.series
        verdicts[series.device, series.case.id, series.cache][series.metric] = judgement
    if table.empty:
        return RunReport(run, [])
    intervals = metric_intervals(table)
    records = [
        {str(name): None if pd.isna(value) else value for name, value in record.items()}
        for record in summary(table).to_dict("records")
    ]
    rows = [_row(record, verdicts, intervals, batches.get(_key(record), {})) for record in records]
    kinds = {row.device: row.device_kind for row in rows}
    measured = {row.key for row in rows}
    missing = [
        _missing(judged, kinds.get(key[0], ""))
        for key, judged in verdicts.items()
        if key not in measured and any(judgement.verdict is Verdict.MISSING for judgement in judged.values())
    ]
    return RunReport(run, [*rows, *missing], _title(records[0]), peaks=_peaks(records))


def _title(first: Mapping[str, Any]) -> str:
    """Return when and where a run ran, from its first row of the summary."""
    facts = [f"{first['started_at']:%Y-%m-%d %H:%M} UTC", first["label"], first["commit"][:9], first["host"]]
    return "  ".join(filter(None, facts))


def _peaks(records: Sequence[Mapping[str, Any]]) -> dict[str, Peak]:
    """Return the measured peaks of each device that has them, by UUID."""
    return {
        record["device"]: Peak(record["copy_bytes_per_s"], record["read_bytes_per_s"])
        for record in records
        if record["copy_bytes_per_s"] is not None
    }


def _row(
    record: Mapping[str, Any],
    verdicts: Verdicts,
    intervals: Mapping[tuple[Key, str], tuple[float, float]],
    batches: BatchCounts,
) -> ResultRow:
    """Return the row of a measured case.

    Args:
        record: the case's row of the summary, with None for unknown values.
        verdicts: the verdicts of all cases.
        intervals: the intervals of all named metrics, by case and metric.
        batches: the batch counts of the case.
    """
    key = _key(record)
    case = Case(
        record["benchmark"],
        record["variant"],
        tuple(parse_point(record["point"]).items()),
        int(record["version"]),
    )
    judgements = verdicts.get((record["device"], case.id, key[2]), {})  # by metric
    has_interval = record["samples"] > 1
    levels = {
        name.removeprefix(METRIC): value
        for name, value in record.items()
        if name.startswith(METRIC) and value is not None
    }
    metrics = []
    for name in sorted((levels.keys() | judgements.keys()) - {TIME}):
        low, high = intervals.get((key, name), (None, None))
        metrics.append(MetricRow(name, levels.get(name), low, high, judgements.get(name)))
    other_noise = max(record["noise_within"] or 0.0, record["noise_between"] or 0.0)
    places = _places(record["noise_places"], other_noise, record["lowest_place_s"], record["highest_place_s"])
    return ResultRow(
        case=case,
        device=record["device"],
        device_model=record["device_model"],
        device_kind=record["device_kind"],
        status=Status(record["status"]),
        reason=record["reason"],
        cure=record.get("cure") or "",
        replicas=int(record["replicas"]),
        median_s=record["median_s"],
        low_s=record["low_s"] if has_interval else None,
        high_s=record["high_s"] if has_interval else None,
        bandwidth_bytes_per_s=record["bandwidth_bytes_per_s"],
        flops_per_s=record["flops_per_s"],
        bus_bytes_per_s=record.get("bus_bytes_per_s"),
        max_error=record["max_error"],
        mean_error=record["mean_error"],
        metrics=tuple(metrics),
        judgement=judgements.get(TIME),
        cache=key[2],
        peak=record["peak"] or "",
        peak_share=record["peak_share"],
        relative_to=record.get("relative_to") or "",
        relative_speed=record.get("relative_speed"),
        noise_within=record["noise_within"],
        noise_between=record["noise_between"],
        noise_places=record["noise_places"],
        stopped=_sentences(record["stopped"]),
        notes=(*_rejections(batches), *places, *_sentences(record["note"])),
        excluded=record.get("excluded") or "",
        interconnect=record.get("interconnect") or "",
    )


def _key(record: Mapping[str, Any]) -> Key:
    return record["device"], record["case"], CacheState(record["cache"])


def _places(noise: float | None, other_noise: float, lowest_s: float | None, highest_s: float | None) -> Iterator[str]:
    """Yield a note such as ``109.0 µs to 127.0 µs, depending on where its arrays lie``; nothing if the noise is small.

    There is no note either if the samples of a process, or the processes, differ as much as the places: then the places
    may differ because the device is noisy. The median of a place has much less noise than its samples.

    Args:
        noise: the noise between the places of a case's arrays.
        other_noise: the noise within or between the processes, whichever is larger.
        lowest_s: the lowest median at a place.
        highest_s: the highest median at a place.
    """
    is_clear = noise is not None and noise >= LARGE_PLACES and noise > other_noise
    if is_clear and lowest_s is not None and highest_s is not None:
        yield f"{units.seconds(lowest_s)} to {units.seconds(highest_s)}, depending on where its arrays lie"


def _rejections(batches: BatchCounts) -> Iterator[str]:
    """Yield a note such as ``3 of 12 batches rejected: thermal slowdown``; nothing if no batch was rejected."""
    rejected = {reason: count for reason, count in batches.items() if reason}
    if rejected:
        total = units.count(sum(batches.values()), "batch", "batches")
        reasons = dict.fromkeys(reason for text in rejected for reason in text.split(SEPARATOR))
        yield f"{sum(rejected.values())} of {total} rejected: {', '.join(reasons)}"


def _missing(judgements: Mapping[str, Judgement], device_kind: str) -> ResultRow:
    """Return the row of a missing case, which has no measurement; ``judgements`` are its verdicts by metric."""
    judgement = next(iter(judgements.values()))
    series = judgement.series
    return ResultRow(
        case=series.case,
        device=series.device,
        device_model=series.device_model,
        device_kind=device_kind,
        status=None,
        reason=judgement.reason,
        metrics=tuple(MetricRow(name, None, judgement=judgements[name]) for name in sorted(judgements) if name != TIME),
        judgement=judgements.get(TIME),
        cache=series.cache,
    )


def _sentences(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(SEPARATOR)))
