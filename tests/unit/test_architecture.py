"""The table in docs/architecture.md, the contracts in pyproject.toml and the folders of perfsvc agree."""

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "perfsvc"
ENTRY_POINTS = {"__init__.py", "__main__.py"}

OWNERS = {
    "pycuda": "device/cuda/",
    "pynvml": "device/telemetry.py",
    "sqlalchemy": "store/",
    "alembic": "store/",
    "pandas": ("api/", "report/"),
    "click": "cli/",
    "rich": ("cli/", "report/"),
}
"""Which packages may be imported where, by the path inside ``perfsvc``."""


def rooms_of_the_package() -> set[str]:
    folders = {f"{path.name}/" for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    return folders | {path.name for path in PACKAGE.glob("*.py")} - ENTRY_POINTS


def levels_of_the_page() -> list[set[str]]:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d \|(.*)\|$", text.partition("\n## The path")[0], re.MULTILINE)
    return [set(re.findall(r"`([a-z]+)`", row)) for row in rows]


def levels_of_the_contracts() -> list[set[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [{room.strip() for room in layer.split("|")} for layer in layers]


class File(NamedTuple):
    """What this module looks at in a file of perfsvc; its whole program would take 90 MB for all files."""

    path: str
    classes: list[str]
    imports: set[str]
    """The top-level names of packages that are imported anywhere, inside functions as well."""
    writes: bool


@cache
def files() -> list[File]:
    found = []
    for path, source in sources().items():
        tree = ast.parse(source.read_text(encoding="utf-8"))
        imports: set[str] = set()
        writes = False
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                writes = writes or writes_a_file(node)
            elif isinstance(node, ast.Import):
                imports |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imports.add(node.module.partition(".")[0])
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        found.append(File(path, classes, imports, writes))
    return found


def sources() -> dict[str, Path]:
    return {source.relative_to(PACKAGE).as_posix(): source for source in PACKAGE.rglob("*.py")}


def test_the_page_and_the_contracts_have_every_room_and_no_other_on_its_level():
    rooms = {room.removesuffix("/").removesuffix(".py") for room in rooms_of_the_package()}
    assert levels_of_the_page() == levels_of_the_contracts()
    assert rooms == set().union(*levels_of_the_page())


def test_a_heavy_package_is_imported_by_its_owner_alone():
    imported = [(file.path, package) for file in files() for package in file.imports]
    assert [(path, name) for path, name in imported if not path.startswith(OWNERS.get(name, ""))] == []


def test_no_file_is_longer_than_five_hundred_lines():
    lengths = {path: len(source.read_text(encoding="utf-8").splitlines()) for path, source in sources().items()}
    assert {path: length for path, length in lengths.items() if length > 500} == {}


def test_no_folder_but_the_commands_has_more_than_eighteen_files():
    folders = [folder for folder in (PACKAGE, *PACKAGE.rglob("*/")) if folder != PACKAGE / "cli"]
    assert not [folder for folder in folders if len(list(folder.glob("*.py"))) > 18]


def test_a_class_name_exists_once_in_the_package():
    names = Counter(name for file in files() for name in file.classes)
    assert [name for name, count in names.items() if count > 1] == []


WRITERS = {
    "files.py": "the one writer of files",
    "cli/ending.py": "opens the null device",
    "service/run/spool.py": "the empty file of a SQLite database, which only its owner may read",
    "service/cluster/shared_folder.py": "appends to a file that another host reads",
    "build/cpu/host.py": "in a temporary folder",
    "build/cpu/library.py": "in a temporary folder",
    "build/compile.py": "in a temporary folder",
    "build/nvcc.py": "in a temporary folder",
    "build/disassembly.py": "in a temporary folder",
    "device/cpu.py": "in a temporary folder",
    "device/libraries.py": "in a temporary folder",
    "measure/worker/executable.py": "in a temporary folder",
    "measure/protocol/profiling_folder.py": "in a temporary folder",
    "profile/reports.py": "in a temporary folder",
    "service/check/triton_kernels.py": "in a temporary folder",
    "profile/fake.py": "of tests: in a temporary folder",
    "device/fake.py": "of tests: beside their script",
}
"""The files of ``perfsvc`` that write files themselves, and why they may."""
WRITING_METHODS = {"write_text", "write_bytes", "touch", "hardlink_to", "symlink_to", "mkstemp", "NamedTemporaryFile"}
WRITING_FUNCTIONS = {"os.replace", "os.rename", "os.renames", "os.link", "os.symlink", "shutil.copy", "shutil.move"}


def writes_a_file(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", "")
    if name not in {"open", *WRITING_METHODS, *(each.rpartition(".")[2] for each in WRITING_FUNCTIONS)}:
        return False
    function = ast.unparse(call.func)
    if function == "os.open":
        return any(flag in ast.unparse(call) for flag in ("O_WRONLY", "O_RDWR", "O_CREAT"))
    if name == "open":
        modes = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        return any(
            isinstance(mode, ast.Constant) and re.fullmatch("[rwxab+t]*[wxa+].*", str(mode.value)) for mode in modes
        )
    return name in WRITING_METHODS or function in WRITING_FUNCTIONS


def test_files_are_written_by_one_module():
    assert {file.path for file in files() if file.writes} == set(WRITERS)
