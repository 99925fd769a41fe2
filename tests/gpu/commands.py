"""What several tests on a GPU do: they type a command of perfsvc, and compile a unit."""

import os
import subprocess
import sys
from pathlib import Path

from perfsvc.build import Binary, Cache, compile_all, toolchain_for


def perfsvc(folder: Path, *arguments: object, limit_s: float = 290.0, **environment: str):
    """Return the ended process of a command, which ran in a folder with the database of the folder."""
    return subprocess.run(
        [sys.executable, "-m", "perfsvc", *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"PERFSVC_DB": str(folder / "perfsvc.db")} | environment,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def compiled(unit, target: str, folder: Path) -> bytes:
    """Return the binary of a unit for a target."""
    built = compile_all([unit], toolchain_for(target), Cache(folder))[unit]
    assert isinstance(built, Binary), built
    return built.code
