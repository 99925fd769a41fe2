"""What every device promises (perfsvc/device/protocol.py), asked of each."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.extra import numpy as arrays

from perfsvc.device.cpu import CpuDevice
from perfsvc.errors import LaunchError
from perfsvc.model import Case, Kind, ReplayRecord

DEVICES = {"cpu": CpuDevice}
"""Makes each device that is put to the test; one that needs a GPU is added as ``pytest.param(..., marks=...)``."""

RECORD = ReplayRecord(Case("vector_add", "plain", (("n", 4),)), Kind.KERNEL, (), (), (), "", 0)


@pytest.fixture(scope="module", params=DEVICES)
def device(request):
    opened = DEVICES[request.param]()
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
