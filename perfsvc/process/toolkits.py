"""Where the CUDA libraries of this machine are: in installed toolkits, and in NVIDIA's Python packages."""

import ctypes.util
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from perfsvc.process import programs

_LIBRARY_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
_SUFFIX = ".so"


def find_library(name: str) -> Path | None:
    """Return the file of a CUDA library, such as ``cublas`` or ``cudnn``, to link to; None if there is none.

    The toolkit of nvcc comes first, and Python packages come last.
    """
    for folder in _library_folders():
        plain = folder / f"lib{name}{_SUFFIX}"
        if plain.is_file():
            return plain
        if versions := sorted(folder.glob(f"lib{name}{_SUFFIX}.*"), key=lambda path: (len(path.name), path.name)):
            return versions[0]
    return None


def find_loadable(file_name: str) -> Path | None:
    """Return the path of a library by the name that a program asks for (``libcublas.so.13``); None if it is unknown."""
    return next((path for folder in _library_folders() if (path := folder / file_name).is_file()), None)


def is_in_system(name: str) -> bool:
    """Return whether the system's own linker finds a library."""
    return ctypes.util.find_library(name) is not None


def header_folder(library: Path) -> Path | None:
    """Return the folder of headers that belongs to a library's file; None if there is none."""
    candidates = (parent / "include" for parent in library.parents[1:4])
    return next((folder for folder in candidates if folder.is_dir()), None)


def _library_folders() -> Iterator[Path]:
    """Yield the folders in which CUDA libraries may be, each once, the preferred folder first."""
    folders = (root / name for root in _roots() for name in _LIBRARY_FOLDERS)
    yield from dict.fromkeys(folder for folder in folders if folder.is_dir())


def _roots() -> Iterator[Path]:
    """Yield the folders of toolkits and of NVIDIA's Python packages."""
    if nvcc := programs.find_cuda_program("nvcc"):
        yield nvcc.resolve().parent.parent
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if toolkit := os.environ.get(variable):
            yield Path(toolkit)
    yield Path("/usr/local/cuda")
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        # Packages of CUDA 13 and newer share a folder cu13. Older packages have a folder each, such as cublas.
        yield from sorted(Path(folder).glob("cu[0-9]*"), reverse=True)
        yield from sorted(path for path in Path(folder).iterdir() if not path.match("cu[0-9]*"))
