"""Where the folders that travel with perfsvc are: kernels, migrations and dashboards. Imports nothing of ours."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The folder of that name: inside an installed wheel, or at the top of the checkout that this package lies in."""
    installed = _PACKAGE / "data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
