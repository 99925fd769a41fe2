"""What the Python functions of a case ran with: packages, modules of the author, CUDA libraries, Triton's kernels.

Only what the functions import by name counts, because the process has also loaded what earlier cases needed.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.abc import InspectLoader
from importlib.metadata import Distribution
from pathlib import Path
from types import ModuleType
from typing import Any

from perfsvc import elf, uses
from perfsvc.files import file_digest
from perfsvc.model import Package, PythonCode, TritonKernel, digest
from perfsvc.suite.python_source import imports
from perfsvc.uses import Uses

COMPUTING = re.compile(r"(cuda|cupy|jax|llvmlite|mkl|numba|numpy|nvidia|nvmath|pytorch|torch|triton)", re.IGNORECASE)
"""The packages that compute or compile. Other requirements of an imported package cannot change a kernel's time."""

VARIABLES = re.compile(
    r"(CUBLAS|CUDNN|CUPY|DISABLE_LLVM|DISABLE_PTXAS|KMP|MKL|NUMBA|OMP|OPENBLAS|PYTORCH|TORCH|TORCHINDUCTOR|TRITON)_"
    "|NVIDIA_TF|CUDA_LAUNCH_BLOCKING|CUDA_MODULE_LOADING|LD_PRELOAD"
)
"""The prefixes of environment variables that change which code packages choose or compile."""
PLACES = re.compile(r"_(DIR|FILE|HOME|PATH|ROOT)$")
"""The suffixes of environment variables that only name a folder or a file."""

CUDA_LIBRARY = re.compile(r"/lib(cu\w+|nv\w+|nccl)\.so[\d.]*$")
OF_THE_DRIVER = re.compile(r"/lib(cuda|cudadebugger|nvidia-[\w-]+)\.so")

Files = dict[str, bytes]


def python_code(
    bench: str,
    functions: Collection[str],
    launched: Iterable[Any] = (),
    *,
    packages: Iterable[str] = (),
    sources: Iterable[str] = (),
) -> tuple[PythonCode, Files]:
    """Return the ``PythonCode`` of functions of a benchmark file, and the files that it names, by digest.

    Args:
        bench: the text of the benchmark file, whose functions have run.
        functions: the names of the functions.
        launched: the compiled Triton kernels that the functions launched.
        packages: the packages with which perfsvc itself calls functions of the file, such as ``triton``.
        sources: the texts of other Python files whose functions have run.
    """
    found: dict[str, Package] = {"python": Package("python", platform.python_version())}
    texts: dict[str, str] = {}
    wanted = dict.fromkeys([*imports(bench, frozenset(functions)), *packages])
    for source in sources:
        wanted |= dict.fromkeys(imports(source, None))
    for name in wanted:
        _add(name, found, texts)
    used = _add_used(found, texts)
    files = {digest(text.encode()): text.encode() for text in texts.values()}
    kernels = []
    for kernel in launched:
        described, cubin = _described(kernel)
        kernels.append(described)
        if cubin:
            files[described.cubin] = cubin
    for path in uses.other_libraries():
        found[uses.label(path)] = Package(uses.label(path), "", file_digest(Path(path)))
    return PythonCode(
        packages=tuple(found[name] for name in sorted(found)),
        variables=tuple(
            sorted(
                (name, value)
                for name, value in os.environ.items()
                if _is_read_by_packages(name) or name in used.variables
            )
        ),
        modules=tuple(sorted((name, digest(text.encode())) for name, text in texts.items())),
        kernels=tuple(sorted(dict.fromkeys(kernels), key=lambda kernel: (kernel.name, kernel.options, kernel.code))),
        files=Uses(files=used.files).parts(),
    ), files


def _is_read_by_packages(name: str) -> bool:
    return VARIABLES.match(name) is not None and PLACES.search(name) is None


# --- packages and modules --------------------------------------------------------------------------------------------


def _add(name: str, packages: dict[str, Package], texts: dict[str, str]) -> None:
    """Add an imported module to ``packages`` if a package installed it, else to ``texts``, with all that it imports."""
    top = name.partition(".")[0]
    module = sys.modules.get(name)
    if top in sys.stdlib_module_names or top == "perfsvc" or module is None or name in texts:
        return
    if distribution := _distribution_of(top):
        _add_package(distribution, packages)
    elif (text := _text_of(module)) is not None:
        texts[name] = text
        package = name if hasattr(module, "__path__") else name.rpartition(".")[0]
        parts = name.split(".")
        parents = (".".join(parts[:count]) for count in range(1, len(parts)))
        for imported in (*parents, *imports(text, None, package)):
            _add(imported, packages, texts)


def _add_used(packages: dict[str, Package], texts: dict[str, str]) -> Uses:
    """Add the modules that the functions and their modules imported while they ran; return what else they used."""
    modules = {_location(module): name for name, module in list(sys.modules.items())}
    while True:
        used, before = uses.used(texts), len(texts)
        for name in used.modules:
            _add(name, packages, texts)
        if len(texts) == before:
            of_modules = {path for path in used.files if modules.get(Path(path).resolve(), "") in texts}
            return replace(used, files={path: None for path in used.files if path not in of_modules})


