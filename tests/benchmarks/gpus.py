"""Measure the gain of further GPUs: wall time and medians of the same plan on one GPU and on several.

    python tests/benchmarks/gpus.py [--gpus cuda:0 cuda:1] [--run OPTIONS] [--json FILE]

Runs the built-in suite on each of the first two GPUs alone, then twice on all with the cases shared out (``--spread
each-model``), then on all with every case on each (``--spread each-device``). The two runs that share the cases out use
one database: the second divides the cases by their times in the first. A median measured on several GPUs is compared
with the median on the same GPU alone, as ``perfsvc compare`` does it.

Further GPUs do not shorten the fixed time of a run (its start, the start of each replica): with ``--run`` cases can be
measured for longer than by default. The limits of the share of time are for runs without Triton and CuPy (``--run
"--exclude */triton --exclude */cupy --exclude */cublas"``), which each process imports for seconds.
"""

import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from workbench import SUITE, Claim, Key, Ran, finish, parsed, ready, run, table

from perfsvc import judge
from perfsvc.device.find import find
from perfsvc.judge import Comparison
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import Verdict

CHANGED = {Verdict.REGRESSION, Verdict.IMPROVEMENT}
FIRST, SECOND, EVERYWHERE = "first GPU", "second GPU", "all, each-device"
UNKNOWN, DEALT = "all, each-model, first night", "all, each-model, second night"
LIMITS = {2: 0.6, 4: 0.32, 8: 0.2}
"""The largest share of the time of one GPU that this many GPUs may take."""


def main() -> int:
    """Run five times and compare twice."""
    options = parsed(
        __doc__,
        ("--gpus", {"nargs": "+", "default": ("cuda:0", "cuda:1"), "metavar": "DEVICE"}, "2, 4 or 8 GPUs of one model"),
        ("--replicas", 3, "replicas of each run"),
        ("--suite", SUITE, "the folder of benchmarks"),
        ("--run", "", "further options of each run: '--seconds 0.5 --precision 0.01%%'"),
    )
    ready(options.suite, options.gpus[0], Sampling())  # so that every run finds its binaries in the cache
    gpus = [info for spec in options.gpus for info in find([spec])]
    if len(gpus) not in LIMITS:
        sys.exit(f"--gpus: {len(gpus)} GPUs, but expected 2, 4 or 8")
    specs = [gpu.spec for gpu in gpus]
    plans = {
        FIRST: (specs[:1], ()),
        SECOND: (specs[1:2], ()),
        UNKNOWN: (specs, ("--spread", "each-model")),
        DEALT: (specs, ("--spread", "each-model")),
        EVERYWHERE: (specs, ("--spread", "each-device")),
    }
    common = ("--replicas", str(options.replicas), "--seed", "1", *shlex.split(options.run))
    runs: dict[str, Ran] = {}
    problems: list[str] = []
    print(f"{gpus[0].model}, driver {gpus[0].driver}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, (devices, more) in plans.items():
            try:
                shared = Path(folder) / "shared.db" if name in {UNKNOWN, DEALT} else None
                runs[name] = run(Path(folder), options.suite, devices, *common, *more, database=shared)
                print(f"{name:30} {runs[name].wall_s:8.2f} s", flush=True)
                problems += [f"{name}: {case}" for case in runs[name].failed]
            except RuntimeError as error:
                problems.append(f"{name}: {error}")
    return report(runs, problems, judge.THRESHOLDS[gpus[0].kind], LIMITS[len(gpus)], options.json)


def compared(runs: Mapping[str, Ran], name: str, threshold: float) -> dict[Key, Comparison]:
    """Compare each median of a run on both GPUs with the same GPU's alone."""
    alone = runs[FIRST].medians | runs[SECOND].medians
    return {
        key: judge.compare(alone[key], replicas, threshold=threshold)
        for key, replicas in runs[name].medians.items()
        if key in alone
    }


def report(runs: Mapping[str, Ran], problems: list[str], threshold: float, limit: float, path: Path | None) -> int:
    """Print the tables and the claims, and write the results."""
    together = [name for name in (DEALT, EVERYWHERE) if {FIRST, SECOND, name} <= runs.keys()]
    found = {name: compared(runs, name, threshold) for name in together}
    for name, comparisons in found.items():
        rows = [
            [f"{case} {cache}", device[-12:], f"{comparison.ratio:.4f}", comparison.verdict.value]
            for (case, cache, device), comparison in comparisons.items()
        ]
        print(f"\n{name}: against the same GPU alone\n{table(('case', 'GPU', 'ratio', 'verdict'), rows)}")
    claims = [Claim("runs and cases that failed", len(problems), 0)]
    claims += [Claim("wall time of all GPUs over that of the faster GPU alone", ratio(runs), limit)]
    for name in (DEALT, EVERYWHERE):
        changed = [key for key, comparison in found.get(name, {}).items() if comparison.verdict in CHANGED]
        claims.append(Claim(f"{name}: cases whose median changed", len(changed) if found.get(name) else None, 0))
    return finish(
        claims,
        path,
        problems=problems,
        wall_s={name: ran.wall_s for name, ran in runs.items()},
        ratios={
            name: {"/".join(key): comparison.ratio for key, comparison in by_case.items()}
            for name, by_case in found.items()
        },
    )


def ratio(runs: Mapping[str, Ran]) -> float | None:
    """Return the ratio of wall times; None if a run is missing."""
    if not {FIRST, SECOND, DEALT} <= runs.keys():
        return None
    return runs[DEALT].wall_s / min(runs[FIRST].wall_s, runs[SECOND].wall_s)


if __name__ == "__main__":
    sys.exit(main())
