"""The measured peaks of a GPU, and the shares of them that real cases reach."""

import json
from pathlib import Path

import pytest

from perfsvc.service.peaks import kernels
from perfsvc.store import Store
from tests.gpu.commands import perfsvc

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def measured(gpus, tmp_path_factory):
    """The JSON of two runs of products and sums, and the peaks in the database after each."""
    folder = tmp_path_factory.mktemp("peaks")
    command = ("run", "--device", gpus[0].spec, "--suite", ROOT / "kernels", "--replicas", "1", "--format", "json")
    runs = []
    for _ in range(2):
        done = perfsvc(folder, *command, "--select", "vector_add", "--select", "matmul*", limit_s=250)
        assert done.returncode in {0, 1}, done.stderr
        with Store.open(str(folder / "perfsvc.db"), create=False) as store:
            runs.append((json.loads(done.stdout), store.devices.gpu_peaks(gpus[0], version=kernels.VERSION)))
    return runs


def test_every_peak_of_the_architecture_is_measured_and_only_in_the_first_run(gpus, measured):
    (first, stored), (second, later) = measured
    names = {*kernels.arithmetic(gpus[0].target), "l2"}
    assert stored.keys() == names
    assert stored == later
    (shown,) = second["peaks"]
    assert {name: shown[name] for name in names} == pytest.approx(stored)
    assert first["doubts"] == second["doubts"] == []


def test_peaks_are_in_the_order_that_the_hardware_has(measured):
    ((first, rates), _) = measured
    (shown,) = first["peaks"]
    assert rates["l2"] > shown["read_bytes_per_s"]
    if "tf32" in rates:
        assert rates["fp32"] < rates["tf32"] < 0.7 * rates["bf16"]
        assert rates["fp16"] == pytest.approx(rates["bf16"], rel=0.15)


def test_each_case_comes_nearest_to_the_peak_that_limits_it(measured):
    (_, (second, _)) = measured
    best: dict[tuple[str, str], float] = {}
    for row in second["results"]:
        if row["peak_share"]:
            key = row["benchmark"], row["peak"]
            best[key] = max(best.get(key, 0.0), row["peak_share"])
    assert 0.8 < best["vector_add", "memory"] < 1.05
    assert 0.5 < best["matmul", "fp32"] < 1.05
    for precision in ("tf32", "bf16"):
        if (f"matmul_{precision}", precision) in best:
            assert 0.3 < best[f"matmul_{precision}", precision] < 1.2
