"""Compare perfsvc and NVBench on the same binaries, in alternating fresh processes: medians, spreads, wall times.

    python tests/benchmarks/side_by_side.py [--device cuda:0] [--processes 10] [--json FILE]

Needs cuda-bench and cuda-bindings (pip install 'cuda-bench[cu13]'). A round is one process of NVBench with its
defaults, one worker of perfsvc with its own, and one worker that measures like NVBench: it evicts as many bytes as the
L2 cache holds, and leaves the arrays at one place. This place is the same for both tools, because places alone change
some times by 5 %. The tools take turns at going first. A first worker does not count: it waits for the fork server's
imports and until inputs and references are made, and checks every result in full. A run pays for that once, and its
parts are shown. Wall times run from the start of a process (for perfsvc: from requesting the fork) to its last
measurement. NVBench has no checks, so the seconds of perfsvc's checks are excluded and shown separately.
"""

import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nvbench import bundle
from nvbench.sittings import Sitting, SittingError, Workers, nvbench
from workbench import NVBENCH_SUITE, Claim, alone_on, finish, parsed, ready, spread_of, table, tick_of

from perfsvc.measure.host.input_prefetcher import InputPrefetcher
from perfsvc.measure.host.pool import worker_servers
from perfsvc.measure.plan.order import Task
from perfsvc.service.prepare.targets import GPU_SAMPLING

NVBENCH, PERFSVC, ALIKE, FIRST = "NVBench", "perfsvc", "perfsvc, alike", "perfsvc, first"
TOOLS = (NVBENCH, PERFSVC, ALIKE)
NVBENCH_EVICTS = 1.0
"""How many times the size of the L2 cache NVBench overwrites before each sample (its l2flush)."""
LONG_S, SHORT_S = 50e-6, 10e-6
MEDIAN_OF_NORMAL = math.sqrt(math.pi / 2)
"""The standard error of a median over that of a mean, for normal values."""
ARRAY_BYTES = 16 << 30

Sittings = Mapping[str, list[Sitting]]


def main() -> int:
    """Measure alternately, then compare."""
    options = parsed(
        __doc__,
        ("--device", "cuda:0", "one device"),
        ("--processes", 10, "processes of each tool; at least 2"),
        ("--limit", 480.0, "seconds after which no round begins"),
        ("--suite", NVBENCH_SUITE, "the cases"),
    )
    if options.processes < 2:
        sys.exit("--processes: a spread needs at least 2")
    cases = ready(options.suite, options.device, GPU_SAMPLING)
    found: dict[str, list[Sitting]] = {NVBENCH: [], PERFSVC: [], ALIKE: [], FIRST: []}
    problems: list[str] = []
    with alone_on(cases.device), tempfile.TemporaryDirectory() as folder:
        bundle.write(Path(folder), cases.tasks, cases.device.memory_bytes)
        like_nvbench = replace(GPU_SAMPLING, evict=NVBENCH_EVICTS, places=1)
        alike = [replace(task, sampling=like_nvbench) for task in cases.tasks]
        plan = Rounds({FIRST: cases.tasks, PERFSVC: cases.tasks, ALIKE: alike}, options.processes)
        with (
            InputPrefetcher([plan.coming], threads=4, budget_bytes=ARRAY_BYTES) as prefetcher,
            worker_servers() as servers,
        ):
            workers = Workers(cases.device, cases.helper_kernels, prefetcher, servers)
            turns: dict[str, Callable[[int], Sitting]] = {
                NVBENCH: lambda _: nvbench(Path(folder), cases.device),
                PERFSVC: lambda number: workers.sitting(number, plan.tasks(PERFSVC, number)),
                ALIKE: lambda number: workers.sitting(number, plan.tasks(ALIKE, number)),
                FIRST: lambda number: workers.sitting(number, plan.tasks(FIRST, number)),
            }
            print(f"{cases.device.model}, driver {cases.device.driver}, {len(cases.tasks)} cases", flush=True)
            measure(turns, found, problems, processes=options.processes, limit_s=options.limit)
    return report(found, problems, options.json)


