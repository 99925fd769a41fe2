"""Make the pictures of pages in docs/measured/real-pages.md from measurements of real GPUs.

    python tests/benchmarks/real_pictures.py --output docs/measured/real-pages

The measurements are in tests/data: two profiles of an H100, and the times of six kernels on an H200 with and without
2 % more work, in fresh processes. No GPU is needed; Chromium and playwright are.
"""

import csv
import lzma
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from workbench import browser_tab, parsed, perfsvc

DATA = Path(__file__).parents[1] / "data"
CLOCK_US = 0.032
"""The step of the clock that measured the times."""
RUNS = (("base", "0", "2026-11-20T02:00"), ("more work", "0.02", "2026-11-21T02:00"))
"""The label of each run, the extra work of its launches, and a time that puts the runs in order."""
PROCESSES = 10
COLOURS = 64


def main() -> int:
    """Write the pictures, and return the exit status."""
    output = parsed(__doc__, ("--output", {"type": Path, "required": True}, "the folder of the pictures")).output
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for picture, page in {"explanation": explanation(Path(folder)), "comparison": comparison(Path(folder))}.items():
            path = output / f"{picture}.png"
            shoot(page, path)
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
    return 0


def explanation(folder: Path) -> Path:
    """Write the page that says why a transpose without padding is slower than one with padding, on an H100."""
    for variant in ("padded", "tiled"):
        report = lzma.decompress((DATA / "ncu" / f"transpose-{variant}.ncu-rep.xz").read_bytes())
        (folder / f"{variant}.ncu-rep").write_bytes(report)
    perfsvc(folder, "explain", "padded.ncu-rep", "tiled.ncu-rep", "--output", "why.html")
    return folder / "why.html"


def comparison(folder: Path) -> Path:
    """Write the page that compares six kernels on an H200 with the same kernels that have 2 % more work."""
    with np.load(DATA / "noise" / "processes.npz") as times:
        for number, (label, work, at) in enumerate(RUNS):
            with (folder / f"{number}.csv").open("w", newline="") as file:
                table = csv.writer(file)
                table.writerow(["benchmark", "variant", "cache", "replica", "time_us", "device", "host", "at"])
                for key in times.files:
                    kernel, extra = key.split()
                    for replica, samples in enumerate(times[key][:PROCESSES] if extra == work else []):
                        for step in samples:
                            time_us = f"{step * CLOCK_US:.3f}"
                            table.writerow([kernel, "cuda", "cold", replica, time_us, "NVIDIA H200", "h200", at])
            perfsvc(folder, "import", "csv", f"{number}.csv", "--label", label, "--db", "pictures.db")
    perfsvc(folder, "compare", "1", "2", "--threshold", "1%", "--db", "pictures.db", "--output", "compare.html")
    return folder / "compare.html"


def shoot(page: Path, path: Path) -> None:
    """Write a picture of the upper part of a page, with few colours so that it stays small."""
    with browser_tab(1280) as tab:
        tab.goto(page.as_uri())
        height = min(900, tab.evaluate("document.querySelector('main').getBoundingClientRect().bottom"))
        tab.screenshot(path=path, clip={"x": 0, "y": 0, "width": 1280, "height": height})
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
