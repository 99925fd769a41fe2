"""The same code is what was used: libraries, modules, variables and inputs, and not the text of a benchmark alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.history import git

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs gcc and /proc")

BENCH = """{imports}
from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output

def made(rng, n):
    return {{"x": rng.random(n, dtype="float32"){more}}}

def python(arrays, stream):
    for _ in range(20000 * int({reps})):
        pass
    arrays["y"][:] = 2 * arrays["x"]

benchmark = Benchmark(axes={{"n": (1003,)}}, smoke={{"n": 1003}}, inputs=made,
    outputs={{"y": output("float32", lambda n: n)}}, reference=lambda x: 2 * x,
    tolerance=Tolerance(max=1e-5, mean=1e-6), work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n),
    variants=[Variant("py", run=python)])
"""
LAZY = """def __getattr__(name):
    import importlib
    return getattr(importlib.import_module("plugin." + "impl"), name)
"""
DATA = "import pathlib\nimport numpy as np\nDATA = pathlib.Path(__file__).parent / 'reps.npy'"
WRITE = "import sys, numpy; numpy.save(sys.argv[1], numpy.full(4, int(sys.argv[2]), 'int32'))"


class Suite:
    """A repository of cases that repeat their loop as often as a library, a module, a variable or an input says."""

    def __init__(self, perfsvc):
        self.perfsvc, self.root = perfsvc, perfsvc.folder / "repository"
        self.suite = self.root / "kernels"
        library = self.root / "so" / "libown.so"
        benches = {
            "lib": {"imports": "import ctypes", "reps": f"ctypes.CDLL({str(library)!r}).reps()"},
            "env": {"imports": "import os", "reps": "os.environ.get('OWN_REPS', '1')"},
            "lazy": {"imports": "import plugin", "reps": "plugin.REPS"},
            "helper": {"imports": "import helper", "reps": "helper.REPEATS"},
            "data": {"imports": DATA, "reps": "arrays['reps'][0]", "more": ', "reps": np.load(DATA)'},
        }
        for name, parts in benches.items():
            (self.suite / name).mkdir(parents=True)
            (self.suite / name / "bench.py").write_text(BENCH.format(**{"more": "", **parts}))
        for folder in ("so", "py/plugin"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "py" / "plugin" / "__init__.py").write_text(LAZY)
        data = (self.suite / "data" / "bench.py").read_text()
        (self.suite / "data" / "bench.py").write_text(data.replace("lambda x: 2", "lambda x, reps: 2"))
        (self.root / ".gitignore").write_text("__pycache__\n")
        git(self.root, "init", "-q", "-b", "main")
        perfsvc.environment["PYTHONPATH"] = f"{Path.cwd()}{os.pathsep}{self.root / 'py'}"

    def commit(self, reps):
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(self.root / "so" / "libown.so")]
        subprocess.run(command, input=f"int reps(void) {{ return {reps}; }}", text=True, check=True)
        (self.root / "py" / "plugin" / "impl.py").write_text(f"REPS = {reps}\n")
        (self.root / "py" / "helper.py").write_text(f"REPEATS = {reps}\n")
        subprocess.run([sys.executable, "-c", WRITE, self.suite / "data" / "reps.npy", str(reps)], check=True)
        self.perfsvc.environment["OWN_REPS"] = str(reps)
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "-m", f"{reps} times")

    def __call__(self, *arguments, code):
        return self.perfsvc.process(*arguments, "--suite", self.suite, "--device", "cpu", code=code)


@pytest.fixture
def suite(perfsvc):
    return Suite(perfsvc)


def verdicts(compared):
    return {row["case"].partition("/")[0]: (row["verdict"], row["cause"]) for row in compared["verdicts"]}


def reasons(compared):
    return {row["case"].partition("/")[0]: row["reason"] for row in compared["verdicts"]}


@pytest.mark.slow
def test_what_a_case_used_is_the_cause_and_is_named(suite, perfsvc):
    suite.commit(1)
    suite("run", code=0)
    suite.commit(40)
    suite("run", "--confirm", code=1)
    compared = perfsvc.process("compare", "1", "2", "--format", "json", code=1).json
    assert verdicts(compared) == {
        "lib": ("regression", "toolchain"),
        "env": ("regression", "toolchain"),
        "lazy": ("regression", "kernel"),
        "helper": ("regression", "kernel"),
        "data": ("regression", "inputs"),
    }
    said = reasons(compared)
    assert "so/libown.so changed" in said["lib"]
    assert "OWN_REPS 1 → 40" in said["env"]
    assert "launch" not in said["helper"]
    assert said["data"].endswith("inputs changed: kernels/data/reps.npy")


@pytest.mark.slow
def test_two_revisions_with_other_files_are_not_the_same_code(suite):
    for other in ("env", "lazy"):
        shutil.rmtree(suite.suite / other)
    suite.commit(1)
    suite.commit(12)
    pairs = ("--exclude", "helper", "--budget", "80s", "--format", "json")
    compared = suite("compare", "--interleaved", "HEAD~1", "HEAD", *pairs, code=1).json
    assert verdicts(compared)["data"] == ("regression", "inputs")
    said = reasons(compared)
    assert said["data"].endswith("inputs changed: kernels/data/reps.npy")
    assert said["lib"].endswith("both sides read today's so/libown.so, which differs between the revisions")
    for case, further in (("data", "kernels/data/reps.npy"), ("helper", "helper")):
        found = suite("bisect", f"{case}/py[n=1003]", "--good", "HEAD~1", "--format", "json", code=3).json
        assert found["verdict"] == "inconclusive"
        assert further in found["reason"]
