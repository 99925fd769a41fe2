"""Libraries on a GPU: the suites of docs/how-to/measure-a-library.md, and what a library does wrong."""

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest

from perfsvc.process import toolkits
from tests.gpu.commands import perfsvc

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "measure-a-library.md"
FILE = re.compile(r"```(?:python|cpp)\n(?:#|//) (\S+)\n(.*?)```", re.DOTALL)

BENCH = """from perfsvc.suite import Benchmark, Tolerance, Variant, library, output

benchmark = Benchmark(
    axes={"n": (100_000,)},
    smoke={"n": 100_000},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32")},
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        Variant(name, run=library("scale.cu", entry=name))
        for name in ("right", "other_stream", "launch_fails", "error", "throws", "waits")
    ],
)
"""


def run(gpus, folder, suite):
    """Measure a suite once; return its rows by benchmark and variant."""
    command = ("run", "--suite", suite, "--device", gpus[0].spec, "--replicas", "1", "--points", "smoke")
    done = perfsvc(folder, *command, "--format", "json", limit_s=280)
    assert done.stdout, done.stderr
    return {f"{row['benchmark']}/{row['variant']}": row for row in json.loads(done.stdout)["results"]}


@pytest.fixture(scope="module")
def page(gpus, tmp_path_factory):
    """The rows of the page's suites."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return run(gpus, folder, folder / "kernels")


@pytest.fixture(scope="module")
def own(gpus, tmp_path_factory):
    """The rows of the suite above."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "suite" / "scale").mkdir(parents=True)
    (folder / "suite" / "scale" / "bench.py").write_text(BENCH)
    shutil.copy(Path(__file__).with_name("libraries.cu"), folder / "suite" / "scale" / "scale.cu")
    return run(gpus, folder, folder / "suite")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            "product/cublas",
            marks=pytest.mark.skipif(toolkits.find_library("cublas") is None, reason="cuBLAS is not installed"),
        ),
        pytest.param(
            "product/cutlass",
            marks=pytest.mark.skipif(
                importlib.util.find_spec("cutlass_library") is None, reason="nvidia-cutlass is not installed"
            ),
        ),
        "total/cub",
    ],
)
def test_a_library_of_the_page_is_right_and_timed(page, case):
    row = page[case]
    assert (row["status"], row["reason"]) == ("ok", "")
    assert 1e-6 < row["median_s"] < 1e-2


def test_its_own_kernels_and_workspace_are_right(own):
    row = own["scale/right"]
    assert (row["status"], row["reason"]) == ("ok", "")
    assert 1e-6 < row["median_s"] < 1e-3


@pytest.mark.parametrize(
    ("variant", "status", "reason"),
    [
        ("other_stream", "wrong", "the case works on another stream than the one it was given"),
        ("launch_fails", "failed", "cudaErrorInvalidValue|cudaErrorInvalidConfiguration"),
        ("error", "failed", r"cudaMemcpyAsync\(.*returned cudaErrorInvalidValue"),
        ("throws", "failed", "the library function 'throws' failed: no licence"),
    ],
)
def test_what_a_library_does_wrong_costs_its_case(own, variant, status, reason):
    row = own[f"scale/{variant}"]
    assert row["status"] == status
    assert re.search(reason, row["reason"])


def test_a_library_that_waits_for_the_gpu_is_timed_without_the_blocking_kernel(own):
    row = own["scale/waits"]
    assert row["status"] == "ok"
    assert row["median_s"] > own["scale/right"]["median_s"] / 10
