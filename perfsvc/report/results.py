"""From the measurements of a run to one row a case and device."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from perfsvc.model import DeviceInfo, Judgement, Measurement, Status, Work
from perfsvc.report.rows import MetricRow, ResultRow
from perfsvc.suite import CaseSpec

WORST_FIRST = (Status.FAILED, Status.WRONG, Status.SKIPPED, Status.OK)


def rows(
    devices: Iterable[DeviceInfo],
    specs: Mapping[tuple[str, str], CaseSpec],
    measurements: Iterable[Measurement],
    judgements: Iterable[Judgement] = (),
) -> list[ResultRow]:
    """One row a case and device, over its replicas.

    Args:
        devices: those the run measured on.
        specs: the cases by device UUID and case id, for the work they do; the order of the rows is theirs, and what
            they do not name comes after it.
        measurements: of all replicas; only those that are ok give times, since a wrong result is never fast.
        judgements: of the run, which are put beside their case or metric.
    """
    of_device = {device.uuid: device for device in devices}
    of_key: dict[tuple[str, str], list[Measurement]] = {key: [] for key in specs}
    for measurement in measurements:
        of_key.setdefault((measurement.device, measurement.case.id), []).append(measurement)
    judged: dict[tuple[str, str], dict[str, Judgement]] = defaultdict(dict)
    for judgement in judgements:
        judged[judgement.series.device, judgement.series.case.id][judgement.series.metric] = judgement
    return [
        _row(of_device[key[0]], replicas, specs[key].work if key in specs else Work(), judged[key])
        for key, replicas in of_key.items()
        if replicas
    ]


def _row(device: DeviceInfo, replicas: Sequence[Measurement], work: Work, judged: Mapping[str, Judgement]) -> ResultRow:
    worst = min(replicas, key=lambda one: WORST_FIRST.index(one.status))
    medians = [median(one.samples_s) for one in replicas if one.status is Status.OK and one.samples_s]
    level = median(medians) if medians else None
    several = len(medians) > 1
    return ResultRow(
        case=worst.case.id,
        device=device.uuid,
        device_model=device.model,
        device_kind=device.kind,
        status=worst.status,
        reason=worst.reason,
        cure=worst.cure,
        median_s=level,
        low_s=min(medians) if several else None,
        high_s=max(medians) if several else None,
        bandwidth_bytes_per_s=work.bytes / level if level and work.bytes else None,
        flops_per_s=work.flops / level if level and work.flops else None,
        max_error=_largest(one.max_error for one in replicas),
        mean_error=_largest(one.mean_error for one in replicas),
        metrics=tuple(_metrics(replicas, judged)),
        judgement=judged.get("time"),
    )


def _metrics(replicas: Sequence[Measurement], judged: Mapping[str, Judgement]) -> Iterator[MetricRow]:
    good = [one.metrics for one in replicas if one.status is Status.OK]
    for name in sorted({name for metrics in good for name in metrics}):
        values = [metrics[name] for metrics in good if name in metrics]
        several = len(values) > 1
        yield MetricRow(
            metric=name,
            value=median(values),
            low=min(values) if several else None,
            high=max(values) if several else None,
            judgement=judged.get(name),
        )


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
