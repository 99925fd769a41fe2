"""Show that perfsvc's eviction leaves an empty and neutral L2 cache: it finds kept lines, and slows no other kernel.

    python tests/benchmarks/eviction.py [--device cuda:0] [--json FILE]

Each case is timed after a plain write to a buffer of twice the cache's size, and after perfsvc's eviction, which before
this write makes the lines ordinary that a kernel asked the cache to keep (``evict_last``). Both take turns. A case that
keeps lines is also timed with other memory for each launch, so that the cache cannot hold any of its data.
"""

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from workbench import NVBENCH_SUITE, Claim, Prepared, alone_on, finish, median_us, parsed, ready, table

from perfsvc.device.find import open_device
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import Launch

LEVELS_SUITE = Path(__file__).parent / "levels"
KEEPS_NONE = ("softmax/threads256[", "histogram/", "gather/", "keep/plain[", "dot/", "copy/", "vec_add/")
KEEPS = "keep/keep["
TURNS = 12
REGIONS = 64
"""Pieces of memory that a keeping kernel reads in turn, so that none of its data is in the cache."""


def main() -> int:
    """Time every case after either eviction."""
    options = parsed(__doc__, ("--device", "cuda:0", "one GPU"))
    suites = [ready(folder, options.device, Sampling()) for folder in (LEVELS_SUITE, NVBENCH_SUITE)]
    info = suites[0].device
    if info.kind != "cuda":
        sys.exit("--device: only a GPU has an L2 cache that perfsvc empties")
    tasks = [task for suite in suites for task in suite.tasks]
    with alone_on(info):
        device = open_device(info.spec, suites[0].helper_kernels)
        try:
            none = [_after_both(device, task) for task in tasks if task.record.case.id.startswith(KEEPS_NONE)]
            keeps = [_kept(device, task) for task in tasks if task.record.case.id.startswith(KEEPS)]
        finally:
            device.close()
    print(f"{info.model}, driver {info.driver}\n\nkernels that keep no lines\n{_shown(none)}\n")
    print(f"kernels that keep what they read\n{_shown(keeps)}\n")
    claims = [
        Claim(
            "the largest slowdown of a kernel that keeps no lines, over 20 µs",
            max(100 * (row["ratio"] - 1) for row in none if row["write alone µs"] > 20),
            0.5,
            " %",
        ),
        Claim(
            "the largest difference of a keeping kernel from launches whose data was never in the cache",
            max(100 * abs(row["evicted µs"] / row["other memory µs"] - 1) for row in keeps),
            5.0,
            " %",
        ),
    ]
    return finish(claims, options.json, device=info.model, driver=info.driver, keeps_none=none, keeps=keeps)


def _shown(rows: list[dict[str, Any]]) -> str:
    return table(list(rows[0]), [[v if isinstance(v, str) else f"{v:.4f}" for v in row.values()] for row in rows])


def _after_both(device: Any, task: Task) -> dict[str, Any]:
    """Time a case after a write alone and after perfsvc's eviction, in turns."""
    with Prepared(device, task) as sample:
        alone_us, evicted_us = _in_turns(device, sample)
    return {
        "case": task.record.case.id,
        "write alone µs": alone_us,
        "evicted µs": evicted_us,
        "ratio": evicted_us / alone_us,
    }


def _in_turns(device: Any, sample: Callable[[], None]) -> tuple[float, float]:
    """Return the median times in µs after a write alone and after perfsvc's eviction."""
    eviction = device._timer._eviction
    prepare = eviction.prepare
    prepare(2 * device.info.l2_bytes)
    alone, evicted = [], []
    try:
        for _ in range(TURNS):
            eviction.prepare = lambda _: None
            alone.append(median_us(device, sample))
            eviction.prepare = prepare
            evicted.append(median_us(device, sample))
    finally:
        eviction.prepare = prepare
    return statistics.median(alone), statistics.median(evicted)


def _kept(device: Any, task: Task) -> dict[str, Any]:
    """Time a keeping case as ``_after_both`` does, and with other memory for each launch."""
    row = _after_both(device, task)
    (launch,) = (step for step in task.record.steps if isinstance(step, Launch))
    module = device.load(task.modules[0])
    n = dict(task.record.case.point)["n"]
    nbytes = 4 * n
    start = device.allocate_untimed(2 * REGIONS * nbytes)
    device.fill(start, 2 * REGIONS * nbytes, 0)
    number = 0

    def elsewhere() -> None:
        nonlocal number
        at = start + 2 * nbytes * (number % REGIONS)
        number += 1
        device.launch(module, launch, (np.uint64(at), np.uint64(at + nbytes), np.int32(n)))

    row["other memory µs"] = statistics.median(median_us(device, elsewhere) for _ in range(TURNS))
    device.free(start)
    return row


if __name__ == "__main__":
    sys.exit(main())
