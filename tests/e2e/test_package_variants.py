"""Variants of PyTorch on the CPU device, from a suite to causes, with a stand-in for PyTorch that is made of NumPy."""

import json

import pytest

pytestmark = pytest.mark.slow  # whole runs

TORCH = '''"""As much of PyTorch as perfsvc calls on the CPU device."""

import contextlib

import ml_dtypes
import numpy as np

bfloat16 = np.dtype(ml_dtypes.bfloat16)
no_grad = contextlib.nullcontext
as_tensor = np.asarray


class Tensor(np.ndarray):
    def copy_(self, other):
        self[...] = np.asarray(other).astype(self.dtype)


def from_numpy(array):
    return array.view(Tensor)


def compile(function, *, mode, dynamic):
    return function
'''
BENCH = '''"""Twice a vector of bfloat16."""

from perfsvc.suite import Benchmark, Tolerance, Variant, output, torch


def double(x):
    return 2 * x


def into(x, y, n):
    y[:n] = 2 * x


def wrong(x):
    return 3 * x


def nothing(x):
    pass


benchmark = Benchmark(
    axes={"n": (4096,)},
    smoke={"n": 20_000},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32").astype("bfloat16")},
    outputs={"y": output("bfloat16", lambda n: n)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=1e-2, mean=1e-2),
    variants=[
        Variant("returned", run=torch(double)),
        Variant("into", run=torch(into)),
        Variant("compiled", run=torch(double, compile=True)),
        Variant("file", run=torch("from_file", source="twice.py", args=("x", "y"))),
        Variant("wrong", run=torch(wrong)),
        Variant("nothing", run=torch(nothing)),
    ],
)
'''
SOURCE = "TIMES = 5\n\n\ndef from_file(x, y):\n    for _ in range(TIMES):\n        y[:] = 2 * x\n"


@pytest.fixture
def workplace(perfsvc):
    """A suite, and the stand-in on Python's path."""
    stand_in = perfsvc.folder / "packages" / "torch"
    stand_in.mkdir(parents=True)
    (stand_in / "__init__.py").write_text(TORCH, encoding="utf-8")
    perfsvc.environment["PYTHONPATH"] = str(stand_in.parent)
    folder = perfsvc.folder / "suite" / "twice"
    folder.mkdir(parents=True)
    (folder / "bench.py").write_text(BENCH, encoding="utf-8")
    (folder / "twice.py").write_text(SOURCE, encoding="utf-8")
    return perfsvc


def run(perfsvc, *arguments, code):
    suite = str(perfsvc.folder / "suite")
    return perfsvc.process("run", "--suite", suite, "--device", "cpu", *arguments, code=code)


def test_functions_get_tensors_of_their_dtype_and_their_results_are_checked(workplace):
    run(workplace, "--replicas", "2", code=4)
    rows = workplace.rows(
        "select cases.name, status, reason from measurements join cases on cases.id = case_id where replica = 0"
    )
    status = {name.split("/")[1].split("[")[0]: (ended, reason) for name, ended, reason in rows}
    assert {name for name, (ended, _) in status.items() if ended == "ok"} == {"returned", "into", "compiled", "file"}
    assert status["wrong"][0] == "wrong"
    assert "'nothing' does not get the outputs y, and returned nothing" in status["nothing"][1]
    assert workplace.rows("select count(*) from metrics where name = 'compile_s'") == [(8,)]
    packages = [json.loads(record) for (record,) in workplace.rows("select record from python_codes")]
    assert all("torch" in dict(code["modules"]) for code in packages)


def test_a_slower_python_file_is_confirmed_as_the_code(workplace):
    run(workplace, "--select", "*/file", "--replicas", "3", code=0)
    source = workplace.folder / "suite" / "twice" / "twice.py"
    source.write_text(SOURCE.replace("TIMES = 5", "TIMES = 25"), encoding="utf-8")
    ended = run(workplace, "--select", "*/file", "--replicas", "3", "--confirm", code=1)
    assert [cause for (cause,) in workplace.rows("select cause from confirmations")] == ["kernel"], ended.out
    names = workplace.rows("select distinct name from binary_files where role = 'source'")
    assert names == [("twice.py",)]
