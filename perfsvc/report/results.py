"""From what a run measured and what was judged of it to one row a case and device."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from perfsvc.model import TIME, DeviceInfo, Estimate, Judgement, Measurement, Status, Verdict, Work
from perfsvc.report.rows import MetricRow, ResultRow
from perfsvc.suite import CaseSpec


def rows(
    devices: Iterable[DeviceInfo],
    specs: Mapping[tuple[str, str], CaseSpec],
    measurements: Iterable[Measurement],
    levels: Mapping[tuple[str, str, str], Estimate],
    judgements: Iterable[Judgement] = (),
) -> list[ResultRow]:
    """One row a case and device, over its replicas; below them one for each case that is missing.

    Args:
        devices: those the run measured on.
        specs: the cases by device UUID and case id, for the work they do; the order of the rows is theirs, and what
            they do not name comes after it.
        measurements: of all replicas.
        levels: of times (metric ``time``) and named metrics, by device UUID, case id and metric.
        judgements: of the run, which are put beside their case or metric.
    """
    of_device = {device.uuid: device for device in devices}
    of_key: dict[tuple[str, str], list[Measurement]] = {key: [] for key in specs}
    for measurement in measurements:
        of_key.setdefault((measurement.device, measurement.case.id), []).append(measurement)
    judged: dict[tuple[str, str], dict[str, Judgement]] = defaultdict(dict)
    for judgement in judgements:
        judged[judgement.series.device, judgement.series.case.id][judgement.series.metric] = judgement
    measured = [
        _row(of_device[key[0]], replicas, specs[key].work if key in specs else Work(), _of(levels, key), judged[key])
        for key, replicas in of_key.items()
        if replicas
    ]
    missing = [
        _missing(of_device[device], of_metric)
        for (device, case), of_metric in judged.items()
        if not of_key.get((device, case)) and any(one.verdict is Verdict.MISSING for one in of_metric.values())
    ]
    return [*measured, *missing]


def _of(levels: Mapping[tuple[str, str, str], Estimate], key: tuple[str, str]) -> dict[str, Estimate]:
    return {metric: level for (device, case, metric), level in levels.items() if (device, case) == key}


def _row(
    device: DeviceInfo,
    replicas: Sequence[Measurement],
    work: Work,
    levels: Mapping[str, Estimate],
    judged: Mapping[str, Judgement],
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
        bandwidth_bytes_per_s=work.bytes / time.median_s if time and work.bytes else None,
        flops_per_s=work.flops / time.median_s if time and work.flops else None,
        max_error=_largest(one.max_error for one in replicas),
        mean_error=_largest(one.mean_error for one in replicas),
        metrics=_metrics(levels, judged),
        judgement=judged.get(TIME),
    )


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
