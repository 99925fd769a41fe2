"""The packages that perfsvc stands on: what a run remembers of them, and what the doctor looks for."""

from collections.abc import Iterable
from functools import cache
from importlib import metadata

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
