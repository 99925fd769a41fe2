"""The examples in the guides to Triton, PyTorch, CuPy and Numba can be listed."""

import re
import shutil
from pathlib import Path

import pytest

from perfsvc.service.init_triton import write
from perfsvc.suite import Selection, discover

GUIDES = Path(__file__).parents[3] / "docs" / "how-to"
TRITON = (GUIDES / "measure-triton-kernels.md").read_text(encoding="utf-8")
FUNCTIONS = (GUIDES / "measure-python-functions.md").read_text(encoding="utf-8")


def written(page, folder):
    """Write the files of a page that begin with their path."""
    for text, path in re.findall(r"```python\n(# (\S+\.py)\n.*?)```", page, re.DOTALL):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder / "kernels"


@pytest.mark.parametrize(
    ("page", "cases"),
    [
        (TRITON, {"add/triton[n=16777216]", "add/triton[n=67108864]"}),
        (
            FUNCTIONS,
            {
                "scale/cupy[n=16777216]",
                "scale/numba[n=16777216]",
                *(
                    f"softmax/{variant}[rows=8192,columns={columns}]"
                    for variant in ("torch", "compiled", "cupy")
                    for columns in (1024, 4096)
                ),
            },
        ),
    ],
)
def test_the_examples_have_cases_and_no_problems(tmp_path, page, cases):
    found = discover(written(page, tmp_path))
    assert found.problems == ()
    assert {spec.case.id for spec in found.resolve(Selection(), "full")[0]} == cases


def test_the_kernel_of_the_guide_gets_a_complete_bench(tmp_path):
    suite = written(TRITON, tmp_path)
    shutil.rmtree(suite)
    (path,) = write(tmp_path / "mine.py", suite, force=False)
    assert path == suite / "add" / "bench.py"
    assert discover(suite).problems == ()
    assert [listed.case.id for listed in discover(suite).cases if listed.points == "full"] == ["add/triton[n=16777216]"]


def test_the_five_kernels_on_the_gpu_have_no_problems():
    found = discover(Path(__file__).parents[2] / "gpu" / "suites" / "triton_five")
    assert found.problems == ()
    assert {case.case.benchmark for case in found.cases} == {"add", "softmax", "matmul", "layer_norm", "attention"}