def _add_package(found: Distribution, packages: dict[str, Package]) -> None:
    """Add a package and its requirements that compute or compile."""
    name = _normal(found.metadata["Name"])
    if name in packages:
        return
    record = found.read_text("RECORD")
    packages[name] = Package(name, found.version, digest(record.encode()) if record else "")
    for requirement in found.requires or ():
        required = re.match(r"[\w.-]+", requirement)
        if required is None or "extra ==" in requirement or not COMPUTING.match(required[0]):
            continue
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            _add_package(importlib.metadata.distribution(required[0]), packages)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _distribution_of(top: str) -> Distribution | None:
    """Return the distribution that installed a top-level module; None if no distribution installed it."""
    location = _location(sys.modules.get(top))
    if location is None:
        return None
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        same_name = importlib.metadata.distribution(top)
        if _installed(same_name, location):
            return same_name
    for found in importlib.metadata.distributions():
        listed = found.read_text("top_level.txt")
        names = listed.split() if listed else _tops_of(found.read_text("RECORD") or "")
        if top in names and _installed(found, location):
            return found
    return None


def _tops_of(record: str) -> set[str]:
    """Return the top-level modules in a package's list of installed files."""
    return {line.partition("/")[0].partition(".")[0] for line in record.splitlines()}


def _installed(found: Distribution, location: Path) -> bool:
    return location.is_relative_to(Path(str(found.locate_file(""))).resolve())


def _location(module: ModuleType | None) -> Path | None:
    """Return the file of a module, or the folder of a package that has no file; None for built-in modules."""
    file = getattr(module, "__file__", None)
    if file:
        return Path(file).resolve()
    folder = next(iter(getattr(module, "__path__", ())), None)
    return Path(folder).resolve() if folder else None


def _text_of(module: ModuleType) -> str | None:
    """Return the source text of a module; None if it has none."""
    loader = getattr(module, "__loader__", None)
    if not isinstance(loader, InspectLoader):
        return "" if getattr(module, "__path__", None) else None  # a folder without __init__.py
    with contextlib.suppress(ImportError, OSError, SyntaxError, UnicodeDecodeError):
        return loader.get_source(module.__name__)
    return None


def _libraries() -> Iterator[Package]:
    """Yield the CUDA libraries that this process has loaded from outside Python packages, found by their file names."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for path in sorted({line.partition("/")[1] + line.partition("/")[2] for line in maps.splitlines() if "/" in line}):
        if CUDA_LIBRARY.search(path) and not OF_THE_DRIVER.search(path) and "-packages/" not in path:
            name, _, version = Path(path).resolve().name.partition(".so.")
            yield Package(name.removesuffix(".so"), version)


# --- Triton ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def launches() -> Iterator[list[Any]]:
    """Collect the kernels that Triton launches in the block; the list stays empty without Triton 3.

    Every launch of Triton 3 calls the method ``launch_metadata`` of the compiled kernel. This function replaces the
    method during the block.
    """
    launched: list[Any] = []
    compiler = sys.modules.get("triton.compiler.compiler")
    kernel_class = getattr(compiler, "CompiledKernel", None)
    original = getattr(kernel_class, "launch_metadata", None)
    if kernel_class is None or original is None:
        yield launched
        return

    def launch_metadata(kernel: Any, *args: Any, **keywords: Any) -> Any:
        if not any(kernel is other for other in launched):
            launched.append(kernel)
        return original(kernel, *args, **keywords)

    kernel_class.launch_metadata = launch_metadata
    try:
        yield launched
    finally:
        kernel_class.launch_metadata = original


OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")
"""The entries of Triton's metadata that a launch chooses."""


def _described(kernel: Any) -> tuple[TritonKernel, bytes]:
    """Return the description of a compiled Triton kernel, and its cubin. Fields that Triton does not give are empty."""
    metadata = _as_dict(getattr(kernel, "metadata", None))
    source = getattr(kernel, "src", None)
    function = getattr(source, "fn", None)
    constants = getattr(source, "constants", None) or getattr(source, "constexprs", None) or {}
    options = {name: str(metadata[name]) for name in OPTIONS if metadata.get(name) is not None}
    if isinstance(constants, Mapping):
        options |= {_parameter(key, function): str(value) for key, value in constants.items()}
    cubin = _cubin(kernel)
    text = str(getattr(function, "src", "") or getattr(function, "raw_src", "") or "")
    described = TritonKernel(
        name=str(metadata.get("name") or getattr(kernel, "name", "") or getattr(function, "__name__", "")),
        source=digest(text.encode()),
        options=tuple(sorted(options.items())),
        code=_code(cubin),
        cubin=hashlib.sha256(cubin).hexdigest() if cubin else "",
        metadata=json.dumps(metadata, default=str, sort_keys=True),
    )
    return described, cubin


def _as_dict(metadata: Any) -> dict[str, Any]:
    if hasattr(metadata, "_asdict"):
        return dict(metadata._asdict())
    return dict(metadata) if isinstance(metadata, Mapping) else {}


def _parameter(key: Any, function: Any) -> str:
    """Return the name of a constant parameter, which Triton knows by its index or by a path of indices."""
    index = key[0] if isinstance(key, tuple) and len(key) == 1 else key
    names = getattr(function, "arg_names", ())
    return str(names[index]) if isinstance(index, int) and index < len(names) else str(key)


def _cubin(kernel: Any) -> bytes:
    """Return the cubin of a compiled Triton kernel; empty if Triton does not give it."""
    asm = getattr(kernel, "asm", None)
    try:
        cubin = asm["cubin"] if asm is not None else b""
    except (KeyError, TypeError, OSError):
        return b""
    return cubin if isinstance(cubin, bytes) else b""


def _code(cubin: bytes) -> str:
    """Return a digest of a cubin's instructions, or of all its bytes if it cannot be parsed; empty without a cubin."""
    try:
        return elf.code_digest(cubin) if cubin else ""
    except (ValueError, IndexError):
        return hashlib.sha256(cubin).hexdigest()
