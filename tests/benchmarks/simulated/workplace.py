"""The folder of simulated nights: a repository of a suite, a database and a script of the fake device."""

import json
import subprocess
from collections.abc import Collection, Sequence
from fnmatch import fnmatch
from pathlib import Path

from simulated.planted import Commit, Plan

from perfsvc import suite
from perfsvc.build.toolchain import FakeToolchain
from perfsvc.model import digest
from perfsvc.suite import Selection

WITHIN, BETWEEN = 0.004, 0.003
"""The noise of samples and of replicas: the level of three replicas then has a standard deviation of 0.18 %."""

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


class Workplace:
    """A folder in which the nights of a plan run; ``seed`` decides all of their noise.

    Commits are real, and binaries are built from them: every binary keeps its speed.
    """

    def __init__(self, folder: Path, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.folder = folder = folder.resolve()
        self.database = folder / "perfsvc.db"
        self.suite = folder / "repository" / "kernels"
        self.script = folder / "script.json"
        self._seed = seed
        self._seconds: dict[str, float] = {}  # of each binary, by its digest
        self._cases: dict[str, str] = {}  # of each binary
        self._now = {case: 1e-4 * (1 + number / 10) for number, case in enumerate(sorted(plan.cases), start=1)}
        for number in range(plan.benchmarks):
            self._write(self.suite / f"b{number}")
        self._git("init", "--quiet", "--initial-branch", "main")
        specs = suite.discover(self.suite).resolve(Selection(), "smoke")[0]
        self._units = {f"{spec.case.benchmark}/{spec.case.variant}": spec.units[0] for spec in specs}
        self._commit("Begin", [unit.source for unit in self._units.values()])

    @property
    def bytes(self) -> int:
        """The size of the database on the disk, including its write-ahead log."""
        return sum(path.stat().st_size for path in self.folder.glob(f"{self.database.name}*"))

    def _write(self, home: Path) -> None:
        home.mkdir(parents=True)
        (home / "bench.py").write_text(BENCH.format(half=self.plan.variants // 2, variants=self.plan.variants))
        for name in ("first.cu", "second.cu"):
            (home / name).write_text(f"// {home.name}\n{SOURCE}")

    # --- code --------------------------------------------------------------------------------------------------------

    def commit(self, changes: Sequence[Commit]) -> None:
        """Make all changes in one commit."""
        for change in changes:
            with (self.suite / change.path).open("a") as source:
                source.write(f"// night {change.night}\n")
            for case in self._now:
                if fnmatch(case, change.cases):
                    self._now[case] *= change.factor
        self._commit(", ".join(change.path for change in changes), [self.suite / change.path for change in changes])

    def _commit(self, message: str, sources: Collection[Path]) -> None:
        """Commit, and store the times of the binaries built from the sources."""
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", message)
        compiler = FakeToolchain()
        for case, unit in self._units.items():
            if unit.source in sources:
                binary = digest(compiler.compile(unit))
                self._seconds[binary], self._cases[binary] = self._now[case], case

    def _git(self, *words: str) -> None:
        who = ("-c", "user.name=A Person", "-c", "user.email=person@example.org")
        subprocess.run(["git", "-C", self.suite.parent, *who, *words], check=True, capture_output=True)

    # --- times -------------------------------------------------------------------------------------------------------

    def play(self, night: int, stage: str) -> None:
        """Write the script of a night, with other noise in each stage."""
        blowing = self.plan.weather(night)

        def seconds(binary: str) -> float:
            weathered = self._seconds[binary]
            for weather in blowing:
                weathered *= weather.factor if fnmatch(self._cases[binary], weather.cases) else 1.0
            return weathered

        noise = f"{self._seed}/{night}/{stage}"
        script = {
            "cases": {
                binary: {"seconds": seconds(binary), "within": WITHIN, "between": BETWEEN} for binary in self._seconds
            },
            "driver": self.plan.driver(night),
            "seed": int(digest(noise.encode())[:8], 16),
        }
        new = self.script.with_suffix(".new")
        new.write_text(json.dumps(script))
        new.replace(self.script)
