"""Time perfsvc's commands with a database of many nights: wall time, processor time and peak memory of whole processes.

Two nights of a simulated suite are measured on the fake device. Copies of the second night fill the database. Each
command then runs as a process of its own. Needs no GPU.

    python tests/benchmarks/size.py FOLDER [--cases 1000] [--nights 200] [--replicas 3] [--db postgresql://…]
        [--only compare,show] [--limit 900] [--repeat 3] [--json size.json]

The parts ``plan``, ``plan-budget``, ``plan-two`` and ``plan-eight`` are runs that are stopped when the first case is
sent to a worker. The last two plan ``--spread-cases`` cases for two and for eight fake GPUs of one model, of which only
the first has measured them so far; they have a folder and a database of their own.

FOLDER keeps the suite and the SQLite file. A second call uses what it has, and adds nights if they are fewer. The
parts are the commands of ``commands`` and ``judge``, so that a long measurement can be made in several calls. The
parts ``prune`` and ``prune-next`` run only if ``--only`` names them, and only once, because they remove samples.
"""

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from statistics import median

from simulated import grown, many
from sqlalchemy import delete, select
from workbench import finish, parsed, table, timed

from perfsvc.model import Case, DeviceInfo, Provenance, RunState
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.store import MeasurementEntry, Store
from perfsvc.store.schema.tables import Cases, Measurements

ENTRIES_A_COMMIT, COMMITS = 60, 50
"""How many measurements arrive together, as from twenty GPUs of three replicas, and how often."""
NIGHTS_OF_FIRST = 3
"""In how many nights the first of several GPUs has measured all cases."""
REMOVING = ("prune", "prune-next")
"""The parts that change the database for all later calls."""
IN_PROCESS = """
import json, sys
from perfsvc.cli import main
note, sys.argv = sys.argv[1], ["perfsvc", *sys.argv[2:]]
try:
    main()
finally:
    with open("/proc/self/status") as status:
        peak = next(line for line in status if line.startswith("VmHWM"))
    with open(note, "w") as file:
        file.write(peak.split()[1])
"""
"""Runs the command line, and writes the peak of its memory in KiB to a file."""
STOPPED = """
from perfsvc.measure.host.worker_handle import WorkerHandle
def stop(*_, **__):
    raise KeyboardInterrupt
WorkerHandle.send = stop
"""
"""Stops a run when the first case is sent to a worker."""
PLANNING = "plan"
"""How the names of the parts begin that are stopped."""
SEVERAL = {"plan-two": 2, "plan-eight": 8}
"""How many GPUs share the cases, by part."""


@dataclass(frozen=True)
class Cost:
    """What a command took: wall time and processor time with its child processes, and its own peak memory."""

    command: str
    wall_s: float
    cpu_s: float
    peak_bytes: int
    exit_code: int


def cost(arguments: Sequence[str], folder: Path, program: str = IN_PROCESS) -> Cost:
    """Run a command and return what it took; the output is thrown away."""
    with tempfile.NamedTemporaryFile() as note, (folder / "output.txt").open("w") as output:
        command = [sys.executable, "-c", program, note.name, *arguments]
        code, wall_s, cpu_s = timed(command, stdout=output, stderr=output)
        return Cost(arguments[0], wall_s, cpu_s, int(note.read() or 0) * 1024, code)


