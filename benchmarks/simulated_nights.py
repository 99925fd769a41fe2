"""A year of nights on the fake device: what is planted has to be found, and nothing else.

One hundred cases with noise within and between replicas, measured every night by workers in this process. Planted are
commits that make cases slower, one of which is taken back, and one that makes them faster; a commit that changes code
and no speed; a slow drift of many small commits; a spike of one night; a slower driver; and a board that is slow for
some nights. A person accepts what stays. Commits are commits, and binaries are built from them: a suspect is measured
again with the old binary and the new one, each at its own speed. Needs no GPU.

    python benchmarks/simulated_nights.py [--nights 365] [--seed 1] [--profile 10,300] [--json simulated.json]
"""

import argparse
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from workbench import Claim, finish, table

from perfsvc import suite
from perfsvc.build.fake import FakeToolchain
from perfsvc.measure.in_process import InProcess
from perfsvc.model import Cause, Direction, Finding, FindingState, Verdict, digest
from perfsvc.service.running.request import RunRequest
from perfsvc.service.running.run import run
from perfsvc.store import Store
from perfsvc.suite import Inputs, Selection

NIGHTS = 365
BENCHMARKS, VARIANTS, REPLICAS = 10, 10, 3
WITHIN, BETWEEN = 0.004, 0.003
"""Noise of samples and of replicas: a night's level of three replicas then has a standard deviation of 0.18 %."""

BENCH = '''"""A benchmark of simulated nights: the fake device decides how long its variants take."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output


def inputs(rng, n):
    return {{"a": rng.standard_normal(n, dtype=np.float32)}}


def reference(a):
    return 2.0 * a.astype(np.float64)


def variant(number):
    return Variant(
        f"v{{number}}",
        source="first.cu" if number < {half} else "second.cu",
        entry="scale",
        grid=1,
        block=64,
        args=("out", "a", "n"),
        params={{"VARIANT": number}},
    )


benchmark = Benchmark(
    axes={{"n": (64,)}},
    smoke={{"n": 64}},
    inputs=inputs,
    outputs={{"out": output("float32", lambda n: n)}},
    reference=reference,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=n),
    variants=[variant(number) for number in range({variants})],
)
'''
SOURCE = 'extern "C" __global__ void scale(float* out, const float* a, int n) {}\n'


# --- what is planted -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Commit:
    """Code that changes: a file of a benchmark, and how much longer some of its variants take from then on."""

    night: int
    path: str
    cases: str = ""
    factor: float = 1.0


@dataclass(frozen=True)
class Weather:
    """Nights on which the same code takes longer, for no fault of its own."""

    first: int
    last: int
    cases: str
    factor: float


@dataclass(frozen=True)
class Planted:
    """What is to be found: a finding of these cases, raised within some nights from its first one on.

    Attributes:
        delay: nights to the latest on which it may be raised; 1 where it has to be the first.
        back: the night on which its cases are back, where they come back.
        accepted: the night before which a person accepts it, where one does.
    """

    name: str
    cause: Cause
    direction: Direction
    cases: str
    first: int
    delay: int = 1
    back: int | None = None
    accepted: int | None = None


