"""Compare ten small kernels launched one by one, as a CUDA graph, and as a graph that times each of them.

    python tests/benchmarks/graphs.py [--device cuda:0] [--json FILE]

For each size of the suite ``tests/e2e/suites/graphs``, one process takes samples of these in turns, each sample after
the cache was emptied:

- launches: the ten launches, queued behind the blocking kernel;
- replay: the graph of the same launches;
- steps: the sum of the ten times in a graph that records the time before and after each kernel;
- cold steps: the same sum if the graph empties the cache before each kernel.

If Nsight Compute is installed, the times of the graph's kernels that it reports are beside these. It empties the cache
before each kernel, so their sum compares with the cold steps.
"""

import contextlib
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench import Claim, alone_on, finish, parsed, perfsvc, ready, table

from perfsvc.device.find import open_device
from perfsvc.device.protocol import Device
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.worker.memory import CaseMemory
from perfsvc.measure.worker.program import Program
from perfsvc.process.shared_memory import take_inputs
from perfsvc.profile.commands import find_program

SUITE = Path(__file__).resolve().parents[1] / "e2e" / "suites" / "graphs"
KERNELS = 10
TURNS, SAMPLES = 12, 25
NEAR_NCU_US = 3.0
"""The difference for each kernel from Nsight Compute, which has no overhead of events."""


def main() -> int:
    """Time the launches and the graphs, and print the claims."""
    options = parsed(__doc__, ("--device", "cuda:0", "one GPU"))
    suite = ready(SUITE, options.device, Sampling(), ["smooth/launches"])
    with alone_on(suite.device), contextlib.closing(open_device(suite.device.spec, suite.helper_kernels)) as device:
        rows = [_timed(device, task) for task in suite.tasks]
    has_ncu = suite.device.kind == "cuda" and find_program("ncu", "nsight-compute") is not None
    if has_ncu:
        rows = [row | _counted(options.device, row["n"]) for row in rows]
    headings = ["n", *[name for name in rows[0] if name.endswith(" µs")]]
    print(f"{suite.device.model}, driver {suite.device.driver}, {KERNELS} kernels\n")
    print(
        table(headings, [[str(row["n"]), *(f"{row[name]:.2f}" for name in headings[1:])] for row in rows]), end="\n\n"
    )
    claims = [
        Claim("replay over launches, the largest", max(row["replay µs"] / row["launches µs"] for row in rows), 1.0),
        Claim(
            "replay over the sum of its steps, the largest",
            max(row["replay µs"] / row["steps µs"] for row in rows),
            1.0,
        ),
    ]
    if has_ncu:
        apart_us = max(abs(row["cold steps µs"] - row["ncu µs"]) / KERNELS for row in rows)
        claims.append(Claim("cold steps from Nsight Compute, for each kernel", apart_us, NEAR_NCU_US, " µs"))
    return finish(claims, options.json, device=suite.device.model, driver=suite.device.driver, rows=rows)


def _timed(device: Device, task: Task) -> dict[str, Any]:
    """Return the median times of a case in each way, taken in turns."""
    evict_bytes = 2 * device.info.l2_bytes
    with (
        device.measuring(task.record, 0),
        CaseMemory(device, task.record.buffers) as memory,
        contextlib.ExitStack() as graphs,
    ):
        program = Program(device, task.record, task.modules, memory, {})
        inputs = take_inputs(task.arrays.make())
        memory.reset(lambda name, address: device.upload(address, inputs[name]))
        program.run()
        steps = [(f"step {number}", run) for number, (_, run) in enumerate(program.timed)]
        replay = graphs.enter_context(contextlib.closing(device.capture(steps)))
        apart = graphs.enter_context(contextlib.closing(device.capture(steps, apart=True)))
        cold = graphs.enter_context(contextlib.closing(device.capture(steps, apart=True, evict_bytes=evict_bytes)))
        ways: dict[str, tuple[Callable[[], None], Callable[[], float] | None]] = {
            "launches µs": (program.queue, None),
            "replay µs": (replay.launch, None),
            "steps µs": (apart.launch, apart.seconds),
            "cold steps µs": (cold.launch, cold.seconds),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(TURNS):
            for name, (sample, seconds) in ways.items():
                batch = device.batch(
                    sample, SAMPLES, clock="device", evict_bytes=evict_bytes, blocked=True, seconds=seconds
                )
                times[name].append(1e6 * statistics.median(batch.samples_s[2:]))
    return {"n": dict(task.record.case.point)["n"]} | {name: statistics.median(of) for name, of in times.items()}


def _counted(device: str, n: int) -> dict[str, Any]:
    """Return the times of a graph's kernels that Nsight Compute reports, and their sum."""
    case = f"smooth/graph[n={n}]"
    with tempfile.TemporaryDirectory() as folder:

        def typed(*words: str) -> str:
            database = str(Path(folder) / "perfsvc.db")
            more = ("--device", device, "--format", "json")
            return perfsvc(Path(folder), *words, *more, codes=(0,), PERFSVC_DB=database).stdout

        typed("run", "--suite", str(SUITE), "--select", case, "--replicas", "1")
        kernels = json.loads(typed("profile", case))["profile"]["kernels"]
    times_us = [1e6 * kernel["duration_s"] for kernel in kernels]
    return {"ncu µs": sum(times_us), "ncu_kernels_us": times_us}


if __name__ == "__main__":
    sys.exit(main())