def main() -> int:
    """Fill the database, time the commands, and print a table."""
    options = parsed(
        __doc__,
        ("folder", Path, "keeps the suite and the database"),
        ("--cases", 1000),
        ("--nights", 200),
        ("--replicas", 3),
        ("--spread-cases", 10_000, "the cases that several GPUs share"),
        ("--db", "", "an empty database on PostgreSQL, by its URL"),
        ("--only", "", "time only these, separated by commas"),
        ("--limit", math.inf, "the most seconds for copying nights"),
        ("--repeat", 1, "run each command so often, and keep the quickest"),
    )
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed perfsvc is compiled
    os.environ |= {"PERFSVC_CACHE": str(folder / "cache"), "PERFSVC_LOCKS": str(folder / "locks")}
    database = options.db or str(folder / "perfsvc.db")
    if not (folder / "repository").exists():
        place = grown.workplace(folder, options.cases, options.replicas)
        seconds = grown.measure(place, database)
        print(f"measured two nights in {seconds[0]:.1f} s and {seconds[1]:.1f} s", flush=True)
    began = time.perf_counter()
    nights = grown.grow(database, options.nights, options.limit)
    print(f"{nights} nights after {time.perf_counter() - began:.1f} s", flush=True)
    costs = []
    wanted = options.only.split(",")
    parts = commands(folder, database)
    if not options.only or SEVERAL.keys() & set(wanted):
        parts |= sharing(folder / "spread", options.spread_cases)
    for name, arguments in parts.items():
        if name in wanted if options.only else name not in REMOVING:
            program = STOPPED + IN_PROCESS if name.startswith(PLANNING) else IN_PROCESS
            repeated = [cost(arguments, folder, program) for _ in range(1 if name in REMOVING else options.repeat)]
            costs.append(replace(min(repeated, key=lambda each: each.cpu_s), command=name))
            print(costs[-1], flush=True)
    judged = [] if options.only and "judge" not in wanted else list(judging(database, nights))
    print(table(COLUMNS, [cells(each) for each in costs]))
    print(table(("in one process", "wall time"), [(name, f"{seconds * 1e3:.0f} ms") for name, seconds in judged]))
    return finish([], options.json, nights=nights, commands=[asdict(each) for each in costs], inside_s=dict(judged))


def commands(folder: Path, database: str) -> dict[str, list[str]]:
    """Return the arguments of each command that is timed, by its name in the table."""
    where = ["--db", database]
    suite = ["--suite", str(folder / "repository" / "kernels")]
    measuring = ["run", *where, *suite, "--device", f"fake:{folder / 'script.json'}", "--label", "nightly"]
    case = "b0/v1[n=64]"

    def prune_older_than(age: str) -> list[str]:
        return ["db", "prune", *where, "--samples", age, "--binaries", age]

    return {
        "help": ["--help"],
        "compare": ["compare", "latest~1", "latest", *where, *suite],
        "show": ["show", case, *where],
        "report": ["report", "latest", *where, *suite],
        "runs": ["runs", *where],
        "report-csv": ["report", "latest", *where, *suite, "--output", str(folder / "latest.csv")],
        "all-parquet": ["report", "--all", *where, "--output", str(folder / "all.parquet")],
        "all-csv": ["report", "--all", *where, "--output", str(folder / "all.csv")],
        "prune-dry": [*prune_older_than("90d"), "--force", "--dry-run"],
        "run": measuring,
        "run-budget": [*measuring, "--budget", "10m"],
        "plan": measuring,
        "plan-budget": [*measuring, "--budget", "10m"],
        "prune": [*prune_older_than("90d"), "--force"],
        "prune-next": prune_older_than("89d"),  # one night more is old, as in the next night
    }


def sharing(folder: Path, count: int) -> dict[str, list[str]]:
    """Return the arguments of the runs that share cases between GPUs; only the first GPU has measured them so far."""
    folder.mkdir(exist_ok=True)
    database, suite = folder / "perfsvc.db", folder / "repository" / "kernels"
    if not database.exists():
        place = grown.workplace(folder, count, 1)
        cases = [Case(*name.split("/"), (("n", 64),)) for name in place.plan.cases]
        first = replace(many.GPU, kind="fake", spec="fake", uuid="FAKE-0", model="Fake GPU", target="fake")
        with Store.open(str(database)) as store:
            store.devices.put(first)
            for _ in range(NIGHTS_OF_FIRST):
                run = store.runs.begin(Provenance(datetime.now(UTC), "perfsvc run", "kernels", label="nightly"))
                store.measurements.put(run, [_on(first, entry) for entry in many.entries_of(cases)])
                store.runs.end(run, RunState.FINISHED)
    devices = []
    for number in range(max(SEVERAL.values())):
        (folder / f"{number}.json").write_text(json.dumps({"uuid": f"FAKE-{number}"}))
        devices += [["--device", f"fake:{folder / f'{number}.json'}"]]
    run_it = ["run", "--db", str(database), "--suite", str(suite), "--spread", "each-model", "--label", "nightly"]
    return {name: [*run_it, *chain(*devices[:gpus])] for name, gpus in SEVERAL.items()}


