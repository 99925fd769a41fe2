"""The folders of simulated nights: a repository of a suite, a database and scripts of the fake device."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from simulated.planted import Commit, Plan
from workbench import Silent, commit

from perfsvc import suite
from perfsvc.build.toolchain import FakeToolchain
from perfsvc.model import digest
from perfsvc.suite import Selection

WITHIN, BETWEEN = 0.004, 0.003
"""The noise of samples and of replicas: the level of three replicas then has a standard deviation of 0.18 %."""

BENCH = '''"""A benchmark of simulated nights: the fake device decides how long its variants take."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output

REPEAT = 1


def double(arrays, stream):
    for _ in range(REPEAT):
        arrays["out"][:] = 2 * arrays["a"][:]


benchmark = Benchmark(
    axes={{"n": (64,)}},
    smoke={{"n": 64}},
    inputs=lambda rng, n: {{"a": rng.standard_normal(n, dtype=np.float32)}},
    outputs={{"out": output("float32", lambda n: n)}},
    reference=lambda a: 2.0 * a.astype(np.float64),
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=n),
    variants=[{variant} for number in range({variants})],
)
'''
KERNELS = (
    'Variant(f"v{number}", source=SOURCE, entry="scale", grid=1, block=64, args=("out", "a", "n"), '
    'params={"VARIANT": number})'
)
SOURCE = 'extern "C" __global__ void scale(float* out, const float* a, int n) {}\n'


def kernels(variants: int, source: str) -> str:
    """Return a benchmark of kernels; ``source`` is the expression for the file of the variant ``number``."""
    return BENCH.format(variant=KERNELS.replace("SOURCE", source), variants=variants)


def python_function() -> str:
    """Return a benchmark of one Python function."""
    return BENCH.format(variant='Variant("python", run=double)', variants=1)


class Repository:
    """A suite in git, and a database beside it.

    Commits are real, and binaries are built from them: every binary keeps its speed.

    Args:
        folder: an empty folder.
        seed: decides all noise.
        files: the texts of the suite's files.

    Attributes:
        now: how long the present code of each case takes, in seconds, by benchmark and variant.
        faults: the fault of a case's present code, as the fake device names it; cases without a fault are left out.
    """

    def __init__(self, folder: Path, seed: int, files: Mapping[str, str]) -> None:
        self.folder = folder = folder.resolve()
        self.database = folder / "perfsvc.db"
        self.suite = folder / "repository" / "kernels"
        self._seed, self._files = seed, files
        for name, text in files.items():
            path = self.suite / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        specs = suite.discover(self.suite).resolve(Selection(), "smoke")[0]
        self._specs = {f"{spec.case.benchmark}/{spec.case.variant}": spec for spec in specs}
        self.cases = sorted(self._specs)
        self.now = {case: self.usual_s(case) for case in self.cases}
        self.faults: dict[str, str] = {}
        self._codes: dict[
            str, tuple[str, float, str]
        ] = {}  # the case, its seconds and its fault, by digest of its code
        self._commit("Begin")

    def usual_s(self, case: str) -> float:
        """Return how long a case takes at first."""
        return 1e-4 * (1.1 + self.cases.index(case) / 10)

    def _commit(self, message: str) -> None:
        """Commit everything; new code takes as long as its case takes now."""
        commit(self.suite.parent, message)
        compiler = FakeToolchain()
        for case, spec in self._specs.items():
            bench = self.suite / spec.case.benchmark / "bench.py"
            if not bench.exists():
                continue
            code = digest(compiler.compile(spec.units[0]) if spec.units else bench.read_bytes())
            self._codes.setdefault(code, (case, self.now[case], self.faults.get(case, "")))

    def _play(self, script: Path, noise: str, factor: Callable[[str], float], **facts: Any) -> None:
        """Write the script of a fake GPU, on which each case takes some times as long; ``noise`` decides the noise."""
        cases = {
            code: {"seconds": seconds * factor(case), "within": WITHIN, "between": BETWEEN}
            | ({"fault": fault} if fault else {})
            for code, (case, seconds, fault) in self._codes.items()
        }
        new = script.with_suffix(".new")
        new.write_text(json.dumps({"seed": int(digest(noise.encode())[:8], 16), "cases": cases, **facts}))
        new.replace(script)


class Workplace(Repository):
    """A folder in which the nights of a plan run."""

    def __init__(self, folder: Path, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.script = folder.resolve() / "script.json"
        halves = f'"first.cu" if number < {plan.variants // 2} else "second.cu"'
        files = {"bench.py": kernels(plan.variants, halves), "first.cu": SOURCE, "second.cu": SOURCE}
        names = [f"b{number}" for number in range(plan.benchmarks)]
        super().__init__(
            folder,
            seed,
            {
                f"{home}/{name}": f"// {home}\n{text}" if text is SOURCE else text
                for home in names
                for name, text in files.items()
            },
        )

    @property
    def bytes(self) -> int:
        """The size of the database on the disk, including its write-ahead log."""
        return sum(path.stat().st_size for path in self.folder.glob(f"{self.database.name}*"))

    def commit(self, changes: Sequence[Commit]) -> None:
        """Make all changes in one commit."""
        for change in changes:
            with (self.suite / change.path).open("a") as source:
                source.write(f"// night {change.night}\n")
            for case in self.now:
                if fnmatch(case, change.cases):
                    self.now[case] *= change.factor
        self._commit(", ".join(change.path for change in changes))

    def play(self, night: int, stage: str) -> None:
        """Write the script of a night, with other noise in each stage."""
        blowing = self.plan.weather(night)

        def factor(case: str) -> float:
            weathered = 1.0
            for weather in blowing:
                weathered *= weather.factor if fnmatch(case, weather.cases) else 1.0
            return weathered

        self._play(self.script, f"{self._seed}/{night}/{stage}", factor, driver=self.plan.driver(night))


class Stages(Silent):
    """A ``Progress`` that gives confirmations noise of their own, because to measure again is to draw again.

    Args:
        play: writes the script of a stage.

    Attributes:
        around_s: the wall time of that.
    """

    def __init__(self, play: Callable[[str], None]) -> None:
        super().__init__()
        self.around_s = 0.0
        self._play = play

    def begin(self, stage: str, total: int) -> None:
        """Write the script of the confirmation, if anything is measured again."""
        if stage == "confirming" and total:
            began = time.perf_counter()
            self._play(stage)
            self.around_s += time.perf_counter() - began
