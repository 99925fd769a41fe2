"""The open record of a run: what is measured goes into the store at once, however the run ends."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from perfsvc import judge
from perfsvc.errors import CaseError
from perfsvc.measure.outcome import without_samples
from perfsvc.measure.plan import Plan, Task
from perfsvc.measure.sampler import Sampling
from perfsvc.measure.shared import SharedArrays
from perfsvc.model import Call, DeviceInfo, Measurement, Provenance, digest
from perfsvc.service.targets import Binaries, Runnable, Target, prepare
from perfsvc.store import State, Store
from perfsvc.suite import CaseSpec

CPU_SAMPLING = Sampling(warmup=2, samples=20, seconds=0.15)
"""The CPU device's times are rough: a short look is enough."""


class Recorder:
    """Writes one run.

    Args:
        store: an open store.
        origin: where the run comes from.
        targets: the devices and their cases.
        binaries: what became of their units.
    """

    def __init__(self, store: Store, origin: Provenance, targets: Sequence[Target], binaries: Binaries) -> None:
        self._store = store
        self._targets = {target.device.uuid: target for target in targets}
        self._seed = origin.seed
        self._specs = {(target.device.uuid, spec.case): spec for target in targets for spec in target.specs}
        self._binaries = binaries
        self._stored: dict[tuple[str, str], int] = {}
        self.measurements: list[Measurement] = []
        self.run = store.begin_run(origin)
        for target in targets:
            store.put_device(target.device)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Marks the run finished at the end of the block, interrupted on Ctrl-C, failed on any other exception."""
        try:
            yield
        except BaseException as error:
            by_hand = isinstance(error, KeyboardInterrupt | GeneratorExit | SystemExit)
            self._store.end_run(self.run, State.INTERRUPTED if by_hand else State.FAILED)
            raise
        self._store.end_run(self.run, State.FINISHED)

    def plan(
        self, arrays: Callable[[CaseSpec], SharedArrays], *, replicas: int, samples: int | None, limit_s: float
    ) -> Plan:
        """Stores the binary of every case that can run and plans it; records at once why each other one cannot."""
        tasks = []
        for (device, case), spec in self._specs.items():
            match prepare(self._targets[device], spec, self._binaries):
                case Runnable() as runnable:
                    tasks.append(self._task(device, runnable, arrays, samples))
                case CaseError() as error:
                    self.put(without_samples(case, device, 0, spec.mode, error))
        return Plan(tuple(tasks), replicas, self._seed, limit_s)

    def put(self, measurement: Measurement) -> None:
        """Commits one measurement."""
        spec = self._specs[measurement.device, measurement.case]
        self._store.put_measurement(
            self.run,
            measurement,
            environment=self._targets[measurement.device].environment,
            work=spec.work,
            estimate=judge.estimate(measurement.samples_s) if measurement.samples_s else None,
            binary=self._stored.get((measurement.device, measurement.case.id)),
        )
        self.measurements.append(measurement)

    def _task(
        self, device: str, runnable: Runnable, arrays: Callable[[CaseSpec], SharedArrays], samples: int | None
    ) -> Task:
        spec = runnable.spec
        bench = spec.bench_text.encode()
        record = spec.record([module.digest for module in runnable.modules], digest(bench))
        self._stored[device, spec.case.id] = self._store.put_binary(
            record,
            modules={module.digest: module.code for module in runnable.modules},
            bench=bench,
            sources=_sources(runnable),
        )
        calls = any(isinstance(step, Call) for step in record.steps)
        return Task(
            device=device,
            record=record,
            modules=tuple(module.code for module in runnable.modules),
            mode=spec.mode,
            sampling=_sampling(self._targets[device].device, samples),
            tolerance=spec.tolerance,
            arrays=lambda: arrays(spec),
            bench=spec.bench_text if calls else "",
        )


def _sources(runnable: Runnable) -> dict[str, bytes]:
    """All that a case's binaries were compiled from, by paths from the folder of its benchmark file."""
    home = runnable.spec.bench.parent
    return {
        os.path.normpath(Path(os.path.relpath(unit.source.parent, home), name)): text
        for unit, module in zip(runnable.spec.units, runnable.modules, strict=True)
        for name, text in module.sources.items()
    }


def _sampling(device: DeviceInfo, samples: int | None) -> Sampling:
    usual = CPU_SAMPLING if device.kind == "cpu" else Sampling()
    return usual if samples is None else replace(usual, samples=samples)