def _on(device: DeviceInfo, entry: MeasurementEntry) -> MeasurementEntry:
    """Return an entry as measured on a device, in a time that depends on the case."""
    wall_s = 0.4 + len(entry.measurement.case.id) / 100 + entry.measurement.samples_s[0] * 1e3
    return replace(entry, measurement=replace(entry.measurement, device=device.uuid, wall_s=wall_s))


def judging(database: str, nights: int) -> Iterator[tuple[str, float]]:
    """Yield the names and the seconds of what a night does with the history, early and late in it, and of writing."""
    with Store.open(database) as store:
        for run in sorted({min(100, nights), nights}):
            yield f"judging night {run}", seconds_of(lambda run=run: judge_run(store, run, threshold=None))
            yield f"suspects of night {run}", seconds_of(lambda run=run: suspects_of(store, run, threshold=None))
        yield "judging a night with a new case", judging_a_new_case(store, nights)
        histories = [seconds_of(lambda: store.series.case_history("b0/v1[n=64]")) for _ in range(20)]
        yield "history of a case", median(histories)
        yield "the runs to compare with", seconds_of(lambda: store.runs.newest(1))
        for of in (" of new cases", ""):  # a night stores cases anew only if the suite has new ones
            yield f"storing {ENTRIES_A_COMMIT} measurements{of}, in one commit", writing(store, nights)


def judging_a_new_case(store: Store, run: int) -> float:
    """Return the seconds that judging a night takes if the night has a case that no earlier night had.

    The new case was measured with another driver, so that its segment begins in this night too.
    """
    device = next(iter(store.series.levels(run))).device
    entries = [
        replace(entry, measurement=replace(entry.measurement, device=device))
        for entry in many.entries_of([Case(f"new in run {run}", "v1")])
    ]
    store.measurements.put(run, entries)
    seconds = seconds_of(lambda: judge_run(store, run, threshold=None))
    with store.database.writing() as connection:
        new = select(Cases.id).where(Cases.benchmark == f"new in run {run}")
        connection.execute(delete(Measurements).where(Measurements.case_id.in_(new)))
    return seconds


def writing(store: Store, nights: int) -> float:
    """Return the seconds that a commit of ``ENTRIES_A_COMMIT`` measurements takes, in a run of ``COMMITS``."""
    count = ENTRIES_A_COMMIT * COMMITS // many.REPLICAS
    entries = many.entries_of([Case(f"stored after {nights} nights", f"v{number}") for number in range(count)])
    store.devices.put(many.GPU)
    run = store.runs.begin(Provenance(datetime.now(UTC), "perfsvc run", "kernels"))
    began = time.perf_counter()
    for at in range(0, len(entries), ENTRIES_A_COMMIT):
        store.measurements.put(run, entries[at : at + ENTRIES_A_COMMIT])
    seconds = time.perf_counter() - began
    store.runs.end(run, RunState.INTERRUPTED)
    store.exclusions.delete(run, reason="it only measured the speed", by="size.py")
    return seconds / COMMITS


def seconds_of(work: Callable[[], object]) -> float:
    """Return the wall time of the second of two calls: the first fills the caches of the file system."""
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


COLUMNS = ("command", "wall time", "processor time", "peak memory", "exit code")


def cells(each: Cost) -> tuple[str, ...]:
    """Return the row of a command."""
    peak = f"{each.peak_bytes / 1e6:.0f} MB"
    return each.command, f"{each.wall_s:.2f} s", f"{each.cpu_s:.2f} s", peak, str(each.exit_code)


if __name__ == "__main__":
    sys.exit(main())
