"""What every device promises (perfsvc/device/protocol.py), asked of each."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.extra import numpy as arrays

from perfsvc.build import Binary, Cache, compile_all, toolchain_for
from perfsvc.device.cpu import CpuDevice
from perfsvc.device.fake import FakeDevice
from perfsvc.device.find import find, open_device
from perfsvc.errors import LaunchError, NoDeviceError
from perfsvc.model import BufferArg, Case, Kind, Launch, ReplayRecord, ScalarArg, Unit


def fake(folder):
    script = folder / "script.json"
    script.write_text("{}")
    return FakeDevice(script)


def cuda(folder):
    try:
        (info, *_) = find(["cuda"])
    except NoDeviceError as error:
        pytest.skip(error.what)
    return open_device(info.spec)


DEVICES = {"cpu": lambda folder: CpuDevice(), "fake": fake, "cuda": cuda}
"""Opens each device that is put to the test."""

COMPUTING = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ALL = [*COMPUTING, "fake"]

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


def test_it_describes_itself(device):
    info = device.info
    assert info.kind in {"cuda", "cpu", "fake"}
    assert info.spec.partition(":")[0] == info.kind
    assert info.uuid
    assert info.model
    assert info.target
    assert info.multiprocessors > 0
    assert info == device.info


@pytest.mark.parametrize("nbytes", [1, 4, 255, 256, 1 << 20])
def test_memory_is_aligned_and_apart(device, buffer, nbytes):
    addresses = [buffer(nbytes) for _ in range(4)]
    assert all(address % 256 == 0 for address in addresses)
    ordered = sorted(addresses)
    assert all(low + nbytes <= high for low, high in pairwise(ordered))


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=arrays.arrays(arrays.scalar_dtypes(), arrays.array_shapes(min_dims=0, min_side=0)))
def test_what_is_uploaded_comes_back(device, data):
    address = device.allocate(max(1, data.nbytes))
    out = np.empty_like(data)
    device.upload(address, data)
    device.download(address, out)
    device.free(address)
    assert out.tobytes() == data.tobytes()


def test_a_fill_sets_its_bytes_and_no_others(device, buffer):
    address = buffer(1000)
    device.fill(address, 1000, 7)
    device.fill(address + 100, 300, 0xAB)
    expected = np.full(1000, 7, np.uint8)
    expected[100:400] = 0xAB
    assert np.array_equal(bytes_at(device, address, 1000), expected)


def test_addresses_may_point_into_the_middle(device, buffer):
    address = buffer(64)
    device.fill(address, 64, 0)
    device.upload(address + 16, np.arange(4, dtype=np.int32))
    assert np.array_equal(bytes_at(device, address, 64)[16:32].view(np.int32), np.arange(4))


def test_freed_memory_cannot_be_freed_again(device):
    address = device.allocate(64)
    device.free(address)
    with pytest.raises(LaunchError):
        device.free(address)


def test_more_memory_than_there_is_is_refused(device):
    with pytest.raises(LaunchError, match="memory"):
        device.allocate(1 << 60)


def test_measuring_encloses_the_work_of_a_case(device):
    with device.measuring(RECORD, 0, {}):
        device.synchronize()


@pytest.mark.parametrize("clock", ["device", "host"])
@pytest.mark.parametrize("cold", [True, False])
def test_each_sample_has_its_time(device, buffer, clock, cold):
    address, calls = buffer(1 << 16), []

    def sample():
        calls.append(1)
        device.fill(address, 1 << 16, 0)

    with device.measuring(RECORD, 0, {}):
        times = device.time(sample, 5, clock=clock, cold=cold)
    assert len(times) == 5
    assert all(time > 0 for time in times)
    assert calls


def test_the_stream_is_an_address_that_libraries_take(device):
    assert device.stream >= 0


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
def test_what_a_device_cannot_launch_is_refused_and_it_goes_on(device, buffer, shifted):
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