@dataclass(frozen=True)
class Plan:
    """All that is planted in so many nights: of a year, or of less with all of it closer together."""

    nights: int

    def at(self, night: int) -> int:
        """A night of the year in this plan."""
        return max(2, round(night * self.nights / NIGHTS))

    @property
    def commits(self) -> list[Commit]:
        """In their order; those of one night are one commit."""
        drift = [(120 + 5 * step, "b4/second.cu", "b4/v[5-9]", 1.003) for step in range(DRIFT_COMMITS)]
        planned = [
            (30, "b0/second.cu", "", 1.0),
            (60, "b1/first.cu", "b1/v[0-4]", 1.05),
            (75, "b1/first.cu", "b1/v[0-4]", 1 / 1.05),
            (100, "b2/first.cu", "b2/v[0-4]", SMALL_STEP),
            *drift,
            (220, "b5/first.cu", "b5/v[0-4]", 0.94),
            (300, "b6/second.cu", "b6/v[5-7]", 1.03),
            (300, "b7/first.cu", "b7/v0", 1.2),
        ]
        return [Commit(self.at(night), *how) for night, *how in planned]

    @property
    def weather(self) -> list[Weather]:
        """A spike of some cases, a driver that stays, a board that is slow for five nights."""
        slow = self.at(250)
        return [
            Weather(self.at(110), self.at(110), "b3/*", 1.1),
            Weather(self.at(190), self.nights, "*", 1.04),
            Weather(slow, slow + 4, "*", 1.05),
        ]

    def driver(self, night: int) -> str:
        """The one that is installed."""
        return "590.12" if night >= self.at(190) else "580.65"

    @property
    def findings(self) -> list[Planted]:
        """What is to be found of it."""
        slower, kernel, environment = Direction.SLOWER, Cause.KERNEL, Cause.ENVIRONMENT
        slow = self.at(250)
        return [
            Planted("a step", kernel, slower, "b1/v[0-4]", self.at(60), back=self.at(75)),
            Planted("a small step", kernel, slower, "b2/v[0-4]", self.at(100), 6, accepted=self.at(100) + 8),
            Planted(
                "a drift", kernel, slower, "b4/v[5-9]", self.at(120), self.at(190) - self.at(120), accepted=self.at(188)
            ),
            Planted("a driver", environment, slower, "*", self.at(190), accepted=self.at(195)),
            Planted("a slow board", environment, slower, "*", slow, back=slow + 5),
            Planted("a late step", kernel, slower, "b6/v[5-7] b7/v0", self.at(300), accepted=self.at(310)),
        ]

    @property
    def faster(self) -> tuple[int, str]:
        """The night of the improvement, and its cases: its verdict takes the new level by itself."""
        return self.at(220), "b5/v[0-4]"


DRIFT_COMMITS = 12
SMALL_STEP = 1.012


# --- the workplace ---------------------------------------------------------------------------------------------------


