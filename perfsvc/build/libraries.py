"""Libraries of the host: sources that become shared objects, with the CUDA libraries that they are linked to."""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfsvc import elf
from perfsvc.errors import CompileError
from perfsvc.installation import pip_install, version
from perfsvc.model import Unit, digest
from perfsvc.process import toolkits

HEADERS = Path(__file__).resolve().parent / "include"
"""The folder of ``perfsvc.h``, which every library includes."""
ENTRY = "perfsvc_library_"
"""What the macro ``PERFSVC_LIBRARY`` puts before the name of an entry."""

CUTLASS = "cutlass"
_PACKAGES = {
    CUTLASS: "nvidia-cutlass",
    "cublas": "nvidia-cublas",
    "cublasLt": "nvidia-cublas",
    "cudnn": "nvidia-cudnn-cu13",
    "cufft": "nvidia-cufft",
    "curand": "nvidia-curand",
    "cusolver": "nvidia-cusolver",
    "cusparse": "nvidia-cusparse",
    "nccl": "nvidia-nccl-cu13",
}
"""The Python package of each library that NVIDIA distributes as one."""
_ARCHITECTURE = "sm_"
_HOST_OPTIONS = "-fPIC,-fvisibility=hidden,-O2"
# The bytes must not depend on the folder or the time of a build: no debug symbols, and no build id.
_LINKER_OPTIONS = "-s,--build-id=none,--exclude-libs,ALL"


@dataclass(frozen=True, slots=True)
class FoundLibrary:
    """A library on this machine.

    Attributes:
        options: nvcc's options that find its headers and link it.
        identity: its version as far as it is known, without a path of this machine.
    """

    options: tuple[str, ...]
    identity: str


def is_library(unit: Unit) -> bool:
    """Return whether a unit becomes a shared object that runs on the host."""
    return unit.libraries is not None


def settings(unit: Unit) -> list[str]:
    """Return what decides a library's binary in addition to the unit: ``perfsvc.h``, and the libraries' versions.

    Raises ``CompileError`` if a library is not installed.
    """
    header = digest((HEADERS / "perfsvc.h").read_bytes())
    return [header, _HOST_OPTIONS, _LINKER_OPTIONS, *(_find(unit, name).identity for name in unit.libraries or ())]


def nvcc_options(unit: Unit, target: str) -> list[str]:
    """Return nvcc's options that make a shared object with machine code for one architecture.

    Raises ``CompileError`` if a library is not installed.

    Args:
        unit: the library.
        target: the architecture, such as ``sm_90``; empty if the unit's own options name one.
    """
    number = target.removeprefix(_ARCHITECTURE)
    architecture = [f"-gencode=arch=compute_{number},code={target}"] if target else []
    return [
        "-shared",
        f"-Xcompiler={_HOST_OPTIONS}",
        f"-Xlinker={_LINKER_OPTIONS}",
        "-no-compress",  # so that the kernels in it can be compared and their registers counted
        *architecture,
        f"-I{HEADERS}",
        *(option for name in unit.libraries or () for option in _find(unit, name).options),
    ]


def require_entries(unit: Unit, code: bytes) -> None:
    """Raise ``CompileError`` if a shared object does not define the functions that a unit names."""
    defined = sorted(name.removeprefix(ENTRY) for name in elf.exported_sizes(code) if name.startswith(ENTRY))
    missing = [entry for entry in unit.entries if entry not in defined]
    if missing:
        raise CompileError(
            f"{unit.source.name} has no library function {' or '.join(missing)}; it has {', '.join(defined) or 'none'}",
            cure=f"include <perfsvc.h> and define PERFSVC_LIBRARY({missing[0]}, in) {{ ... }}, or correct entry=",
        )


def _find(unit: Unit, name: str) -> FoundLibrary:
    """Return a library of this machine; raise ``CompileError`` if it is not installed."""
    if name == CUTLASS:
        folders = tuple(_cutlass_headers())
        if folders:
            return FoundLibrary(_headers(folders), f"{CUTLASS} {version(_PACKAGES[CUTLASS])}")
    elif path := toolkits.find_library(name):
        folder = toolkits.header_folder(path)
        link = (f"-L{path.parent}", f"-l:{path.name}")
        resolved = path.resolve()
        return FoundLibrary((*_headers((folder,) if folder else ()), *link), f"{resolved.name} {path.stat().st_size}")
    elif toolkits.is_in_system(name):
        return FoundLibrary((f"-l{name}",), name)
    package = _PACKAGES.get(name)
    raise CompileError(
        f"{unit.source.name} uses the library {name}, which was not found in a CUDA toolkit or as a Python package",
        cure=(f"{pip_install(package)}, or " if package else "") + "set CUDA_HOME to the toolkit that has it",
    )


def _headers(folders: tuple[Path, ...]) -> tuple[str, ...]:
    return tuple(word for folder in folders for word in ("-isystem", str(folder)))


def _cutlass_headers() -> Iterator[Path]:
    """Yield the folders of CUTLASS's headers in the package ``nvidia-cutlass``; none if it is not installed."""
    spec = importlib.util.find_spec("cutlass_library")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        source = Path(folder) / "source"
        yield from (path for path in (source / "include", source / "tools/util/include") if path.is_dir())
