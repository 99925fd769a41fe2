"""Record a run: each measurement is stored at once, however the run ends."""

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from math import isfinite

import numpy as np

from perfsvc import judge
from perfsvc.measure.host.device_queue import Stopping
from perfsvc.measure.plan.order import MeasurementKey, OverBudget
from perfsvc.model import TIME, CacheState, Case, Estimate, Measurement, Noise, Status
from perfsvc.report.rows import Doubt, Key
from perfsvc.service.run import peaks
from perfsvc.service.run.peaks import Peaks
from perfsvc.service.run.prepare import Runnable, Target
from perfsvc.service.run.provenance import Begun
from perfsvc.store import Code, Entry, State, Store

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
            found[*key, TIME] = judge.level_of([judge.estimate(times) for times in timed])
        for metric in {name for replica in replicas for name in replica.metrics}:
            values = [replica.metrics[metric] for replica in replicas if metric in replica.metrics]
            if all(map(isfinite, values)):
                found[*key, metric] = judge.level_of_metric(values)
    return found


def noises(measurements: Iterable[Measurement]) -> Noises:
    """The noise of every case's time, by the replicas that are ok; nothing for a case of which too few tell it.

    Told by samples as precise as the store has them: a run that was cut short has to be as noisy as any other.
    """
    noises = {
        key: judge.noise_of(
            [np.asarray(replica.samples_s, np.float32) for replica in replicas if replica.status is Status.OK]
        )
        for key, replicas in _replicas(measurements).items()
    }
    return {key: noise for key, noise in noises.items() if noise.within is not None}


def _replicas(measurements: Iterable[Measurement]) -> dict[tuple[str, Case, CacheState], Sequence[Measurement]]:
    of_place: dict[tuple[str, Case, CacheState], list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        of_place[measurement.device, measurement.case, measurement.cache].append(measurement)
    return dict(of_place)


class Recorder:
    """Writes one run.

    Args:
        store: an open store.
        begun: the run, with what it holds already.
        targets: the devices and their cases.
        say: is told what a person should know while waiting.

    Attributes:
        begun: the run as it was when this began.
        measurements: all that the run holds, but for those of measured peaks.
        peaks: of its devices.
        over_budget: what there is no time for.
        doubts: declared work that cannot be right.
    """

    def __init__(self, store: Store, begun: Begun, targets: Sequence[Target], say: Callable[[str], object]) -> None:
        self._store = store
        self._targets = {target.device.uuid: target for target in targets}
        self._specs = {(target.device.uuid, spec.case, spec.cache): spec for target in targets for spec in target.specs}
        self._binaries: dict[Key, int] = {}
        self.begun = begun
        self.measurements = list(begun.held)
        self.peaks = Peaks(tuple(target.device for target in targets), say, begun.peaks)
        self.over_budget: list[OverBudget] = []
        self.doubts: dict[Key, Doubt] = {}
        for target in targets:
            store.put_device(target.device)

    @contextlib.contextmanager
    def recording(self, stopping: Stopping) -> Iterator[None]:
        """Marks the run finished at the end of the block, interrupted on Ctrl-C, failed on any other exception.

        A finished run also says what it left out, and how noisy its cases are. One that was ``stopping`` when the block
        ended is interrupted, too.
        """
        try:
            yield
        except BaseException as error:
            by_hand = isinstance(error, KeyboardInterrupt | GeneratorExit | SystemExit)
            self._store.end_run(self.run, State.INTERRUPTED if by_hand else State.FAILED)
            raise
        if stopping():
            self._store.end_run(self.run, State.INTERRUPTED)
            return
        self._store.put_over_budget(self.run, [(one.device, one.case, one.cache) for one in self.over_budget])
        self._store.put_noise(self.run, self.noises)
        self._store.end_run(self.run, State.FINISHED)

    @property
    def run(self) -> int:
        """Its number."""
        return self.begun.run

    @cached_property
    def noises(self) -> Noises:
        """The noise of its cases, once all is measured."""
        return noises(self.measurements)

    @property
    def measured(self) -> frozenset[MeasurementKey]:
        """What the run holds of each device, case, cache state and replica."""
        return frozenset((one.device, one.case, one.cache, one.replica) for one in self.begun.held)

    def put_binaries(self, device: str, runnables: Sequence[Runnable]) -> None:
        """Stores the code of cases that are to run on a device."""
        stored = self._store.put_binaries([_code(runnable) for runnable in runnables])
        for runnable, binary in zip(runnables, stored, strict=True):
            self._binaries[device, runnable.spec.case.id, runnable.spec.cache] = binary

    def leave_over_budget(self, over_budget: OverBudget) -> None:
        """Notes what there is no time for."""
        self.over_budget.append(over_budget)

    def put(self, measured: Iterable[Measurement]) -> None:
        """Commits measurements, all at once, or the measured peaks that they complete."""
        of_cases = [one for one in measured if not self._take_roof(one)]
        if of_cases:
            entries = [self._entry(one) for one in of_cases]
            self._store.put_measurements(self.run, entries)
            self.measurements += [entry.measurement for entry in entries]

    def _take_roof(self, measurement: Measurement) -> bool:
        """Commits the measured peak that a measurement completes; false where it is a case's."""
        if not self.peaks.take(measurement):
            return False
        self._store.put_peaks(self.run, self.peaks.found)
        return True

    def _entry(self, measurement: Measurement) -> Entry:
        estimate = judge.estimate(measurement.samples_s) if measurement.samples_s else None
        spec = self._specs[measurement.device, measurement.case, measurement.cache]
        return Entry(
            self._doubted(measurement, estimate),
            self._targets[measurement.device].environment,
            spec.work,
            estimate,
            self._binaries.get((measurement.device, measurement.case.id, measurement.cache)),
            spec.variant_index,
            spec.relative_to,
        )

    def _doubted(self, measurement: Measurement, estimate: Estimate | None) -> Measurement:
        """The measurement, with a note where what its case declares cannot be right."""
        device = self._targets[measurement.device].device
        spec = self._specs[device.uuid, measurement.case, measurement.cache]
        doubt = estimate and peaks.doubt(spec, device, estimate.median_s, self.peaks.found.get(device.uuid))
        if not doubt:
            return measurement
        self.doubts[device.uuid, measurement.case.id, measurement.cache] = doubt
        return replace(measurement, note="; ".join(filter(None, [measurement.note, peaks.NOTE])))


def _code(runnable: Runnable) -> Code:
    return Code(
        runnable.record,
        modules={module.digest: module.code for module in runnable.modules},
        bench=runnable.spec.bench_text.encode(),
        sources=_sources(runnable),
    )


def _sources(runnable: Runnable) -> dict[str, bytes]:
    """All that a case's binaries were compiled from, by paths from the folder of its benchmark file."""
    home = runnable.spec.bench.parent
    sources: dict[str, bytes] = {}
    for unit, module in zip(runnable.spec.units, runnable.modules, strict=True):
        folder = unit.source.parent
        way = "" if folder == home else os.path.relpath(folder, home)
        # Names are no paths of this machine.
        sources |= {os.path.normpath(os.path.join(way, name)): text for name, text in module.sources.items()}  # noqa: PTH118
    return sources
