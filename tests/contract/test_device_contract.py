"""What every device must do (perfsvc/device/protocol.py), tested on each device."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.extra import numpy as arrays

from perfsvc.build import Binary, Cache, compile_all, toolchain_for
from perfsvc.device import memory
from perfsvc.device.cpu import CpuDevice
from perfsvc.device.fake import FakeDevice
from perfsvc.device.find import find, open_device
from perfsvc.errors import LaunchError, NoDeviceError
from perfsvc.measure.worker.check import error_of
from perfsvc.model import BufferArg, Case, Conditions, Kind, Launch, ReplayRecord, ScalarArg, Unit


def fake(folder):
    script = folder / "script.json"
    script.write_text("{}")
    return FakeDevice(script)


def cuda(folder):
    try:
        (info, *_) = find(["cuda"])
    except NoDeviceError as error:
        pytest.skip(error.what)
    unit = memory.unit("cuda")
    built = compile_all([unit], toolchain_for(info.target), Cache(folder))[unit]
    assert isinstance(built, Binary), built
    return open_device(info.spec, built.code)


DEVICES = {"cpu": lambda folder: CpuDevice(), "fake": fake, "cuda": cuda}
"""Opens each device under test."""

COMPUTING = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ALL = [*COMPUTING, "fake"]

NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
RECORD = ReplayRecord(Case("vector_add", "plain", (("n", 4),)), Kind.KERNEL, (), (), (), "", 0)


@pytest.fixture(scope="module", params=ALL)
def device(request, tmp_path_factory):
    opened = DEVICES[request.param](tmp_path_factory.mktemp("device"))
    yield opened
    opened.close()


@pytest.fixture
def buffer(device):
    addresses = []

    def allocated(nbytes):
        addresses.append(device.allocate(nbytes))
        return addresses[-1]

    yield allocated
    for address in addresses:
        device.free(address)


def bytes_at(device, address, nbytes):
    out = np.empty(nbytes, np.uint8)
    device.download(address, out)
    return out


def test_it_describes_itself_and_has_a_clock_conditions_and_a_stream(device):
    info = device.info
    assert info.kind in {"cuda", "cpu", "fake"}
    assert info.spec.partition(":")[0] == info.kind
    assert info.uuid
    assert info.model
    assert info.target
    assert info.multiprocessors > 0
    assert info == device.info
    assert device.stream >= 0  # an address that libraries take
    assert isinstance(device.conditions(), Conditions)
    before = device.now()
    device.rest(0.01)
    assert device.now() >= before + 0.01
    with device.measuring(RECORD, 0):
        device.synchronize()


def test_allocations_are_aligned_and_do_not_overlap(device, buffer):
    for nbytes in (1, 4, 255, 256, 1 << 20):
        addresses = sorted(buffer(nbytes) for _ in range(4))
        assert all(address % 256 == 0 for address in addresses)
        assert all(low + nbytes <= high for low, high in pairwise(addresses))


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=arrays.arrays(arrays.scalar_dtypes(), arrays.array_shapes(min_dims=0, min_side=0)))
def test_an_uploaded_array_downloads_unchanged(device, data):
    address = device.allocate(max(1, data.nbytes))
    out = np.empty_like(data)
    device.upload(address, data)
    device.download(address, out)
    device.free(address)
    assert out.tobytes() == data.tobytes()


def test_narrow_floats_download_unchanged_and_are_seen_as_such(device, buffer):
    for dtype in NARROW:
        data = np.arange(9).astype(dtype).reshape(3, 3)  # NumPy gives no buffer of these types to other libraries
        address, out = buffer(data.nbytes), np.empty((3, 3), dtype)
        device.upload(address, data)
        device.download(address, out)
        assert out.tolist() == data.tolist()
        view = device.view(address, dtype, (3, 3))
        if device.info.kind == "cuda":
            assert view.__cuda_array_interface__["typestr"] == {1: "|u1", 2: "<u2"}[data.itemsize]
        else:
            assert view.tolist() == data.tolist()


def test_a_fill_and_a_copy_set_their_bytes_and_no_others(device, buffer):
    source, target = buffer(1000), buffer(1000)
    device.fill(target, 1000, 7)
    device.fill(target + 100, 300, 0xAB)
    expected = np.full(1000, 7, np.uint8)
    expected[100:400] = 0xAB
    assert np.array_equal(bytes_at(device, target, 1000), expected)
    data, inner = np.arange(1000).astype(np.uint8), np.arange(4, dtype=np.int32)
    device.upload(source, data)
    device.upload(source + 16, inner)
    data[16:32] = inner.view(np.uint8)
    device.copy(target + 10, source + 20, 500)
    expected[10:510] = data[20:520]
    assert np.array_equal(bytes_at(device, target, 1000), expected)


def test_equal_requests_get_equal_addresses_if_addresses_change_times(device):
    if device.info.kind != "cuda":
        return

    def dealt(*sizes):
        addresses = [device.allocate(size) for size in sizes]
        for address in reversed(addresses):
            device.free(address)
        return addresses

    first = dealt(100, 5 << 20, 64)
    aside = device.allocate_untimed(1 << 20)
    dealt(7 << 20, 300)
    assert dealt(100, 5 << 20, 64) == first
    device.free(aside)


def test_freed_memory_cannot_be_freed_again(device):
    for allocate in (device.allocate, device.allocate_untimed):
        address = allocate(64)
        device.free(address)
        with pytest.raises(LaunchError):
            device.free(address)


def test_more_memory_than_there_is_is_refused(device):
    with pytest.raises(LaunchError, match="memory"):
        device.allocate(1 << 60)


def test_a_digest_depends_on_values_positions_and_number_of_bytes(device, buffer):
    for nbytes in (1, 7, 8, 1000, 100_003):
        first, second = buffer(nbytes + 1), buffer(nbytes + 1)
        data = np.random.default_rng(nbytes).integers(0, 256, nbytes + 1, np.uint8)
        for address in (first, second):
            device.upload(address, data)
        digest = device.digest(first, nbytes)
        assert digest == device.digest(first, nbytes) == device.digest(second, nbytes)
        assert digest != device.digest(first, nbytes + 1)
        askew = buffer(nbytes + 3)
        device.upload(askew + 3, data[:nbytes])
        assert digest == device.digest(askew + 3, nbytes)
        changed = data.copy()
        changed[nbytes - 1] ^= 1
        device.upload(second, changed)
        assert device.digest(second, nbytes) != digest
        if nbytes > 16:
            device.upload(second, np.concatenate([data[8:16], data[:8], data[16:]]))
            assert device.digest(second, nbytes) != digest


def test_each_sample_has_its_time(device, buffer):
    address, calls = buffer(1 << 16), []

    def sample():
        calls.append(1)
        device.fill(address, 1 << 16, 0)

    for clock, evict_bytes, blocked in product(("device", "host"), (1 << 20, 0), (True, False)):
        calls.clear()
        with device.measuring(RECORD, 0):
            batch = device.batch(sample, 5, clock=clock, evict_bytes=evict_bytes, blocked=blocked)
            apiece = device.back_to_back(sample, 10)
        assert len(batch.samples_s) == 5
        assert all(time > 0 for time in batch.samples_s)
        assert batch.busy_s >= sum(batch.samples_s) * 0.99
        assert (batch.rejected, apiece > 0, calls != []) == ("", True, True)


def test_what_a_sample_changes_is_restored_before_each_run_and_is_not_timed(device, buffer):
    nbytes, long = 1 << 12, 1 << (28 if device.info.kind == "cuda" else 22)
    array, original, seen, other = buffer(nbytes), buffer(nbytes), buffer(20 * nbytes), buffer(long)
    device.fill(original, nbytes, 7)
    runs = []

    def sample():
        device.copy(seen + len(runs) * nbytes, array, nbytes)
        device.fill(array, nbytes, 9)
        runs.append(1)

    def restore():
        device.fill(other, long, 0)  # takes longer than the sample
        device.copy(array, original, nbytes)

    for clock, evict_bytes, blocked in product(("device", "host"), (1 << 20, 0), (True, False)):
        options = {"clock": clock, "evict_bytes": evict_bytes, "blocked": blocked}
        runs.clear()
        with device.measuring(RECORD, 0):
            batch = device.batch(sample, 5, **options, restore=restore)
        assert runs
        assert set(bytes_at(device, seen, len(runs) * nbytes)) == {7}
        if device.info.kind != "fake":  # its script has the times
            assert np.median(batch.samples_s) < np.median(device.batch(restore, 5, **options).samples_s) / 2


def test_a_graph_does_its_steps_at_each_replay_and_not_when_it_is_captured(device, buffer):
    address = buffer(64)
    device.fill(address, 64, 1)
    steps = [
        ("the first", lambda: device.fill(address, 32, 2)),
        ("the second", lambda: device.fill(address + 16, 32, 3)),
    ]
    graph = device.capture(steps)
    assert set(bytes_at(device, address, 64)) == {1}
    for _ in range(2):
        device.fill(address, 64, 1)
        graph.launch()
        device.synchronize()
        assert bytes_at(device, address, 64).tolist() == [2] * 16 + [3] * 32 + [1] * 16
    graph.close()
    graph.close()


def test_a_graph_can_time_its_steps_by_itself(device, buffer):
    address = buffer(1 << 16)
    steps = [("a fill", lambda: device.fill(address, 1 << 16, 0))] * 3
    options = {"clock": "device", "evict_bytes": 1 << 20, "blocked": True}
    for evict_bytes in (0, 1 << 20):
        graph = device.capture(steps, apart=True, evict_bytes=evict_bytes)
        with device.measuring(RECORD, 0):
            batch = device.batch(graph.launch, 4, **options, seconds=graph.seconds)
        assert len(batch.samples_s) == 4
        assert all(0 < time < 1 for time in batch.samples_s)
        assert batch.busy_s >= sum(batch.samples_s) * 0.99
        graph.close()


def test_samples_that_time_themselves_have_their_own_times(device, buffer):
    if device.info.kind == "fake":
        return  # its script has the times
    address, own_s = buffer(64), iter([3.0, 1.0, 2.0])
    options = {"clock": "device", "evict_bytes": 0, "blocked": True}
    batch = device.batch(lambda: device.fill(address, 64, 0), 3, **options, seconds=lambda: next(own_s))
    assert batch.samples_s == (3.0, 1.0, 2.0)
    assert batch.busy_s < 1


def test_work_on_the_stream_uses_no_other_stream(device, buffer):
    address = buffer(1 << 10)
    assert not device.uses_other_streams(lambda: device.fill(address, 1 << 10, 3), 0.01, [(address, 1 << 10)])


# --- devices that compute ---------------------------------------------------------------------------------------------

SOURCE = """
__constant__ float offset[1];
extern "C" __global__ void shifted(float* out, const float* a, int n) {
    extern __shared__ float tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? a[i] : 0.0f;
    __syncthreads();
    if (i < n) out[i] = tile[blockDim.x - 1 - threadIdx.x] + offset[0];
}
"""


@pytest.fixture
def shifted(device, tmp_path):
    source = tmp_path / "shifted.cu"
    source.write_text(SOURCE)
    unit = Unit(source, ("shifted",))
    built = compile_all([unit], toolchain_for(device.info.target), Cache(tmp_path / "cache"))[unit]
    assert isinstance(built, Binary), built
    return device.load(built.code)


@pytest.mark.parametrize("device", COMPUTING, indirect=True)
def test_a_launch_computes_with_its_arguments_shared_memory_and_constants(device, buffer, shifted):
    n, block = 1024, 64
    a = np.arange(n, dtype=np.float32)
    out, source, constant = buffer(a.nbytes), buffer(a.nbytes), buffer(4)
    device.upload(source, a)
    device.upload(constant, np.array([0.5], np.float32))
    device.set_constant(shifted, "offset", constant, 4)
    words = (BufferArg("out"), BufferArg("a"), ScalarArg("n", "int32", n))
    launch = Launch(0, "shifted", (n // block, 1, 1), (block, 1, 1), words, shared_bytes=4 * block)
    device.launch(shifted, launch, (np.uint64(out), np.uint64(source), np.int32(n)))
    result = np.empty(n, np.float32)
    device.download(out, result)
    assert np.array_equal(result, a.reshape(-1, block)[:, ::-1].reshape(-1) + 0.5)


@pytest.mark.parametrize("device", COMPUTING, indirect=True)
def test_an_impossible_launch_is_refused_and_the_device_stays_usable(device, buffer, shifted):
    address = np.uint64(buffer(256))
    for shape, shared in (((2048, 1, 1), 0), ((32, 1, 1), 1 << 24)):
        with pytest.raises(LaunchError) as caught:
            device.launch(shifted, Launch(0, "shifted", (1, 1, 1), shape, (), shared), (address, address, np.int32(0)))
        assert not caught.value.fatal
        assert caught.value.cure
    with pytest.raises(LaunchError, match="missing"):
        device.launch(shifted, Launch(0, "missing", (1, 1, 1), (32, 1, 1), ()), ())
    device.launch(shifted, Launch(0, "shifted", (1, 1, 1), (32, 1, 1), (), 128), (address, address, np.int32(8)))
    device.synchronize()


# --- errors -----------------------------------------------------------------------------------------------------------

RESULTS = [
    (np.array([1.0, 2.0, 3.5], np.float32), np.array([1.0, 2.0, 3.0])),
    (np.array([1e-3, 2.0, 3.0], np.float64), np.array([0.0, 2.0, 3.0])),
    (np.array([0.5, 2.0], np.float16), np.array([0.25, 2.0])),
    *(
        (np.array([0.5, -2.0, 0.0, 2.0**-9, 240.0], dtype), np.array([0.25, -2.0, 0.0, 2.0**-9, 256.0]))
        for dtype in NARROW
    ),
    *((np.array([np.nan, 1.0], dtype), np.array([np.nan, 1.25])) for dtype in NARROW),
    (np.array([np.nan, 2.0], np.float32), np.array([1.0, 2.0])),
    (np.array([np.nan, 2.0, np.inf, -np.inf], np.float32), np.array([np.nan, 2.0, np.inf, np.inf])),
    (np.array([7, -2, 3], np.int32), np.array([7, -2, 4], np.int64)),
    (np.array([2**63 + 1, 5], np.uint64), np.array([2**63, 5], np.uint64)),
    (np.array([2**62 + 1, -5], np.int64), np.array([2**62, -5], np.int64)),
    (np.array([4_000_000_000, 5], np.uint32), np.array([4_000_000_000, 6], np.int64)),
]


def test_device_and_host_compute_the_same_error(device, buffer):
    for (right_out, right_ref), size in product(RESULTS, (1, 100_003)):
        if not device.can_compute_error(right_out.dtype.name, right_ref.dtype.name):
            assert device.info.kind != "cuda", "the CUDA device knows these"
            continue
        out, ref = (np.resize(array, max(size, array.size)) for array in (right_out, right_ref))
        where, right = buffer(out.nbytes), buffer(ref.nbytes)
        device.upload(where, out)
        device.upload(right, ref)
        found = device.error(where, out.dtype.name, right, ref.dtype.name, ref.size)
        expected = error_of(out, ref)
        if not np.isfinite(np.square(ref.astype(np.float64)).sum()):
            assert found is None
            continue
        assert found.max == pytest.approx(expected.max, rel=1e-12, abs=0)
        assert found.mean == pytest.approx(expected.mean, rel=1e-9, abs=0)
    if device.can_compute_error("float32", "float64"):  # the error against zeros is left to the host
        device.fill(where, 64, 0)
        device.fill(right, 128, 0)
        assert device.error(where, "float32", right, "float64", 16) is None
