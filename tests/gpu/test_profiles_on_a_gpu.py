"""Nsight Compute on a real GPU: what it counts of a case, and why a planted regression is slower."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfsvc.errors import MissingPackageError, NoProfilerError
from perfsvc.profile import reports
from perfsvc.profile.commands import NcuProfiler, find_program

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
TRANSPOSE = "transpose/tiled-TILE32-PAD1[n=4096]"
TWO_KERNELS = "dot/two_kernels[n=1048576]"


@pytest.fixture(scope="module")
def ncu():
    try:
        return NcuProfiler()
    except (NoProfilerError, MissingPackageError) as error:
        pytest.skip(error.what)


@pytest.fixture
def suite(tmp_path):
    """Two benchmarks in a folder of the test, outside any checkout."""
    for name in ("transpose", "dot"):
        shutil.copytree(ROOT / "kernels" / name, tmp_path / "suite" / name)
    return tmp_path / "suite"


@pytest.fixture
def perfsvc(gpus, tmp_path):
    """Types a command on the first GPU; gives the exit code and what it printed."""

    def typed(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "perfsvc", *map(str, arguments), "--device", gpus[0].spec],
            cwd=tmp_path,
            env=os.environ | {"PERFSVC_DB": str(tmp_path / "perfsvc.db"), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=290,
            check=False,
        )
        if any(sign in done.stderr for sign in ("ERR_NVGPUCTRPERM", "holds the GPU's counters")):
            pytest.skip(done.stderr)
        return done

    return typed


def measured(perfsvc, suite, case, *arguments):
    return perfsvc("run", "--suite", suite, "--select", case, "--replicas", "3", "--format", "json", *arguments)


def test_a_planted_regression_is_explained_in_the_command_that_finds_it(ncu, perfsvc, suite):
    assert measured(perfsvc, suite, TRANSPOSE).returncode == 0
    source = suite / "transpose" / "tiled.cu"
    source.write_text(source.read_text().replace("[TILE + PAD]", "[TILE]"))
    ended = measured(perfsvc, suite, TRANSPOSE, "--confirm", "--profile")
    assert ended.returncode == 1, ended.stderr
    (why,) = json.loads(ended.stdout)["explained"]
    assert why["reason"] == ""
    assert re.match(r"(1\.[5-9]|2\.[0-3]) × slower: shared-memory bank conflicts", why["sentence"]), why["sentence"]
    assert None not in why["profiles"]


def test_metrics_and_report_are_of_the_profiled_launch(ncu, perfsvc, suite, tmp_path):
    assert measured(perfsvc, suite, TRANSPOSE).returncode == 0
    ended = perfsvc("profile", TRANSPOSE, "--output", tmp_path / "kept.ncu-rep", "--format", "json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    metrics = found["profile"]["metrics"]
    assert (found["launch"], found["profile"]["kernel"]) == (0, "transpose_tiled")
    assert 20e-6 < metrics["duration_s"] < 500e-6
    assert metrics["dram_read_bytes"] == pytest.approx(4 * 4096**2, rel=0.2)
    assert reports.read(tmp_path / "kept.ncu-rep", kernel="transpose_tiled").metrics == metrics


def test_the_longer_of_two_kernels_is_profiled(ncu, perfsvc, suite):
    assert measured(perfsvc, suite, TWO_KERNELS).returncode == 0
    ended = perfsvc("profile", TWO_KERNELS, "--set", "basic", "--format", "json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["profile"]["kernel"] == "dot_partials"


@pytest.mark.skipif(find_program("nsys", "nsight-systems") is None, reason="there is no nsys here")
def test_a_timeline_is_written(perfsvc, suite, tmp_path):
    assert measured(perfsvc, suite, TRANSPOSE).returncode == 0
    ended = perfsvc("profile", TRANSPOSE, "--tool", "nsys", "--output", tmp_path / "kept.nsys-rep")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "kept.nsys-rep").stat().st_size
