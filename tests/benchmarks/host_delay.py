"""Check that host stalls do not reach the numbers: alternating batches with and without stalls in one process.

    python tests/benchmarks/host_delay.py [--device cuda:0] [--rounds 12] [--json FILE]

Batches of each kernel of the comparison with NVBench alternate between three conditions: a quiet host; a random delay
of 1 ms before a launch is queued, after the event from which its time counts; and every core of the host kept busy by
other processes. All of that is measured once behind the blocking kernel, where no median may change by more than 0.5 %
or 0.1 µs, and once without it, to show its purpose.
"""

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from workbench import NVBENCH_SUITE, Claim, alone_on, finish, parsed, ready, table

from perfsvc.device.find import open_device
from perfsvc.device.protocol import Device
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.worker.memory import CaseMemory
from perfsvc.measure.worker.program import Program
from perfsvc.model import CacheState
from perfsvc.process.shared_memory import take_inputs

DELAY_S = 1e-3
DELAYED = 0.5
"""The share of calls that are delayed."""
LARGEST_SHIFT, LARGEST_SHIFT_S = 0.005, 0.1e-6
SETTLE_S = 0.02
"""Seconds in which processes begin or stop working."""
QUIET, LATE, BUSY = "quiet", "delayed", "busy"
HOSTS = (QUIET, LATE, BUSY)
KEEP_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10**6): pass"


def main() -> int:
    """Measure the batches and compare them."""
    options = parsed(
        __doc__,
        ("--device", "cuda:0", "one device"),
        ("--rounds", 12, "batches under each condition"),
        ("--samples", 50, "samples per batch"),
        ("--others", len(os.sched_getaffinity(0)), "busy processes"),
        ("--suite", NVBENCH_SUITE, "the folder of the kernels"),
    )
    cases = ready(options.suite, options.device, Sampling())
    found: list[Found] = []
    problems: list[str] = []
    with (
        alone_on(cases.device),
        contextlib.closing(open_device(cases.device.spec, cases.helper_kernels)) as device,
        Others(options.others) as others,
    ):
        print(f"{cases.device.model}, driver {cases.device.driver}; {options.others} busy processes", flush=True)
        for task in cases.tasks:
            try:
                found.append(measured(device, task, others, options))
                print(found[-1].case, f"{found[-1].median((QUIET, True)) * 1e6:.3f} µs", flush=True)
            except Exception as error:  # noqa: BLE001 - a failed kernel must not stop the others
                problems.append(f"{task.record.case}: {type(error).__name__}: {error}")
    return report(found, problems, options.json)


