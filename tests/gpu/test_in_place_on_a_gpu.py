"""Sorts in place on a GPU: each sample sorts what the inputs were, and restoring them is no part of its time."""

import importlib.util
import json
import shutil
import statistics
import subprocess
from pathlib import Path

import numpy as np
import pytest

from perfsvc.errors import MissingPackageError, NoProfilerError
from perfsvc.model import Launch
from perfsvc.profile.commands import NcuProfiler
from tests.gpu import commands

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SUITE = Path(__file__).parents[1] / "e2e" / "suites" / "in_place"
SPIN = Launch(0, "spin", (1, 1, 1), (1, 1, 1), ())
WITH_CUPY = '''
import functools


@functools.cache
def kernel():
    import cupy

    code = """SORT"""
    return cupy.RawKernel(code, "in_place")


def with_cupy(x):
    kernel()((1,), (1,), (x, np.int32(x.size)))


def plain(arrays, stream):
    import cupy

    with cupy.cuda.ExternalStream(stream):
        with_cupy(cupy.asarray(arrays["x"]))


'''
CUPY_VARIANTS = """variants=[
        Variant("cupy", run=cupy(with_cupy)),
        Variant("function", run=plain, requires="import cupy"),
        Variant("pipeline", run=plain, kind="pipeline", requires="import cupy"),
    ],
)
"""


@pytest.fixture
def perfsvc(gpus, tmp_path):
    """Types a command for the suite on the first GPU; gives the exit code and what it printed."""
    shutil.copytree(SUITE, tmp_path / "suite", ignore=shutil.ignore_patterns("passes"))

    def typed(command, *arguments, places=("--suite", tmp_path / "suite")):
        places = (*places, "--device", gpus[0].spec, "--format", "json")
        done = commands.perfsvc(tmp_path, command, *arguments, *places, limit_s=550)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return typed


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("nbytes", [1 << 10, 1 << 20, 1 << 26])
def test_restoring_an_array_adds_nothing_to_the_time_of_a_sample(device, module, cold, nbytes):
    array, original = device.allocate(nbytes), device.allocate_untimed(nbytes)
    options = {"clock": "device", "evict_bytes": 2 * device.info.l2_bytes if cold else 0, "blocked": True}

    def median_s(cycles, restore=None):
        def sample():
            if cycles:
                device.launch(module, SPIN, (np.int64(cycles),))

        batch = device.batch(sample, 50, **options, restore=restore)
        assert batch.kept_ahead
        return statistics.median(batch.samples_s)

    for cycles in (0, 20_000):  # 0: the timer's own overhead
        restored_s = median_s(cycles, lambda: device.copy(array, original, nbytes))
        assert restored_s == pytest.approx(median_s(cycles), abs=1e-6)


def test_each_sample_of_a_sort_in_place_takes_as_long_as_the_sort_of_a_copy(perfsvc, tmp_path):
    if importlib.util.find_spec("cupy"):
        source = (SUITE / "sort.cu").read_text(encoding="utf-8")
        bench = (SUITE / "in_place" / "bench.py").read_text(encoding="utf-8")
        head, _ = bench.split("variants=[")
        head = head.replace("output\n", "cupy, output\n", 1)
        head = head.replace("benchmark = ", f"{WITH_CUPY.replace('SORT', source)}benchmark = ")
        (tmp_path / "suite" / "functions").mkdir()
        (tmp_path / "suite" / "functions" / "bench.py").write_text(head + CUPY_VARIANTS, encoding="utf-8")
    code, found = perfsvc("run", "--replicas", "1")
    rows = found["results"]
    assert (code, {row["status"] for row in rows}) == (0, {"ok"}), [row["reason"] for row in rows]
    seconds = {f"{row['benchmark']}/{row['variant']} {row['cache']}": row["median_s"] for row in rows}
    truth_s = seconds.pop("copied/kernel cold")
    assert len(seconds) in {4, 7}
    assert seconds == {name: pytest.approx(truth_s, rel=0.2) for name in seconds}


def test_a_slowdown_of_a_sort_in_place_is_found_in_a_run_its_pairs_a_comparison_and_a_profile(perfsvc, tmp_path):
    suite, select = tmp_path / "suite", ("--select", "in_place/kernel")

    def commit(subject):
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")
        for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", subject)):
            subprocess.run(["git", "-C", suite, *who, *arguments], check=True, capture_output=True)

    commit("a sort")
    assert perfsvc("run", *select)[0] == 0
    source = suite / "sort.cu"
    text = source.read_text(encoding="utf-8")
    slow = "moved = true; for (volatile int round = 0; round < 20; ++round) {}"
    source.write_text(text.replace("moved = true;\n            }", f"{slow}\n            }}"), encoding="utf-8")
    commit("each exchange is slower")
    code, run = perfsvc("run", *select, "--confirm")
    assert code == 1
    code, compared = perfsvc("compare", "--interleaved", "HEAD~1", "HEAD", *select, places=("--suite", suite))
    assert code == 1
    for row in (*run["confirmations"], *compared["verdicts"]):
        assert (row["verdict"], row["cause"], row["ratio"] > 2) == ("regression", "kernel", True)
    assert len(run["confirmations"]) == len(compared["verdicts"]) == 2  # cold and warm

    try:
        NcuProfiler()
    except (NoProfilerError, MissingPackageError) as error:
        pytest.skip(error.what)
    code, profiled = perfsvc("profile", "in_place/kernel[n=400]", places=())
    assert code == 0
    # Each of Nsight Compute's replays sorts unsorted data: on sorted data, it would take a hundredth of the time.
    measured_s = next(row["median_s"] for row in run["results"] if row["cache"] == "cold")
    assert profiled["profile"]["metrics"]["duration_s"] == pytest.approx(measured_s, rel=0.5)
