"""Record a run: each measurement is stored at once, however the run ends."""

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perfsvc import judge
from perfsvc.build import Binary
from perfsvc.measure.host.device_queue import Stopping
from perfsvc.measure.plan.order import MeasurementKey, Task
from perfsvc.model import Estimate, Measurement, Noise, OverBudget, Status
from perfsvc.report.rows import Doubt
from perfsvc.service.run import peaks
from perfsvc.service.run.peaks import PeakCollector
from perfsvc.service.run.prepare import Target
from perfsvc.service.run.provenance import OpenRun
from perfsvc.store import CaseCode, CaseKey, MeasurementEntry, RunState, Store
from perfsvc.suite import CaseSpec


class Recorder:
    """Writes one run to the store.

    Args:
        store: an open store.
        opened: the run, with the measurements that it already has.
        targets: the devices and their cases.
        report: receives messages for the user who waits.

    Attributes:
        opened: the run as it was when the recorder was made.
        measurements: all measurements of the run's cases.
        peaks: the measured peaks of its devices.
        over_budget: the cases that the budget has no time for.
        doubts: declared work that cannot be right.
    """

    def __init__(
        self, store: Store, opened: OpenRun, targets: Sequence[Target], report: Callable[[str], object]
    ) -> None:
        self._store = store
        self._targets = {target.device.uuid: target for target in targets}
        self._specs = {(target.device.uuid, spec.case, spec.cache): spec for target in targets for spec in target.specs}
        self._binaries: dict[CaseKey, int] = {}
        self.opened = opened
        self.measurements = list(opened.held)
        self.peaks = PeakCollector(tuple(target.device for target in targets), report, opened.peaks)
        self.over_budget: list[OverBudget] = []
        self.doubts: dict[CaseKey, Doubt] = {}
        for target in targets:
            store.devices.put(target.device)

    @contextlib.contextmanager
    def recording(self, stopping: Stopping) -> Iterator[None]:
        """Mark the run finished at the end of the block, interrupted on Ctrl-C, failed on any other exception.

        The run is also interrupted if ``stopping`` is true at the end. A finished run stores its noise and what was
        over budget.
        """
        try:
            yield
        except BaseException as error:
            by_user = isinstance(error, KeyboardInterrupt | GeneratorExit | SystemExit)
            self._store.runs.end(self.run, RunState.INTERRUPTED if by_user else RunState.FAILED)
            raise
        if stopping():
            self._store.runs.end(self.run, RunState.INTERRUPTED)
            return
        self._store.runs.put_over_budget(self.run, [(case.device, case.case, case.cache) for case in self.over_budget])
        self._store.measurements.put_noise(self.run, noises(self.measurements))
        self._store.runs.end(self.run, RunState.FINISHED)

    @property
    def run(self) -> int:
        """The number of the run."""
        return self.opened.run

    @property
    def measured(self) -> frozenset[MeasurementKey]:
        """The keys (device, case, cache state, replica) of the measurements that a resumed run already had."""
        return frozenset((held.device, held.case, held.cache, held.replica) for held in self.opened.held)

    def put_binaries(self, prepared: Sequence[tuple[CaseSpec, Sequence[Binary], Task]]) -> None:
        """Store the binaries and sources of cases that are about to run."""
        numbers = self._store.binaries.put([_code(*case) for case in prepared])
        for (spec, _, task), number in zip(prepared, numbers, strict=True):
            self._binaries[task.device, spec.case, spec.cache] = number

    def put(self, measurements: Iterable[Measurement]) -> None:
        """Store measurements in one transaction; measurements of the peak kernels become the device's measured peak."""
        entries = []
        for measurement in measurements:
            if self.peaks.take(measurement):
                self._store.devices.put_peaks(self.run, self.peaks.peaks)
            else:
                entries.append(self._entry(measurement))
        if entries:
            self._store.measurements.put(self.run, entries)
            self.measurements += [entry.measurement for entry in entries]

    def _entry(self, measurement: Measurement) -> MeasurementEntry:
        estimate = judge.estimate(measurement.samples_s) if measurement.samples_s else None
        key = measurement.device, measurement.case, measurement.cache
        spec = self._specs[key]
        return MeasurementEntry(
            self._with_doubt(measurement, spec, estimate),
            self._targets[measurement.device].environment,
            spec.work,
            estimate,
            self._binaries.get(key),
            spec.variant_index,
            spec.relative_to,
        )

    def _with_doubt(self, measurement: Measurement, spec: CaseSpec, estimate: Estimate | None) -> Measurement:
        """Return the measurement; if its declared work exceeds the measured peak, add a note and keep the doubt."""
        device = self._targets[measurement.device].device
        doubt = estimate and peaks.doubt(spec, device, estimate.median_s, self.peaks.peaks.get(device.uuid))
        if not doubt:
            return measurement
        self.doubts[device.uuid, measurement.case, measurement.cache] = doubt
        return replace(measurement, note="; ".join(filter(None, [measurement.note, peaks.NOTE])))


def _code(spec: CaseSpec, modules: Sequence[Binary], task: Task) -> CaseCode:
    return CaseCode(
        task.record,
        modules={module.digest: module.code for module in modules},
        bench=spec.bench_text.encode(),
        sources=_sources(spec, modules),
    )


def _sources(spec: CaseSpec, modules: Sequence[Binary]) -> dict[str, bytes]:
    """Return every file that a case's binaries were compiled from, by path relative to its benchmark file's folder."""
    home = spec.bench.parent
    sources: dict[str, bytes] = {}
    for unit, module in zip(spec.units, modules, strict=True):
        folder = unit.source.parent
        way = "" if folder == home else os.path.relpath(folder, home)
        # The names are labels, not paths of this machine.
        sources |= {os.path.normpath(os.path.join(way, name)): text for name, text in module.sources.items()}  # noqa: PTH118
    return sources


def noises(measurements: Iterable[Measurement]) -> dict[CaseKey, Noise]:
    """Return the noise of each case's time, from the replicas that are ok; a case with too few replicas has none.

    Samples are rounded to float32, as the store keeps them, so that a resumed run gets the same noise as any other.
    """
    samples: dict[CaseKey, list[NDArray[np.float32]]] = defaultdict(list)
    for measurement in measurements:
        if measurement.status is Status.OK:
            key = measurement.device, measurement.case, measurement.cache
            samples[key].append(np.asarray(measurement.samples_s, np.float32))
    noises = {key: judge.noise_of(replicas) for key, replicas in samples.items()}
    return {key: noise for key, noise in noises.items() if noise.within is not None}
