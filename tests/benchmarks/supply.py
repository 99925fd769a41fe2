"""Time the making of a suite's inputs, references and fresh inputs, with one thread and with several.

Resolves the suite at its full points, as a run does, and lets the input prefetcher make all arrays of a replica for one
GPU, alternating between one thread and several. Measures nothing else, and needs no GPU.

    python tests/benchmarks/supply.py [--threads 4] [--rounds 3] [--suite kernels] [--points full]
"""

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Literal

from perfsvc import installation, suite
from perfsvc.measure.host.input_prefetcher import MOST_THREADS, InputPrefetcher
from perfsvc.measure.plan.order import Plan, Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.service.prepare.recipes import arrays
from perfsvc.suite import CaseSpec, Selection, Suite

MEBI = 1 << 20


def main() -> None:
    """Measure with one thread and with several, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=MOST_THREADS, help="how many threads the several are")
    parser.add_argument("--rounds", type=int, default=3, help="rounds with one thread and with several")
    parser.add_argument(
        "--suite", type=Path, default=installation.data_folder("kernels"), help="the folder of the suite"
    )
    parser.add_argument("--points", choices=("smoke", "full"), default="full", help="which points")
    options = parser.parse_args()
    found = suite.discover(options.suite)
    print(f"{os.cpu_count()} cores, {options.rounds} rounds: medians")
    seconds: dict[int, list[tuple[float, float]]] = {1: [], options.threads: []}
    for _ in range(options.rounds):
        for threads, times in seconds.items():
            times.append(made(found, options.points, threads))
    totals = {}
    for threads, times in seconds.items():
        resolving, supplying = (statistics.median(column) for column in zip(*times, strict=True))
        totals[threads] = resolving + supplying
        print(f"  {threads} threads: resolve {resolving:6.2f} s, supply {supplying:6.2f} s")
    print(f"  one thread / {options.threads} threads: {totals[1] / totals[options.threads]:.2f}")


def made(found: Suite, points: Literal["smoke", "full"], threads: int) -> tuple[float, float]:
    """Return the seconds until a suite is resolved, and from then until all of its arrays have been taken once."""
    started = time.perf_counter()
    specs, _ = found.resolve(Selection(), points)
    resolved = time.perf_counter()
    plan = Plan(tuple(task(spec) for spec in specs), replicas=1, seed=1, limit_s=60)
    coming = plan.order("GPU")
    nbytes = {}
    with InputPrefetcher([coming], threads=threads) as prefetcher:
        for replica, upcoming in coming:
            with prefetcher.take(prefetcher.order(upcoming, replica)) as arrays:
                nbytes[arrays.name] = arrays.first.nbytes + (arrays.fresh.nbytes if arrays.fresh else 0)
    done = time.perf_counter()
    print(f"  {threads} threads made {sum(nbytes.values()) / MEBI:.0f} MiB in {done - started:.2f} s")
    return resolved - started, done - resolved


def task(spec: CaseSpec) -> Task:
    """Return a case as a run plans it, without its binaries."""
    record = spec.record([""] * len(spec.units), "")
    return Task("GPU", record, (), spec.cache, Sampling(), spec.tolerance, arrays(spec, 60.0))


if __name__ == "__main__":
    main()