class Workplace:
    """A folder with a repository of a suite, a database and a script of the fake device."""

    def __init__(self, folder: Path, seed: int, plan: Plan) -> None:
        self.plan = plan
        self.database = folder / "perfsvc.db"
        self.suite = folder / "repository" / "kernels"
        self.script = folder / "script.json"
        self._seed = seed
        self._seconds: dict[str, float] = {}  # of each binary that ever was, by its digest
        self._cases: dict[str, str] = {}  # its case
        self._factors: dict[str, float] = {}
        for number in range(BENCHMARKS):
            home = self.suite / f"b{number}"
            home.mkdir(parents=True)
            (home / "bench.py").write_text(BENCH.format(half=VARIANTS // 2, variants=VARIANTS))
            for name in ("first.cu", "second.cu"):
                (home / name).write_text(f"// {home.name}\n{SOURCE}")
        self._git("init", "--quiet", "--initial-branch", "main")
        self._commit("Begin")

    def commit(self, changes: Sequence[Commit]) -> None:
        """Changes code and commits it, all at once."""
        for one in changes:
            with (self.suite / one.path).open("a") as source:
                source.write(f"// night {one.night}\n")
            for case in list(self._factors):
                if one.cases and fnmatch(case, one.cases):
                    self._factors[case] *= one.factor
        self._commit(", ".join(one.path for one in changes))

    def _commit(self, message: str) -> None:
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", message)
        for spec in suite.discover(self.suite).resolve(Selection(), "smoke", Inputs()):
            case = f"{spec.case.benchmark}/{spec.case.variant}"
            (unit,) = spec.units
            binary = digest(FakeToolchain().compile(unit))
            usual = 1e-4 * (1 + len(self._factors)) if case not in self._factors else 0.0
            if usual:
                self._factors[case] = usual
            self._seconds.setdefault(binary, self._factors[case])
            self._cases[binary] = case

    def play(self, night: int, stage: str) -> None:
        """Writes the script of a night, its noise another one at each stage."""
        blowing = [one for one in self.plan.weather if one.first <= night <= one.last]
        entries = {
            binary: {
                "seconds": self._weathered(self._cases[binary], seconds, blowing),
                "within": WITHIN,
                "between": BETWEEN,
            }
            for binary, seconds in self._seconds.items()
        }
        noise = f"{self._seed}/{night}/{stage}"
        told = {"cases": entries, "driver": self.plan.driver(night), "seed": int(digest(noise.encode())[:8], 16)}
        new = self.script.with_suffix(".new")
        new.write_text(json.dumps(told))
        new.replace(self.script)

    def _weathered(self, case: str, seconds: float, blowing: Iterable[Weather]) -> float:
        for one in blowing:
            if fnmatch(case, one.cases):
                seconds *= one.factor
        return seconds

    def _git(self, *words: str) -> None:
        who = ("-c", "user.name=A Person", "-c", "user.email=person@example.org")
        subprocess.run(["git", "-C", self.suite.parent, *who, *words], check=True, capture_output=True)


class Stages:
    """A ``Progress`` that has the noise of every stage be its own: to measure again is to draw again."""

    def __init__(self, workplace: Workplace, night: int) -> None:
        self._workplace = workplace
        self._night = night

    def begin(self, stage: str, total: int) -> None:  # noqa: ARG002 - as every progress
        """Plays the stage's script."""
        if stage in {"measuring", "confirming"}:
            self._workplace.play(self._night, stage)

    def step(self, what: str) -> None:
        """Nobody watches."""

    def say(self, line: str) -> None:
        """Nobody listens."""


# --- a year ----------------------------------------------------------------------------------------------------------


@dataclass
class Year:
    """What the nights cost: of each its seconds by the clock and of the processor, and the database's bytes after."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    suspects: list[int] = field(default_factory=list)

    @property
    def apiece(self) -> int:
        """Bytes of a night, over the second half of the year."""
        half = len(self.bytes) // 2
        return round((self.bytes[-1] - self.bytes[half]) / max(1, len(self.bytes) - 1 - half))

    @property
    def bend(self) -> float:
        """By how many per cent the nights of the last third take more room than those of the second."""
        third = len(self.bytes) // 3
        if not third:
            return 0.0
        second, last = self.bytes[2 * third] - self.bytes[third], self.bytes[3 * third - 1] - self.bytes[2 * third - 1]
        return 100 * (last / second - 1)


def live(workplace: Workplace, nights: int, profiled: Iterable[int]) -> Year:
    """Goes through the nights, one after the other."""
    year = Year()
    with InProcess() as servers:
        for night in range(1, nights + 1):
            if changes := [one for one in workplace.plan.commits if one.night == night]:
                workplace.commit(changes)
            for planted in workplace.plan.findings:
                if planted.accepted == night:
                    accept(workplace, planted)
            workplace.play(night, "night")
            began, used = time.perf_counter(), time.process_time()
            with profiling(on=night in set(profiled)):
                done = run(request(workplace, night), Stages(workplace, night), servers)
            year.wall_s.append(time.perf_counter() - began)
            year.cpu_s.append(time.process_time() - used)
            year.bytes.append(sum(path.stat().st_size for path in workplace.database.parent.glob("perfsvc.db*")))
            year.suspects.append(len(done.confirmations))
            if night in {1, nights} or night % 10 == 0:
                print(
                    f"night {night}: {year.wall_s[-1]:.2f} s, {year.cpu_s[-1]:.2f} s of the processor, "
                    f"{year.bytes[-1] / 1e6:.1f} MB, {sum(year.suspects[-10:])} measured again in ten nights",
                    flush=True,
                )
    return year


def request(workplace: Workplace, night: int) -> RunRequest:
    """What a night is asked for."""
    return RunRequest(
        database=str(workplace.database),
        suite=workplace.suite,
        devices=(f"fake:{workplace.script}",),
        seed=night,
        replicas=REPLICAS,
        confirm=True,
        label="nightly",
    )


def accept(workplace: Workplace, planted: Planted) -> None:
    """A person takes what stands of something planted as it is."""
    with Store.open(workplace.database) as store:
        for one in store.findings():
            if answers(planted, one):
                store.put_finding_state(one.id, FindingState.ACCEPTED, reason="it is here to stay", by="a person")


@contextmanager
def profiling(*, on: bool) -> Iterator[None]:
    """Prints what the block spends this thread's time on, if that is wanted."""
    if not on:
        yield
        return
    profile = cProfile.Profile(time.thread_time)
    with profile:
        yield
    pstats.Stats(profile).sort_stats("cumulative").print_stats("perfsvc", 60)


# --- what was found --------------------------------------------------------------------------------------------------


def cases_of(found: Finding) -> set[str]:
    """The variants that a finding moved, each with its benchmark."""
    return {f"{one.series.case.benchmark}/{one.series.case.variant}" for one in found.moved}


def meant(planted: Planted) -> set[str]:
    """The variants that are to be found."""
    every = {f"b{number}/v{variant}" for number in range(BENCHMARKS) for variant in range(VARIANTS)}
    return {case for case in every if any(fnmatch(case, glob) for glob in planted.cases.split())}


def answers(planted: Planted, found: Finding) -> bool:
    """Whether a finding is a planted one: cause, direction and cases, at its time."""
    directions = {one.direction for one in found.moved}
    return (
        (found.cause, directions) == (planted.cause, {planted.direction})
        and cases_of(found) <= meant(planted)
        and planted.first <= found.first_run < planted.first + planted.delay
    )


def claims_of(plan: Plan, found: Sequence[Finding], verdicts: set[str], year: Year) -> list[Claim]:
    """What is to hold."""
    claims = []
    for planted in plan.findings:
        of_it = [one for one in found if answers(planted, one)]
        told = set().union(*map(cases_of, of_it))
        claims.append(Claim(f"{planted.name}: findings beside the one", len(of_it) - 1 if of_it else None, 0))
        claims.append(Claim(f"{planted.name}: cases that are missing", len(meant(planted) - told), 0))
        if planted.back and of_it:
            late = {one.recovered_run for each in of_it for one in each.moved} - {planted.back}
            claims.append(Claim(f"{planted.name}: other nights of recovery than {planted.back}", len(late), 0))
    others = [one for one in found if not any(answers(planted, one) for planted in plan.findings)]
    claims.append(Claim("findings of nothing", len(others), 0))
    taken = {case for case in verdicts if fnmatch(case, plan.faster[1])}
    claims.append(Claim("improvements that no verdict took", VARIANTS // 2 - len(taken), 0))
    claims.append(Claim("growth of the last third over the second", year.bend, 15, " %"))
    if plan.nights == NIGHTS:
        claims.append(Claim("all nights", sum(year.wall_s), 300, " s"))
    return claims


def faster_of(store: Store, night: int) -> set[str]:
    """The variants that a night called improved."""
    return {
        f"{one.series.case.benchmark}/{one.series.case.variant}"
        for one in store.verdicts(night)
        if one.verdict is Verdict.IMPROVEMENT
    }


def rows_of(found: Sequence[Finding]) -> list[list[str]]:
    """The table of findings."""
    return [
        [
            f"{one.id} {one.cause}",
            f"{one.first_run} to {one.last_run}",
            str(len(one.moved)),
            ", ".join(sorted({each.direction for each in one.moved})),
            one.state,
            one.evidence[:60],
        ]
        for one in reversed(found)
    ]


def main() -> int:
    """Lives the year, prints what it cost and what was found, and says what holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=NIGHTS, help="less than a year has everything closer together")
    parser.add_argument("--seed", type=int, default=1, help="of all noise")
    parser.add_argument("--profile", default="", help="nights of which to print what they spend their time on")
    parser.add_argument("--folder", type=Path, help="where to keep everything; nowhere without it")
    parser.add_argument("--json", type=Path, help="where to keep what was found")
    options = parser.parse_args()
    plan = Plan(options.nights)
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ |= {"PERFSVC_CACHE": str(folder / "cache"), "PERFSVC_LOCKS": str(folder / "locks")}
        workplace = Workplace(folder, options.seed, plan)
        year = live(workplace, options.nights, [int(night) for night in filter(None, options.profile.split(","))])
        with Store.open(workplace.database) as store:
            found, verdicts = store.findings(every=True), faster_of(store, plan.faster[0])
    print(table(["finding", "nights", "series", "direction", "state", "evidence"], rows_of(found)))
    measurements = REPLICAS * BENCHMARKS * VARIANTS
    print(
        f"{sum(year.wall_s):.0f} s in all, {sum(year.cpu_s):.0f} s of the processor; a night (median) "
        f"{statistics.median(year.wall_s):.2f} s; {year.apiece:,} bytes a night, {year.apiece / measurements:.0f} a "
        f"measurement; {sum(year.suspects)} suspects measured again"
    )
    return finish(claims_of(plan, found, verdicts, year), options.json, year=vars(year))


if __name__ == "__main__":
    sys.exit(main())
