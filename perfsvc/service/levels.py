"""The levels of a run that has just been measured, as the judge defines them."""

from collections import defaultdict
from collections.abc import Iterable
from math import isfinite

from perfsvc import judge
from perfsvc.model import TIME, Estimate, Measurement, Status

Levels = dict[tuple[str, str, str], Estimate]
"""By device UUID, case id and metric."""


def levels(measurements: Iterable[Measurement]) -> Levels:
    """The level of every case's time, in seconds, and of each of its named metrics, in the metric's own unit.

    A case of which any replica is not ok has none: a wrong result is never fast. Neither has a metric whose values are
    not all finite.
    """
    of_case: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        of_case[measurement.device, measurement.case.id].append(measurement)
    found: Levels = {}
    for key, replicas in of_case.items():
        if any(replica.status is not Status.OK for replica in replicas):
            continue
        if timed := [replica.samples_s for replica in replicas if replica.samples_s]:
            found[*key, TIME] = judge.estimate_level(timed)
        for metric in {name for replica in replicas for name in replica.metrics}:
            values = [replica.metrics[metric] for replica in replicas if metric in replica.metrics]
            if all(map(isfinite, values)):
                found[*key, metric] = judge.estimate_metric(values)
    return found
