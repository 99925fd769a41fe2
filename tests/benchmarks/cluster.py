"""Measure what a second node gains, and that Ray changes no median.

    python tests/benchmarks/cluster.py [--cases 200] [--json FILE]
    python tests/benchmarks/cluster.py --suite kernels [--run OPTIONS] [--json FILE]

Starts Ray clusters on this machine, so it needs ``pip install perfsvc[ray]`` and no network.

Without ``--suite``: many cases that take time and no processor, as kernels on a GPU do, on one node with a fake GPU,
then on two nodes. Any machine will do.

With ``--suite``: the suite on all GPUs of this machine without Ray, twice, then through Ray on two nodes that have half
of the GPUs each; every case on each GPU. The medians of each GPU are compared as ``perfsvc compare`` does it. Then the
cases are shared out (``--spread each-model``) between the GPUs of one node, and of both.
"""

import shlex
import sys
import tempfile
from pathlib import Path

from ray_nodes import ray_nodes, real_nodes
from workbench import Claim, Ran, finish, parsed, run, table

from perfsvc import judge
from perfsvc.device.find import find
from perfsvc.model import Verdict

LIMIT = 0.6
"""The largest share of the time of one node that two nodes may take."""
CHANGED = {Verdict.REGRESSION, Verdict.IMPROVEMENT}
SUITE = """
from perfsvc.suite import Benchmark, Variant, program, regex

benchmark = Benchmark(
    axes={{"n": range({cases})}},
    smoke={{"n": 0}},
    variants=[
        Variant(
            "sleep",
            run=program("sh sleep.sh", files="sleep.sh", parse=regex(r"took (?P<time_ms>[0-9.]+) ms")),
        )
    ],
)
"""
DEAL = ("--spread", "each-model")


def main() -> int:
    """Run on one node and on two."""
    options = parsed(
        __doc__,
        ("--cases", 200, "the number of cases without --suite"),
        ("--seconds", 0.5, "what such a case takes"),
        ("--suite", Path, "measure this folder of benchmarks on the GPUs of this machine"),
        ("--run", "", "further options of each run: '--replicas 5'"),
    )
    more = ("--seed", "1", *shlex.split(options.run))
    with tempfile.TemporaryDirectory() as folder:
        if options.suite:
            return on_gpus(Path(folder), options.suite, more, options.json)
        return without_gpus(Path(folder), options.cases, options.seconds, more, options.json)


def without_gpus(folder: Path, cases: int, seconds: float, more: tuple[str, ...], path: Path | None) -> int:
    """Compare the wall times of one node and of two, each with a fake GPU."""
    suite = folder / "suite" / "sleeps"
    suite.mkdir(parents=True)
    (suite / "bench.py").write_text(SUITE.format(cases=cases))
    (suite / "sleep.sh").write_text(f"sleep {seconds}\necho took 1 ms\n")
    options = ("--points", "full", "--replicas", "1", *DEAL, *more)
    runs: dict[str, Ran] = {}
    for name, gpus in {"one node": (1,), "two nodes": (1, 1)}.items():
        with ray_nodes(folder, gpus) as nodes:
            devices = [word for word in nodes.devices if word != "--device"]
            runs[name] = run(folder, suite.parent, devices, "--on", nodes.address, *options)
        print(f"{name:30} {runs[name].wall_s:8.2f} s, {len(runs[name].columns['case'])} measurements", flush=True)
    counts = {name: len(ran.columns["case"]) for name, ran in runs.items()}
    return finish(
        [
            Claim("wall time of two nodes over that of one", ratio(runs, "two nodes", "one node"), LIMIT),
            Claim("measurements too many or too few", sum(abs(count - cases) for count in counts.values()), 0),
            Claim("cases that failed", sum(len(ran.failed) for ran in runs.values()), 0),
        ],
        path,
        wall_s={name: ran.wall_s for name, ran in runs.items()},
    )


def on_gpus(folder: Path, suite: Path, more: tuple[str, ...], path: Path | None) -> int:
    """Compare medians with and without Ray on each GPU, and the wall times of one node and of two."""
    gpus = find(["cuda"])
    numbers = list(range(len(gpus)))
    half = max(1, len(gpus) // 2)
    nodes_of = {"one": [numbers[:half]], "two": [part for part in (numbers[:half], numbers[half:]) if part]}
    print(f"{len(gpus)} x {gpus[0].model}, driver {gpus[0].driver}", flush=True)
    runs: dict[str, Ran] = {}

    def measured(name: str, devices: list[str], *options: str) -> None:
        runs[name] = run(folder, suite, devices, *options, *more)
        print(f"{name:30} {runs[name].wall_s:8.2f} s", flush=True)

    measured("this host", ["cuda"])
    measured("this host, again", ["cuda"])
    with real_nodes(folder, nodes_of["two"]) as nodes:
        measured("Ray", [], "--on", nodes.address)
        measured("Ray, shared out, two nodes", [], "--on", nodes.address, *DEAL)
    with real_nodes(folder, nodes_of["one"]) as nodes:
        measured("Ray, shared out, one node", [], "--on", nodes.address, *DEAL)
    measured("this host, shared out", ["cuda"], *DEAL)
    threshold = judge.THRESHOLDS[gpus[0].kind]
    ours, again, ray = (runs[name].medians for name in ("this host", "this host, again", "Ray"))
    rows, changed = [], {"again": 0, "Ray": 0}
    for key in sorted(ours.keys() & again.keys() & ray.keys()):
        by_run = {"again": again[key], "Ray": ray[key]}
        compared = {name: judge.compare(ours[key], other, threshold=threshold) for name, other in by_run.items()}
        for name, comparison in compared.items():
            changed[name] += comparison.verdict in CHANGED
        case, cache, device = key
        rows.append([f"{case} {cache}", device[-12:], *(f"{compared[name].ratio:.4f}" for name in by_run)])
    print(f"\n{table(('case', 'GPU', 'again / this host', 'Ray / this host'), rows)}\n")
    claims = [
        Claim("cases that failed", sum(len(ran.failed) for ran in runs.values()), 0),
        Claim("cases and GPUs that only one side measured", len(ours.keys() ^ ray.keys()), 0),
        Claim("medians that Ray changed, above those that changed without Ray", changed["Ray"] - changed["again"], 0),
    ]
    if len(gpus) > 1:
        names = "Ray, shared out, two nodes", "Ray, shared out, one node"
        claims.append(Claim("wall time of two nodes over that of one", ratio(runs, *names), LIMIT))
    return finish(claims, path, wall_s={name: ran.wall_s for name, ran in runs.items()}, changed=changed, rows=rows)


def ratio(runs: dict[str, Ran], above: str, below: str) -> float:
    """Return the ratio of the wall times of two runs."""
    return runs[above].wall_s / runs[below].wall_s


if __name__ == "__main__":
    sys.exit(main())
