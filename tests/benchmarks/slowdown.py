"""Is a kernel slower by 2 % found, confirmed and named, and a GPU that others work on never taken for a kernel?

    python tests/benchmarks/slowdown.py [--device cuda:0] [--slow 2] [--budget 240] [--json FILE]

Copies a suite of nine variants into a temporary folder, four bound by memory and five by arithmetic, and plays nights:
``perfsvc run --confirm`` at the default threshold, each against the first. On some a variant is slowed by a ``-D``; on
some a process of its own multiplies matrices, all the time or for a share of it, which takes an H100 to its power limit
and lowers its clocks; on one the suite itself has such products, which no telemetry can tell from the run's own load.
Where the GPU is shared,

- nothing may be called the kernel's doing but what was slowed that night;
- unchanged code that moved is the environment's, or was refused: its batches rejected until the case said so.

On the CPU device the load is a busy process a core, and ``--slow 300`` what its threshold can see. Nights for which
``--budget`` has no time are left out, and what they were to show counts as not shown.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from workbench import SUITE, Claim, finish, table

from perfsvc.device.find import find
from perfsvc.store import Store

NIGHTS = Path(__file__).parent / "nights"
KEEP_BUSY = "while True: pass"
AT_WORK = "at work"
OPTIONS = ("--confirm", "--seconds", "0.4", "--limit", "6", "--format", "json")
"""A case that a load makes slow is not sampled for seconds, and one that is refused does not wait for long."""
FURNACE = "matmul_bf16"
"""The benchmark of the built-in suite whose products take the GPU to its power limit."""
LEAST_S = 20.0
"""What a night may take: one is not begun with less time than that."""


@dataclass(frozen=True)
class Night:
    """What is played: which variants are slowed or other code of the same speed, and who else works on the GPU.

    Attributes:
        name: as the table has it.
        slowed: a case, as ``benchmark/variant``; empty for none.
        recoded: likewise.
        duty: the share of the time that the competing process works; 0 for none.
        hot: with the suite's own load.
    """

    name: str
    slowed: str = ""
    recoded: str = ""
    duty: float = 0.0
    hot: bool = False

    @property
    def quiet(self) -> bool:
        """Whether nothing else works on the GPU."""
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
        cause: after it was measured again, where it was.
        ratio: to its baseline; None where it was refused.
    """

    case: str
    verdict: str
    cause: str | None
    ratio: float | None

    def __str__(self) -> str:
        return f"{self.case} refused" if self.ratio is None else f"{self.case} {self.ratio:.3f} {self.cause}"


