"""Which CUDA libraries the libraries of a case use: their versions decide its times, and are no part of its code."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from perfsvc import elf
from perfsvc.model import Package, PythonCode

_CUDA_LIBRARY = re.compile(r"lib(?:cu|nv|nccl)\w*\.so")
_MAPS = Path("/proc/self/maps")


def cuda_libraries(modules: Iterable[bytes], maps: Path = _MAPS) -> PythonCode | None:
    """Return the CUDA libraries that shared objects need and this process has loaded; None if they need none.

    Args:
        modules: the shared objects.
        maps: the list of this process's mapped files.
    """
    needed = {name for code in modules for name in elf.needed_libraries(code) if _CUDA_LIBRARY.match(name)}
    if not needed:
        return None
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # no Linux
        lines = []
    stems = {name.partition(".so")[0] for name in needed}
    paths = {Path(f"/{line.partition('/')[2]}") for line in lines if "/" in line}
    packages = {_package_of(path) for path in paths if path.name.partition(".so")[0] in stems}
    return PythonCode(packages=tuple(sorted(packages, key=lambda package: (package.name, package.version))))


def _package_of(path: Path) -> Package:
    """Return the Python package that installed a library, or else the library with the version in its file's name."""
    for distribution, record in _nvidia_packages():
        root = Path(str(distribution.locate_file(""))).resolve()
        if path.is_relative_to(root) and f"{path.relative_to(root)}," in record:
            name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
            return Package(name, distribution.version, hashlib.sha256(record.encode()).hexdigest())
    name, _, version = path.resolve().name.partition(".so.")
    return Package(name.removesuffix(".so"), version)


def _nvidia_packages() -> Iterator[tuple[metadata.Distribution, str]]:
    """Yield each of NVIDIA's installed packages with its list of files."""
    for distribution in metadata.distributions():
        if str(distribution.metadata["Name"]).lower().startswith("nvidia"):
            yield distribution, distribution.read_text("RECORD") or ""
