"""Show that the level of a case does not depend on where its arrays lie, nor on the process that measures it.

    python tests/benchmarks/places.py [--device cuda:0] [--processes 10] [--runs 3] [--json FILE]

1. A softmax of 8192 x 4096 floats at forty random places, in one process and without perfsvc's sampling.
2. Its level in fresh processes of perfsvc, as many as asked in each run, with eight places and with one place.
3. The same in processes of NVBench (if cuda-bench is installed), whose arrays lie where perfsvc's first place is.
4. A softmax of half the size with its two arrays exactly 2^27 bytes apart, and one page more: the time there, and the
   level over eight places that begin there.
"""

import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from nvbench import bundle
from nvbench.sittings import Sitting, SittingError, Workers, nvbench
from workbench import Claim, Ready, alone_on, finish, median_us, parsed, ready, table

from perfsvc.device.find import open_device
from perfsvc.measure.host.input_prefetcher import InputPrefetcher
from perfsvc.measure.host.pool import worker_servers
from perfsvc.measure.plan.order import Task
from perfsvc.measure.worker.memory import GUARD_BYTES, CaseMemory
from perfsvc.measure.worker.program import Program
from perfsvc.measure.worker.sampling.places import Places
from perfsvc.measure.worker.sampling.sampler import take_samples
from perfsvc.model import BufferArg, CacheState, Launch, Role
from perfsvc.process.shared_memory import take_inputs
from perfsvc.service.prepare.targets import GPU_SAMPLING

LEVELS_SUITE = Path(__file__).parent / "levels"
CASE, HALF = "softmax/threads256[rows=8192,columns=4096]", "softmax/threads256[rows=4096,columns=4096]"
RANDOM_PLACES = 40
EIGHT, ONE, NVBENCH = "perfsvc, eight places", "perfsvc, one place", "NVBench"
APART = 1 << 27
ARRAY_BYTES = 8 << 30


def main() -> int:
    """Measure all four parts."""
    options = parsed(
        __doc__, ("--device", "cuda:0", "one GPU"), ("--processes", 10, "processes in each run"), ("--runs", 3, "runs")
    )
    cases = ready(LEVELS_SUITE, options.device, GPU_SAMPLING, ["softmax/threads256*"])
    if cases.device.kind != "cuda":
        sys.exit("--device: only a GPU has places that matter")
    (case,) = (task for task in cases.tasks if task.record.case.id == CASE)
    (half,) = (task for task in cases.tasks if task.record.case.id == HALF)
    with alone_on(cases.device):
        device = open_device(cases.device.spec, cases.helper_kernels)
        try:
            at_random_us = at_random_places(device, case)
            apart = {f"{APART + pages * device.page_bytes} bytes": at_distance(device, half, pages) for pages in (0, 1)}
        finally:
            device.close()
        levels_us = in_processes(cases, case, options.processes, options.runs)
    mean_us = statistics.mean(at_random_us)
    print(f"{cases.device.model}, driver {cases.device.driver}\n")
    print(f"{RANDOM_PLACES} random places: mean {mean_us:.2f} µs, {min(at_random_us):.2f} to {max(at_random_us):.2f}\n")
    rows = [
        [f"{tool}, run {number}", f"{statistics.mean(run):.2f}", f"{statistics.mean(run) / mean_us:.4f}", _percent(run)]
        for tool, runs in levels_us.items()
        for number, run in enumerate(runs, start=1)
    ]
    print(table(["", "level µs", "over the mean of the places", "spread between processes %"], rows) + "\n")
    print(
        table(
            ["distance", "time there µs", "level over eight places µs"],
            [[k, *map("{:.2f}".format, v)] for k, v in apart.items()],
        )
    )
    levels = [level for _, level in apart.values()]
    claims = [
        Claim(
            "the largest difference of a run's level from the mean over forty places",
            max(100 * abs(statistics.mean(run) / mean_us - 1) for run in levels_us[EIGHT]),
            1.0,
            " %",
        ),
        Claim("the largest spread between processes", max(_spread(run) for run in levels_us[EIGHT]), 0.4, " %"),
        Claim(
            "levels of arrays 2^27 bytes apart and one page more differ by",
            100 * abs(levels[0] / levels[1] - 1),
            1.0,
            " %",
        ),
    ]
    return finish(
        claims,
        options.json,
        device=cases.device.model,
        driver=cases.device.driver,
        at_random_us=at_random_us,
        levels_us=levels_us,
        apart_us=apart,
    )


