"""Check that a kernel slower by 2 % is found, confirmed and named, and that a shared GPU is never blamed on a kernel.

    python tests/benchmarks/slowdown.py [--device cuda:0] [--slow 2] [--budget 240] [--json FILE]

Copies a suite of nine variants into a temporary folder, four bound by memory and five by arithmetic, and runs
``perfsvc run --confirm`` night after night at the default threshold, each night against the first. In some nights a
variant is slowed by a ``-D``. In some another process multiplies matrices, all the time or for a share of it, which
takes an H100 to its power limit and lowers its clocks. In one the suite itself has such products, which telemetry
cannot tell from the run's own load. If the GPU is shared,

- only a variant that was slowed that night may have the cause kernel;
- unchanged code that moved has the cause environment, or was refused because too many of its batches were rejected.

On the CPU device the load is a busy process per core, and its threshold needs about ``--slow 300``. Nights over
``--budget`` are skipped, and their claims fail.
"""

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from workbench import SUITE, Claim, Prepared, finish, parsed, perfsvc, power_hungry, table

from perfsvc.device.find import find, open_device
from perfsvc.store import Store

NIGHTS = Path(__file__).parent / "nights"
KEEP_BUSY = "while True: pass"
AT_WORK = "at work"
QUEUED = 8  # about 1.5 ms
PERIOD_S = 0.2
OPTIONS = ("--confirm", "--seconds", "0.4", "--limit", "6", "--format", "json")
"""Limits so that a case slowed by a load is not sampled for seconds, and a refused case does not wait for long."""
FURNACE = "matmul_bf16"
"""The benchmark of the built-in suite that takes the GPU to its power limit."""
LEAST_S = 20.0
"""Seconds of a night: with less time left no night begins."""


@dataclass(frozen=True)
class Night:
    """A planned night: which variant is slowed, which has new code of the same speed, and which load shares the GPU.

    Attributes:
        name: as in the table.
        slowed: a case, as ``benchmark/variant``; empty for none.
        recoded: a case with new code of the same speed, likewise.
        duty: the share of the time that the competing process works; 0 for none.
        hot: the suite has a load of its own.
    """

    name: str
    slowed: str = ""
    recoded: str = ""
    duty: float = 0.0
    hot: bool = False

    @property
    def quiet(self) -> bool:
        """Whether the GPU has no other load."""
        return not (self.duty or self.hot)


PLAN = (
    Night("first"),
    Night("flat"),
    Night("flat again"),
    Night("memory bound, slowed", slowed="add/plain"),
    Night("arithmetic, slowed", slowed="arithmetic/halving"),
    Night("shared all the time", duty=1.0),
    Night("shared, slowed and recoded", slowed="add/plain", recoded="arithmetic/four_chains", duty=0.5),
    Night("hot neighbours", hot=True),
    Night("shared a little", duty=0.1),
)


@dataclass(frozen=True)
class MovedSeries:
    """A case that is slower or faster, or refused.

    Attributes:
        case: as ``benchmark/variant``.
        verdict: of the run.
        cause: after it was measured again, if it was.
        ratio: to its baseline; None if it was refused.
    """

    case: str
    verdict: str
    cause: str | None
    ratio: float | None

    def __str__(self) -> str:
        return f"{self.case} refused" if self.ratio is None else f"{self.case} {self.ratio:.3f} {self.cause}"


@dataclass(frozen=True)
class Seen:
    """The result of a night.

    Attributes:
        code: the exit code.
        wall_s: its wall time.
        moved: the cases that are slower, faster or refused.
        confirmations: the result of measuring again, by case: cause, ratio and reason.
        clock_hz: the median clock of the cases bound by arithmetic, over all replicas.
        rejected: how many batches were rejected.
        notes: the run's notes on waiting and rejecting, each once.
    """

    night: Night
    code: int
    wall_s: float
    moved: Sequence[MovedSeries]
    confirmations: Mapping[str, tuple[str, float | None, str]]
    clock_hz: float | None
    rejected: int
    notes: Sequence[str]

    @property
    def regressed(self) -> list[MovedSeries]:
        """The cases called slower."""
        return [series for series in self.moved if series.verdict == "regression"]

    @property
    def blamed(self) -> list[str]:
        """The cases whose code is blamed."""
        return [series.case for series in self.regressed if series.cause == "kernel"]

    @property
    def named(self) -> bool:
        """Whether the exit code, the regressions and their cause match what was planted."""
        regressed, planted = [series.case for series in self.regressed], [self.night.slowed]
        return (self.code, regressed, self.blamed) == (1, planted, planted)

    @property
    def innocent(self) -> int:
        """How many kernels are blamed although they were not slowed."""
        return sum(case != self.night.slowed for case in self.blamed)

    @property
    def unnamed(self) -> int:
        """How many cases are slower with another cause than the environment."""
        return sum(series.cause != "environment" for series in self.regressed)

    def row(self) -> list[str]:
        """Return the row of the table."""
        clock = f"{self.clock_hz / 1e9:.3f}" if self.clock_hz else "-"
        load = "in the suite" if self.night.hot else f"{self.night.duty:.0%}" if self.night.duty else "-"
        refused = sum(series.ratio is None for series in self.moved)
        causes = [
            f"{count} {cause}" for cause, count in Counter(str(series.cause) for series in self.regressed).items()
        ]
        changed = self.night.slowed or "-"
        return [
            *(self.night.name, changed, load, f"{self.wall_s:.1f}", str(self.code), clock, str(self.rejected)),
            *(str(refused), ", ".join(causes) or "-", ", ".join(self.blamed) or "-"),
        ]


