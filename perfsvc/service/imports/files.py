"""Read result files: which runs they hold, which parts are new, and the measurements of a run, few at a time."""

import hashlib
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from perfsvc import formats, judge
from perfsvc.errors import FormatError, NotMeasuredError
from perfsvc.formats import Result
from perfsvc.formats.fields import benchmark_name
from perfsvc.model import (
    Batch,
    CacheState,
    Case,
    Conditions,
    DeviceInfo,
    Environment,
    HistoryRow,
    Measurement,
    Status,
    Work,
)
from perfsvc.service.progress import Progress
from perfsvc.store import CaseKey, MeasurementEntry, Store

UNKNOWN_HOST = "unknown"
NEVER = datetime.max.replace(tzinfo=UTC)
NO_DEVICE = DeviceInfo("host", "", "0", "CPU", "")
"""The device of results whose file describes none."""


@dataclass(frozen=True, slots=True)
class Source:
    """What the results of a run have in common; ``file`` is set if each file is a run of its own."""

    commit: str
    host: str
    file: Path | None


@dataclass(slots=True)
class FoundRun:
    """A run that result files hold.

    Attributes:
        files: its files in the order in which they were named, each with its SHA-256. Each is a replica of its cases.
        parts: the digest of each part of these files that may be imported on its own, with the file.
        devices: the devices of its results, by UUID.
        programs: the programs that measured.
        started: when the first measurement began; without times, the time of the oldest file.
        dirty: whether any result was measured with uncommitted changes.
        results: the number of results.
        empty: the number of results without any number that perfsvc stores.
    """

    files: dict[Path, str] = field(default_factory=dict)
    parts: dict[str, Path] = field(default_factory=dict)
    devices: dict[str, DeviceInfo] = field(default_factory=dict)
    programs: set[str] = field(default_factory=set)
    started: datetime = NEVER
    dirty: bool = False
    results: int = 0
    empty: int = 0

    def add(
        self, result: Result, file: Path, device: DeviceInfo, *, whole: str, changed: datetime, is_empty: bool
    ) -> None:
        """Add a result to its run.

        Args:
            result: the result.
            file: the file that holds it.
            device: its device.
            whole: the digest of the file.
            changed: when the file was changed last.
            is_empty: whether the result has no number that perfsvc stores.
        """
        self.files[file] = whole
        self.parts.setdefault(result.digest or whole, file)
        self.devices[device.uuid] = device
        self.started = min(self.started, result.started or changed)
        self.programs |= {result.program} - {""}
        self.dirty |= result.dirty
        self.results += 1
        self.empty += is_empty

    def forget(self, digests: Container[str]) -> None:
        """Remove the parts that were imported before, and the files without any other part."""
        self.parts = {digest: file for digest, file in self.parts.items() if digest not in digests}
        kept = set(self.parts.values())
        self.files = {file: content for file, content in self.files.items() if file in kept}


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the files of one command. Every file is read twice: first to check all of it, then to store it.

    Attributes:
        format: the format of the files.
        commit: the commit that was measured; empty to take it from the files.
        host: the machine that measured; empty to take it from the files.
        separate: whether each file is a run of its own.
        metrics: the counters that are stored as metrics.
        suite: the name of what is measured, which becomes a part of the names of the benchmarks; empty for none.
        caches: the state of the caches of each case that was read, by device; None as long as it is unknown.
    """

    format: str
    commit: str = ""
    host: str = ""
    separate: bool = False
    metrics: frozenset[str] = frozenset()
    suite: str = ""
    caches: dict[tuple[str, Case], CacheState | None] = field(default_factory=dict)

    # --- checking --------------------------------------------------------------------------------------------------

    def runs(self, paths: Sequence[Path], progress: Progress) -> tuple[dict[Source, FoundRun], set[str]]:
        """Read all files, and return the runs that they hold, and the names of all counters.

        Raises ``FormatError`` if any file is not valid or has no results.
        """
        files = dict.fromkeys(file for path in paths for file in formats.files_of(self.format, path))
        progress.begin("reading", len(files))
        found: dict[Source, FoundRun] = defaultdict(FoundRun)
        counters: set[str] = set()
        first: dict[str, Path] = {}
        for file in files:
            content = formats.content(file)
            whole, changed = _digest(self.format, content), datetime.fromtimestamp(file.stat().st_mtime, UTC)
            if (same := first.setdefault(whole, file)) != file:
                progress.report(f"{file} has the same content as {same}, and is skipped")
                progress.step(file.name)
                continue
            results = 0
            for result in formats.parse(self.format, content, file.parent, name=str(file)):
                source = self._source(result, file)
                device = device_on(source.host, result.device)
                found[source].add(result, file, device, whole=whole, changed=changed, is_empty=self._is_empty(result))
                counters |= result.counters.keys()
                key = device.uuid, self._case(result)
                self.caches[key] = result.cache or self.caches.get(key)
                results += 1
            if not results:
                raise FormatError(f"{file} has no results", cure=f"let {self.format} measure something")
            progress.step(file.name)
        return dict(found), counters

    def _source(self, result: Result, file: Path) -> Source:
        host = self.host or result.host or UNKNOWN_HOST
        return Source(self.commit or result.commit, host, file if self.separate else None)

    def _case(self, result: Result) -> Case:
        """Return the case of a result: a named suite has cases, and so histories, of its own."""
        name = benchmark_name(f"{self.suite}:{result.benchmark}") if self.suite else result.benchmark
        return Case(name, result.variant, result.point)

    def find_caches(self, store: Store) -> None:
        """Find the state of the caches of cases without a time: that of their last time, else cold."""
        for (device, case), cache in self.caches.items():
            if cache is None:
                stored: list[HistoryRow] = []
                with suppress(NotMeasuredError):
                    stored = store.series.case_history(case.id, device, last=1)
                self.caches[device, case] = stored[-1].cache if stored else CacheState.COLD

    def _is_empty(self, result: Result) -> bool:
        return result.status is Status.OK and not result.samples_s and not self._metrics(result)

    def _metrics(self, result: Result) -> dict[str, float]:
        """Return the metrics of a result that are stored."""
        chosen = {name: value for name, value in result.counters.items() if name in self.metrics}
        return {**chosen, **result.metrics}

    # --- storing ---------------------------------------------------------------------------------------------------

    def entries(self, source: Source, run: FoundRun) -> Iterator[MeasurementEntry]:
        """Yield the measurements of a run. Each file is a replica; hyperfine's file has a replica for each process.

        Args:
            source: what the results of the run have in common.
            run: the run, with the parts that are stored.
        """
        replicas: dict[CaseKey, int] = defaultdict(int)
        for file, digest in run.files.items():
            content = formats.content(file)
            if _digest(self.format, content) != digest:
                raise FormatError(f"{file} was changed while it was imported", cure="import it again")
            in_file: dict[CaseKey, set[int]] = defaultdict(set)
            for result in formats.parse(self.format, content, file.parent, name=str(file)):
                is_new = run.parts.get(result.digest or digest) == file
                if not is_new or self._is_empty(result) or self._source(result, file) != source:
                    continue
                measurement = self._measurement(result, source.host)
                key = measurement.device, measurement.case, measurement.cache
                used = in_file[key]  # --commit and --host may merge several runs of the file
                replica = max(used) + 1 if result.replica in used else result.replica
                used.add(replica)
                measurement = replace(measurement, replica=replicas[key] + replica)
                yield MeasurementEntry(
                    measurement,
                    Environment(),
                    Work(read_bytes=result.moved_bytes),
                    judge.estimate(measurement.samples_s) if measurement.samples_s else None,
                    measured_at=result.started or run.started,
                )
            for key, used in in_file.items():
                replicas[key] += max(used) + 1

    def _measurement(self, result: Result, host: str) -> Measurement:
        """Return a result as a measurement of replica 0."""
        batches: tuple[Batch, ...] = ()
        if result.clock_hz is not None and result.samples_s:
            batches = (Batch(result.samples_s, conditions=Conditions(sm_clock_hz=result.clock_hz)),)
        case, device = self._case(result), device_on(host, result.device).uuid
        return Measurement(
            case,
            device,
            0,
            result.status,
            cache=result.cache or self.caches[device, case] or CacheState.COLD,
            reason=result.reason,
            cure="see what the program that was measured printed" if result.reason else "",
            samples_s=result.samples_s,
            metrics=self._metrics(result) if result.status is Status.OK else {},
            batches=batches,
            note=result.note,
        )


def device_on(host: str, device: DeviceInfo | None) -> DeviceInfo:
    """Return the device of a result, with a UUID of its own: its host, its model and its number."""
    device = device or NO_DEVICE
    return replace(device, uuid=f"import:{host}:{device.model}:{device.uuid}")


def _digest(format: str, content: bytes) -> str:  # noqa: A002 - the word of the command
    return hashlib.sha256(f"{format}\n".encode() + content).hexdigest()
