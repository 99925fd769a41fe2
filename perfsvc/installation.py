"""What is installed: packages and their versions, and the folders that are installed with perfsvc."""

import re
import shlex
import sys
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

_REQUIREMENT = re.compile(r"(?P<package>.+?)\s*;.*extra == ['\"](?P<extra>[\w-]+)['\"]")


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra (``plot``, ``cuda``, …) for the Python that runs now.

    It names the packages and not the extra, so that it works wherever perfsvc itself was installed from.
    """
    try:
        required = metadata.requires("perfsvc") or ()
    except metadata.PackageNotFoundError:  # a checkout on PYTHONPATH
        required = ()
    found = map(_REQUIREMENT.match, required)
    wanted = sorted({one["package"] for one in found if one and one["extra"] == extra})
    return shlex.join([sys.executable, "-m", "pip", "install", *(wanted or [f"perfsvc[{extra}]"])])


_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """The folder of that name: inside an installed wheel, or at the top of the checkout that this package lies in."""
    installed = _PACKAGE / "data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


REQUIRED = (
    "alembic",
    "click",
    "jinja2",
    "numpy",
    "nvtx",
    "pandas",
    "platformdirs",
    "pydantic",
    "pydantic-settings",
    "rich",
    "scipy",
    "sqlalchemy",
    "structlog",
)
"""What perfsvc cannot do without."""

OPTIONAL = ("pycuda", "nvidia-ml-py", "nvidia-cuda-nvcc", "ziglang")
"""What only some devices need, and what can change a number there."""


@cache
def version(package: str) -> str:
    """The version that is installed; empty where the package is not. It is looked up once: what is imported stays."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    found = {package: version(package) for package in packages}
    return {package: installed for package, installed in found.items() if installed}
