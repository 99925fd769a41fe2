"""Compare perfsvc's medians of five Triton kernels with those of ``triton.testing.do_bench``, on the same GPU.

    python tests/benchmarks/do_bench.py [--device cuda:0] [--replicas 3]

perfsvc measures the suite ``tests/gpu/suites/triton_five`` twice, with arrays at eight places and at one. Then a fresh
process launches the same kernels, in the configurations that perfsvc's tuning chose, with the same inputs, and times
them with ``do_bench``. Prints a table, and the reason for each ratio that is more than 1 % from 1:

- the kernel is short: do_bench's events count some microseconds of their own, which are not those of perfsvc;
- the places: do_bench has one place of the arrays, and perfsvc the mean over eight. The ratio at one place is near 1;
- the scatter: the middle 60 % of do_bench's own samples reach further than the difference;
- the clock: do_bench keeps the GPU busy for longer, and a GPU at its power limit lowers its clock.

Exits with 1 if a ratio has none of these reasons.
"""

import argparse
import contextlib
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from perfsvc.measure.worker.packages import PackageFunction
from perfsvc.measure.worker.program import load_functions
from perfsvc.model import TIME, Call, Level, Series
from perfsvc.service.confirm.pairs import stored_case
from perfsvc.store import Store
from perfsvc.suite import StoredBench, isolated

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "tests" / "gpu" / "suites" / "triton_five"
NEAR = 0.01
SHORT_S = 15e-6


def main() -> int:
    """Measure, compare, and print the claim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--replicas", default="3", help="fresh processes of perfsvc for each kernel (default: 3)")
    parser.add_argument("--time", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.time:
        print(json.dumps(times_of_do_bench(Path(arguments.time))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        many, one = (
            measured(Path(folder) / f"{places}.db", arguments.device, places, arguments.replicas) for places in (8, 1)
        )
        command = [sys.executable, __file__, "--time", str(Path(folder) / "8.db")]
        timed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        theirs = json.loads(timed.stdout.splitlines()[-1])
    print(f"{'case':42}{'perfsvc':>11}{'one place':>11}{'do_bench':>11}{'ratio':>8}  reason")
    unexplained, near = [], 0
    for case, (median_s, low_s, high_s, power_limited) in theirs.items():
        ratio = many[case] / median_s
        near += abs(ratio - 1) <= NEAR
        reason = "" if abs(ratio - 1) <= NEAR else reason_of(many[case], one[case], median_s, low_s, high_s)
        if not reason and abs(ratio - 1) > NEAR:
            reason = "the clock: the GPU was at its power limit" if power_limited else ""
            unexplained += [] if reason else [case]
        shown = "".join(f"{1e6 * seconds:>8.2f} us" for seconds in (many[case], one[case], median_s))
        print(f"{case:42}{shown}{ratio:>8.3f}  {reason}")
    print(f"claim: {near} of {len(theirs)} medians are within {NEAR:.0%} of do_bench's; {len(theirs) - near} are not")
    print(f"unexplained: {', '.join(unexplained) or 'none'}")
    return bool(unexplained)


def reason_of(many_s: float, one_s: float, median_s: float, low_s: float, high_s: float) -> str:
    """Return why two medians differ, as the numbers show it; empty if they do not show it."""
    if median_s < SHORT_S:
        return "short: the events of do_bench count too"
    if abs(one_s / median_s - 1) <= NEAR:
        return "the places: at one place the ratio is near 1"
    if low_s <= many_s <= high_s:
        return "the scatter of do_bench's own samples is larger"
    return ""


def measured(database: Path, device: str, places: int, replicas: str) -> dict[str, float]:
    """Return the level of each case in seconds, from a run with the arrays at some places."""
    command = ["run", "--suite", str(SUITE), "--device", device, "--select", "*/triton", "--limit", "300"]
    subprocess.run(
        [
            *(sys.executable, "-m", "perfsvc", *command, "--replicas", replicas),
            *("--places", str(places), "--db", str(database)),
        ],
        check=True,
        cwd=ROOT,
        stdout=sys.stderr,
    )
    with Store.open(str(database)) as store:
        return {series.case.id: median(map(median, level.replicas)) for series, level in times(store).items()}


def times(store: Store) -> dict[Series, Level]:
    """Return the level of the time of each series of the only run."""
    return {series: level for series, level in store.series.levels(1).items() if series.metric == TIME}


def times_of_do_bench(database: Path) -> dict[str, tuple[float, float, float, bool]]:
    """Return the median of do_bench for each case, its 20th and 80th percentile, and whether the power was limited."""
    import torch
    import triton.testing

    with contextlib.closing(sqlite3.connect(database)) as connection:
        query = "select cases.name, max(slowdowns) from measurements join cases on cases.id = case_id group by 1"
        slowdowns = dict(connection.execute(query).fetchall())
    stream = torch.cuda.Stream()
    found = {}
    with Store.open(str(database)) as store, torch.cuda.stream(stream):
        for series in times(store):
            launch = launch_of(store, series, stream.cuda_stream)
            median_ms, low_ms, high_ms = triton.testing.do_bench(launch, warmup=100, rep=500, quantiles=[0.5, 0.2, 0.8])
            limited = "power" in str(slowdowns.get(series.case.id)).lower()
            found[series.case.id] = (median_ms / 1e3, low_ms / 1e3, high_ms / 1e3, limited)
    return found


def launch_of(store: Store, series: Series, stream: int) -> Callable[[], object]:
    """Return a function that launches the kernel of a case as perfsvc did, in the same configuration."""
    import torch

    case = stored_case(store, series, 1, series.device)
    (call,) = [step for step in case.record.steps if isinstance(step, Call)]
    ((_, function),) = load_functions([call], case.bench, case.modules).items()
    bench = StoredBench(case.bench, case.record.case.benchmark, case.python_modules)
    inputs = isolated.replay_inputs(bench, case.record.case.point, case.record.seed)
    arrays = {}
    for buffer in case.record.buffers:
        array = inputs.get(buffer.array.name, np.zeros(buffer.array.shape, buffer.array.dtype))
        signed = {"bfloat16": "int16"}.get(array.dtype.name, array.dtype.name)
        arrays[buffer.array.name] = torch.from_numpy(np.array(array).view(signed)).cuda()
    step = PackageFunction(
        call,
        function,
        None,
        point=dict(case.record.case.point),
        stream=stream,
        dtypes={buffer.array.name: buffer.array.dtype for buffer in case.record.buffers},
    )
    timed, _ = step.bind(arrays)
    torch.cuda.synchronize()
    return timed


if __name__ == "__main__":
    sys.exit(main())
