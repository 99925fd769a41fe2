"""What a run that has just been measured comes to, as the judge defines it: levels and noise."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import isfinite

import numpy as np

from perfsvc import judge
from perfsvc.model import TIME, CacheState, Case, Estimate, Measurement, Noise, Status

Levels = dict[tuple[str, str, CacheState, str], Estimate]
"""By device UUID, case id, cache state and metric."""
Noises = dict[tuple[str, Case, CacheState], Noise]
"""By device UUID, case and cache state."""


def levels(measurements: Iterable[Measurement]) -> Levels:
    """The level of every case's time, in seconds, and of each of its named metrics, in the metric's own unit.

    A case of which any replica is not ok has none: a wrong result is never fast. Neither has a metric whose values are
    not all finite.
    """
    found: Levels = {}
    for (device, case, cache), replicas in _replicas(measurements).items():
        if any(replica.status is not Status.OK for replica in replicas):
            continue
        key = device, case.id, cache
        if timed := [replica.samples_s for replica in replicas if replica.samples_s]:
            found[*key, TIME] = judge.estimate_level(timed)
        for metric in {name for replica in replicas for name in replica.metrics}:
            values = [replica.metrics[metric] for replica in replicas if metric in replica.metrics]
            if all(map(isfinite, values)):
                found[*key, metric] = judge.estimate_metric(values)
    return found


def noises(measurements: Iterable[Measurement]) -> Noises:
    """The noise of every case's time, by the replicas that are ok; nothing for a case of which too few tell it.

    Told by samples as precise as the store has them: a run that was cut short has to be as noisy as any other.
    """
    by_place = _replicas(measurements)
    found = judge.noises(
        [np.asarray(replica.samples_s, np.float32) for replica in replicas if replica.status is Status.OK]
        for replicas in by_place.values()
    )
    return {place: noise for place, noise in zip(by_place, found, strict=True) if noise.within is not None}


def _replicas(measurements: Iterable[Measurement]) -> dict[tuple[str, Case, CacheState], Sequence[Measurement]]:
    of_place: dict[tuple[str, Case, CacheState], list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        of_place[measurement.device, measurement.case, measurement.cache].append(measurement)
    return dict(of_place)
