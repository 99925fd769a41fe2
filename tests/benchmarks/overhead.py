"""Compare the time of a run with the time that its GPU is busy, and show where the rest goes.

    python tests/benchmarks/overhead.py [--device cuda:0] [--run OPTIONS] [--json FILE]

Compiles the suite, so that the run finds every binary in the cache, then times ``perfsvc run`` from the start of its
process to its end. The GPU is busy while it works on samples, including warm-up and cache eviction. Waiting for the
blocking kernel, checks, uploads and measuring the peaks do not count. Python libraries that variants import (PyTorch,
Triton) take seconds in each replica: ``--run "--exclude '*/triton'"`` excludes such variants.
"""

import shlex
import sys
import tempfile
import time
from pathlib import Path

from workbench import SUITE, Claim, Ran, finish, parsed, ready, run, table

from perfsvc.measure.protocol.messages import Sampling


def main() -> int:
    """Measure a run and print its parts."""
    options = parsed(
        __doc__,
        ("--device", "cuda:0", "one device"),
        ("--replicas", 3, "replicas of the run"),
        ("--suite", SUITE, "the folder of benchmarks"),
        ("--run", "", "further options of the run: '--select transpose'"),
    )
    started = time.monotonic()
    cases = ready(options.suite, options.device, Sampling())
    compiling_s = time.monotonic() - started
    more = ("--replicas", str(options.replicas), *shlex.split(options.run))
    with tempfile.TemporaryDirectory() as folder:
        ran = run(Path(folder), options.suite, [cases.device.spec], *more)
    parts = taken_apart(ran)
    measured = len(set(zip(ran.columns["case"], ran.columns["cache"], strict=True)))
    print(f"{cases.device.model}, driver {cases.device.driver}: {measured} cases, {options.replicas} replicas")
    print(f"compiling, not included: {compiling_s:.2f} s\n")
    shares = [[name, f"{seconds:.3f}", f"{100 * seconds / ran.wall_s:.1f}"] for name, seconds in parts.items()]
    print(table(("part", "seconds", "%"), [*shares, ["wall time", f"{ran.wall_s:.3f}", "100.0"]]), end="\n\n")
    busy_s = parts["device busy with samples"]
    ratio = ran.wall_s / busy_s if busy_s else None
    return finish(
        [
            Claim("cases that failed", len(ran.failed), 0),
            Claim("wall time over the time that the device is busy", ratio, 2.0),
        ],
        options.json,
        wall_s=ran.wall_s,
        compiling_s=compiling_s,
        parts_s=parts,
        problems=ran.failed,
    )


def taken_apart(ran: Ran) -> dict[str, float]:
    """Return the seconds of each part of a run on one device; their sum is its wall time."""
    columns = ran.columns
    wall, sampling, check, busy = (
        sum(seconds or 0.0 for seconds in columns[name]) for name in ("wall_s", "sampling_s", "check_s", "busy_s")
    )
    first_s = min(
        (ended - ran.began).total_seconds() - lasted
        for ended, lasted in zip(columns["measured_at"], columns["wall_s"], strict=True)
    )
    last_s = (ran.ended - max(columns["measured_at"])).total_seconds()
    return {
        "device busy with samples": busy,
        "sampling, other than that": sampling - busy,
        "checks": check,
        "uploads and the rest of cases": wall - sampling - check,
        "before the first case: imports, inputs, measured peaks": first_s,
        "between cases: the parent, workers' starts": ran.wall_s - first_s - last_s - wall,
        "after the last: verdicts": last_s,
    }


if __name__ == "__main__":
    sys.exit(main())
