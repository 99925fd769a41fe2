"""Shared parts of the benchmarks in this folder: compiled cases, whole runs, statistics, claims and tables."""

import argparse
import contextlib
import itertools
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perfsvc import build, suite
from perfsvc.build import Binary, Cache
from perfsvc.device import helper_kernels
from perfsvc.device.find import find
from perfsvc.device.protocol import Device
from perfsvc.measure.host.lock import DeviceLock
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.worker.memory import CaseMemory
from perfsvc.measure.worker.program import Program
from perfsvc.model import Call, DeviceInfo, digest
from perfsvc.process.shared_memory import take_inputs
from perfsvc.service.prepare.recipes import arrays
from perfsvc.store import Store
from perfsvc.suite import CaseSpec, Selection

if TYPE_CHECKING:
    from tests.conftest import Databases

SUITE = Path(__file__).resolve().parents[2] / "kernels"
NVBENCH_SUITE = Path(__file__).parent / "nvbench" / "suite"
"""The eight kernels of the comparison with NVBench."""
PROCESSES = Path(__file__).parent.parent / "data" / "noise" / "processes.npz"
TICK_S = 32e-9
"""The step of the clock that timed these processes."""
CASES_FAILED = 4
"""The exit status of a run in which a case failed or gave a wrong result."""


# --- cases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """The cases of a suite, compiled for a device, and the binary of the device's helper kernels."""

    device: DeviceInfo
    tasks: tuple[Task, ...]
    helper_kernels: bytes


def ready(folder: Path, device: str, sampling: Sampling, select: Sequence[str] = ()) -> Ready:
    """Compile the cases of a suite that its device can run, all or those selected.

    They are at the full points on a GPU, else at the smoke points. A later ``perfsvc run`` finds the binaries and the
    shapes of all inputs in the cache.
    """
    (info,) = find([device])
    toolchain = build.toolchain_for(info.target)
    points = "full" if info.kind == "cuda" else "smoke"
    specs, _ = suite.discover(folder).resolve(Selection(tuple(select)), points, build.known_shapes())
    specs = tuple(spec for spec in specs if not suite.unmet(spec, info))
    ours = helper_kernels.unit(info.kind)
    units = {unit for spec in specs for unit in spec.units} | ({ours} if ours else set())
    built = build.compile_all(units, toolchain, Cache())
    tasks = tuple(_task(info, spec, [_code(built[unit]) for unit in spec.units], sampling) for spec in specs)
    return Ready(info, tasks, _code(built[ours]) if ours else b"")


def _code(built: Binary | Exception) -> bytes:
    if isinstance(built, Exception):
        raise built
    return built.code


def _task(device: DeviceInfo, spec: CaseSpec, modules: Sequence[bytes], sampling: Sampling) -> Task:
    return Task(
        device=device.uuid,
        record=spec.record([digest(code) for code in modules], digest(spec.bench_text.encode())),
        modules=tuple(modules),
        cache=spec.cache,
        sampling=sampling,
        tolerance=spec.tolerance,
        arrays=arrays(spec, 60.0),
    )


def power_hungry(device: str) -> Ready:
    """Return the last variant of the built-in suite's matrix products in bf16 that the device can run.

    On an H100 it reaches the power limit, which lowers the clocks.
    """
    cases = ready(SUITE, device, Sampling(), ["matmul_bf16"])
    ours = [task for task in cases.tasks if not any(isinstance(step, Call) for step in task.record.steps)]
    return replace(cases, tasks=tuple(ours[-1:]))


class Prepared:
    """A case whose inputs are on the device; ``with`` yields a function that queues one sample of it."""

    def __init__(self, device: Device, task: Task) -> None:
        self._device = device
        self._task = task
        self._memory = CaseMemory(device, task.record.buffers)

    def __enter__(self) -> Callable[[], None]:
        memory = self._memory.__enter__()
        program = Program(self._device, self._task.record, self._task.modules, memory, {})
        inputs = take_inputs(self._task.arrays.make())
        memory.reset(lambda name, address: self._device.upload(address, inputs[name]))
        program.run()
        return program.queue

    def __exit__(self, *ended: object) -> None:
        self._memory.__exit__(*ended)  # type: ignore[arg-type]


# --- whole runs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """A finished ``perfsvc run``: when its process began and ended, and the columns of its measurements."""

    began: datetime
    ended: datetime
    columns: Mapping[str, list[Any]]

    @property
    def wall_s(self) -> float:
        """From the start of the process to its end."""
        return (self.ended - self.began).total_seconds()

    @property
    def failed(self) -> list[str]:
        """The cases without a correct result, each with the reason."""
        names = ("case", "status", "reason")
        rows = zip(*(self.columns[name] for name in names), strict=True)
        return [f"{case}: {status}: {reason}" for case, status, reason in rows if status in {"failed", "wrong"}]


