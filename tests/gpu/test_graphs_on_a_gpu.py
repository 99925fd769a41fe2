"""CUDA graphs on a GPU: replays, the times of their steps, captures that break, and the kernels that ncu lists."""

import ctypes
import importlib.util
import json
import re
import sqlite3
import statistics
from pathlib import Path

import numpy as np
import pytest

from perfsvc.errors import LaunchError, MissingPackageError, NoProfilerError
from perfsvc.model import Launch
from perfsvc.profile.commands import NcuProfiler
from perfsvc.profile.reports import require_ncu_report
from tests.gpu import commands

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "tests" / "e2e" / "suites" / "graphs"
PAGE = ROOT / "docs" / "how-to" / "measure-python-functions.md"
SPIN = Launch(0, "spin", (1, 1, 1), (1, 1, 1), ())
CYCLES = 20_000
FASTEST_HZ = 2.5e9
"""More than the highest clock of any GPU that these tests run on."""
COUNT = 10
TRITON = """
import triton
import triton.language as tl

@triton.jit
def double(y, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)
"""
TRITON_BENCH = """
from perfsvc.suite import Benchmark, Tolerance, Variant, ceil_div, output, scratch, triton

def double(target, origin):
    return triton("double", source="double.py", grid=lambda n: ceil_div(n, 256), args=(target, origin, "n"), BLOCK=256)

benchmark = Benchmark(
    axes={"n": (65536,)},
    smoke={"n": 1000},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32")},
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: 4 * x,
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        Variant(
            "triton",
            scratch={"half": scratch("float32", lambda n: n)},
            steps=[double("half", "x"), double("y", "half")],
            graph=True,
        ),
    ],
)
"""
BREAKING_BENCH = """
from perfsvc.suite import Benchmark, Tolerance, Variant, call, launch, output

def waits(arrays, stream):
    import pycuda.driver as cuda

    cuda.Context.synchronize()

COPY = launch(entry="copy", source="copy.cu", grid=4, block=256, args=("y", "x", "n"))
benchmark = Benchmark(
    axes={"n": (1000,)},
    smoke={"n": 1000},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32")},
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: x,
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        Variant("breaking", steps=[COPY, call(waits)], graph=True),
        Variant("after", steps=[COPY], graph=True),
    ],
)
"""
COPY = """
extern "C" __global__ void copy(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
"""


@pytest.fixture
def spins(device, module):
    """Ten short kernels that use no memory."""
    return [(f"spin {number}", lambda: device.launch(module, SPIN, (np.int64(CYCLES),))) for number in range(COUNT)]


@pytest.fixture
def median(device):
    """Return the median time of samples, each after the cache was emptied."""

    def of(sample, seconds=None):
        options = {"clock": "device", "evict_bytes": 2 * device.info.l2_bytes, "blocked": True}
        device.batch(sample, 10, **options, seconds=seconds)
        batch = device.batch(sample, 50, **options, seconds=seconds)
        assert batch.kept_ahead
        return statistics.median(batch.samples_s)

    return of


def run_all(steps):
    for _, queue in steps:
        queue()


def test_a_replay_takes_as_long_as_its_kernels_and_no_longer_than_their_launches(device, spins, median):
    run_all(spins)
    graph = device.capture(spins)
    launches_s, replay_s, again_s = median(lambda: run_all(spins)), median(graph.launch), median(lambda: run_all(spins))
    graph.close()
    assert COUNT * CYCLES / FASTEST_HZ < replay_s < 1.1 * max(launches_s, again_s)


def test_the_sum_of_the_steps_is_at_least_the_replay_but_for_the_gaps(device, spins, median):
    run_all(spins)
    graph, apart = device.capture(spins), device.capture(spins, apart=True)
    replay_s, sum_s = median(graph.launch), median(apart.launch, apart.seconds)
    graph.close()
    apart.close()
    assert 0.8 * replay_s < sum_s < 1.6 * replay_s


def test_the_time_of_cold_steps_has_no_eviction_in_it(device, spins, median):
    run_all(spins)
    warm = device.capture(spins, apart=True)
    cold = device.capture(spins, apart=True, evict_bytes=2 * device.info.l2_bytes)
    warm_s, cold_s, whole_s = median(warm.launch, warm.seconds), median(cold.launch, cold.seconds), median(cold.launch)
    warm.close()
    cold.close()
    assert cold_s == pytest.approx(warm_s, rel=0.5)  # the kernels use no memory, but are evicted themselves
    assert whole_s > 1.5 * cold_s  # ten evictions, which take tens of microseconds each


def test_cold_steps_find_nothing_in_the_cache(device, module, median):
    n = 1 << 20
    addresses = [np.uint64(device.allocate(4 * n)) for _ in range(3)]
    for address in addresses:
        device.fill(int(address), 4 * n, 0)
    add = Launch(0, "add", (device.info.multiprocessors * 4, 1, 1), (256, 1, 1), ())
    steps = [("add", lambda: device.launch(module, add, (*addresses, np.int32(n))))] * 4
    run_all(steps)
    warm = device.capture(steps, apart=True)
    cold = device.capture(steps, apart=True, evict_bytes=2 * device.info.l2_bytes)
    warm_s, cold_s = median(warm.launch, warm.seconds), median(cold.launch, cold.seconds)
    warm.close()
    cold.close()
    assert cold_s > 1.1 * warm_s


def raises(device):
    device.synchronize()


def allocates(device):
    device.allocate_untimed(1 << 20)


