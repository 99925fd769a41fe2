"""What the author's code uses is noted: each way to read a file, to load a library or a module, to read a variable."""

import os
import subprocess
import sys

import numpy as np
import pytest

from perfsvc import uses


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Return a function that runs the body of a function of a benchmark file, and returns what that used."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("perfsvc.uses._of_module", type(uses._of_module)(uses.Uses))

    def run(body, before="", **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        text = (
            f"import ctypes, importlib, os, pathlib, subprocess\nimport numpy as np\n{before}\ndef f():\n    {body}\n"
        )
        names = {"__name__": uses.BENCH}
        code = compile(text, str(tmp_path / "bench.py"), "exec")
        with uses.watched():
            exec(code, names)  # noqa: S102 - as a benchmark file is run
        with uses.watched(fresh=False):
            names["f"]()
        return uses.used()

    return run


def labels(found):
    return {uses.label(path) for path in found.files}


@pytest.mark.parametrize(
    "body",
    [
        "open('data.npy', 'rb').close()",
        "pathlib.Path('data.npy').read_bytes()",
        "np.load(pathlib.Path('data.npy').resolve())",
        "np.memmap('data.npy', dtype='uint8')",
        "np.memmap('data.npy', dtype='uint8', mode='r+')",
        "np.fromfile('data.npy', dtype='uint8')",
        "np.load('data.npy', mmap_mode='r')",
        "os.close(os.open('data.npy', os.O_RDONLY))",
        "from helper import read; read()",
        "subprocess.run(['cat', 'data.npy'], capture_output=True)",
        "subprocess.run('cat < ../data.npy', shell=True, cwd='.git', capture_output=True)",
    ],
)
def test_a_file_that_is_read_is_noted(bench, tmp_path, body):
    np.save(tmp_path / "data.npy", np.ones(3))
    (tmp_path / "helper.py").write_text("def read():\n    open('data.npy', 'rb').close()\n")
    found = bench(body)
    sys.modules.pop("helper", None)
    assert "data.npy" in labels(found)
    assert ("data.npy", uses.file_digest(tmp_path / "data.npy")) in found.parts()


def test_files_of_others_and_files_that_the_case_itself_writes_are_not_noted(bench, tmp_path):
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "a").write_text("")
    files = "'/proc/self/maps', '.cache/a', 'own', np.__file__"
    body = f"open('own', 'w').close(); [pathlib.Path(file).read_bytes() for file in ({files})]"
    assert not labels(bench(body))


@pytest.mark.parametrize(
    "body",
    [
        "import lazy.impl",
        "from lazy import impl",
        "importlib.import_module('lazy.' + 'impl')",
        "importlib.import_module('.impl', 'lazy')",
        "__import__('lazy.impl')",
        "import lazy; lazy.value",
    ],
)
def test_a_module_that_is_imported_late_is_noted_for_every_case(bench, tmp_path, body):
    (tmp_path / "lazy").mkdir()
    (tmp_path / "lazy" / "impl.py").write_text("value = 1\n")
    (tmp_path / "lazy" / "__init__.py").write_text(
        "def __getattr__(name):\n    import importlib\n"
        "    return getattr(importlib.import_module('lazy.' + 'impl'), name)\n"
    )
    for _ in range(2):  # the second time, the module is there already
        assert "lazy.impl" in bench(body).modules
    for name in ("lazy", "lazy.impl"):
        sys.modules.pop(name, None)


def test_python_files_that_are_no_modules_are_noted_as_files(bench, tmp_path):
    (tmp_path / "a.py").write_text("A = 1\n")
    (tmp_path / "b.py").write_text("B = 1\n")
    load = (
        "s = importlib.util.spec_from_file_location('a', 'a.py'); m = importlib.util.module_from_spec(s); "
        "s.loader.exec_module(m); exec(pathlib.Path('b.py').read_text())"
    )
    assert {"a.py", "b.py"} <= labels(bench(load, before="import importlib.util"))


@pytest.fixture
def library(tmp_path):
    def made(name, text, *linked):
        path = tmp_path / f"lib{name}.so"
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), f"-L{tmp_path}", *linked]
        subprocess.run([*command, f"-Wl,-rpath,{tmp_path}"], input=text, text=True, check=True)
        return path

    return made


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_libraries_and_those_that_come_with_them_are_noted_for_every_case(bench, library):
    library("below", "int below(void) { return 1; }")
    library("above", "int below(void); int above(void) { return below(); }", "-lbelow")
    for _ in range(2):
        assert {"libabove.so", "libbelow.so"} <= labels(bench("ctypes.CDLL('./libabove.so').above()"))


@pytest.mark.parametrize(
    "read",
    [
        "os.environ['OWN']",
        "os.environ.get('OWN')",
        "os.getenv('OWN')",
        "'OWN' in os.environ",
        "os.environ.copy()['OWN']",
        "os.environ.copy().get('OWN')",
        "{name: os.environ[name] for name in os.environ if name == 'OWN'}",
    ],
)
def test_a_variable_that_is_read_is_noted(bench, read):
    assert ("OWN", "3") in bench(read, OWN="3").parts()


def test_variables_that_are_read_all_together_or_by_a_package_are_not_noted(bench):
    together = "dict(os.environ); {**os.environ}; list(os.environ.items()); os.environ.copy(); np.show_config"
    assert "OWN" not in bench(together, OWN="3").variables
    assert "HOME" not in bench("os.path.expanduser('~/a')").variables


def test_nothing_is_patched_after_the_block(bench):
    before = (open, os.open, __import__, type(os.environ))
    bench("os.getenv('OWN')")
    assert (open, os.open, __import__, type(os.environ)) == before
