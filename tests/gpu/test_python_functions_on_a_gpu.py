"""The suites of docs/how-to/measure-python-functions.md, measured on a GPU as they stand on the page."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.commands import perfsvc

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("torch", "cupy", "numba")),
        reason="PyTorch, CuPy or Numba is missing",
    ),
]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "measure-python-functions.md"
VARIANTS = {"scale/cupy", "scale/numba", "softmax/compiled", "softmax/cupy", "softmax/torch"}
NUMBA_ALONE = """
import numpy
from numba import cuda
@cuda.jit
def fill(y):
    y[0] = 1
y = cuda.to_device(numpy.zeros(1))
fill[1, 1](y)
assert y.copy_to_host()[0] == 1
"""


@pytest.fixture
def suite(tmp_path):
    for name, text in re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "kernels"


@pytest.fixture
def numba_works(gpus):
    """Whether Numba can launch a kernel at all with the NumPy of this machine."""
    done = subprocess.run([sys.executable, "-c", NUMBA_ALONE], capture_output=True, timeout=100, check=False)
    return done.returncode == 0


def test_every_function_and_kernel_of_the_page_is_right_and_timed(gpus, suite, tmp_path, numba_works):
    command = ("run", "--suite", suite, "--device", gpus[0].spec, "--replicas", "1")
    done = perfsvc(tmp_path, *command, "--format", "json", limit_s=250)
    rows = json.loads(done.stdout)["results"]
    assert {f"{row['benchmark']}/{row['variant']}" for row in rows} == VARIANTS
    if not numba_works:
        (broken,) = (row for row in rows if row["variant"] == "numba")
        assert broken["status"] == "failed"
        assert broken["reason"].startswith("the numba step 'with_numba' raised")
        rows.remove(broken)
    assert {row["status"] for row in rows} == {"ok"}, [row["reason"] for row in rows]
    assert all(row["median_s"] > 0 for row in rows)
    assert done.returncode == (0 if numba_works else 4)