def run(folder: Path, suite_folder: Path, devices: Sequence[str], *more: str, database: Path | None = None) -> Ran:
    """Run ``perfsvc run`` in a process of its own, with a new database in a folder, or with the database given.

    Raises:
        RuntimeError: it failed; a run in which only some cases failed has not.
    """
    database = database or folder / f"{len(list(folder.glob('*.db')))}.db"
    named = [word for device in devices for word in ("--device", device)]
    command = ["run", *named, "--suite", str(suite_folder), "--db", str(database), "--format", "json", *more]
    began = datetime.now(UTC)
    done = subprocess.run([sys.executable, "-m", "perfsvc", *command], capture_output=True, text=True, check=False)
    ended = datetime.now(UTC)
    if done.returncode not in {0, CASES_FAILED}:
        raise RuntimeError(
            f"perfsvc {' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout)[-1000:]}"
        )
    with Store.open(str(database)) as store:
        newest = store.runs.newest()
        return Ran(began, ended, store.measurements.columns([newest.id] if newest else []))


@contextlib.contextmanager
def alone_on(device: DeviceInfo) -> Iterator[None]:
    """Hold the GPU's lock while the block lasts, as a run does; end the script if another process has it."""
    lock = DeviceLock(device.uuid)
    if not lock.take():
        sys.exit(f"{device.spec} is in use by process {lock.holder()}: wait until that has ended")
    try:
        yield
    finally:
        lock.release()


# --- databases --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def postgresql(folder: Path) -> Iterator["Databases"]:
    """Yield the databases of a PostgreSQL server that runs until the end of the block."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.conftest import Databases, programs, throwaway

    found = programs()
    if found is None:
        raise SystemExit("there is no PostgreSQL: apt-get install postgresql")
    folder.chmod(0o755)  # PostgreSQL runs as another user if this script runs as root
    home = folder / "postgresql"
    home.mkdir()
    with contextlib.contextmanager(throwaway)(found, home) as server:
        yield Databases(server)


# --- statistics ------------------------------------------------------------------------------------------------------


def tick_of(times_s: Iterable[float]) -> float:
    """Return the resolution of a clock: the smallest step between two different times, at least a nanosecond.

    Smaller steps come from the rounding of the numbers in which times are written.
    """
    nanoseconds = sorted({round(seconds * 1e9) for seconds in times_s})
    return min((b - a for a, b in itertools.pairwise(nanoseconds)), default=1) * 1e-9


def spread_of(medians_s: Sequence[float], tick_s: float) -> float:
    """Return the relative standard deviation of processes' medians.

    It is no smaller than the error of rounding to the clock's resolution, a uniform error of tick / sqrt(12): two
    medians in the same tick are not equal, the clock just cannot tell them apart.
    """
    centre = statistics.median(medians_s)
    return max(statistics.stdev(medians_s), tick_s / math.sqrt(12)) / centre


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of ratios."""
    return statistics.geometric_mean(values)


# --- stored processes ------------------------------------------------------------------------------------------------


def judge_processes(
    description: str | None, claims_of: Callable[[dict[str, NDArray[np.float64]], int, int], list["Claim"]]
) -> int:
    """Run a benchmark that judges random samples of the processes in tests/data/noise; return its exit status.

    Args:
        description: what the benchmark shows.
        claims_of: returns its claims, from the processes' times in seconds by kernel and work, shape (processes,
            samples), the number of comparisons for each rate, and the seed.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000, help="comparisons for each rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    with np.load(PROCESSES) as stored:
        processes = {key: stored[key] * TICK_S for key in stored.files}
    claims = claims_of(processes, arguments.draws, arguments.seed)
    return finish(claims, arguments.json, draws=arguments.draws, seed=arguments.seed)


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A claim of a benchmark: its measured number and the limit. A claim without a number fails."""

    what: str
    value: float | None
    limit: float
    unit: str = ""

    @property
    def holds(self) -> bool:
        """Whether the number is within the limit."""
        return self.value is not None and self.value <= self.limit

    def __str__(self) -> str:
        value = "not measured" if self.value is None else f"{self.value:.4g}{self.unit}"
        return f"{'PASS' if self.holds else 'FAIL'}  {self.what}: {value} (at most {self.limit:g}{self.unit})"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows under headings as text: the first column flush left, all others flush right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = [headings, ["-" * width for width in widths], *rows]
    return "\n".join(_aligned(line, widths) for line in lines)


def _aligned(words: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(words, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(word.rjust(width) for word, width in others)]).rstrip()


def finish(claims: Sequence[Claim], path: Path | None, **found: Any) -> int:
    """Print the claims, write them and the results as JSON, and return the exit status: 0 if all claims hold."""
    print("\n".join(map(str, claims)), flush=True)
    if path:
        judged = [asdict(claim) | {"holds": claim.holds} for claim in claims]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"claims": judged, **found}, indent=1, default=str) + "\n")
    return 0 if all(claim.holds for claim in claims) else 1
