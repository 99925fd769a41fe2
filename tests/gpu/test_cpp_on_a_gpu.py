"""C++ kernels on a real GPU: names, structs, linked sources, clusters, cooperative and programmatic launches."""

import json
import re
import statistics
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import pytest

from perfsvc.errors import LaunchError, MissingPackageError, NoProfilerError
from perfsvc.model import Launch, Unit
from perfsvc.profile.commands import NcuProfiler
from tests.gpu.commands import compiled, perfsvc

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "cpp.cu"
GUIDE = ROOT / "docs" / "how-to" / "measure-cpp-kernels.md"
ENTRIES = (
    "cpp::multiply<float, 3>",
    "cpp::multiply<cpp::real, cpp::large / 2>",
    "cpp::line",
    "cpp::cluster_sizes",
    "cpp::rounds",
    "cpp::first",
    "cpp::second",
)
N = 100_003
BLOCKS = -(-N // 256)


@pytest.fixture(scope="module", autouse=True)
def hopper(gpus):
    if int(gpus[0].compute_capability.partition(".")[0]) < 9:
        pytest.skip("this GPU has no clusters")


@pytest.fixture(scope="module")
def code(gpus, tmp_path_factory):
    return compiled(Unit(SOURCE, ENTRIES), gpus[0].target, tmp_path_factory.mktemp("cache"))


@pytest.fixture
def cpp(device, code):
    return device.load(code)


@pytest.fixture
def arrays(device):
    """Return the address of an uploaded array, or of a new array of zeros."""

    def placed(values):
        values = np.ascontiguousarray(values)
        address = device.allocate(values.nbytes)
        device.upload(address, values)
        return np.uint64(address)

    return placed


def read(device, address, count, dtype):
    out = np.empty(count, dtype)
    device.download(int(address), out)
    return out


def launch(entry, grid, block, **attributes):
    return Launch(0, entry, grid, block, (), **attributes)


@pytest.mark.parametrize(("entry", "factor"), [(ENTRIES[0], 3), (ENTRIES[1], 128)])
def test_a_template_is_launched_by_its_name_in_cpp(device, cpp, arrays, entry, factor):
    x = np.arange(N, dtype=np.float32)
    source, target = arrays(x), arrays(np.zeros_like(x))
    device.launch(cpp, launch(entry, (BLOCKS, 1, 1), (256, 1, 1)), (target, source, np.int32(N)))
    assert (read(device, target, N, np.float32) == factor * x).all()


def test_a_struct_reaches_the_kernel_and_one_of_another_size_does_not(device, cpp, arrays):
    x = np.arange(N, dtype=np.float32)
    source, target = arrays(x), arrays(np.zeros_like(x))
    line = np.zeros((), np.dtype([("x", "u8"), ("n", "i4"), ("slope", "f8"), ("tag", "i2")], align=True))
    line["x"], line["n"], line["slope"], line["tag"] = source, N, 0.5, 7
    shape = launch("cpp::line", (BLOCKS, 1, 1), (256, 1, 1))
    device.launch(cpp, shape, (target, np.void(line.tobytes())))
    assert (read(device, target, N, np.float32) == np.float32(0.5) * x + 7).all()
    with pytest.raises(LaunchError, match="has 32 bytes, and the launch gives it a struct of 24 bytes") as raised:
        device.launch(cpp, shape, (target, np.void(bytes(24))))
    assert not raised.value.fatal


@pytest.mark.parametrize(
    ("grid", "cluster"), [((8, 1, 1), None), ((8, 1, 1), (2, 1, 1)), ((4, 4, 1), (2, 4, 1)), ((32, 1, 1), (16, 1, 1))]
)
def test_the_kernel_sees_the_clusters_of_its_launch(device, cpp, arrays, grid, cluster):
    count, blocks = grid[0] * grid[1], prod(cluster or (1,))
    sizes = arrays(np.zeros(count, np.int32))
    device.launch(cpp, launch("cpp::cluster_sizes", grid, (32, 1, 1), cluster=cluster), (sizes,))
    seen = read(device, sizes, count, np.int32)
    assert (seen // 100 == blocks).all()
    assert sorted(seen % 100) == sorted(list(range(blocks)) * (count // blocks))


def test_a_cluster_that_no_gpu_has_is_refused_and_the_device_stays_usable(device, cpp, arrays):
    sizes = arrays(np.zeros(64, np.int32))
    with pytest.raises(LaunchError) as raised:
        device.launch(cpp, launch("cpp::cluster_sizes", (64, 1, 1), (32, 1, 1), cluster=(64, 1, 1)), (sizes,))
    assert not raised.value.fatal
    device.launch(cpp, launch("cpp::cluster_sizes", (64, 1, 1), (32, 1, 1), cluster=(4, 1, 1)), (sizes,))
    assert (read(device, sizes, 64, np.int32) // 100 == 4).all()


def rounds(blocks, count):
    total = 0
    for _ in range(count):
        total += blocks * total + blocks * (blocks - 1) // 2
    return total


def test_the_blocks_of_a_cooperative_launch_wait_for_each_other(device, cpp, arrays):
    blocks, count = device.info.multiprocessors, 3
    total, seen = arrays(np.zeros(1, np.int32)), arrays(np.zeros(blocks, np.int32))
    shape = launch("cpp::rounds", (blocks, 1, 1), (64, 1, 1), cooperative=True)
    device.launch(cpp, shape, (total, seen, np.int32(count)))
    assert (read(device, seen, blocks, np.int32) == np.int64(rounds(blocks, count)).astype(np.int32)).all()


def test_a_cooperative_launch_with_too_many_blocks_is_refused_with_a_cure(device, cpp, arrays):
    blocks = 100 * device.info.multiprocessors
    total, seen = arrays(np.zeros(1, np.int32)), arrays(np.zeros(blocks, np.int32))
    arguments = (total, seen, np.int32(1))
    with pytest.raises(LaunchError, match=r"cooperative.*last launch: cpp::rounds") as raised:
        device.launch(cpp, launch("cpp::rounds", (blocks, 1, 1), (64, 1, 1), cooperative=True), arguments)
    assert not raised.value.fatal
    assert "fewer blocks" in raised.value.cure


@pytest.mark.parametrize("n", [1000, N, 4_000_000])
def test_a_programmatic_launch_is_right_and_not_slower(device, cpp, arrays, times, n):
    x = np.arange(n, dtype=np.float32)
    source, between, target = arrays(x), arrays(np.zeros_like(x)), arrays(np.zeros_like(x))
    shape = {"grid": (-(-n // 256), 1, 1), "block": (256, 1, 1)}

    def both(programmatic):
        device.launch(cpp, launch("cpp::first", **shape), (between, source, np.int32(n)))
        device.launch(cpp, launch("cpp::second", **shape, programmatic=programmatic), (target, between, np.int32(n)))

    medians = {}
    for programmatic in (False, True):
        device.fill(int(target), x.nbytes, 0xFF)
        both(programmatic)
        assert (read(device, target, n, np.float32) == 2 * (x + 1)).all()
        medians[programmatic] = statistics.median(times(partial(both, programmatic), 30))
    assert medians[True] < 1.3 * medians[False]


@pytest.fixture
def guide(gpus, tmp_path):
    """Return a function that runs a command on the suite of the guide, and returns its JSON."""
    for text, path in re.findall(r"```(?:python|cuda)\n((?:#|//) (\S+)\n.*?)```", GUIDE.read_text("utf-8"), re.DOTALL):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")

    def command(name, *arguments):
        done = perfsvc(tmp_path, name, *arguments, "--format", "json", limit_s=200)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    return command, gpus[0].spec


def test_all_examples_of_the_guide_are_right_on_a_gpu(guide):
    command, device = guide
    rows = command("run", "--device", device, "--suite", "mykernels", "--replicas", "1", "--samples", "20")["results"]
    assert {row["status"] for row in rows} == {"ok"}, [row for row in rows if row["status"] != "ok"]
    assert {row["benchmark"] for row in rows} == {"scale", "smooth", "linked", "chain", "pairs", "share"}


def test_a_profile_shows_the_name_that_the_author_wrote(guide):
    try:
        NcuProfiler()
    except (NoProfilerError, MissingPackageError) as error:
        pytest.skip(error.what)
    command, device = guide
    case = "scale/tiled-ITEMS4[n=16777216]"
    suite = ("--suite", "mykernels", "--device", device)
    command("run", *suite, "--replicas", "1", "--samples", "20", "--select", case)
    found = command("profile", case, *suite)
    assert (found["launch"], found["profile"]["kernel"]) == (0, "tiled::scale<float, 4>")
