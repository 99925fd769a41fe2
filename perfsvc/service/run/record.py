"""Record a run: each measurement is stored at once, however the run ends."""

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from perfsvc import judge
from perfsvc.build import Binary
from perfsvc.build.lines import renamed
from perfsvc.errors import DatabaseError, PerfsvcError
from perfsvc.measure.host.device_queue import Stopping
from perfsvc.measure.plan.order import MeasurementKey, Task
from perfsvc.model import MEMORY, Environment, Estimate, Measurement, OverBudget, Unit
from perfsvc.report.rows import Doubt
from perfsvc.service.peaks.collector import PeakCollector, doubt, note
from perfsvc.service.prepare.targets import Target
from perfsvc.service.run.provenance import OpenRun
from perfsvc.service.run.spool import RunIdentity, Spool
from perfsvc.store import CaseCode, CaseKey, MeasurementEntry, RunState, Store
from perfsvc.suite import CaseSpec
from perfsvc.units import duration_text

WAIT_S, PAUSE_S = 600.0, 5.0
"""How long a run that has measured everything waits for its database, and the seconds between two attempts."""


class Recorder:
    """Writes one run to the store.

    If the database cannot be written after the run has begun to measure, the run goes on and its results go to a
    ``Spool``. At the end of the run the spool is sent to the database.

    Args:
        store: an open store.
        opened: the run, with the measurements that it already has.
        targets: the devices and their cases.
        environments: the environment in which each device measures, by UUID.
        report: receives messages for the user who waits.

    Attributes:
        opened: the run as it was when the recorder was made.
        measurements: all measurements of the run's cases.
        peaks: the measured peaks of the run's devices.
        over_budget: the cases that the budget has no time for.
        doubts: declared work that cannot be right.
    """

    def __init__(
        self,
        store: Store,
        opened: OpenRun,
        targets: Sequence[Target],
        environments: Mapping[str, Environment],
        report: Callable[[str], object],
    ) -> None:
        self._store = store
        self._report = report
        self._spool: Spool | None = None
        self._identity = RunIdentity.of(store, opened.run)
        self._codes: dict[int, CaseCode] = {}
        self._entries: list[MeasurementEntry] = []
        self._has_measured = False
        self._environments = environments
        self._targets = {target.device.uuid: target for target in targets}
        self._specs = {(target.device.uuid, spec.case, spec.cache): spec for target in targets for spec in target.specs}
        self._binaries: dict[CaseKey, int] = {}
        self.opened = opened
        self.measurements = list(opened.measurements)
        self.over_budget: list[OverBudget] = []
        self.doubts: dict[CaseKey, Doubt] = {}
        for target in targets:
            store.devices.put(target.device)
        devices = [target.device for target in targets]
        self.peaks = PeakCollector(store, opened.run, devices, report, opened.peaks, write=self._write)

    @contextlib.contextmanager
    def recording(self, stopping: Stopping) -> Iterator[None]:
        """Store how the block ended: the run is finished, interrupted (by Ctrl-C), or failed (by another exception).

        The run is also interrupted if ``stopping`` returns True at the end. A finished run stores the cases that
        were over budget.

        Raises:
            DatabaseError: the database cannot be written. If the run had begun to measure, its results are in a spool,
                which the error names.
        """
        try:
            yield
        except BaseException as error:
            by_user = isinstance(error, KeyboardInterrupt | GeneratorExit | SystemExit)
            try:
                self._end(RunState.INTERRUPTED if by_user else RunState.FAILED, wait_s=0 if by_user else WAIT_S)
            except DatabaseError as away:
                if not by_user:
                    raise
                self._report(str(away))
            raise
        if stopping():
            self._end(RunState.INTERRUPTED, wait_s=0)
            return
        self._end(RunState.FINISHED, wait_s=WAIT_S)

    @property
    def run(self) -> int:
        """The number of the run."""
        return self.opened.run

    @property
    def measured(self) -> frozenset[MeasurementKey]:
        """The keys (device, case, cache state, replica) of the measurements that a resumed run already had."""
        return frozenset((old.device, old.case, old.cache, old.replica) for old in self.opened.measurements)

    def put_binaries(self, prepared: Sequence[tuple[CaseSpec, Sequence[Binary], Task]]) -> None:
        """Store the binaries and sources of cases that are about to run."""
        cases = {id(case[-1].record): case for case in prepared}  # equal devices share the records of their cases
        codes = [_code(*case) for case in cases.values()]
        numbers = self._store.binaries.put(codes)
        self._codes |= dict(zip(numbers, codes, strict=True))
        of_records = dict(zip(cases, numbers, strict=True))
        for spec, _, task in prepared:
            self._binaries[task.device, spec.case, spec.cache] = of_records[id(task.record)]

    def put(self, measurements: Iterable[Measurement]) -> None:
        """Store measurements in one transaction; measurements of peak cases are stored as the peak of their device."""
        measurements = list(measurements)
        self._has_measured |= any(measurement.wall_s > 0 for measurement in measurements)
        entries = [self._entry(measurement) for measurement in measurements if not self.peaks.take(measurement)]
        if entries:
            self._put(entries)
            self._entries += entries
            self.measurements += [entry.measurement for entry in entries]

    def _put(self, entries: Sequence[MeasurementEntry]) -> None:
        if self._spool is None:
            self._write(lambda store, run: store.measurements.put(run, entries), lambda spool: spool.put(entries))
        else:
            self._spool.put(entries)

    def _end(self, state: RunState, *, wait_s: float) -> None:
        """Store that the run has ended, and send the spool if there is one; wait for the database for some time.

        Raises:
            DatabaseError: the database cannot be written; a spool is kept.
        """
        was_sent = False
        try:
            self._write(partial(self._put_end, state=state))
            if self._spool is not None:
                self._send(self._spool, wait_s)
                was_sent = True
        finally:
            if self._spool is not None:
                self._spool.close()
                self._spool = None
        if was_sent:  # a spool lacks the older peaks, so it could not note which of them are in doubt
            for (device, _, _), doubted in self.doubts.items():
                if doubted.peak != MEMORY:
                    self.peaks.doubt(device, doubted.peak)

    def _put_end(self, store: Store, run: int, state: RunState) -> None:
        """Store how the run has ended. If a part is refused, all of it goes to the spool, which replaces every part."""
        if state is RunState.FINISHED:
            over_budget = [(case.device, case.case, case.cache) for case in self.over_budget]
            store.runs.put_over_budget(run, over_budget)
        store.runs.end(run, state)

    def _write(self, act: Callable[[Store, int], None], in_spool: Callable[[Spool], None] | None = None) -> None:
        """Call a function that writes; once the database has refused a write, all writes go to the spool.

        Args:
            act: writes to a store, in which the run has a number.
            in_spool: does the same in a spool; None for ``act``.
        """
        if self._spool is None:
            try:
                act(self._store, self.run)
                return
            except DatabaseError as error:
                if not self._has_measured:
                    raise
                self._open_spool(error)
        assert self._spool is not None  # noqa: S101 - _open_spool has raised otherwise
        if in_spool is not None:
            in_spool(self._spool)
        else:
            act(self._spool.store, self._spool.run)

    def _open_spool(self, error: DatabaseError) -> None:
        """Make a spool with everything that the run has stored so far; raise ``error`` if that is impossible."""
        devices = [target.device for target in self._targets.values()]
        try:
            spool = Spool.make(self._store, self._identity, devices, self._codes)
            try:
                spool.put(self._entries)
                if self.peaks.of_memory:
                    spool.store.devices.put_peaks(spool.run, self.peaks.of_memory)
            except BaseException:
                spool.close()
                raise
        except PerfsvcError as unwritable:
            error.add_note(f"the results could not be kept in a spool either: {unwritable.what}")
            raise error from unwritable
        self._spool = spool
        self._report(f"{error.what}: measuring goes on, and the results of run {self.run} go to {spool.file}")

    def _send(self, spool: Spool, wait_s: float) -> None:
        """Send the spool to the database. Raises ``DatabaseError`` if the database does not answer in time."""
        began = time.monotonic()
        attempts = 0
        while True:
            try:
                measurements = spool.send(self._store)
                break
            except DatabaseError as error:
                if not error.again or time.monotonic() - began + PAUSE_S > wait_s:
                    raise self._kept(spool, error) from error
                if not attempts:
                    self._report(f"{error.what}: the run waits for its database, {duration_text(wait_s)} at most")
                attempts += 1
            try:
                time.sleep(PAUSE_S)
            except KeyboardInterrupt:
                self._report(f"nothing is lost: the results of run {self.run} are in {spool.file}")
                raise
        self._report(f"the database answers again: it has the results of run {self.run} now, {measurements}")

    def _kept(self, spool: Spool, error: DatabaseError) -> DatabaseError:
        """Return the error of a run whose database stays away."""
        return DatabaseError(
            f"{error.what}; nothing is lost: the results of run {self.run} are in {spool.file}",
            cure=f"the next perfsvc run or perfsvc nightly sends them, or: perfsvc sync {spool.file} "
            f"{self._store.location}",
            again=error.again,
        )

    def _entry(self, measurement: Measurement) -> MeasurementEntry:
        """Return a measurement with everything that the store keeps with it: environment, work, estimate, binary."""
        estimate = judge.estimate(measurement.samples_s) if measurement.samples_s else None
        key = measurement.device, measurement.case, measurement.cache
        spec = self._specs[key]
        return MeasurementEntry(
            self._with_doubt(measurement, spec, estimate),
            self._environments[measurement.device],
            spec.work,
            estimate,
            self._binaries.get(key),
            spec.variant_index,
            spec.relative_to,
            datetime.now(UTC),
        )

    def _with_doubt(self, measurement: Measurement, spec: CaseSpec, estimate: Estimate | None) -> Measurement:
        """Return a measurement; if its declared work exceeds a measured peak, store a doubt and add a note."""
        device = self._targets[measurement.device].device
        doubted = estimate and doubt(spec, device, estimate.median_s, self.peaks.rates(device.uuid))
        if not doubted:
            return measurement
        self.doubts[device.uuid, measurement.case, measurement.cache] = doubted
        if doubted.peak != MEMORY:
            self.peaks.doubt(device.uuid, doubted.peak)
        return replace(measurement, note="; ".join(filter(None, [measurement.note, note(doubted)])))


