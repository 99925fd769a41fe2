"""What a worker stores of the Python code that a case ran with."""

import json
import sys
from collections import namedtuple
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from perfsvc.measure.worker.python_code import launches, python_code
from perfsvc.model import Package, digest

BENCH = """
import numpy as np
import IMPORTED


def run(arrays, stream):
    np.add(IMPORTED)


def other(arrays, stream):
    import pandas


benchmark = Benchmark()
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder on Python's path, whose modules are forgotten after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def install(path, name, version, requires=()):
    (path / f"{name}.py").write_text("")
    info = path / f"{name}-{version}.dist-info"
    info.mkdir()
    needs = "".join(f"Requires-Dist: {required}\n" for required in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
    (info / "RECORD").write_text(f"{name}.py,,\n")
    __import__(name)


def ran_with(imported):
    return python_code(BENCH.replace("IMPORTED", imported), ["run"])


def test_packages_that_the_function_imports_and_their_compilers_are_stored(path):
    install(path, "tritonlike_compiler", "3.4.0")
    install(path, "triton_things", "2.0", requires=("tritonlike-compiler>=3", "pluggy", 'numba; extra == "all"'))
    code, files = ran_with("triton_things")
    by_name = {package.name: package for package in code.packages}
    assert by_name["triton-things"] == Package("triton-things", "2.0", digest(b"triton_things.py,,\n"))
    assert by_name["tritonlike-compiler"].version == "3.4.0"
    assert by_name["numpy"].version == np.__version__
    assert {"pandas", "pluggy", "numba"}.isdisjoint(by_name)
    assert by_name["python"].version == sys.version.split()[0]
    assert (code.modules, code.kernels, files) == ((), (), {})


def test_modules_of_no_package_are_stored_with_what_they_import(path):
    (path / "mine").mkdir()
    (path / "mine" / "__init__.py").write_text("from . import inner\n")
    (path / "mine" / "inner.py").write_text("import zlib, near\n")
    (path / "near.py").write_text("ANSWER = 42\n")
    __import__("mine")
    code, files = ran_with("mine")
    texts = {name: files[sha256] for name, sha256 in code.modules}
    assert texts == {"mine": b"from . import inner\n", "mine.inner": b"import zlib, near\n", "near": b"ANSWER = 42\n"}


def test_variables_that_compile_other_code_are_stored_and_places_are_not(monkeypatch):
    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32")
    monkeypatch.setenv("TRITON_CACHE_DIR", "here")
    monkeypatch.setenv("TORCHES", "2")
    code, _ = ran_with("json")
    assert ("TRITON_F32_DEFAULT", "tf32") in code.variables
    assert {"TRITON_CACHE_DIR", "TORCHES"}.isdisjoint(dict(code.variables))


# --- Triton ----------------------------------------------------------------------------------------------------------

Metadata = namedtuple("Metadata", "name num_warps num_stages shared maxnreg")  # noqa: PYI024 - as Triton makes it


class CompiledKernel:
    """A kernel of Triton, as far as a launch goes."""

    def __init__(self, warps, cubin=b"code"):
        self.metadata = Metadata("dot", warps, 3, 1024, None)
        self.src = SimpleNamespace(
            fn=SimpleNamespace(src="def dot(): ...", arg_names=["x", "TILE"]), constants={(1,): 64}
        )
        self.asm = {"cubin": cubin}

    def launch_metadata(self, grid, stream, *args):
        return grid


@pytest.fixture
def triton(monkeypatch):
    compiler = ModuleType("triton.compiler.compiler")
    compiler.CompiledKernel = CompiledKernel
    monkeypatch.setitem(sys.modules, "triton.compiler.compiler", compiler)


@pytest.mark.usefixtures("triton")
def test_each_launched_kernel_of_triton_is_stored_once():
    kernel, other = CompiledKernel(4), CompiledKernel(8, b"other code")
    original = CompiledKernel.launch_metadata
    with launches() as launched:
        for one in (kernel, other, kernel):
            assert one.launch_metadata((1, 2, 3), 0) == (1, 2, 3)
    assert CompiledKernel.launch_metadata is original
    other.launch_metadata((1,), 0)
    code, files = python_code(BENCH.replace("IMPORTED", "json"), ["run"], launched)
    first, second = code.kernels
    assert (first.name, first.options) == ("dot", (("TILE", "64"), ("num_stages", "3"), ("num_warps", "4")))
    assert dict(second.options)["num_warps"] == "8"
    assert (first.source, first.cubin, first.code) == (digest(b"def dot(): ..."), digest(b"code"), digest(b"code"))
    assert files[second.cubin] == b"other code"
    assert json.loads(first.metadata)["shared"] == 1024


def test_another_triton_tells_nothing():
    with launches() as launched:
        pass
    assert launched == []
    code, files = python_code(BENCH.replace("IMPORTED", "json"), ["run"], [object()])
    (kernel,) = code.kernels
    assert (kernel.name, kernel.options, kernel.cubin, kernel.code, files) == ("", (), "", "", {})
