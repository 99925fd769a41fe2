"""The device array cache: arrays are uploaded once and copied within the device from then on."""

import numpy as np
import pytest

from perfsvc.device.memory import HostMemory
from perfsvc.measure.worker.memory import DeviceArrayCache

ONES, TWOS, THREES = (np.full(4, number, np.float32) for number in (1, 2, 3))


class Counting(HostMemory):
    """Counts uploads, allocations and frees."""

    def __init__(self):
        super().__init__()
        self.uploads, self.frees, self.aside = [], 0, 0

    def allocate_untimed(self, nbytes):
        self.aside += nbytes
        return super().allocate(nbytes)

    def upload(self, address, data):
        self.uploads.append(int(data.flat[0]))
        super().upload(address, data)

    def free(self, address):
        self.frees += 1
        super().free(address)


@pytest.fixture
def device():
    return Counting()


def load(device, cache, key, array):
    """Load an array and return what then lies there."""
    target = device.allocate(array.nbytes)
    cache.load(key, array, target)
    return device.view(target, array.dtype.name, array.shape).tolist()


def test_an_array_is_uploaded_once_and_copied_from_then_on(device):
    cache = DeviceArrayCache(device, 1000)
    assert [load(device, cache, "ones", ONES) for _ in range(3)] == [ONES.tolist()] * 3
    assert (device.uploads, device.aside) == ([1], ONES.nbytes)


def test_a_change_of_a_loaded_copy_does_not_change_the_cache(device):
    cache = DeviceArrayCache(device, 1000)
    target = device.allocate(ONES.nbytes)
    cache.load("ones", ONES, target)
    device.fill(target, ONES.nbytes, 0xFF)
    cache.load("ones", ONES, target)
    assert device.view(target, "float32", (4,)).tolist() == ONES.tolist()


def test_the_least_recently_used_array_makes_room(device):
    cache = DeviceArrayCache(device, 2 * ONES.nbytes)
    for key, array in (("ones", ONES), ("twos", TWOS), ("ones", ONES), ("threes", THREES)):
        assert load(device, cache, key, array) == array.tolist()
    assert (device.uploads, device.frees) == ([1, 2, 3], 1)
    load(device, cache, "ones", ONES)
    assert device.uploads == [1, 2, 3]
    load(device, cache, "twos", TWOS)
    assert (device.uploads, device.frees) == ([1, 2, 3, 2], 2)


def test_a_large_array_makes_as_much_room_as_it_needs(device):
    cache = DeviceArrayCache(device, 3 * ONES.nbytes)
    for key, array in (("ones", ONES), ("twos", TWOS), ("large", np.full(12, 5, np.float32))):
        load(device, cache, key, array)
    assert (device.uploads, device.frees) == ([1, 2, 5], 2)


def test_an_array_larger_than_the_budget_is_uploaded_directly():
    for budget in (0, ONES.nbytes - 1):
        device = Counting()
        cache = DeviceArrayCache(device, budget)
        assert [load(device, cache, "ones", ONES) for _ in range(2)] == [ONES.tolist()] * 2
        assert device.uploads == [1, 1]
        assert cache.address("ones", ONES) is None
        assert (device.frees, device.aside) == (0, 0)


def test_an_array_has_one_address_and_its_content_lies_there(device):
    cache = DeviceArrayCache(device, 1000)
    strided = np.arange(8, dtype=np.float32)[::2]
    address = cache.address("strided", strided)
    assert device.view(address, "float32", (4,)).tolist() == [0, 2, 4, 6]
    assert cache.address("strided", strided) == address
    assert cache.address("ones", ONES) != address
