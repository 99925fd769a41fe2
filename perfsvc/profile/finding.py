"""Where NVIDIA's profilers are: on PATH, beside nvcc, or where their own packages put them."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from perfsvc.build.nvcc import find_nvcc

TOOLKITS, PACKAGES = Path("/usr/local"), Path("/opt/nvidia")
"""Where CUDA toolkits and the packages of the Nsight tools are installed."""
_DIGITS = re.compile(r"\d+")


def find(name: str, package: str) -> Path | None:
    """A profiler's program.

    Args:
        name: of the program: ``ncu``.
        package: the folder of its own packages in ``/opt/nvidia``, each version's in a folder of its own.
    """
    return next((path for path in _candidates(name, package) if path.is_file() and os.access(path, os.X_OK)), None)


def _candidates(name: str, package: str) -> Iterator[Path]:
    if on_path := shutil.which(name):
        yield Path(on_path)
    if nvcc := find_nvcc():
        yield nvcc.with_name(name)
        yield nvcc.resolve().with_name(name)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if toolkit := os.environ.get(variable):
            yield Path(toolkit, "bin", name)
    yield TOOLKITS / "cuda" / "bin" / name
    yield from _newest_first(TOOLKITS.glob(f"cuda-*/bin/{name}"))
    yield from _newest_first([*PACKAGES.glob(f"{package}/*/{name}"), *PACKAGES.glob(f"{package}/*/bin/{name}")])


def _newest_first(paths: Iterator[Path] | list[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: [int(digits) for digits in _DIGITS.findall(str(path))], reverse=True)
