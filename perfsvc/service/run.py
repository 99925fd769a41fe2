"""One run: resolve the suite, compile, measure, store, judge."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from perfsvc import judge, suite
from perfsvc.device.find import find, why_no_gpu
from perfsvc.errors import SuiteError
from perfsvc.measure import pool
from perfsvc.measure.shared import SharedArrays, Shelf, share
from perfsvc.model import DeviceInfo, Judgement, Measurement, Provenance, Status
from perfsvc.service import provenance
from perfsvc.service.compare import judge_run
from perfsvc.service.levels import Levels, levels
from perfsvc.service.progress import Progress, Silent
from perfsvc.service.record import Recorder
from perfsvc.service.targets import choose, compile_units
from perfsvc.store import Store
from perfsvc.suite import CaseSpec, Selection

SHELF_SHARE = 0.25
"""Of the machine's memory: inputs and references kept in shared memory between replicas."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a person or cron asks for."""

    database: str
    suite: Path
    devices: tuple[str, ...] = ("auto",)
    selection: Selection = field(default_factory=Selection)
    points: Literal["smoke", "full"] | None = None  # None: full on a GPU, smoke elsewhere
    replicas: int = 3
    samples: int | None = None  # None: by the kind of device
    limit_s: float = 60.0
    seed: int | None = None
    label: str = ""
    threshold: float | None = None
    command_line: str = ""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What came of it.

    Attributes:
        run: its number.
        devices: those it measured on.
        measurements: all of them, as they came.
        judgements: the verdicts.
        problems: what is wrong with benchmarks that the selection reaches.
        warnings: what is wrong with the others.
        specs: the cases by device UUID and case id.
    """

    run: int
    devices: tuple[DeviceInfo, ...]
    measurements: tuple[Measurement, ...]
    levels: Levels
    judgements: tuple[Judgement, ...]
    problems: tuple[SuiteError, ...]
    warnings: tuple[SuiteError, ...]
    specs: Mapping[tuple[str, str], CaseSpec]

    @property
    def failed(self) -> bool:
        """A benchmark that was selected could not be used, or a case failed or gave a wrong result."""
        return bool(self.problems) or any(m.status in {Status.FAILED, Status.WRONG} for m in self.measurements)

    def exit_code(self, *, strict: bool) -> int:
        """The command's exit code."""
        return judge.exit_code(self.judgements, failed=self.failed, strict=strict)


def run(request: RunRequest, progress: Progress | None = None) -> RunOutcome:
    """Measures a suite on every device asked for and judges it; each measurement is committed as it arrives.

    Raises:
        UsageError: a selection matches nothing, or the suite is empty.
        InfrastructureError: no device, no compiler or no database.
    """
    progress = progress or Silent()
    devices = find(request.devices)
    if "auto" in request.devices and (reason := why_no_gpu()):
        progress.say(f"measuring on the CPU device, for there is no GPU to use: {reason}")
    found = suite.discover(request.suite)
    targets = choose(found, devices, request.selection, request.points)
    with Store.open(request.database) as store, contextlib.closing(Shelf(_shelf_bytes())) as shelf:
        binaries = compile_units(targets, progress)
        recorder = Recorder(store, _origin(request), targets, binaries)
        with recorder.recording():
            plan = recorder.plan(
                partial(_shared, shelf), replicas=request.replicas, samples=request.samples, limit_s=request.limit_s
            )
            progress.begin("measuring", len(plan.tasks) * plan.replicas)
            with contextlib.closing(pool.measure(plan, {device.uuid: device for device in devices})) as measured:
                for measurement in measured:
                    recorder.put(measurement)
                    progress.step(measurement.case.id)
        judgements = judge_run(store, recorder.run, threshold=request.threshold)
        store.put_verdicts(recorder.run, judgements)
    problems, warnings = found.split_problems(request.selection)
    return RunOutcome(
        run=recorder.run,
        devices=tuple(devices),
        measurements=tuple(recorder.measurements),
        levels=levels(recorder.measurements),
        judgements=tuple(judgements),
        problems=problems,
        warnings=warnings,
        specs={(target.device.uuid, spec.case.id): spec for target in targets for spec in target.specs},
    )


def _shelf_bytes() -> int:
    return int(SHELF_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _shared(shelf: Shelf, spec: CaseSpec) -> SharedArrays:
    """The inputs and references of a case; all variants of a benchmark share them at each point."""
    return shelf.get((spec.bench, spec.case.point), lambda: share(*suite.make_arrays(spec)))


def _origin(request: RunRequest) -> Provenance:
    return provenance.collect(
        request.suite,
        command_line=request.command_line,
        label=request.label,
        scope=provenance.scope_of(request.suite, request.selection, request.points),
        seed=int.from_bytes(os.urandom(4)) if request.seed is None else request.seed,
        replicas=request.replicas,
    )