COLUMNS = ("night", "slowed", "load", "s", "exit", "GHz", "rejected", "refused", "slower, by cause", "blamed")


def main() -> int:
    """Run all nights and print the results."""
    options = parsed(
        __doc__,
        ("--device", "cuda:0", "one device"),
        ("--slow", 2, "per cent of more work of a slowed variant"),
        ("--nights", len(PLAN), "run only the first nights"),
        ("--budget", 240.0, "seconds for all nights"),
        ("--duty", 0.0, "only multiply matrices for a share of the time, until standard input ends"),
    )
    if options.duty:
        return compete(options.device, options.duty)
    (device,) = find([options.device])
    print(f"{device.model}, driver {device.driver}", flush=True)
    seen: list[Seen] = []
    problems: list[str] = []
    deadline = time.monotonic() + options.budget
    with tempfile.TemporaryDirectory() as folder:
        theatre = Theatre(Path(folder), options.device, device.kind, options.slow)
        for night in PLAN[: options.nights]:
            if deadline - time.monotonic() < LEAST_S:
                print(f"{night.name}: skipped: the budget of {options.budget:g} s is used up")
                continue
            try:
                seen.append(theatre.play(night))
            except RuntimeError as error:
                problems.append(f"{night.name}: {error}")
                continue
            print(f"{night.name}: {', '.join(map(str, seen[-1].moved)) or 'nothing moved'}", flush=True)
    print("\n" + table(COLUMNS, [result.row() for result in seen]) + "\n")
    for result in seen:
        for case, (cause, ratio, reason) in result.confirmations.items():
            change = "" if ratio is None else f" ({ratio:.4f})"
            print(f"{result.night.name}: {case} measured again: {cause}{change}, {reason}")
    print()
    return finish(
        claims(seen),
        options.json,
        device=device.model,
        driver=device.driver,
        problems=problems,
        nights=list(map(asdict, seen)),
    )


def claims(seen: Sequence[Seen]) -> list[Claim]:
    """Return the claims."""
    flat = [result for result in seen if result.night.quiet and not result.night.slowed]
    slowed = [result for result in seen if result.night.quiet and result.night.slowed]
    shared = [result for result in seen if not result.night.quiet]
    unchanged = [result for result in shared if not result.night.slowed]
    return [
        claim("flat nights: regressions", flat, 3, [len(result.regressed) for result in flat]),
        claim(
            "slowed nights that do not name that kernel and no other",
            slowed,
            2,
            [not result.named for result in slowed],
        ),
        claim("shared nights: kernels blamed that were not slowed", shared, 4, [result.innocent for result in shared]),
        claim(
            "shared nights: slower, unchanged, not environment", unchanged, 3, [result.unnamed for result in unchanged]
        ),
        claim(
            "shared nights of unchanged code that exit with 1", unchanged, 3, [result.code == 1 for result in unchanged]
        ),
        Claim("slowest clock of a shared night over that of the first one", slowest_clock(seen), 0.98),
    ]


def slowest_clock(seen: Sequence[Seen]) -> float | None:
    """Return the ratio of clocks, so that a load without effect is noticed; None if no clock is known."""
    quiet = [result.clock_hz for result in seen if result.night.quiet and result.clock_hz]
    shared = [result.clock_hz for result in seen if not result.night.quiet and result.clock_hz]
    return min(shared) / quiet[0] if quiet and shared else None


