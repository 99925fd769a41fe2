"""Fixtures of the tests on a GPU, which are skipped with the reason if there is none."""

from functools import cache
from pathlib import Path

import pytest

from perfsvc.device import memory as own_kernels
from perfsvc.device.find import find, open_device
from perfsvc.errors import NoDeviceError
from perfsvc.model import Unit
from tests.gpu.commands import compiled

KERNELS = Path(__file__).parent / "kernels.cu"
ENTRIES = ("add", "scale", "reverse", "spin", "stray", "crooked", "mixed", "keep")


@cache
def no_gpu():
    """Return why there is no GPU here, or nothing if there is one."""
    try:
        find(["cuda"])
    except NoDeviceError as error:
        return error.what


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Skip every test of this folder for the same reason if there is no GPU."""
    if reason := no_gpu():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def gpus():
    return find(["cuda"])


@pytest.fixture(scope="session")
def cubin(gpus, tmp_path_factory):
    """The path of a cubin of kernels.cu for the first GPU."""
    path = tmp_path_factory.mktemp("cubin") / "kernels.cubin"
    path.write_bytes(compiled(Unit(KERNELS, ENTRIES), gpus[0].target, tmp_path_factory.mktemp("cache")))
    return path


@pytest.fixture(scope="session")
def helper_kernels(gpus, tmp_path_factory):
    """The compiled helper kernels, with which the first GPU is opened."""
    return compiled(own_kernels.unit("cuda"), gpus[0].target, tmp_path_factory.mktemp("cache"))


@pytest.fixture
def device(gpus, helper_kernels):
    opened = open_device(gpus[0].spec, helper_kernels)
    yield opened
    opened.close()


@pytest.fixture
def times(device):
    """Return the sample times of what a function queues."""

    def taken(sample, count, *, clock="device", cold=True):
        nbytes = 2 * device.info.l2_bytes if cold else 0
        return device.batch(sample, count, clock=clock, evict_bytes=nbytes, blocked=clock == "device").samples_s

    return taken


@pytest.fixture
def module(device, cubin):
    return device.load(cubin.read_bytes())