class Others:
    """Processes that keep cores busy, or sleep; they end with this process."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for _ in range(self._count):
            self._processes.append(subprocess.Popen([sys.executable, "-c", KEEP_BUSY]))
        self._tell(signal.SIGSTOP)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Let every process compute while the block lasts."""
        self._tell(signal.SIGCONT)
        try:
            yield
        finally:
            self._tell(signal.SIGSTOP)

    def _tell(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send_signal(number)
        time.sleep(SETTLE_S)


Condition = tuple[str, bool]
"""The state of the host, and whether the batch was behind the blocking kernel."""


@dataclass
class Found:
    """The samples of a case under each condition, and in how many batches the host fell behind."""

    case: str
    times_s: dict[Condition, list[float]] = field(default_factory=dict)
    behind: dict[Condition, int] = field(default_factory=dict)

    def add(self, condition: Condition, times_s: tuple[float, ...], *, kept_ahead: bool | None) -> None:
        """Add the samples of a batch."""
        self.times_s.setdefault(condition, []).extend(times_s)
        self.behind[condition] = self.behind.get(condition, 0) + (kept_ahead is False)

    def median(self, condition: Condition) -> float:
        """Return the median of all samples under a condition."""
        return statistics.median(self.times_s[condition])

    def shift_s(self, host: str, *, blocked: bool) -> float:
        """Return the difference of the median from that on the quiet host."""
        return self.median((host, blocked)) - self.median((QUIET, blocked))

    def moved(self, host: str, *, blocked: bool) -> float:
        """Return the difference over its limit: 0.5 % or 0.1 µs, whichever is more."""
        allowed = max(LARGEST_SHIFT * self.median((QUIET, blocked)), LARGEST_SHIFT_S)
        return abs(self.shift_s(host, blocked=blocked)) / allowed

    def cells(self, *, blocked: bool) -> list[str]:
        """Return the row of the table."""
        cells = [self.case, f"{self.median((QUIET, blocked)) * 1e6:.3f}"]
        for host in (LATE, BUSY):
            change = self.shift_s(host, blocked=blocked)
            ratio = self.median((host, blocked)) / self.median((QUIET, blocked))
            behind = self.behind[host, blocked]
            passed = "PASS" if self.moved(host, blocked=blocked) <= 1 else "FAIL"
            cells += [f"{ratio:.4f}", f"{change * 1e6:+.3f}", str(behind), passed]
        return cells

    def as_json(self) -> dict[str, Any]:
        """Return the medians and the differences."""
        conditions = [
            {
                "host": host,
                "blocked": blocked,
                "samples": len(times),
                "median_s": self.median((host, blocked)),
                "batches_behind": self.behind[host, blocked],
                "shift_s": self.shift_s(host, blocked=blocked),
            }
            for (host, blocked), times in self.times_s.items()
        ]
        return {"case": self.case, "conditions": conditions}


def measured(device: Device, task: Task, others: Others, options: argparse.Namespace) -> Found:
    """Measure all batches of a case: in each round every condition once, in a random order."""
    inputs = take_inputs(task.arrays.make())
    found = Found(task.record.case.id)
    order = random.Random(found.case)
    evicted = int(task.sampling.evict * device.info.l2_bytes) if task.cache is CacheState.COLD else 0
    with device.measuring(task.record, 0), CaseMemory(device, task.record.buffers) as memory:
        program = Program(device, task.record, task.modules, memory, {})
        memory.reset(lambda name, address: device.upload(address, inputs[name]))
        program.set_constants()
        program.run()

        def batch(host: str, *, blocked: bool) -> None:
            sample = delaying(program.queue, order) if host == LATE else program.queue
            with others.busy() if host == BUSY else contextlib.nullcontext():
                taken = device.batch(sample, options.samples, clock="device", evict_bytes=evicted, blocked=blocked)
            found.add((host, blocked), taken.samples_s, kept_ahead=taken.kept_ahead)

        for host in HOSTS:  # warm up, so that no first-time cost is timed
            batch(host, blocked=True)
        found.times_s.clear()
        found.behind.clear()
        for _ in range(options.rounds):
            conditions = [(host, blocked) for host in HOSTS for blocked in (True, False)]
            order.shuffle(conditions)
            for host, blocked in conditions:
                batch(host, blocked=blocked)
    return found


def delaying(queue: Callable[[], None], chance: random.Random) -> Callable[[], None]:
    """Return a function that queues the same, sometimes a millisecond late."""

    def late() -> None:
        if chance.random() < DELAYED:
            time.sleep(DELAY_S)
        queue()

    return late


def report(found: list[Found], problems: list[str], path: Path | None) -> int:
    """Print the tables and the claims, and write the results."""
    headings = ("case", "quiet µs", *(name for host in (LATE, BUSY) for name in (host, "µs", "behind", "")))
    for blocked in (False, True):
        print(f"\n{'behind the blocking kernel' if blocked else 'without the blocking kernel, for contrast'}")
        print(table(headings, [case.cells(blocked=blocked) for case in found]))
    moved = {host: max((case.moved(host, blocked=True) for case in found), default=None) for host in (LATE, BUSY)}
    whole = not problems
    return finish(
        [
            Claim(
                f"blocked, host {host}: largest difference of a median, in units of 0.5 % or 0.1 µs",
                moved[host] if whole else None,
                1.0,
            )
            for host in (LATE, BUSY)
        ],
        path,
        problems=problems,
        cases=[case.as_json() for case in found],
    )


if __name__ == "__main__":
    sys.exit(main())