def claim(what: str, seen: Sequence[Seen], nights: int, wrong: Sequence[int]) -> Claim:
    """Return the claim that nothing was wrong in a number of nights."""
    return Claim(what, sum(wrong) if len(seen) == nights else None, 0)


def compete(spec: str, duty: float) -> int:
    """Queue matrix products for a share of the time until standard input ends, without a lock, like another's job."""
    load = power_hungry(spec)
    with (
        contextlib.closing(open_device(load.device.spec, load.helper_kernels)) as device,
        Prepared(device, load.tasks[0]) as queue,
    ):
        print(AT_WORK, flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            began = time.monotonic()
            while time.monotonic() - began < duty * PERIOD_S:
                for _ in range(QUEUED):
                    queue()
                device.synchronize()
            time.sleep(max(0.0, began + PERIOD_S - time.monotonic()))
    return 0


class Theatre:
    """A folder with the suite and a database, in which nights run one after the other."""

    def __init__(self, folder: Path, device: str, kind: str, percent: int) -> None:
        self._folder = folder
        self._device = device
        self._kind = kind
        self._percent = percent
        self._suite = folder / "suite"
        shutil.copytree(NIGHTS / "suite", self._suite)
        shutil.copytree(SUITE / FURNACE, self._suite / FURNACE)

    def play(self, night: Night) -> Seen:
        """Run a night with its changes and its load."""
        began = time.monotonic()
        options = {"SLOWED": variant(night.slowed), "RECODED": variant(night.recoded), "PERCENT": str(self._percent)}
        chosen = ("--select", "*") if night.hot else ("--exclude", FURNACE)
        command = ["run", "--device", self._device, "--suite", str(self._suite), *chosen, *OPTIONS]
        with self._load(night.duty) if night.duty else contextlib.nullcontext():
            done = perfsvc(self._folder, *command, codes=range(6), PERFSVC_DB=str(self._database), **options)
        if not done.stdout:
            raise RuntimeError(
                f"perfsvc {' '.join(command)} ended with {done.returncode} and no results: {done.stderr}"
            )
        return self._seen(night, done.returncode, time.monotonic() - began, json.loads(done.stdout))

    @property
    def _database(self) -> Path:
        return self._folder / "perfsvc.db"

    @contextlib.contextmanager
    def _load(self, duty: float) -> Iterator[None]:
        """Run a load while the block lasts: on the GPU, or on all cores of the host; none with a fake device."""
        script = [__file__, "--device", self._device, "--duty", str(duty)]
        gpu, cores = self._kind == "cuda", len(os.sched_getaffinity(0))
        commands = [script] if gpu else [["-c", KEEP_BUSY]] * (cores if self._kind == "cpu" else 0)
        pipe = subprocess.PIPE
        loads = [
            subprocess.Popen([sys.executable, *command], stdin=pipe, stdout=pipe, text=True) for command in commands
        ]
        try:
            if gpu and loads[0].stdout and loads[0].stdout.readline().strip() != AT_WORK:
                raise RuntimeError("the competing load does not work")
            yield
        finally:
            for load in loads:
                load.kill()
                load.communicate()

    def _seen(self, night: Night, code: int, wall_s: float, found: Mapping[str, Any]) -> Seen:
        rows = [row for row in found["results"] if row["benchmark"] != FURNACE]
        again = {named(row): (row["cause"], row["ratio"], row["reason"]) for row in found["confirmations"]}
        with Store.open(str(self._database)) as store:
            measured = store.measurements.columns([store.runs.list(1)[0].id])
        clocks = [
            clock
            for clock, benchmark in zip(measured["sm_clock_hz"], measured["benchmark"], strict=True)
            if clock and benchmark == "arithmetic"
        ]
        well = {"unchanged", "inconclusive", "new"}
        return Seen(
            night,
            code,
            wall_s,
            [
                MovedSeries(named(row), row["verdict"], row["cause"], row["ratio"])
                for row in rows
                if row["verdict"] not in well
            ],
            again,
            median(clocks) if clocks else None,
            sum(filter(None, measured["rejected_batches"])),
            sorted({note for row in rows for note in (*row["notes"], row["reason"]) if note}),
        )


def variant(case: str) -> str:
    """Return the variant of a case, as the suite names it."""
    return case.partition("/")[2]


def named(row: Mapping[str, Any]) -> str:
    """Return a case without its point, which is always the same."""
    return f"{row['benchmark']}/{row['variant']}"


if __name__ == "__main__":
    sys.exit(main())