class Rounds:
    """The tasks of each worker in order; a worker's number is its replica."""

    def __init__(self, tasks: Mapping[str, Sequence[Task]], processes: int) -> None:
        self._tasks = tasks
        self.coming = [
            (number, task)
            for number in range(processes + 1)
            for tool in sequence(number)
            for task in self.tasks(tool, number)
        ]

    def tasks(self, tool: str, number: int) -> list[Task]:
        """Return the tasks of a worker in an order of its own; none if the tool is not perfsvc."""
        shuffled = list(self._tasks.get(tool, ()))
        random.Random(f"{tool}/{number}").shuffle(shuffled)
        return shuffled


def sequence(number: int) -> tuple[str, ...]:
    """Return the order of the tools in a round: NVBench heats the GPU for long, so it goes first and last in turn."""
    if number == 0:
        return (FIRST,)
    return (NVBENCH, PERFSVC, ALIKE) if number % 2 else (ALIKE, PERFSVC, NVBENCH)


def measure(
    turns: Mapping[str, Callable[[int], Sitting]],
    found: Mapping[str, list[Sitting]],
    problems: list[str],
    *,
    processes: int,
    limit_s: float,
) -> None:
    """Measure round by round; a tool that fails is skipped from then on, and the others continue."""
    deadline = time.monotonic() + limit_s
    failed: set[str] = set()
    for number in range(processes + 1):
        if time.monotonic() > deadline:
            print(f"{max(0, number - 1)} of {processes} rounds were made in {limit_s:g} s", flush=True)
            return
        for tool in sequence(number):
            if tool in failed:
                continue
            try:
                found[tool].append(turns[tool](number))
                print(f"round {number}: {tool:21} {found[tool][-1].wall_s:7.3f} s", flush=True)
                for case, note in found[tool][-1].notes.items():
                    print(f"         {case}: {note}", flush=True)
                problems.extend(f"round {number}: {case}: {why}" for case, why in found[tool][-1].failed.items())
            except SittingError as error:
                failed.add(tool)
                problems.append(f"round {number}: {error}")
                print(problems[-1], flush=True)


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A case: medians of the processes' medians, their spread, and the standard error of the ratio of medians."""

    case: str
    theirs_s: float
    ours_s: float
    alike_s: float
    their_spread: float
    our_spread: float
    alike_spread: float
    processes: int

    @property
    def ratio(self) -> float:
        """The median of perfsvc over that of NVBench."""
        return self.ours_s / self.theirs_s

    @property
    def alike_ratio(self) -> float:
        """The same ratio with the same eviction and one place."""
        return self.alike_s / self.theirs_s

    @property
    def spread_ratio(self) -> float:
        """The spread of perfsvc over that of NVBench."""
        return self.our_spread / self.their_spread

    @property
    def ratio_error(self) -> float:
        """One standard error of ``ratio``."""
        return MEDIAN_OF_NORMAL * math.hypot(self.our_spread, self.their_spread) / math.sqrt(self.processes)

    def times(self) -> list[str]:
        """Return the row of the table of medians."""
        seconds = (self.theirs_s, self.ours_s, self.alike_s)
        ratios = (self.ratio, self.ratio_error, self.alike_ratio)
        return [self.case, *(f"{value * 1e6:.3f}" for value in seconds), *(f"{value:.4f}" for value in ratios)]

    def spreads(self) -> list[str]:
        """Return the row of the table of spreads."""
        spreads = (self.their_spread, self.our_spread, self.alike_spread)
        return [self.case, *(f"{100 * value:.3f}" for value in spreads), f"{self.spread_ratio:.2f}"]


TIMES = ("case", "NVBench µs", "perfsvc µs", "alike µs", "perfsvc/NVBench", "±", "alike/NVBench")
SPREADS = ("case", "NVBench %", "perfsvc %", "alike %", "perfsvc/NVBench")

