"""What travels in the wheel, and what starting the command costs."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAVELLERS = ("kernels", "migrations", "dashboards")
HEAVY = {"alembic", "numpy", "pandas", "pydantic", "rich", "scipy", "sqlalchemy"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this tree, built without a network."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def names(wheel) -> set[str]:
    """The paths of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def files_below(folder: Path) -> set[Path]:
    """The files of a folder that belong to the project: nothing hidden, no byte code."""
    return {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in path.relative_to(folder).parts)
    }


def test_every_file_of_the_package_and_of_the_folders_that_travel_is_in_the_wheel(names):
    folders = {f"data/{folder}/": ROOT / folder for folder in TRAVELLERS} | {"": ROOT / "perfsvc"}
    files = {place: files_below(folder) for place, folder in folders.items()}
    assert [place for place, found in files.items() if not found] == []
    assert {f"perfsvc/{place}{path.as_posix()}" for place, found in files.items() for path in found} <= names
    assert {"perfsvc/build/cpu/cuda_on_cpu.h", "perfsvc/py.typed"} <= names


def test_the_wheel_holds_nothing_but_the_package_its_metadata_and_its_licence(names):
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"perfsvc"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_a_wheel_in_an_empty_folder_finds_what_travels_with_it(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    folders = f"[data_folder(name) for name in {TRAVELLERS!r}]"
    script = f"from perfsvc.installation import data_folder; print(*{folders}, sep='\\n')"
    found = run_python(script, cwd=tmp_path, path=tmp_path / "site")
    assert found.splitlines() == [str(tmp_path / "site" / "perfsvc" / "data" / name) for name in TRAVELLERS]


def test_help_and_units_import_no_heavy_package():
    script = (
        "import sys, perfsvc.units; from perfsvc.cli import cli; cli(['--help'], standalone_mode=False); "
        f"print('heavy:', *sorted({HEAVY!r} & set(sys.modules)))"
    )
    assert run_python(script).splitlines()[-1].split() == ["heavy:"]


def test_the_module_is_the_command():
    command = [sys.executable, "-m", "perfsvc", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.startswith("Usage: python -m perfsvc ")


def run_python(script: str, *, cwd: Path | None = None, path: Path | None = None) -> str:
    """What a fresh interpreter prints; ``path`` comes before everything that is installed."""
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout
