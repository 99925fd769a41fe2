"""From what a run measured and what was judged of it to one row a case and device."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from perfsvc import units
from perfsvc.model import (
    TIME,
    CacheState,
    DeviceInfo,
    Estimate,
    Judgement,
    Measurement,
    Noise,
    Peak,
    Status,
    Verdict,
)
from perfsvc.report.rows import SEPARATOR, Key, MetricRow, ResultRow
from perfsvc.suite import CaseSpec


def rows(
    devices: Iterable[DeviceInfo],
    specs: Mapping[Key, CaseSpec],
    measurements: Iterable[Measurement],
    levels: Mapping[tuple[str, str, CacheState, str], Estimate],
    judgements: Iterable[Judgement] = (),
    *,
    noises: Mapping[Key, Noise] = MappingProxyType({}),
    peaks: Mapping[str, Peak] = MappingProxyType({}),
) -> list[ResultRow]:
    """One row a case, cache state and device, over its replicas; below them one for each case that is missing.

    Args:
        devices: those the run measured on.
        specs: the cases, for the work they do; the order of the rows is theirs, and what they do not name comes after
            it.
        measurements: of all replicas.
        levels: of times (metric ``time``) and named metrics, by device UUID, case id, cache state and metric.
        judgements: of the run, which are put beside their case or metric.
        noises: of times.
        peaks: by device UUID.
    """
    of_device = {device.uuid: device for device in devices}
    of_key: dict[Key, list[Measurement]] = {key: [] for key in specs}
    for measurement in measurements:
        of_key.setdefault((measurement.device, measurement.case.id, measurement.cache), []).append(measurement)
    of_metric: dict[Key, dict[str, Estimate]] = defaultdict(dict)
    for (device, case, cache, metric), level in levels.items():
        of_metric[device, case, cache][metric] = level
    judged: dict[Key, dict[str, Judgement]] = defaultdict(dict)
    for judgement in judgements:
        series = judgement.series
        judged[series.device, series.case.id, series.cache][series.metric] = judgement
    measured = [
        _row(of_device[key[0]], replicas, of_metric[key], judged[key], noises.get(key, Noise(None, None)))
        for key, replicas in of_key.items()
        if replicas
    ]
    measured = [_with_spec(row, specs.get((row.device, row.case.id, row.cache)), peaks, levels) for row in measured]
    missing = [
        _missing(of_device[key[0]], of_case)
        for key, of_case in judged.items()
        if not of_key.get(key) and any(one.verdict is Verdict.MISSING for one in of_case.values())
    ]
    return [*measured, *missing]


def _row(
    device: DeviceInfo,
    replicas: Sequence[Measurement],
    levels: Mapping[str, Estimate],
    judged: Mapping[str, Judgement],
    noise: Noise,
) -> ResultRow:
    worst = max(replicas, key=lambda one: one.status.severity)
    time = levels.get(TIME)
    low, high = _interval(time)
    return ResultRow(
        case=worst.case,
        device=device.uuid,
        device_model=device.model,
        device_kind=device.kind,
        status=worst.status,
        reason=worst.reason,
        cure=worst.cure,
        replicas=sum(one.status is Status.OK for one in replicas),
        median_s=time.median_s if time else None,
        low_s=low,
        high_s=high,
        max_error=_largest(one.max_error for one in replicas),
        mean_error=_largest(one.mean_error for one in replicas),
        metrics=_metrics(levels, judged),
        judgement=judged.get(TIME),
        cache=worst.cache,
        noise_within=noise.within,
        noise_between=noise.between,
        stopped=_each_once(one.stopped for one in replicas),
        notes=(*_rejections(replicas), *_each_once(one.note for one in replicas)),
    )


def _with_spec(
    row: ResultRow,
    spec: CaseSpec | None,
    peaks: Mapping[str, Peak],
    levels: Mapping[tuple[str, str, CacheState, str], Estimate],
) -> ResultRow:
    """A row with its reference variant, and with what its time comes to: of the work in a second, of the measured peak, of the reference variant."""
    if spec is None:
        return row
    row = replace(row, relative_to=spec.relative_to)
    if not row.median_s:
        return row
    work, peak = spec.work, peaks.get(row.device)
    bandwidth = work.bytes / row.median_s if work.bytes else None
    relative_to = levels.get((row.device, replace(row.case, variant=spec.relative_to).id, row.cache, TIME))
    return replace(
        row,
        bandwidth_bytes_per_s=bandwidth,
        flops_per_s=work.flops / row.median_s if work.flops else None,
        peak_share=bandwidth / peak.best_bytes_per_s if bandwidth and peak else None,
        relative_speed=relative_to.median_s / row.median_s if relative_to else None,
    )


def _rejections(replicas: Iterable[Measurement]) -> Iterator[str]:
    """How many of a case's batches do not count, and why: ``3 of 12 batches rejected: thermal slowdown``."""
    batches = [batch for replica in replicas for batch in replica.batches]
    if reasons := _each_once(batch.rejected for batch in batches):
        rejected = sum(bool(batch.rejected) for batch in batches)
        yield f"{rejected} of {units.count(len(batches), 'batch', 'batches')} rejected: {', '.join(reasons)}"


def _each_once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for text in texts for one in text.split(SEPARATOR) if one))


def _missing(device: DeviceInfo, judged: Mapping[str, Judgement]) -> ResultRow:
    any_of_it = next(iter(judged.values()))
    return ResultRow(
        case=any_of_it.series.case,
        device=device.uuid,
        device_model=device.model,
        device_kind=device.kind,
        status=None,
        reason=any_of_it.reason,
        metrics=_metrics({}, judged),
        judgement=judged.get(TIME),
        cache=any_of_it.series.cache,
    )


def _metrics(levels: Mapping[str, Estimate], judged: Mapping[str, Judgement]) -> tuple[MetricRow, ...]:
    names = sorted((levels.keys() | judged.keys()) - {TIME})
    return tuple(_metric(name, levels.get(name), judged.get(name)) for name in names)


def _metric(name: str, level: Estimate | None, judgement: Judgement | None) -> MetricRow:
    low, high = _interval(level)
    return MetricRow(name, level.median_s if level else None, low, high, judgement)


def _interval(level: Estimate | None) -> tuple[float, float] | tuple[None, None]:
    """The ends of the level's interval; None where a single value tells no spread."""
    return (level.low_s, level.high_s) if level and level.samples > 1 else (None, None)


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
