"""Time ``perfsvc check`` for the built-in suite: from a cold cache, with nothing changed, with one kernel changed.

    python tests/benchmarks/check_speed.py [--cores 2] [--arch sm_80 …]

Each is a process of its own, limited to some cores. Both the wall time and the processor time with all compilers are
shown: the processor time divided by the cores is the least wall time of an idle machine. On a busy machine the wall
time shows how busy it was.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from perfsvc.build.disassembly import find_nvdisasm
from perfsvc.build.nvcc import NvccToolchain
from perfsvc.installation import data_folder

CHANGED = "transpose/naive.cu"


def timed(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the wall and processor seconds of a command, including all processes that it starts."""
    started = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in {0, 1}, f"{' '.join(command)} ended with {process.returncode}"
    return wall, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--arch", action="append", default=[])
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    disassembler = find_nvdisasm()
    print(f"{NvccToolchain('sm_90').version}, {disassembler or 'no disassembler'}, {options.cores} cores")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}\n")
    print(f"| | wall | processors | processors / {options.cores} |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="perfsvc-") as name:
        place = Path(name)
        suite = Path(shutil.copytree(data_folder("kernels"), place / "kernels"))
        environment = os.environ | {"PERFSVC_CACHE": str(place / "cache"), "PERFSVC_DB": str(place / "perfsvc.db")}
        command = [sys.executable, "-m", "perfsvc", "check", "--suite", str(suite)]
        command += [word for arch in options.arch for word in ("--arch", arch)]
        for what in ("cold cache", "nothing changed", "one kernel changed"):
            if what.startswith("one"):
                source = suite / CHANGED
                source.write_text(source.read_text(encoding="utf-8") + "// changed\n", encoding="utf-8")
            wall, processors = timed(command, environment)
            print(f"| {what} | {wall:.1f} s | {processors:.1f} s | {processors / options.cores:.1f} s |", flush=True)
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
