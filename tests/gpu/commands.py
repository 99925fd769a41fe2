"""What several tests on a GPU do: they type a command of perfsvc, and compile a unit."""

import contextlib
import os
import sqlite3
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


class Workplace:
    """A folder with a suite and a database, and the device that measures the suite."""

    def __init__(self, folder: Path, device: str) -> None:
        self.folder, self.device, self.suite = folder, device, folder / "kernels"

    def rows(self, query: str, *values: object) -> list[tuple]:
        """Return what a query of the database returns; a change is committed."""
        with contextlib.closing(sqlite3.connect(self.folder / "perfsvc.db")) as connection, connection:
            return connection.execute(query, values).fetchall()

    def change(self, file: str, old: str, new: str) -> None:
        """Replace a text in a file of the suite."""
        text = (self.suite / file).read_text(encoding="utf-8")
        assert old in text
        (self.suite / file).write_text(text.replace(old, new), encoding="utf-8")
