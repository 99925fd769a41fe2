"""The open record of a run: what is measured goes into the store at once, however the run ends."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from perfsvc import judge
from perfsvc.measure.host.device_queue import Stopping
from perfsvc.measure.plan.order import MeasurementKey, OverBudget
from perfsvc.model import Estimate, Measurement
from perfsvc.report.rows import Doubt, Key
from perfsvc.service.running import peaks
from perfsvc.service.running.beginning import Begun
from perfsvc.service.running.levels import Noises, noises
from perfsvc.service.running.peaks import Peaks
from perfsvc.service.running.targets import Runnable, Target
from perfsvc.store import Code, Entry, State, Store


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
