"""Compare perfsvc's medians of five Triton kernels with those of ``triton.testing.do_bench``, on the same GPU.

    python tests/benchmarks/do_bench.py [--device cuda:0] [--replicas 3]

perfsvc measures the suite ``tests/gpu/suites/triton_five``, and an empty kernel too. Then a fresh process launches
the same kernels, in the configurations that perfsvc's tuning chose, with the same inputs, and times them with
``do_bench``. Both have their arrays at eight places in memory, and the result is the mean over the places. While
``do_bench`` works, a thread reads the clock of the multiprocessors.

Prints a table, and the reason for each ratio that is more than 1 % from 1. A reason has to be measured:

- the events: what ``do_bench`` measures of an empty kernel beyond perfsvc's time is subtracted;
- the clock: the times differ in the same direction as the clocks, and by no larger share;
- the pauses: ``do_bench`` keeps the GPU busy without a pause, and a GPU at its power limit lowers its clock. Short
  calls of ``do_bench`` with pauses between them are faster, and perfsvc's time lies between both;
- the scatter: the middle 60 % of do_bench's own samples reach further than the difference.

Exits with 1 if a ratio has none of these reasons.
"""

import argparse
import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np
from workbench import Claim, finish, parsed, perfsvc, table

from perfsvc.measure.worker.packages import PackageFunction
from perfsvc.measure.worker.program import load_functions
from perfsvc.model import TIME, Call, Level, Series
from perfsvc.service.confirm.pairs import stored_case
from perfsvc.store import Store
from perfsvc.suite import StoredBench, isolated

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "tests" / "gpu" / "suites" / "triton_five"
NEAR = 0.01
PLACES = 8
PLACE_BYTES = 3 << 16  # from one place to the next: whole pages of 64 KiB, and no power of two
PAUSES, PAUSE_S = 5, 0.05  # calls of do_bench with pauses, for each place
EMPTY = "empty"

EMPTY_KERNEL = """\
import triton


@triton.jit
def empty_kernel(out):
    pass
"""
EMPTY_BENCH = """\
from perfsvc.suite import Benchmark, Tolerance, Variant, output, triton

benchmark = Benchmark(
    points=({"n": 128},),
    smoke={"n": 128},
    inputs=lambda rng, n: {"out": rng.random(n, dtype="float32")},
    outputs={"out": output("float32", lambda n: n)},
    reference=lambda out: out,
    tolerance=Tolerance(max=0.0, mean=0.0),
    variants=[Variant("triton", source="empty.py", run=triton("empty_kernel", grid=1, args=("out",)))],
)
"""


@dataclass(frozen=True, slots=True)
class Timed:
    """The time of a case, the clock meanwhile, where the middle of the samples lies, and the time with pauses."""

    median_s: float
    clock_hz: float
    low_s: float = 0.0
    high_s: float = 0.0
    with_pauses_s: float = 0.0

    def without(self, seconds: float) -> "Timed":
        """Return the same times with some seconds less."""
        less = (time_s - seconds for time_s in (self.low_s, self.high_s, self.with_pauses_s))
        return Timed(self.median_s - seconds, self.clock_hz, *less)


