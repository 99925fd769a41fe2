"""A CUDA program as a variant: it sees the measured GPU alone, its times are judged, and its old executable is run."""

import json
import shutil
from pathlib import Path

import pytest

from tests.gpu import commands

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

BENCH = """from perfsvc.suite import Benchmark, Variant, program, regex

benchmark = Benchmark(
    variants=[
        Variant(
            "spin",
            run=program(
                "./spin",
                parse=regex(r"took (?P<time_ms>[0-9.]+) ms"),
                build="nvcc -arch=native -DCYCLES=1000000 -o spin spin.cu",
            ),
            requires="cuda",
        ),
        Variant(
            "devices",
            run=program("./spin", parse=regex(r"devices 1 uuid UUID\\n[^Z]*?took (?P<time_ms>[0-9.]+) ms")),
            requires="cuda",
        ),
    ],
)
"""


@pytest.fixture
def suite(gpus, tmp_path):
    folder = tmp_path / "suite" / "spin"
    folder.mkdir(parents=True)
    uuid = gpus[0].uuid.partition("-")[2].replace("-", "")
    shutil.copy(Path(__file__).with_name("program.cu"), folder / "spin.cu")
    (folder / "bench.py").write_text(BENCH.replace("UUID", uuid))
    return folder.parent


@pytest.fixture
def perfsvc(gpus, suite, tmp_path):
    def run(*arguments, code):
        command = ("run", "--device", gpus[0].spec, "--suite", suite, *arguments)
        done = commands.perfsvc(tmp_path, *command, limit_s=250, PERFSVC_CACHE=str(tmp_path / "cache"))
        assert done.returncode == code, (done.stdout, done.stderr)
        return json.loads(done.stdout)

    return run


def test_a_program_sees_only_the_measured_gpu_and_is_confirmed_with_its_old_executable(perfsvc, suite):
    first = perfsvc("--format", "json", code=0)
    rows = {row["case"]: row for row in first["results"]}
    assert {row["status"] for row in rows.values()} == {"ok"}, rows
    assert rows["spin/spin"]["median_s"] == pytest.approx(5e-4, rel=0.5)  # a million cycles at some 1 to 2 GHz
    bench = suite / "spin" / "bench.py"
    bench.write_text(bench.read_text().replace("1000000", "1100000"))
    second = perfsvc("--confirm", "--format", "json", "--select", "spin/spin", code=1)
    (found,) = second["confirmations"]
    assert (found["case"], found["cause"], found["same_code"]) == ("spin/spin", "kernel", False)
    assert found["ratio"] == pytest.approx(1.1, abs=0.02)