def _spread(levels: Sequence[float]) -> float:
    return 100 * statistics.stdev(levels) / statistics.mean(levels)


def _percent(levels: Sequence[float]) -> str:
    return f"{_spread(levels):.3f}" if len(levels) > 1 else ""


def at_random_places(device: Any, task: Task) -> list[float]:
    """Return the median time in µs at each of forty random places of the two arrays."""
    buffers = {buffer.role: buffer for buffer in task.record.buffers}
    (x,) = take_inputs(task.arrays.make()).values()
    (launch,) = (step for step in task.record.steps if isinstance(step, Launch))
    module = device.load(task.modules[0])
    room = 16 * x.nbytes
    start = device.allocate_untimed(2 * room)
    pages = random.Random(1)
    times_us = []
    for _ in range(RANDOM_PLACES):
        at = {
            Role.INPUT: start + pages.randrange((room - x.nbytes) // device.page_bytes) * device.page_bytes,
            Role.OUTPUT: start + room + pages.randrange((room - x.nbytes) // device.page_bytes) * device.page_bytes,
        }
        device.upload(at[Role.INPUT], x)
        addresses = {buffers[role].array.name: np.uint64(address) for role, address in at.items()}
        args = [
            addresses[arg.buffer] if isinstance(arg, BufferArg) else np.dtype(arg.dtype).type(arg.value)
            for arg in launch.args
        ]
        times_us.append(median_us(device, lambda args=args: device.launch(module, launch, args)))
    device.free(start)
    return times_us


class Apart(CaseMemory):
    """The memory of a case whose first two arrays begin 2^27 bytes and some pages apart at the first place."""

    pages = 0

    def _allocate(self) -> None:
        page = self._device.page_bytes
        start = self._device.allocate_untimed(2 * APART + (self.pages + 64) * page)
        first, second = self._buffers
        self._bases = {first: start, second: start + APART + self.pages * page}
        self.move(0)

    def _free(self) -> None:
        if self._bases:
            self._device.free(min(self._bases.values()))
        self._bases.clear()


def at_distance(device: Any, task: Task, pages: int) -> tuple[float, float]:
    """Return the time in µs with two arrays 2^27 bytes and some pages apart, and the level over eight places."""
    inputs = take_inputs(task.arrays.make())
    memory = Apart(device, task.record.buffers, places=GPU_SAMPLING.places)
    memory.pages = pages
    assert max(array.nbytes for array in inputs.values()) + 2 * GUARD_BYTES + 32 * device.page_bytes <= APART
    with memory:
        program = Program(device, task.record, task.modules, memory, {})

        def move(place: int) -> None:
            memory.move(place)
            program.bind()
            memory.reset(lambda name, address: device.upload(address, inputs[name]))

        move(0)
        there_us = median_us(device, program.queue)
        samples = take_samples(
            device,
            program.queue,
            GPU_SAMPLING,
            clock="device",
            cache=CacheState.COLD,
            operations=program.operations,
            places=Places(memory.places, move),
        )
    return there_us, 1e6 * samples.median_s


def in_processes(cases: Ready, case: Task, processes: int, runs: int) -> dict[str, list[list[float]]]:
    """Return the level in µs of each process of each run, by tool."""
    tasks = {EIGHT: case, ONE: replace(case, sampling=replace(case.sampling, places=1))}
    count = processes * runs
    coming = [(number, tasks[tool]) for number in range(count) for tool in tasks]
    levels: dict[str, list[list[float]]] = {tool: [[] for _ in range(runs)] for tool in tasks}
    if find_spec("cuda.bench"):
        levels[NVBENCH] = [[]]
    with (
        tempfile.TemporaryDirectory() as folder,
        InputPrefetcher([coming], threads=2, budget_bytes=ARRAY_BYTES) as prefetcher,
        worker_servers() as servers,
    ):
        bundle.write(Path(folder), [case], cases.device.memory_bytes)
        workers = Workers(cases.device, cases.helper_kernels, prefetcher, servers)
        for number in range(count):
            for tool, task in tasks.items():
                levels[tool][number // processes].append(_level_us(workers.sitting(number, [task])))
            if NVBENCH in levels and number < processes:
                levels[NVBENCH][0].append(_level_us(nvbench(Path(folder), cases.device)))
    return levels


def _level_us(sitting: Sitting) -> float:
    if CASE not in sitting.medians_s:
        raise SittingError(f"no median: {sitting.failed}")
    return 1e6 * sitting.medians_s[CASE]


if __name__ == "__main__":
    sys.exit(main())
