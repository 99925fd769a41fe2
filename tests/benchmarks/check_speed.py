"""Time ``perfsvc check`` for the built-in suite: from a cold cache, with nothing changed, with one kernel changed.

    python tests/benchmarks/check_speed.py [--cores 2] [--arch sm_80 …]

Each is a process of its own, limited to some cores. Both the wall time and the processor time with all compilers are
shown: the processor time divided by the cores is the least wall time of an idle machine. On a busy machine the wall
time shows how busy it was.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from workbench import SUITE, Claim, finish, parsed, table, timed

from perfsvc.build.disassembly import find_nvdisasm
from perfsvc.build.nvcc import NvccToolchain

CHANGED = "transpose/naive.cu"
LIMITS_S = {"cold cache": 180.0, "nothing changed": 10.0}


def main() -> int:
    """Measure, print a table, and check the claims."""
    options = parsed(__doc__, ("--cores", 2), ("--arch", {"action": "append", "default": []}, "only this architecture"))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    found = f"{NvccToolchain('sm_90').version}, {find_nvdisasm() or 'no disassembler'}"
    print(f"{found}, {options.cores} cores, load of the machine: {os.getloadavg()[0]:.1f}", flush=True)
    rows, claims = [], []
    with tempfile.TemporaryDirectory(prefix="perfsvc-") as name:
        suite = Path(shutil.copytree(SUITE, Path(name, "kernels")))
        environment = os.environ | {"PERFSVC_CACHE": f"{name}/cache", "PERFSVC_DB": f"{name}/perfsvc.db"}
        command = [sys.executable, "-m", "perfsvc", "check", "--suite", str(suite)]
        command += [word for arch in options.arch for word in ("--arch", arch)]
        for what in ("cold cache", "nothing changed", "one kernel changed"):
            if what.startswith("one"):
                (suite / CHANGED).write_text((suite / CHANGED).read_text() + "// changed\n")
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            code, wall_s, processor_s = timed(command, env=environment, **quiet)
            assert code in {0, 1}, f"{' '.join(command)} ended with {code}"
            rows.append([what, *(f"{s:.1f} s" for s in (wall_s, processor_s, processor_s / options.cores))])
            print(", ".join(rows[-1]), flush=True)
            if what in LIMITS_S:
                claims.append(Claim(what, wall_s, LIMITS_S[what], " s"))
    print(table(["", "wall", "processors", f"processors / {options.cores}"], rows))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    return finish(claims, options.json, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
