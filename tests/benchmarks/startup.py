"""Time ``perfsvc --help`` as a multiple of ``python -c "import click"``.

The two alternate, so that a busy machine slows both, and the medians are compared.

    python tests/benchmarks/startup.py [--runs 15] [--limit 2.0]

Exits with 1 if the ratio is above the limit.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

PERFSVC = [str(Path(sys.executable).with_name("perfsvc")), "--help"]
CLICK = [sys.executable, "-c", "import click"]


def seconds(command: list[str]) -> float:
    """Return the wall time of one run of a command."""
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def medians(runs: int) -> tuple[float, float]:
    """Return the median seconds of ``perfsvc --help`` and of importing click, after one warm-up each."""
    seconds(PERFSVC)
    seconds(CLICK)
    pairs = [(seconds(PERFSVC), seconds(CLICK)) for _ in range(runs)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


def main() -> int:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="runs of each command")
    parser.add_argument("--limit", type=float, default=2.0, help="the largest ratio that passes")
    options = parser.parse_args()
    ours, theirs = medians(options.runs)
    ratio = ours / theirs
    print(f"perfsvc --help {ours * 1e3:.0f} ms, import click {theirs * 1e3:.0f} ms, ratio {ratio:.2f}")
    return int(ratio > options.limit)


if __name__ == "__main__":
    sys.exit(main())
