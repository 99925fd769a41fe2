"""Simulate how evenly ``--spread each-model`` divides the built-in suite between 2, 4 and 8 GPUs.

The times of the cases are those of two real runs on an H100 (tests/data/costs). The script needs no GPU: it assigns the
cases to simulated GPUs as a run does, and adds up what each GPU measures, starts and imports, in the order of the plan.
It compares these assignments:

- ideal: the work of one GPU divided by the number of GPUs, and the fixed part;
- by number: each GPU has the same number of cases, chosen by a hash (what perfsvc did before it used costs);
- first night: what perfsvc does if it knows no times;
- second night: what perfsvc does once it knows the times of a run.

Then it simulates nights in which the costs vary, and counts the cases that move to another GPU.

    python tests/benchmarks/dealing.py [--nights 100] [--json FILE]
"""

import json
import random
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from workbench import Claim, finish, parsed, table

from perfsvc.measure.plan.assignment import home_device, spread
from perfsvc.measure.plan.budget import BudgetKey, CostHistory
from perfsvc.measure.plan.order import Plan, Task, TaskKey
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import CacheState, Case, DeviceInfo, Kind, ReplayRecord, Tolerance
from perfsvc.process.shared_memory import share

COSTS = Path(__file__).parents[1] / "data" / "costs" / "built_in_suite.json"
REPLICAS = 3
FIXED_S = 3.5
"""Seconds of a run in which no GPU measures: imports, reading the suite, judging (docs/measured/timing.md)."""
START_S = 0.35
"""Seconds to start a worker: the pause between two cases in the runs of ``COSTS`` if a new worker measures the next."""
END_S = 0.8
"""Seconds to end a worker that imported PyTorch, measured in the same way."""
LIBRARIES = {"triton", "cupy"}
FIRST_NIGHT = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = "H100"


@dataclass(frozen=True)
class Cost:
    """What a case took in a real run.

    Attributes:
        own_s: seconds of each replica, without imports.
        import_s: seconds that the first point of a variant spends on imports in each process.
    """

    own_s: tuple[float, ...]
    import_s: float = 0.0


@dataclass(frozen=True)
class Measured:
    """The cases of the built-in suite and their costs.

    Attributes:
        python: the benchmark of each case that calls Python functions; empty for the others.
        nights: the wall times of all replicas of a case in each run.
    """

    python: Mapping[TaskKey, str]
    nights: Sequence[Mapping[TaskKey, tuple[float, ...]]]

    def without_libraries(self) -> "Measured":
        """Return the cases that import neither Triton nor CuPy."""
        kept = {key: bench for key, bench in self.python.items() if key[0].variant not in LIBRARIES}
        return Measured(kept, [{key: night[key] for key in kept} for night in self.nights])

    def costs(self) -> dict[TaskKey, Cost]:
        """Return the costs in the last run, with the imports apart."""
        walls_s = self.nights[-1]
        variants: dict[tuple[str, str], list[TaskKey]] = defaultdict(list)
        for key, bench in self.python.items():
            if bench:
                variants[key[0].benchmark, key[0].variant].append(key)
        costs = {key: Cost(walls) for key, walls in walls_s.items()}
        for keys in variants.values():
            if len(keys) > 1:
                own_s = {key: min(walls_s[key]) for key in keys}
                total_s = statistics.fmean(map(sum, zip(*(walls_s[key] for key in keys), strict=True)))
                costs |= {key: Cost((own_s[key],) * REPLICAS, total_s - sum(own_s.values())) for key in keys}
        return costs


def main() -> int:
    """Print the times of the assignments and the moves of simulated nights."""
    options = parsed(__doc__, ("--nights", 100, "simulated nights"))
    everything = read()
    results: dict[str, dict[str, float]] = {}
    moved: dict[str, list[int]] = {}
    rows, night_rows = [], []
    for name, measured in {"all": everything, "without Triton and CuPy": everything.without_libraries()}.items():
        one_s = FIXED_S + slowest_s(measured, assigned(measured, 1, {}))
        for gpus in (2, 4, 8):
            first = assigned(measured, gpus, {})
            second = assigned(measured, gpus, history(measured.nights[-1], first, 0, {}))
            seconds = {
                "ideal": FIXED_S + (one_s - FIXED_S) / gpus,
                "by number": FIXED_S + slowest_s(measured, by_number(measured, gpus)),
                "first night": FIXED_S + slowest_s(measured, first),
                "second night": FIXED_S + slowest_s(measured, second),
            }
            results[f"{name}, {gpus} GPUs"] = {"one GPU": one_s, **seconds}
            rows.append([name, str(gpus), f"{one_s:.1f}", *(f"{s:.1f} ({s / one_s:.2f})" for s in seconds.values())])
            moved[f"{name}, {gpus} GPUs"] = moves = nights(measured, gpus, options.nights)
            later = moves[2:]
            night_rows.append(
                [name, str(gpus), str(len(measured.python)), str(moves[1]), str(sum(map(bool, later))), str(sum(later))]
            )
    print(f"seconds of a run, of which fixed: {FIXED_S} (share of the time on one GPU)")
    print(table(("cases", "GPUs", "one GPU", "ideal", "by number", "first night", "second night"), rows), end="\n\n")
    print(f"cases that moved in {options.nights} nights")
    head = ("cases", "GPUs", "number", "moved in night 2", "later nights with moves", "moved in these")
    print(table(head, night_rows), end="\n\n")
    four = results["without Triton and CuPy, 4 GPUs"]
    later = [sum(map(bool, moves[2:])) for moves in moved.values()]
    claims = [
        Claim(
            "time on four GPUs over the time on one, without Triton and CuPy",
            four["second night"] / four["one GPU"],
            0.32,
        ),
        Claim("most nights after the second in which cases moved", max(later), 0.02 * options.nights),
    ]
    return finish(claims, options.json, seconds=results, moved=moved)