def main() -> int:
    """Measure, compare, and print the claim."""
    arguments = parsed(
        __doc__,
        ("--device", "cuda:0"),
        ("--replicas", 3, "fresh processes of perfsvc for each kernel"),
        ("--time", {"metavar": "DATABASE"}, argparse.SUPPRESS),
    )
    if arguments.time:
        print(json.dumps({case: asdict(timed) for case, timed in times_of_do_bench(Path(arguments.time)).items()}))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        suite, database = Path(folder) / "suite", Path(folder) / "perfsvc.db"
        shutil.copytree(SUITE, suite)
        (suite / EMPTY).mkdir()
        (suite / EMPTY / "empty.py").write_text(EMPTY_KERNEL, encoding="utf-8")
        (suite / EMPTY / "bench.py").write_text(EMPTY_BENCH, encoding="utf-8")
        ours = times_of_perfsvc(suite, database, arguments.device, str(arguments.replicas))
        command = [sys.executable, __file__, "--time", str(database)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
        theirs = {case: Timed(**timed) for case, timed in json.loads(printed.splitlines()[-1]).items()}
    unexplained = compare(ours, theirs)
    return finish(
        [Claim("medians that differ without a reason", len(unexplained), 0)], arguments.json, cases=unexplained
    )


def compare(ours: dict[str, Timed], theirs: dict[str, Timed]) -> list[str]:
    """Print the table; return the cases whose ratio has no reason."""
    (empty,) = [case for case in ours if case.startswith(f"{EMPTY}/")]
    events_s = theirs.pop(empty).median_s - ours.pop(empty).median_s
    print(f"an empty kernel takes {1e6 * events_s:.2f} us more with do_bench than with perfsvc")
    rows, near, unexplained = [], 0, []
    for case, our in ours.items():
        their = theirs[case]
        ratio = our.median_s / their.median_s
        reason = "" if is_near(ratio) else reason_of(our, their, events_s)
        near += is_near(ratio)
        if not is_near(ratio) and not reason:
            unexplained.append(case)
        clocks = f"{our.clock_hz / 1e6:.0f}, {their.clock_hz / 1e6:.0f} MHz"
        times = (f"{1e6 * time_s:.2f} us" for time_s in (our.median_s, their.median_s))
        rows.append([case, *times, f"{ratio:.3f}", clocks, reason])
    print(table(["case", "perfsvc", "do_bench", "ratio", "clocks", "reason"], rows))
    print(f"{near} of {len(ours)} medians are within {NEAR:.0%} of do_bench's; {len(ours) - near} are not")
    print(f"unexplained: {', '.join(unexplained) or 'none'}")
    return unexplained


def is_between(value: float, one: float, other: float) -> bool:
    """Return whether a value lies between two others, or within 1 % of one of them."""
    return min(one, other) * (1 - NEAR) <= value <= max(one, other) * (1 + NEAR)


def is_near(ratio: float) -> bool:
    """Return whether a ratio is within 1 % of 1."""
    return abs(ratio - 1) <= NEAR


def reason_of(our: Timed, their: Timed, events_s: float) -> str:
    """Return why two medians differ, as the numbers show it; empty if they do not show it."""
    corrected = their.without(events_s)
    ratio = our.median_s / corrected.median_s
    if is_near(ratio):
        return f"the events: {ratio:.3f} without them"
    if is_between(ratio, 1.0, their.clock_hz / our.clock_hz):
        return f"the clock: {abs(their.clock_hz / our.clock_hz - 1):.1%} apart"
    if is_between(our.median_s, corrected.with_pauses_s, corrected.median_s):
        return f"the pauses: {1e6 * their.with_pauses_s:.2f} us with them"
    if corrected.low_s <= our.median_s <= corrected.high_s:
        return f"the scatter: its middle samples reach from {1e6 * their.low_s:.1f} to {1e6 * their.high_s:.1f} us"
    return ""


def times_of_perfsvc(suite: Path, database: Path, device: str, replicas: str) -> dict[str, Timed]:
    """Measure the Triton kernels of a suite, and return the time and the clock of each case."""
    command = ["run", "--suite", str(suite), "--device", device, "--select", "*/triton", "--limit", "300"]
    print(perfsvc(ROOT, *command, "--replicas", replicas, "--places", str(PLACES), "--db", str(database)).stdout)
    query = "select cases.name, avg(sm_clock_hz) from measurements join cases on cases.id = case_id group by 1"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        clocks = dict(connection.execute(query).fetchall())
    with Store.open(str(database)) as store:
        return {
            series.case.id: Timed(median(level.medians), clocks[series.case.id])
            for series, level in times(store).items()
        }


def times(store: Store) -> dict[Series, Level]:
    """Return the level of the time of each series of the only run."""
    return {series: level for series, level in store.series.levels(1).items() if series.metric == TIME}


def times_of_do_bench(database: Path) -> dict[str, Timed]:
    """Return what do_bench measures of each case of a database."""
    import torch

    stream = torch.cuda.Stream()
    with Store.open(str(database)) as store, torch.cuda.stream(stream):
        return {series.case.id: timed_by_do_bench(store, series, stream.cuda_stream) for series in times(store)}


def timed_by_do_bench(store: Store, series: Series, stream: int) -> Timed:
    """Return the means over the places of do_bench's median, of its 20th and 80th percentile, and of the clock."""
    import triton.testing

    quantiles, clocks, with_pauses_ms = [], [], []
    for launch in launches_of(store, series, stream):
        with read_clocks(series.device, clocks):
            quantiles.append(triton.testing.do_bench(launch, warmup=25, rep=100, quantiles=[0.5, 0.2, 0.8]))
        for _ in range(PAUSES):
            time.sleep(PAUSE_S)
            with_pauses_ms.append(triton.testing.do_bench(launch, warmup=1, rep=2, quantiles=[0.5]))
    median_s, low_s, high_s = (fmean(values) / 1e3 for values in zip(*quantiles, strict=True))
    return Timed(median_s, fmean(clocks), low_s, high_s, median(with_pauses_ms) / 1e3)


@contextlib.contextmanager
def read_clocks(uuid: str, clocks: list[float]) -> Iterator[None]:
    """Read the clock of the multiprocessors in hertz every few milliseconds, as long as the context lasts."""
    import pynvml

    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    done = threading.Event()

    def read() -> None:
        while not done.wait(0.005):
            clocks.append(1e6 * pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        done.set()
        reader.join()


def launches_of(store: Store, series: Series, stream: int) -> Iterator[Callable[[], object]]:
    """Yield a function for each place of the arrays: it launches the kernel of a case in perfsvc's configuration."""
    import torch

    case = stored_case(store, series, 1, series.device)
    (call,) = [step for step in case.record.steps if isinstance(step, Call)]
    ((_, function),) = load_functions([call], case.bench, case.modules).items()
    bench = StoredBench(case.bench, case.record.case.benchmark, case.python_modules)
    inputs = isolated.replay_inputs(bench, case.record.case.point, case.record.seed)
    step = PackageFunction(
        call,
        function,
        None,
        point=dict(case.record.case.point),
        stream=stream,
        dtypes={buffer.array.name: buffer.array.dtype for buffer in case.record.buffers},
    )
    for place in range(PLACES):
        arrays = {}
        for buffer in case.record.buffers:
            array = np.array(inputs.get(buffer.array.name, np.zeros(buffer.array.shape, buffer.array.dtype)))
            signed = {"bfloat16": "int16"}.get(array.dtype.name, array.dtype.name)
            data = torch.from_numpy(array.view(signed))
            room = torch.empty(array.nbytes + PLACES * PLACE_BYTES, dtype=torch.uint8, device="cuda")
            moved = room[place * PLACE_BYTES :][: array.nbytes].view(data.dtype).view(data.shape)
            arrays[buffer.array.name] = moved.copy_(data)
        timed, _ = step.bind(arrays)
        torch.cuda.synchronize()
        yield timed


if __name__ == "__main__":
    sys.exit(main())
