"""Check that perfsvc finds a kernel made four times slower, and no other, on the CPU device with real compilers.

    python tests/benchmarks/planted_regression.py

Writes a suite of three variants into a temporary folder, runs it twice unchanged, plants REPEAT=4 in one of them, and
prints exit codes and verdicts. Exits with 0 if the first comparison finds no regression and the second names only the
planted variant. The CPU device's times are rough, and so is its threshold: 50 %.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BENCH = '''
"""A polynomial of every element, REPEAT times over."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output


def variant(name, repeat):
    return Variant(name, source="work.cu", entry="work", params={"REPEAT": repeat}, block=256,
                   grid=lambda n: ceil_div(n, 256), args=("out", "a", "n"))


benchmark = Benchmark(
    axes={"n": (400_000,)},
    smoke={"n": 400_000},
    inputs=lambda rng, n: {"a": rng.random(n, dtype=np.float32)},
    outputs={"out": output("float32", lambda n: n)},
    reference=lambda a: 2.0 * a.astype(np.float64),
    tolerance=Tolerance(max=1e-5, mean=1e-6),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n),
    variants=[variant("one", 8), variant("two", PLANTED), variant("three", 8)],
)
'''

SOURCE = """
extern "C" __global__ void work(float* out, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    volatile float x = a[i];
    for (int r = 0; r < REPEAT; ++r) x = sqrtf(x * x);
    out[i] = 2.0f * x;
}
"""


def main() -> int:
    """Run the suite three times and print the results."""
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder, "suite", "planted")
        suite.mkdir(parents=True)
        (suite / "work.cu").write_text(SOURCE)
        expected = ((8, 0, []), (8, 0, []), (32, 1, ["planted/two[n=400000]"]))
        found = [night(folder, suite, repeat) for repeat, _, _ in expected]
    for (repeat, code, slower), (seen, regressed, ratios) in zip(expected, found, strict=True):
        wrong = "" if (seen, regressed) == (code, slower) else "  <- WRONG"
        print(f"REPEAT={repeat:2}: exit {seen}, regressed {regressed or 'nothing'}, ratios {ratios}{wrong}")
    return 0 if [f[:2] for f in found] == [e[1:] for e in expected] else 1


def night(folder: str, suite: Path, repeat: int) -> tuple[int, list[str], dict[str, float]]:
    """Run the suite; return the exit code, the cases that regressed, and all ratios."""
    (suite / "bench.py").write_text(BENCH.replace("PLANTED", str(repeat)))
    command = ["run", "--device", "cpu", "--suite", str(suite.parent), "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "perfsvc", *command],
        cwd=folder,
        env=os.environ | {"PERFSVC_DB": str(Path(folder, "perfsvc.db"))},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    cases = json.loads(done.stdout)["results"]
    regressed = [row["case"] for row in cases if row["verdict"] == "regression"]
    return done.returncode, regressed, {row["case"]: round(row["ratio"], 3) for row in cases if row["ratio"]}


if __name__ == "__main__":
    sys.exit(main())