@dataclass(frozen=True)
class Seen:
    """What came of a night.

    Attributes:
        code: the exit code.
        wall_s: what it took.
        moved: the cases with another verdict than that all is well.
        confirmations: what measuring again said, by case: cause, ratio and reason.
        clock_hz: the median clock of the cases bound by arithmetic, over all replicas.
        rejected: batches that do not count.
        notes: what the run says of waiting and rejecting, each once.
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
        """What the judge calls slower."""
        return [one for one in self.moved if one.verdict == "regression"]

    @property
    def blamed(self) -> list[str]:
        """The cases whose code is said to be slower."""
        return [one.case for one in self.regressed if one.cause == "kernel"]

    @property
    def named(self) -> bool:
        """Whether the exit code, the regressions and their cause are what was planted."""
        regressed, planted = [one.case for one in self.regressed], [self.night.slowed]
        return (self.code, regressed, self.blamed) == (1, planted, planted)

    @property
    def innocent(self) -> int:
        """How many kernels are blamed that were not slowed."""
        return sum(case != self.night.slowed for case in self.blamed)

    @property
    def unnamed(self) -> int:
        """How many cases are slower and not for the environment."""
        return sum(one.cause != "environment" for one in self.regressed)

    def row(self) -> list[str]:
        """The line of the table."""
        clock = f"{self.clock_hz / 1e9:.3f}" if self.clock_hz else "-"
        load = "in the suite" if self.night.hot else f"{self.night.duty:.0%}" if self.night.duty else "-"
        refused = sum(one.ratio is None for one in self.moved)
        causes = [f"{count} {cause}" for cause, count in counted(one.cause for one in self.regressed).items()]
        changed = self.night.slowed or "-"
        return [
            *(self.night.name, changed, load, f"{self.wall_s:.1f}", str(self.code), clock, str(self.rejected)),
            *(str(refused), ", ".join(causes) or "-", ", ".join(self.blamed) or "-"),
        ]


COLUMNS = ("night", "slowed", "load", "s", "exit", "GHz", "rejected", "refused", "slower, by cause", "blamed")


def counted(words: Iterator[str | None]) -> dict[str, int]:
    """How often each comes."""
    found: dict[str, int] = {}
    for word in words:
        found[str(word)] = found.get(str(word), 0) + 1
    return found


def main() -> int:
    """Plays all nights and tells what was found."""
    options = arguments()
    (device,) = find([options.device])
    print(f"{device.model}, driver {device.driver}", flush=True)
    seen: list[Seen] = []
    problems: list[str] = []
    deadline = time.monotonic() + options.budget
    with tempfile.TemporaryDirectory() as folder:
        theatre = Theatre(Path(folder), options.device, device.kind, options.slow)
        for night in PLAN[: options.nights]:
            if deadline - time.monotonic() < LEAST_S:
                print(f"{night.name}: left out, for {options.budget:g} s are over")
                continue
            try:
                seen.append(theatre.play(night))
            except RuntimeError as error:
                problems.append(f"{night.name}: {error}")
                print(f"PROBLEM  {problems[-1]}", flush=True)
                continue
            print(f"{night.name}: {', '.join(map(str, seen[-1].moved)) or 'nothing moved'}", flush=True)
    print("\n" + table(COLUMNS, [one.row() for one in seen]) + "\n")
    for one in seen:
        for case, (cause, ratio, reason) in one.confirmations.items():
            change = "" if ratio is None else f" ({ratio:.4f})"
            print(f"{one.night.name}: {case} measured again: {cause}{change}, {reason}")
    print()
    return finish(
        claims(seen),
        options.json,
        device=device.model,
        driver=device.driver,
        problems=problems,
        nights=list(map(asdict, seen)),
    )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="one device (default: cuda:0)")
    parser.add_argument(
        "--slow", type=int, default=2, metavar="PERCENT", help="more work of what is slowed (default: 2)"
    )
    parser.add_argument("--nights", type=int, default=len(PLAN), help="only the first so many (default: all)")
    parser.add_argument("--budget", type=float, default=240.0, metavar="SECONDS", help="for all nights (default: 240)")
    parser.add_argument("--json", type=Path, help="write everything that was found to this file")
    return parser.parse_args()


def claims(seen: Sequence[Seen]) -> list[Claim]:
    """What the nights were to show."""
    flat = [one for one in seen if one.night.quiet and not one.night.slowed]
    slowed = [one for one in seen if one.night.quiet and one.night.slowed]
    shared = [one for one in seen if not one.night.quiet]
    unchanged = [one for one in shared if not one.night.slowed]
    return [
        claim("flat nights: regressions", flat, 3, [len(one.regressed) for one in flat]),
        claim("slowed nights that do not name that kernel and no other", slowed, 2, [not one.named for one in slowed]),
        claim("shared nights: kernels blamed that were not slowed", shared, 4, [one.innocent for one in shared]),
        claim("shared nights: slower, unchanged, not environment", unchanged, 3, [one.unnamed for one in unchanged]),
        claim("shared nights of unchanged code that exit with 1", unchanged, 3, [one.code == 1 for one in unchanged]),
        Claim("slowest clock of a shared night over that of the first one", slowest_clock(seen), 0.98),
    ]


def slowest_clock(seen: Sequence[Seen]) -> float | None:
    """What a load has done to a clock, lest nights pass on which it did nothing; None where no clock is known."""
    quiet = [one.clock_hz for one in seen if one.night.quiet and one.clock_hz]
    shared = [one.clock_hz for one in seen if not one.night.quiet and one.clock_hz]
    return min(shared) / quiet[0] if quiet and shared else None


def claim(what: str, seen: Sequence[Seen], nights: int, wrong: Sequence[int]) -> Claim:
    """That nothing was wrong on any of so many nights."""
    return Claim(what, sum(wrong) if len(seen) == nights else None, 0)


class Theatre:
    """A folder with the suite and a database, where nights are played one after the other."""

    def __init__(self, folder: Path, device: str, kind: str, percent: int) -> None:
        self._folder = folder
        self._device = device
        self._kind = kind
        self._percent = percent
        self._suite = folder / "suite"
        shutil.copytree(NIGHTS / "suite", self._suite)
        shutil.copytree(SUITE / FURNACE, self._suite / FURNACE)

    def play(self, night: Night) -> Seen:
        """One run, with what goes with it."""
        began = time.monotonic()
        told = {"SLOWED": variant(night.slowed), "RECODED": variant(night.recoded), "PERCENT": str(self._percent)}
        chosen = ("--select", "*") if night.hot else ("--exclude", FURNACE)
        command = ["run", "--device", self._device, "--suite", str(self._suite), *chosen, *OPTIONS]
        with self._load(night.duty) if night.duty else contextlib.nullcontext():
            done = subprocess.run(
                [sys.executable, "-m", "perfsvc", *command],
                cwd=self._folder,
                env=os.environ | told | {"PERFSVC_DB": str(self._database)},
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
        if not done.stdout:
            raise RuntimeError(f"perfsvc {' '.join(command)} ended with {done.returncode} and no results")
        return self._seen(night, done.returncode, time.monotonic() - began, json.loads(done.stdout))

    @property
    def _database(self) -> Path:
        return self._folder / "perfsvc.db"

    @contextlib.contextmanager
    def _load(self, duty: float) -> Iterator[None]:
        """Others at work while the block lasts: on the GPU, or on all cores of the host; none beside a fake device."""
        script = [str(Path(__file__).with_name("competing_load.py")), "--device", self._device, "--duty", str(duty)]
        gpu, cores = self._kind == "cuda", len(os.sched_getaffinity(0))
        commands = [script] if gpu else [["-c", KEEP_BUSY]] * (cores if self._kind == "cpu" else 0)
        pipe = subprocess.PIPE
        loads = [subprocess.Popen([sys.executable, *one], stdin=pipe, stdout=pipe, text=True) for one in commands]
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
        again = {named(one): (one["cause"], one["ratio"], one["reason"]) for one in found["confirmations"]}
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
    """The variant of a case, as the suite is told it."""
    return case.partition("/")[2]


def named(row: Mapping[str, Any]) -> str:
    """A case without its point, which is always the same."""
    return f"{row['benchmark']}/{row['variant']}"


if __name__ == "__main__":
    sys.exit(main())