def read() -> Measured:
    """Return the stored costs."""
    python, nights = {}, [{}, {}]
    for entry in json.loads(COSTS.read_text()):
        benchmark, _, rest = entry["case"].partition("/")
        variant, _, point = rest.removesuffix("]").partition("[")
        axes = dict(axis.split("=") for axis in point.split(",")) if point else {}
        key = Case(benchmark, variant, tuple(axes.items())), CacheState(entry["cache"])
        python[key] = benchmark if entry["python"] else ""
        for night, walls_s in zip(nights, entry["wall_s"], strict=True):
            night[key] = tuple(walls_s)
    return Measured(python, nights)


# --- assignments -----------------------------------------------------------------------------------------------------


def assigned(measured: Measured, gpus: int, past: Mapping[BudgetKey, CostHistory]) -> dict[TaskKey, str]:
    """Return the GPU of each case, as a run assigns it."""
    infos = [DeviceInfo("cuda", f"cuda:{number}", f"GPU-{number}", MODEL, "sm_90") for number in range(gpus)]
    tasks = [task(key, bench, info.uuid) for info in infos for key, bench in measured.python.items()]
    return {of.key: of.device for of in spread(tasks, infos, "each-model", past)}


def by_number(measured: Measured, gpus: int) -> dict[TaskKey, str]:
    """Return the GPU of each case if every GPU gets the same number of cases: the best by a hash that is not full."""
    uuids = [f"GPU-{number}" for number in range(gpus)]
    room = dict.fromkeys(uuids, -(-len(measured.python) // gpus))
    homes = {}
    for key in sorted(measured.python, key=lambda key: home_device(key, map(str, range(1000)))):
        homes[key] = home_device(key, [uuid for uuid in uuids if room[uuid]])
        room[homes[key]] -= 1
    return homes


def task(key: TaskKey, bench: str, device: str) -> Task:
    """Return a task without code."""
    case, cache = key
    record = ReplayRecord(case, Kind.KERNEL, (), (), (), "", seed=0)
    arrays = Recipe("none", lambda: share({}, {}))
    return Task(device, record, (), cache, Sampling(), Tolerance(0, 0), arrays, bench=bench)


def history(
    walls_s: Mapping[TaskKey, Sequence[float]],
    homes: Mapping[TaskKey, str],
    night: int,
    past: Mapping[BudgetKey, CostHistory],
) -> dict[BudgetKey, CostHistory]:
    """Return the past and what a night adds to it: the mean of the replicas of each case, on its GPU."""
    added = {}
    for key, walls in walls_s.items():
        of_case = homes[key], key[0].id, key[1]
        runs = past[of_case].runs if of_case in past else 0
        added[of_case] = CostHistory(statistics.fmean(walls), None, FIRST_NIGHT + timedelta(days=night), runs + 1)
    return {**past, **added}


def nights(measured: Measured, gpus: int, count: int) -> list[int]:
    """Return how many cases moved in each of some nights.

    The costs of each night are three replicas of each case, drawn anew, each about 5 % longer or shorter. The points of
    a variant that imports a library have the same drawn replicas, because only one of them pays for the import. Every
    tenth night has the costs of the first real run, which measured fewer places and took other times.
    """
    chance = random.Random(f"dealing/{gpus}")
    past: dict[BudgetKey, CostHistory] = {}
    before: dict[TaskKey, str] = {}
    moves = []
    for number in range(count):
        homes = assigned(measured, gpus, past)
        moves.append(sum(before[key] != homes[key] for key in before))
        together = chance.choices(range(REPLICAS), k=REPLICAS)
        walls_s = {}
        for key, walls in measured.nights[0 if number % 10 == 9 else -1].items():
            drawn = together if key[0].variant in LIBRARIES else chance.choices(range(REPLICAS), k=REPLICAS)
            walls_s[key] = [chance.gauss(1, 0.05) * walls[replica] for replica in drawn]
        past = history(walls_s, homes, number, past)
        before = homes
    return moves


# --- the time of a run -----------------------------------------------------------------------------------------------


def slowest_s(measured: Measured, homes: Mapping[TaskKey, str]) -> float:
    """Return the seconds of the GPU that takes longest."""
    tasks = tuple(task(key, measured.python[key], device) for key, device in homes.items())
    plan = Plan(tasks, REPLICAS, seed=1, limit_s=60)
    costs = measured.costs()
    return max(device_s(plan, device, costs) for device in sorted(set(homes.values())))


def device_s(plan: Plan, device: str, costs: Mapping[TaskKey, Cost]) -> float:
    """Return the seconds of a GPU: its cases, the starts and ends of its workers, and their imports."""
    seconds, worker, bench = 0.0, -1, ""
    imported: Counter[str] = Counter()
    for replica, measured in plan.order(device):
        if replica != worker or bench not in {"", measured.bench}:
            seconds += START_S + END_S * bool(imported["triton"])
            worker, bench = replica, ""
            imported.clear()
        bench = measured.bench or bench
        variant = measured.record.case.variant
        seconds += costs[measured.key].own_s[replica]
        if measured.bench:
            seconds += 0.0 if imported[variant] else costs[measured.key].import_s
            imported[variant] += 1
    return seconds


if __name__ == "__main__":
    sys.exit(main())
