"""Where NVIDIA's programs are."""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def find(name: str) -> Path | None:
    """A program of the CUDA toolkit: on PATH, else of a toolkit that is installed, else of a Python package."""
    return next((path for path in _candidates(name) if os.access(path, os.X_OK)), None)


def _candidates(name: str) -> Iterator[Path]:
    if on_path := shutil.which(name):
        yield Path(on_path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if toolkit := os.environ.get(variable):
            yield Path(toolkit, "bin", name)
    yield Path("/usr/local/cuda/bin", name)
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels.submodule_search_locations or ()) if wheels else ():
        yield from sorted(Path(folder).glob(f"cu*/bin/{name}"), reverse=True)