EXPLAINED = """\
Times: medians of the processes' medians, and one standard error of their ratio. Spreads: relative standard deviations
of the processes' medians, no smaller than the clock's step, {tick:.0f} ns, over the square root of 12. For two tools of
equal spread the geometric mean of the ratios would be 1 with a standard error of {error:.0f} %."""


def compare(found: Sittings, tick_s: float) -> list[Row]:
    """Return a row for each case with a median from every process; each tool must have at least two processes."""
    processes = min(len(found[tool]) for tool in TOOLS)
    if processes < 2:
        return []
    sittings = [sitting for tool in TOOLS for sitting in found[tool]]
    cases = set.intersection(*(set(sitting.medians_s) for sitting in sittings))
    medians = {tool: {case: [sitting.medians_s[case] for sitting in found[tool]] for case in cases} for tool in TOOLS}
    return [
        Row(
            case,
            *(statistics.median(medians[tool][case]) for tool in TOOLS),
            *(spread_of(medians[tool][case], tick_s) for tool in TOOLS),
            processes=processes,
        )
        for case in sorted(cases)
    ]


def claims(rows: Sequence[Row], found: Sittings) -> list[Claim]:
    """Return the claims."""
    long = [abs(row.alike_ratio - 1) * 100 for row in rows if row.theirs_s > LONG_S]
    short = [abs(row.alike_ratio - 1) * 100 for row in rows if row.theirs_s < SHORT_S]
    walls = {
        tool: statistics.median(sitting.wall_s for sitting in sittings) for tool, sittings in found.items() if sittings
    }
    wall = walls[PERFSVC] / walls[NVBENCH] if {PERFSVC, NVBENCH} <= walls.keys() else None
    return [
        Claim("medians over 50 µs, alike, differ by", max(long, default=None), 0.5, " %"),
        Claim("medians under 10 µs, alike, differ by", max(short, default=None), 3.0, " %"),
        Claim("wall time of a process, perfsvc over NVBench", wall, 1 / 20),
    ]


def report(found: Sittings, problems: Sequence[str], path: Path | None) -> int:
    """Print the tables and the claims, and write the results."""
    tick_s = tick_of(seconds for tool in (PERFSVC, ALIKE) for sitting in found[tool] for seconds in sitting.times_s)
    rows = compare(found, tick_s)
    if rows:
        print(f"\n{table(TIMES, [row.times() for row in rows])}\n\n{table(SPREADS, [row.spreads() for row in rows])}\n")
        print(EXPLAINED.format(tick=tick_s * 1e9, error=100 / math.sqrt((rows[0].processes - 1) * len(rows))))
        mean = statistics.geometric_mean(row.spread_ratio for row in rows)
        print(f"Geometric mean of the ratios of spreads: {mean:.2f}")
    print()
    print(table(("seconds of a process, median", *found), walls(found)))
    return finish(
        [Claim("processes and cases that failed", len(problems), 0), *claims(rows, found)],
        path,
        tick_s=tick_s,
        problems=problems,
        sittings={tool: [sitting.as_json() for sitting in sittings] for tool, sittings in found.items()},
    )


def walls(found: Sittings) -> list[list[str]]:
    """Return the rows of the table of wall times: the whole and its parts, as medians over the processes."""
    parts = dict.fromkeys(part for sittings in found.values() for sitting in sittings for part in sitting.parts_s)
    rows = [["from start to last measurement"], *([f"  {part}"] for part in parts)]
    for sittings in found.values():
        rows[0].append(f"{statistics.median(sitting.wall_s for sitting in sittings):.3f}" if sittings else "-")
        for row, part in zip(rows[1:], parts, strict=True):
            known = [sitting.parts_s[part] for sitting in sittings if part in sitting.parts_s]
            row.append(f"{statistics.median(known):.3f}" if known else "")
    return rows


if __name__ == "__main__":
    sys.exit(main())
