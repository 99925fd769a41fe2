"""Cases on two GPUs: copies, NCCL's all-reduce and a split product are right, and the link is known."""

import json
from pathlib import Path

import numpy as np
import pytest

from perfsvc.device.find import find, open_device
from perfsvc.device.groups import NVLINK
from perfsvc.installation import nccl_library
from tests.gpu.commands import perfsvc

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
LEAST_NVLINK, MOST_NVLINK = 50e9, 1.2e12
"""Bytes a second in one direction, of all NVLinks between two GPUs: the second generation has 75 GB/s and more."""


@pytest.fixture(scope="module")
def spec(gpus):
    """What names a group of the first two GPUs of one model."""
    alike = [gpu for gpu in gpus if gpu.model == gpus[0].model and gpu.uuid.startswith("GPU-")]
    if len(alike) < 2:
        pytest.skip(f"a group needs two GPUs of one model; this machine has {len(alike)}")
    return f"cuda:{alike[0].uuid}+{alike[1].uuid}"


@pytest.fixture
def group(spec, helper_kernels):
    opened = open_device(spec, helper_kernels)
    yield opened
    opened.close()


def filled(device, gpu, values):
    """The address on a GPU of these values."""
    address = device.on(gpu).allocate(values.nbytes)
    device.on(gpu).upload(address, values)
    return address


def read(device, gpu, address, like):
    out = np.empty_like(like)
    device.on(gpu).download(address, out)
    return out


def test_a_group_describes_its_gpus_and_what_connects_them(spec, group):
    assert group.info.gpus == 2
    assert group.info.model.startswith("2 × ")
    assert group.info.spec == spec
    assert group.info.interconnect in {NVLINK, "PCIe", "host memory"}
    (listed,) = find([spec])
    assert listed.interconnect == group.info.interconnect


def test_a_copy_to_the_other_gpu_arrives_and_leaves_its_source(group):
    values = np.arange(1 << 20, dtype=np.float32)
    source, target = filled(group, 0, values), filled(group, 1, np.zeros_like(values))
    group.fork()
    group.peer_copy((1, target), (0, source), values.nbytes)
    group.join()
    group.synchronize()
    assert (read(group, 1, target, values) == values).all()
    assert (read(group, 0, source, values) == values).all()


def test_a_sample_lasts_as_long_as_the_work_of_the_other_gpu(group):
    nbytes = 1 << 30
    other = group.on(1)
    lead_address, address = group.allocate(256), other.allocate(nbytes)

    def sample():
        group.fork()
        for _ in range(4):
            other.fill(address, nbytes, 1)
        group.join()

    def on_lead():
        group.fill(lead_address, 256, 1)

    long = group.batch(sample, 5, clock="device", evict_bytes=1 << 20, blocked=True)
    short = group.batch(on_lead, 5, clock="device", evict_bytes=1 << 20, blocked=True)
    assert long.kept_ahead
    assert min(long.samples_s) > 4 * nbytes / 20e12  # no memory is as fast
    assert min(long.samples_s) > 10 * max(short.samples_s)


def test_what_a_sample_changes_on_the_other_gpu_is_restored_before_each_run(group):
    other, nbytes = group.on(1), 1 << 20
    original, array = filled(group, 1, np.full(nbytes, 7, np.uint8)), filled(group, 1, np.zeros(nbytes, np.uint8))
    seen, runs = filled(group, 1, np.zeros(20 * nbytes, np.uint8)), []

    def sample():
        group.fork()
        other.copy(seen + len(runs) * nbytes, array, nbytes)
        other.fill(array, nbytes, 9)
        group.join()
        runs.append(1)

    def restore():
        group.fork()
        other.copy(array, original, nbytes)
        group.join()

    for evict_bytes in (0, 1 << 20):
        runs.clear()
        assert group.batch(sample, 5, clock="device", evict_bytes=evict_bytes, blocked=True, restore=restore).kept_ahead
        assert (read(group, 1, seen, np.empty(len(runs) * nbytes, np.uint8)) == 7).all()


def test_work_on_the_other_gpu_waits_for_what_the_lead_has_queued(group):
    values = np.full(1 << 26, 7, dtype=np.float32)
    source, target = filled(group, 0, np.zeros_like(values)), filled(group, 1, np.zeros_like(values))
    fresh = filled(group, 0, values)
    group.synchronize()
    group.copy(source, fresh, values.nbytes)  # on the lead's stream
    group.fork()
    group.peer_copy((1, target), (0, source), values.nbytes)
    group.join()
    group.synchronize()
    assert (read(group, 1, target, values) == 7).all()


def test_the_all_reduce_of_nccl_adds_the_arrays_of_both_gpus_again_and_again(group):
    if not nccl_library():
        pytest.skip("NCCL is not installed")
    arrays = [np.random.default_rng(gpu).random(1 << 20, dtype=np.float32) for gpu in (0, 1)]
    sources = [filled(group, gpu, arrays[gpu]) for gpu in (0, 1)]
    targets = [filled(group, gpu, np.zeros_like(arrays[0])) for gpu in (0, 1)]

    def sample():
        group.fork()
        group.all_reduce(sources, targets, "float32", arrays[0].size, "sum")
        group.join()

    sample()  # connects the GPUs
    group.synchronize()
    batch = group.batch(sample, 20, clock="device", evict_bytes=1 << 20, blocked=True)
    assert batch.kept_ahead
    for gpu in (0, 1):
        np.testing.assert_allclose(read(group, gpu, targets[gpu], arrays[0]), arrays[0] + arrays[1], rtol=1e-6)
    values = np.arange(8, dtype=np.int32)
    own = [filled(group, gpu, values if gpu else values[::-1].copy()) for gpu in (0, 1)]
    group.all_reduce(own, own, "int32", values.size, "max")
    group.synchronize()
    assert (read(group, 1, own[1], values) == np.maximum(values, values[::-1])).all()


def test_the_built_in_kernels_are_right_on_two_gpus_and_their_rate_is_compared_with_the_link(spec, tmp_path):
    wanted = ("peer_copy", "all_reduce/*[n=67108864,gpus=2]", "matmul_split")
    selected = [word for name in wanted for word in ("--select", name)]
    options = ("--points", "full", "--replicas", "1", "--samples", "50", "--limit", "100", "--format", "json")
    done = perfsvc(tmp_path, "run", "--suite", ROOT / "kernels", "--device", spec, *selected, *options, limit_s=300)
    assert done.stdout, done.stderr
    results = json.loads(done.stdout)["results"]
    assert {row["status"] for row in results} <= {"ok", "skipped"}, done.stdout
    ok = {row["case"]: row for row in results if row["status"] == "ok"}
    assert {"matmul_split/b_on_every_gpu[m=3072,n=2048,k=2048]", "peer_copy/one_way[n=67108864]"} <= set(ok)
    if nccl_library():
        assert "all_reduce/nccl[n=67108864,gpus=2]" in ok
    copied = ok["peer_copy/one_way[n=67108864]"]
    assert copied["peak"] == "link"
    assert 0.5 < copied["peak_share"] < 1.1
    (listed,) = find([spec])
    if listed.interconnect == NVLINK:
        assert LEAST_NVLINK < copied["bus_bytes_per_s"] < MOST_NVLINK