def hides_its_error(device):
    ctypes.CDLL("libcuda.so.1").cuStreamSynchronize(ctypes.c_void_p(device.stream))


@pytest.mark.parametrize("breaks", [raises, allocates, hides_its_error])
def test_a_step_that_breaks_a_capture_is_named_and_the_device_lives_on(device, spins, breaks):
    run_all(spins)
    with pytest.raises(LaunchError, match="the bad step") as caught:
        device.capture([spins[0], ("the bad step", lambda: breaks(device)), spins[1]])
    assert not caught.value.fatal
    assert caught.value.cure
    address, out = device.allocate(64), np.empty(64, np.uint8)
    device.fill(address, 64, 7)
    device.download(address, out)
    assert set(out) == {7}
    graph = device.capture(spins)
    graph.launch()
    device.synchronize()
    graph.close()


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def perfsvc(gpus, tmp_path):
    """Types a command on the first GPU."""

    def typed(*arguments):
        return commands.perfsvc(tmp_path, *arguments, "--device", gpus[0].spec, "--format", "json", limit_s=250)

    return typed


def results(ended):
    assert ended.stdout, ended.stderr
    return {row["variant"]: row for row in json.loads(ended.stdout)["results"]}


@pytest.fixture
def measured(perfsvc):
    """Ten kernels as launches, as a graph and as cold steps."""
    ended = perfsvc(
        "run", "--suite", SUITE, "--select", "smooth/*[n=65536]", "--confirm", "--profile", "--replicas", "1"
    )
    assert ended.returncode == 0, ended.stderr
    return results(ended)


def test_ten_small_kernels_as_launches_as_a_graph_and_as_cold_steps(measured, tmp_path):
    assert {row["status"] for row in measured.values()} == {"ok"}, measured
    launches_s, graph_s, cold_s = (measured[name]["median_s"] for name in ("launches", "graph", "cold-steps"))
    connection = sqlite3.connect(tmp_path / "perfsvc.db")
    ((steps_s,),) = connection.execute("select value from metrics where name = 'steps_s'")
    connection.close()
    assert 5e-6 < graph_s < 1.1 * launches_s
    assert 0.8 * graph_s < steps_s < 3 * graph_s
    assert cold_s > graph_s


def test_ncu_lists_every_kernel_of_a_graph(measured, perfsvc):
    try:
        NcuProfiler()
        require_ncu_report()
    except (NoProfilerError, MissingPackageError) as error:
        pytest.skip(error.what)
    ended = perfsvc("profile", "smooth/graph[n=65536]")
    if any(sign in ended.stderr for sign in ("ERR_NVGPUCTRPERM", "holds the GPU's counters")):
        pytest.skip(ended.stderr)
    assert ended.returncode == 0, ended.stderr
    profile = json.loads(ended.stdout)["profile"]
    assert profile["kernel"] == "smooth"
    assert [kernel["name"] for kernel in profile["kernels"]] == ["smooth"] * COUNT
    times_s = [kernel["duration_s"] for kernel in profile["kernels"]]
    assert all(5e-7 < time < 5e-5 for time in times_s), times_s
    assert profile["metrics"]["duration_s"] == pytest.approx(max(times_s))
    sources = {instruction["source"]["file"] for instruction in profile["instructions"] if instruction["source"]}
    assert sources == {"smooth.cu"}


def test_a_step_that_waits_fails_its_case_alone(perfsvc, tmp_path):
    folder = tmp_path / "suite" / "breaking"
    folder.mkdir(parents=True)
    (folder / "bench.py").write_text(BREAKING_BENCH)
    (folder / "copy.cu").write_text(COPY)
    rows = results(perfsvc("run", "--suite", folder.parent, "--replicas", "1"))
    assert rows["breaking"]["status"] == "failed"
    assert "step 2, the call of 'waits', " in rows["breaking"]["reason"]
    assert (rows["after"]["status"], rows["after"]["reason"]) == ("ok", "")


def packages(*names):
    return pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in names), reason=f"{' or '.join(names)} is missing"
    )


@packages("torch", "triton")
def test_triton_kernels_can_be_in_a_graph(perfsvc, tmp_path):
    folder = tmp_path / "suite" / "double"
    folder.mkdir(parents=True)
    (folder / "bench.py").write_text(TRITON_BENCH)
    (folder / "double.py").write_text(TRITON)
    row = results(perfsvc("run", "--suite", folder.parent, "--replicas", "2"))["triton"]
    assert (row["status"], row["reason"]) == ("ok", "")
    with sqlite3.connect(tmp_path / "perfsvc.db") as connection:
        (stored, *_) = connection.execute("select record from python_codes").fetchone()
    assert {kernel["name"] for kernel in json.loads(stored)["kernels"]} == {"double"}


@packages("cupy", "numba")
def test_kernels_of_cupy_and_numba_can_be_in_a_graph(perfsvc, tmp_path):
    for name, text in re.findall(r"```python\n# kernels/(scale/\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        path = tmp_path / "suite" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("**launch)),", "**launch), graph=True),").replace("2**24", "2**16"))
    rows = results(perfsvc("run", "--suite", tmp_path / "suite", "--replicas", "1"))
    assert set(rows) == {"cupy", "numba"}
    assert (rows["cupy"]["status"], rows["cupy"]["reason"]) == ("ok", "")
    # Numba cannot launch anything with the NumPy of some machines.
    assert rows["numba"]["status"] == "ok" or rows["numba"]["reason"].startswith("the numba step 'with_numba' raised")
