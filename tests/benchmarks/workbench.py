"""Shared parts of the benchmarks in this folder: compiled cases, whole runs, statistics, claims and tables."""

import argparse
import contextlib
import itertools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perfsvc import build, suite
from perfsvc.build import Binary, Cache
from perfsvc.device import memory
from perfsvc.device.find import find
from perfsvc.device.protocol import Device
from perfsvc.measure.host.lock import DeviceLock
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.worker.memory import CaseMemory
from perfsvc.measure.worker.program import Program
from perfsvc.model import Call, DeviceInfo, digest
from perfsvc.process.shared_memory import take_inputs
from perfsvc.service.prepare.targets import arrays
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
    ours = memory.unit(info.kind)
    units = {unit for spec in specs for unit in spec.units} | ({ours} if ours else set())
    built = build.compile_all(units, toolchain, Cache())
    tasks = tuple(_task(info, spec, [code_of(built[unit]) for unit in spec.units], sampling) for spec in specs)
    return Ready(info, tasks, code_of(built[ours]) if ours else b"")


def code_of(built: Binary | Exception) -> bytes:
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


# --- commands --------------------------------------------------------------------------------------------------------


def perfsvc(
    folder: Path, *words: str, codes: Collection[int] = (0, 1, 3), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of perfsvc in a folder.

    Raises:
        RuntimeError: it ended with an exit code that is not in ``codes``.
    """
    command = [sys.executable, "-m", "perfsvc", *words]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in codes:
        why = (done.stderr or done.stdout)[-2000:]
        raise RuntimeError(f"perfsvc {' '.join(words)} ended with {done.returncode}: {why}")
    return done


def timed(command: Sequence[str], **more: Any) -> tuple[int, float, float]:
    """Run a command; return its exit code, its wall seconds, and the processor seconds of all its processes."""
    began = time.perf_counter()
    process = subprocess.Popen(command, **more)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, time.perf_counter() - began, used.ru_utime + used.ru_stime


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, as an author of its own; return what it printed."""
    author = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *author, *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def commit(folder: Path, message: str, what: str = "-A") -> None:
    """Commit everything in a folder, or ``what``; the folder becomes a repository at its first commit."""
    if not (folder / ".git").exists():
        git(folder, "init", "-q", "-b", "main")
        (folder / ".gitignore").write_text("__pycache__/\n")
    git(folder, "add", what)
    git(folder, "commit", "-q", "--allow-empty", "-m", message)


def processes_with(variable: str, value: str) -> list[Path]:
    """Return the folders in /proc of the processes with this in their environment, without those that have ended."""
    mark, found = f"{variable}={value}\0".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            ended = ") Z " in (process / "stat").read_text()
            found += [process] if mark in (process / "environ").read_bytes() and not ended else []
    return found


@contextlib.contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the address of a receiver on loopback, and the messages that it got: path, headers and body of each."""
    posts: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            posts.append({"path": self.path, "headers": dict(self.headers), "body": body})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield f"json://127.0.0.1:{server.server_port}", posts
        finally:
            server.shutdown()
            serving.join()


@contextlib.contextmanager
def browser_tab(width: int = 1600) -> Iterator[Any]:
    """Yield a tab of headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": width, "height": 900})
        browser.close()


@dataclass
class Silent:
    """A ``Progress`` that keeps its messages, and prints them if asked."""

    prints: bool = False
    messages: list[str] = field(default_factory=list)

    def begin(self, stage: str, total: int) -> None:
        """Ignore the stage."""

    def step(self, what: str) -> None:
        """Ignore the step."""

    def report(self, line: str, **facts: object) -> None:
        """Keep the message."""
        self.messages.append(line)
        if self.prints:
            print(line, flush=True)


# --- whole runs ------------------------------------------------------------------------------------------------------

Key = tuple[str, str, str]
"""A case, its cache state and a device's UUID."""


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

    @property
    def medians(self) -> dict[Key, list[list[float]]]:
        """The medians of the replicas of each case that was measured on one device."""
        found: dict[Key, list[list[float]]] = {}
        names = ("case", "cache", "device", "median_s")
        for case, cache, device, median_s in zip(*(self.columns[name] for name in names), strict=True):
            if median_s is not None and "+" not in device:
                found.setdefault((case, cache, device), []).append([median_s])
        return found


def run(folder: Path, suite_folder: Path, devices: Sequence[str], *more: str, database: Path | None = None) -> Ran:
    """Run ``perfsvc run`` in a process of its own, with a new database in a folder, or with the database given.

    Raises:
        RuntimeError: it failed; a run in which only some cases failed has not.
    """
    database = database or folder / f"{len(list(folder.glob('*.db')))}.db"
    named = [word for device in devices for word in ("--device", device)]
    command = ["run", *named, "--suite", str(suite_folder), "--db", str(database), "--format", "json", *more]
    began = datetime.now(UTC)
    perfsvc(Path.cwd(), *command, codes=(0, CASES_FAILED))
    ended = datetime.now(UTC)
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


def median_us(device: Any, sample: Callable[[], None], samples: int = 25) -> float:
    """Return the median microseconds of samples on a GPU, each after an eviction; the first two do not count."""
    nbytes = 2 * device.info.l2_bytes
    batch = device.batch(sample, samples, clock="device", evict_bytes=nbytes, blocked=True)
    return 1e6 * statistics.median(batch.samples_s[2:])


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
    arguments = parsed(description, ("--draws", 1000, "comparisons for each rate"), ("--seed", 1))
    with np.load(PROCESSES) as stored:
        processes = {key: stored[key] * TICK_S for key in stored.files}
    claims = claims_of(processes, arguments.draws, arguments.seed)
    return finish(claims, arguments.json, draws=arguments.draws, seed=arguments.seed)


# --- the command line ------------------------------------------------------------------------------------------------


def parsed(description: str | None, *options: tuple[Any, ...]) -> argparse.Namespace:
    """Return the options of a script; each has ``--json``, a file for the results.

    Args:
        description: the docstring of the script.
        options: for each option its name, what it may be, and its help. What it may be is its default value, or its
            type if there is no default, or further arguments of ``add_argument``; False is a flag.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value, *text in (*options, ("--json", Path, "write the results to this file")):
        how = {"default": value, "type": type(value)}
        if value is False:
            how = {"action": "store_true"}
        elif isinstance(value, dict):
            how = value
        elif isinstance(value, type):
            how = {"type": value}
        shown = [f"(default: {how['default']})"] if how.get("default") else []
        parser.add_argument(name, help=" ".join([*text, *shown]) or None, **how)
    return parser.parse_args()


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


def finish(claims: Sequence[Claim], path: Path | None, *, problems: Sequence[str] = (), **found: Any) -> int:
    """Print the problems and the claims, write them and the results as JSON, and return the exit status.

    It is 0 if all claims hold.
    """
    print("\n".join(["", *(f"PROBLEM  {problem}" for problem in problems), *map(str, claims)]), flush=True)
    if path:
        judged = [asdict(claim) | {"holds": claim.holds} for claim in claims]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps({"claims": judged, "problems": list(problems), **found}, indent=1, default=str) + "\n"
        )
    return 0 if all(claim.holds for claim in claims) else 1