def _code(spec: CaseSpec, modules: Sequence[Binary], task: Task) -> CaseCode:
    """Return the code of a case as the store keeps it: replay record, binaries, benchmark file and sources."""
    return CaseCode(
        task.record,
        modules={module.digest: module.code for module in modules},
        bench=spec.bench_text.encode(),
        sources=_sources(spec, modules),
        lines=_lines(spec, modules),
        built_with=_built_with(modules),
    )


def _sources(spec: CaseSpec, modules: Sequence[Binary]) -> dict[str, bytes]:
    """Return every file that a case's binaries were compiled from, by path relative to its benchmark file's folder.

    The files of a program that are text, such as scripts, are their own source.
    """
    return (
        {
            _label(spec, unit, name): text
            for unit, module in zip(spec.units, modules, strict=False)  # the files of a program follow the units
            for name, text in module.sources.items()
        }
        | {
            _relative(spec, file.path): module.code
            for file, module in zip(spec.files, modules[len(spec.units) :], strict=True)
            if _is_text(module.code)
        }
    )


def _built_with(modules: Sequence[Binary]) -> dict[str, bytes]:
    """Return what else decides the binaries of a case; the lists of headers of several binaries are put together."""
    lists: dict[str, set[bytes]] = defaultdict(set)
    for module in modules:
        for name, content in module.built_with.items():
            lists[name] |= set(content.splitlines())
    return {name: b"\n".join(sorted(lines)) for name, lines in lists.items()}


def _lines(spec: CaseSpec, modules: Sequence[Binary]) -> dict[str, bytes]:
    """Return the line table of each binary that has one, by the binary's digest, with files named as in the store."""
    return {
        module.digest: renamed(module.lines, partial(_label, spec, unit))
        for unit, module in zip(spec.units, modules, strict=False)
        if module.lines
    }


def _label(spec: CaseSpec, unit: Unit, name: str) -> str:
    """Return the path of a unit's file relative to the folder of the benchmark file."""
    folder, bench_folder = unit.source.parent, spec.bench.parent
    relative = "" if folder == bench_folder else os.path.relpath(folder, bench_folder)
    return os.path.normpath(os.path.join(relative, name))  # noqa: PTH118 - a label, not a path of this machine


def _relative(spec: CaseSpec, path: Path) -> str:
    """Return the path of a file relative to the folder of the benchmark file."""
    return os.path.relpath(path, spec.bench.parent)


def _is_text(content: bytes) -> bool:
    """Return whether the content of a file is UTF-8 text without zero bytes."""
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False
