"""Time ``perfsvc import`` for many files of NVBench.

    python tests/benchmarks/import_speed.py [--files 1000] [--input FILE]

Each file is a copy of a real one (by default the one in tests/data/formats) with other times. They are imported twice,
into new databases: as one run, in which each file is a replica, and as a run for each file, which are judged one by
one. The claims: this takes at most one minute and five minutes, and importing all files again stores nothing.
"""

import json
import os
import random
import sys
import tempfile
from pathlib import Path

from workbench import Claim, finish, parsed, table, timed

DATA = Path(__file__).parents[1] / "data" / "formats" / "nvbench.json"
LIMITS_S = {"one run": 60.0, "a run for each file": 300.0}
"""Judging a run takes about 0.1 s."""


def write(source: Path, folder: Path, files: int, seed: int) -> list[Path]:
    """Write so many files with slightly different times, each a minute younger than the one before."""
    document = json.loads(source.read_text())
    chance = random.Random(seed)
    times = [
        value
        for benchmark in document["benchmarks"]
        for state in benchmark["states"]
        for summary in state["summaries"]
        if "/time/" in summary["tag"] and "/relative" not in summary["tag"]
        for value in summary["data"]
    ]
    usual = [float(value["value"]) for value in times]
    paths = []
    for number in range(files):
        for value, seconds in zip(times, usual, strict=True):
            value["value"] = repr(seconds * chance.gauss(1, 0.002))
        paths.append(folder / f"{number}.json")
        paths[-1].write_text(json.dumps(document, indent=2))
        moment = 1_700_000_000 + 60 * number
        os.utime(paths[-1], (moment, moment))
    return paths


def measure(arguments: list[str], output: Path) -> tuple[int, float, float, dict]:
    """Run ``perfsvc import``; return its exit code, its seconds, its seconds of processor time, and its output."""
    command = [sys.executable, "-m", "perfsvc", "import", "nvbench", *arguments, "--format", "json"]
    with output.open("w") as file:
        ended = timed(command, stdout=file)
    return *ended, json.loads(output.read_text())


def main() -> int:
    options = parsed(__doc__, ("--files", 1000), ("--input", DATA), ("--seed", 7))
    cells, claims = [], []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        paths = [*map(str, write(options.input, folder, options.files, options.seed))]
        states = sum(len(benchmark["states"]) for benchmark in json.loads(options.input.read_text())["benchmarks"])
        for name, more, runs in (("one run", [], 1), ("a run for each file", ["--separate"], options.files)):
            database = ["--db", str(folder / f"{runs}.db")]
            code, seconds, processor, output = measure([*paths, *more, *database], folder / "output")
            again, *_, second = measure([*paths, *more, *database], folder / "output")
            stored = sum(sum(run["counts"].values()) for run in output["runs"])
            cells.append((name, f"{seconds:.1f} s", f"{processor:.1f} s"))
            claims += [
                Claim(f"{name}: seconds", seconds, LIMITS_S[name], " s"),
                Claim(f"{name}: missing measurements", states * options.files - stored, 0),
                Claim(f"{name}: runs stored by a second import", len(second["runs"]), 0),
                Claim(f"{name}: exit codes above 1", (code > 1) + (again > 1), 0),
            ]
            assert len(output["runs"]) == runs
    print(table(("imported as", "time", "processor time"), cells))
    return finish(claims, options.json)


if __name__ == "__main__":
    sys.exit(main())
