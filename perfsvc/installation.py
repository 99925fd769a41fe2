"""What is installed: packages, their versions, and the folders that come with perfsvc. Imports nothing of ours.

What lists packages is imported where it is used: most commands only look for a folder.
"""

import contextlib
import json
import re
import shlex
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

REQUIRED = (
    "alembic",
    "click",
    "jinja2",
    "ml-dtypes",
    "numpy",
    "nvtx",
    "orjson",
    "pandas",
    "platformdirs",
    "pydantic",
    "pydantic-settings",
    "rich",
    "sqlalchemy",
    "structlog",
)
"""Packages that every use of perfsvc needs."""
OPTIONAL = ("pycuda", "nvidia-ml-py", "nvidia-cuda-nvcc", "ziglang")
"""Packages that only some devices need, and that can change a measured number there."""

NCCL_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
"""The packages with NVIDIA's library for collective operations between GPUs."""

_REQUIREMENT = re.compile(r"(?P<package>.+?)\s*;.*extra == ['\"](?P<extra>[\w-]+)['\"]")
_PACKAGE = Path(__file__).resolve().parent


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra (``plot``, ``cuda``, …) for this Python.

    The command names the packages and not the extra, so that it works wherever perfsvc itself was installed from.
    """
    from importlib import metadata

    try:
        requirements = metadata.requires("perfsvc") or ()
    except metadata.PackageNotFoundError:  # a checkout on PYTHONPATH
        requirements = ()
    matches = map(_REQUIREMENT.match, requirements)
    packages = sorted({match["package"] for match in matches if match and match["extra"] == extra})
    return _pip(*(packages or _own(f"[{extra}]")))


def reinstall_command() -> str:
    """Return the command that installs perfsvc anew with the packages that it needs, from where it was installed."""
    return _pip("--force-reinstall", *_own())


def upgrade_command() -> str:
    """Return the command that installs the newest perfsvc; a checkout is pulled first."""
    folder = _checkout()
    pull = f"git -C {shlex.quote(str(folder))} pull && " if folder else ""
    return pull + _pip("--upgrade", *_own())


def pip_install(package: str) -> str:
    """Return the command that installs a package for this Python."""
    return _pip(package)


def _pip(*words: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", *words])


def _own(extra: str = "") -> list[str]:
    """Return pip's arguments for this perfsvc: its checkout (editable if perfsvc runs from it), else the package."""
    folder = _checkout()
    if folder is None:
        return [f"perfsvc{extra}"]
    return [*(["-e"] if folder == _PACKAGE.parent else []), f"{folder}{extra}"]


def _checkout() -> Path | None:
    """Return the folder that perfsvc was installed from or is used from without an installation; None for a package."""
    from importlib import metadata

    try:
        text = metadata.distribution("perfsvc").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    url = urlsplit(json.loads(text).get("url", "")) if text else None
    if url and url.scheme == "file" and Path(unquote(url.path)).is_dir():
        return Path(unquote(url.path))
    return _PACKAGE.parent if (_PACKAGE.parent / "pyproject.toml").is_file() else None


def data_folder(name: str) -> Path:
    """Return the folder ``kernels``, ``migrations`` or ``dashboards``: in an installed wheel, else in the checkout."""
    installed = _PACKAGE / "data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


@cache
def nccl_library() -> str:
    """Return NCCL as the dynamic loader takes it: the path in a Python package, else its name; empty if it is missing.

    PyTorch brings the package. Cached, as the search of the system may start another program.
    """
    import ctypes.util
    import importlib.util

    spec = None
    with contextlib.suppress(ImportError, ValueError):  # no package ``nvidia``, or a damaged one
        spec = importlib.util.find_spec("nvidia.nccl")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (library := Path(folder) / "lib" / "libnccl.so.2").is_file():
            return str(library)
    return ctypes.util.find_library("nccl") or ""


def nccl_command() -> str:
    """Return the command that installs NCCL for this Python."""
    return _pip(NCCL_PACKAGES[0])


@cache
def version(package: str) -> str:
    """Return the installed version of a package, empty if it is missing. Cached: imported code does not change."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    every_version = {package: version(package) for package in packages}
    return {package: installed for package, installed in every_version.items() if installed}
