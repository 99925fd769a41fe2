"""A run through Ray on real GPUs: it measures what a run without Ray measures."""

import json
import statistics
from pathlib import Path

import pytest

from tests.benchmarks.ray_nodes import real_nodes
from tests.gpu.commands import perfsvc

pytest.importorskip("ray", reason="Ray is not installed: pip install perfsvc[ray]")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]
KERNELS = Path(__file__).parents[2] / "kernels"
CASES = ("--select", "vector_add", "--select", "transpose/copy", "--select", "transpose/naive")
NOISE = 0.02
"""The largest change of a median between two runs of the same code. Kernels of a few microseconds vary most."""


def medians(folder, *arguments):
    database = str(folder / f"{len(list(folder.glob('*.db')))}.db")
    command = ("run", "--suite", KERNELS, *CASES, "--format", "json", *arguments)
    done = perfsvc(folder, *command, limit_s=240, PERFSVC_DB=database)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["results"]
    return {(row["device"], row["case"], row["cache"]): row["median_s"] for row in rows if row["status"] == "ok"}


def test_medians_through_ray_are_those_of_this_host(gpus, tmp_path):
    here = medians(tmp_path, "--device", "cuda")
    with real_nodes(tmp_path, [[number] for number in range(len(gpus))]) as nodes:
        on_ray = medians(tmp_path, "--on", nodes.address)
    assert here.keys() == on_ray.keys()
    assert {device for device, *_ in on_ray} == {gpu.uuid for gpu in gpus}
    ratios = [on_ray[key] / here[key] for key in here]
    assert abs(statistics.median(ratios) - 1) < NOISE
