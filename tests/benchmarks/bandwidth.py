"""Compare the times of perfsvc with those of an independent event-timed loop: vector_add over 2^26 floats on a GPU.

    python tests/benchmarks/bandwidth.py

Compiles ``event_loop.cu`` (the CUDA runtime, and no code of perfsvc except the kernel), runs it before and after
``perfsvc run`` measures the same kernel, and prints the medians, the bandwidths and their ratio. Needs nvcc.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from perfsvc.build.nvcc import find_nvcc
from perfsvc.device.find import find

ROOT = Path(__file__).resolve().parents[2]
N, GRID, BLOCK = 1 << 26, 4096, 256
BYTES = 12 * N


def main() -> None:
    """Measure with both and print the times."""
    (device, *_) = find(["cuda"])
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "event_loop")
        kernel = ROOT / "kernels" / "vector_add"
        source = ROOT / "tests" / "benchmarks" / "event_loop.cu"
        subprocess.run([find_nvcc(), f"-arch={device.target}", "-I", kernel, "-o", program, source], check=True)
        before = independent(program)
        ours = measured(folder, device.spec)
        after = independent(program)
    print(f"{device.model}, driver {device.driver}: vector_add/grid_stride-BLOCK{BLOCK}[n={N}]")
    for name, seconds in (("event loop before", before), ("perfsvc run", ours), ("event loop after", after)):
        print(f"  {name:18} {seconds * 1e6:8.2f} µs  {BYTES / seconds / 1e12:6.3f} TB/s")
    print(f"  perfsvc / event loop: {ours / ((before + after) / 2):.4f}")


def independent(program: Path) -> float:
    """Return the median seconds of the event-timed loop."""
    done = subprocess.run([program, str(N), str(GRID), str(BLOCK)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def measured(folder: str, device: str) -> float:
    """Return the median seconds that ``perfsvc run`` reports."""
    case = f"vector_add/grid_stride-BLOCK{BLOCK}[n={N}]"
    command = ["run", "--device", device, "--suite", str(ROOT / "kernels"), "--select", case, "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "perfsvc", *command],
        cwd=folder,
        env=os.environ | {"PERFSVC_DB": str(Path(folder, "perfsvc.db"))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    (row,) = json.loads(done.stdout)["results"]
    return float(row["median_s"])


if __name__ == "__main__":
    main()
